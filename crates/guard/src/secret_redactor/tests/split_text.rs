//! Text in pieces: the result is the same as for the whole text, and little is held back.

use engine::RedactedPiece;
use proptest::prelude::*;

use super::*;

#[test]
fn only_what_may_become_a_secret_is_held() {
    let held = |text: &str| in_pieces(secrets(), &[text, ""]).1;
    for text in [
        "",
        "words",
        "This is a sentence that ends in tokens",
        "the password",
        "password =",
        "let x = a",
        "https://exam",
        "ghp",
        "gh",
        "class=\"sk-fading-circle\"",
        "Bearer ",
        "token = next_token(",
    ] {
        assert_eq!(held(text), 0, "{text}");
    }
    for (text, bytes) in [
        ("here: sk-", 3),
        ("sk-abc", 6),
        ("password=hun", 3),
        ("ghp_0", 5),
        ("://me:pw", 2),
        ("Bearer x", 1),
        ("a Z", 1),
        ("the Zq7-kno", 7),
        ("the Zq7-known-Value", 0),
        ("the WnE3", 4),
        ("the dXNlcjpacTcta2", 4),
        ("the dXNlcjpac", 0),
        ("the Zq7%2D", 6),
        ("100%", 1),
        ("aZq7-", 1),
        ("aZq7", 0),
        ("eyJh", 4),
        ("-----BEGIN PRIVATE KEY-----\nMII", 3),
    ] {
        assert_eq!(held(text), bytes, "{text}");
    }
}

/// Everything as it is let out when it comes in these pieces, and the most that was held before the end.
fn in_pieces(secrets: &SecretRedactor, pieces: &[&str]) -> (String, usize) {
    let mut stream = SecretStream::new(Arc::clone(&secrets.0));
    let (mut out, mut most) = (String::new(), 0);
    for piece in pieces {
        push(&mut stream, piece, &mut out);
        most = most.max(stream.held());
    }
    out.extend(stream.pause());
    (out, most)
}

fn push(stream: &mut SecretStream, piece: &str, out: &mut String) {
    match stream.push(piece) {
        RedactedPiece::Unchanged => out.push_str(piece),
        RedactedPiece::Text(text) => out.push_str(&text),
    }
}

/// The text in pieces of these sizes, over and over.
fn cut<'a>(text: &'a str, sizes: &[usize]) -> Vec<&'a str> {
    let mut pieces = Vec::new();
    let mut rest = text;
    for size in sizes.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (piece, after) = rest.split_at(rest.ceil_char_boundary(*size));
        pieces.push(piece);
        rest = after;
    }
    pieces
}

/// Values that are hard to find: with signs that escape, of one letter, with a mark and the value of it inside.
static NASTY: LazyLock<SecretRedactor> = LazyLock::new(|| {
    let values =
        [KNOWN, "sk-mine 00 with spaces", "%ab\"c/d😀äA", "aaaaaaaa", "token=abcd1234 xyz", "xyz token: q1"];
    SecretRedactor::new(values.map(str::to_owned)).unwrap()
});

/// Secrets, parts of them and what only looks like one.
const PLANTED: &[&str] = &[
    "sk-4fGh7Jk2Lm9Np3Qr",
    "ghp_4fGh7Jk2Lm9Np3Qr5St8",
    "AKIAIOSFODNN7EXAMPLE",
    "password=hunter2",
    "\"api_key\": \"ab12cd34ef\"",
    "--token ab12cd34ef ",
    "Bearer abc123def456",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0",
    "xoxb-123456789012-abc",
    "DB_PASS=hunter2x",
    "pass: hunter2277",
    "<password>hunter2x</password>",
    "login me password hunter2x",
    "define('DB_PASSWORD', 'hunter2x')",
    "\"auth\": \"bWU6aHVudGVyMng=\"",
    "Cookie: sid=a8f5f167f44f4964e6c998de; a=b",
    "https://0123456789abcdef0123456789abcdef@host",
    "root:$6$saltsalt$qFmFH.bQmmtXzyBY0s9v7Oicd2z4",
    "mysql -phunter2x",
    "sshpass -p hunter2x",
    "mysql",
    " -p",
    "pass",
    "_",
    "postgres://me:s3cr3t@db",
    "Zq7-known-Value",
    "sk-mine 00 with spaces",
    "sk-mine 00",
    "Zq7-kn",
    // The same in base64, at each place of three, in hexadecimal digits and escaped.
    "WnE3LWtub3duLVZhbHVl",
    "dXNlcjpacTcta25vd24tVmFsdWU=",
    "dXNlcjE6WnE3LWtub3duLVZhbHVl",
    "c2stbWluZSAwMCB3aXRo\n  IHNwYWNlcw==",
    "5a71372d6b6e6f776e2d56616c7565",
    "5A71372D6B6E6F776E2D56616C7565",
    "%5A%71%37%2d%6b%6E%6F%77%6E%2D%56%61%6C%75%65",
    "Zq7%2Dknown%2dValue",
    "sk-mine+00+with%20spaces",
    "sk\\u002dmine 00 with\\u0020spaces",
    "%ab\\\"c\\/d\\ud83d\\ude00\\u00e4%41",
    "%25ab%22c%2Fd%F0%9F%98%80%C3%A4%41",
    "Z%717-known-Value",
    "W\r\n nE3LWtub3duLVZhbHVl",
    "WnE3L\nWtub3duLVZhbHVl",
    "a\\u0061aaaaaa",
    "aaaaaaa",
    "aaaaaaaaa",
    "token=abcd1",
    "token=abcd1234 xyz",
    "%",
    "\\",
    "\\u00",
    "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcw\n-----END PRIVATE KEY-----",
    "sk-4fGh…",
    "token = next_token()",
    "sk-fading-circle",
    "https://a.b:80/c",
    "secret",
    "token: ",
    "\\n",
    "%3D",
    "\x1b[31m",
    "ä€😀",
    " ",
    "\n",
    "\"",
    "=",
    "-",
    "_",
    "a",
    "@",
    ":",
];

fn fragment() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => prop::sample::select(PLANTED.to_vec()).prop_map(str::to_owned),
        1 => "[a-zA-Z0-9 .,:=_@/'-]{0,12}",
    ]
}

proptest! {
    // With PROPTEST_CASES for a long run.
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases.max(512), ..ProptestConfig::default() })]

    #[test]
    fn pieces_of_any_size_give_what_the_whole_gives(
        fragments in prop::collection::vec(fragment(), 0..14),
        sizes in prop::collection::vec(1_usize..9, 1..40),
    ) {
        let text = fragments.concat();
        let whole = NASTY.redact(&text).unwrap_or_else(|| text.clone());
        for sizes in [&sizes[..], &[1]] {
            let (joined, _) = in_pieces(&NASTY, &cut(&text, sizes));
            prop_assert_eq!(&joined, &whole);
        }
    }

    /// A pause lets out what is not known for a secret by then, and nothing that comes after.
    #[test]
    fn after_a_pause_the_rest_of_a_secret_is_still_taken_out(
        fragments in prop::collection::vec(fragment(), 1..8),
        sizes in prop::collection::vec(1_usize..9, 1..40),
        pause in any::<prop::sample::Index>(),
    ) {
        let text = fragments.concat();
        let (before, after) = text.split_at(text.floor_char_boundary(pause.index(text.len() + 1)));
        let mut stream = SecretStream::new(Arc::clone(&NASTY.0));
        let (mut first, mut second) = (String::new(), String::new());
        cut(before, &sizes).into_iter().for_each(|piece| push(&mut stream, piece, &mut first));
        first.extend(stream.pause());
        cut(after, &sizes).into_iter().for_each(|piece| push(&mut stream, piece, &mut second));
        second.extend(stream.pause());
        prop_assert_eq!(&first, &NASTY.redact(before).unwrap_or_else(|| before.to_owned()));
        let whole = NASTY.redact(&text).unwrap_or_else(|| text.clone());
        let rest = second.strip_prefix(REDACTED).unwrap_or(&second);
        prop_assert!(whole.ends_with(rest), "{:?} and then {:?}, the whole {:?}", first, second, whole);
    }
}

#[test]
fn what_is_held_is_bounded_whatever_comes() {
    for beginning in
        ["sk-", "password='", "Bearer ", "eyJ", "postgres://a:", "-----BEGIN PRIVATE KEY-----\n", "ghp_"]
    {
        let text = format!("{beginning}{}", "a1B2".repeat(20_000));
        let pieces: Vec<_> =
            (0..text.len()).step_by(501).map(|at| &text[at..text.len().min(at + 501)]).collect();
        let (joined, most) = in_pieces(secrets(), &pieces);
        assert!(most <= (16 << 10), "{beginning}: {most}");
        assert_eq!(joined, redacted(&text));
    }
}
