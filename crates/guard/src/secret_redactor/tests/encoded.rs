//! Known values in other encodings, and what only looks like one.

use std::fmt::Write as _;

use super::*;

const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
/// Has signs that are written differently in each form.
const AWKWARD: &str = "p?~>ä \"/\\+%&k1";

static AWKWARD_SECRETS: LazyLock<SecretRedactor> =
    LazyLock::new(|| SecretRedactor::new([AWKWARD.into()]).unwrap());

/// As `base64` writes it, of its own making: what is tested must not be what tests.
fn base64(bytes: &[u8]) -> String {
    let mut out = String::new();
    for three in bytes.chunks(3) {
        let padded = [three[0], *three.get(1).unwrap_or(&0), *three.get(2).unwrap_or(&0), 0];
        let number = u32::from_be_bytes(padded) >> 8;
        for index in 0..4 {
            let six = usize::try_from(number >> (18 - 6 * index) & 63).unwrap();
            out.push(if index <= three.len() { char::from(LETTERS[six]) } else { '=' });
        }
    }
    out
}

fn url_safe(base64: &str) -> String {
    base64.replace('+', "-").replace('/', "_")
}

fn percent(text: &str, stays: impl Fn(u8) -> bool, upper: bool) -> String {
    text.bytes().fold(String::new(), |mut out, byte| {
        match () {
            () if stays(byte) => out.push(char::from(byte)),
            () if upper => write!(out, "%{byte:02X}").unwrap(),
            () => write!(out, "%{byte:02x}").unwrap(),
        }
        out
    })
}

/// All at once and a byte at a time.
#[track_caller]
fn check(secrets: &SecretRedactor, text: &str, expected: &str) {
    assert_eq!(secrets.redact(text).as_deref().unwrap_or(text), expected, "{text}");
    let mut stream = secrets.stream();
    let mut joined = String::new();
    for c in text.chars() {
        match stream.push(c.encode_utf8(&mut [0; 4])) {
            engine::RedactedPiece::Unchanged => joined.push(c),
            engine::RedactedPiece::Text(text) => joined.push_str(&text),
        }
    }
    joined.extend(stream.pause());
    assert_eq!(joined, expected, "one at a time: {text}");
}

#[test]
fn a_known_value_is_taken_out_of_base64_wherever_it_stands_in_it() {
    for secret in [KNOWN, AWKWARD, "sixteen bytes 16", "seventeen bytes 1", "exactly8"] {
        let secrets = SecretRedactor::new([secret.to_owned()]).unwrap();
        for before in ["", "u", "us", "use", "user:", "Username=me&p="] {
            for behind in ["", "\n", "&x", "&xy", " and more"] {
                let whole = base64(format!("{before}{secret}{behind}").as_bytes());
                for text in [whole.clone(), whole.trim_end_matches('=').to_owned(), url_safe(&whole)] {
                    let clean =
                        secrets.redact(&text).unwrap_or_else(|| panic!("{before}{secret}{behind}: {text}"));
                    // In the middle of a word three letters stay; at each end a letter is shared with the neighbour.
                    let letters = text.len() - (clean.len() - REDACTED.len());
                    assert!(letters >= secret.len() * 4 / 3 - 5, "{clean} of {text}");
                    check(&secrets, &format!("{text}, and"), &format!("{clean}, and"));
                    if before.is_empty() && behind.is_empty() {
                        assert_eq!(clean, REDACTED);
                    }
                }
            }
        }
    }
}

#[test]
fn the_header_of_a_request_and_lines_that_are_broken_are_no_hiding_place() {
    let header = base64(format!("me:{KNOWN}").as_bytes());
    check(
        secrets(),
        &format!("curl -H 'Authorization: Basic {header}'"),
        "curl -H 'Authorization: Basic [REDACTED]'",
    );
    check(
        secrets(),
        &format!("auth = \"{header}\""),
        "auth = \"bWU6Wn[REDACTED]\"".replace("Wn[", "WnE[").as_str(),
    );
    let long = "Zq7-".repeat(40);
    let secrets = SecretRedactor::new([long.clone()]).unwrap();
    let encoded = base64(long.as_bytes());
    for (end, indent) in [("\n", ""), ("\r\n", ""), ("\n", "    ")] {
        let lines: Vec<_> = encoded.as_bytes().chunks(76).map(|line| str::from_utf8(line).unwrap()).collect();
        let wrapped = lines.join(&format!("{end}{indent}"));
        check(&secrets, &format!("{indent}{wrapped}{end}end"), &format!("{indent}[REDACTED]{end}end"));
    }
}

#[test]
fn a_known_value_is_taken_out_of_hexadecimal_digits() {
    for secret in [KNOWN, AWKWARD] {
        let secrets = SecretRedactor::new([secret.to_owned()]).unwrap();
        let hex = percent(secret, |_| false, false).replace('%', "");
        check(&secrets, &format!("x {hex} y"), "x [REDACTED] y");
        check(&secrets, &format!("x {} y", hex.to_uppercase()), "x [REDACTED] y");
        check(&secrets, &format!("x 00ff{hex}00 y"), &format!("x 00ff{}[REDACTED]00 y", &hex[..3]));
    }
}

#[test]
fn a_known_value_is_taken_out_of_addresses_and_forms() {
    let unreserved = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~');
    let component = |byte: u8| unreserved(byte) || matches!(byte, b'!' | b'\'' | b'(' | b')' | b'*');
    let secrets = &*AWKWARD_SECRETS;
    for upper in [true, false] {
        for text in [
            percent(AWKWARD, unreserved, upper),
            percent(AWKWARD, component, upper),
            percent(AWKWARD, |_| false, upper),
            percent(AWKWARD, |byte| byte.is_ascii_alphanumeric(), upper),
            percent(AWKWARD, |byte| byte != b'%' && byte != b' ' && byte.is_ascii(), upper),
            // `+` for a space, and then it is escaped itself.
            percent(AWKWARD, unreserved, upper).replace("%20", "+"),
        ] {
            check(secrets, &format!("?p={text}&q=100%"), "?p=[REDACTED]&q=100%");
        }
    }
    let encoded = percent(&base64(AWKWARD.as_bytes()), unreserved, true);
    assert!(encoded.contains('%'), "{encoded}");
    check(secrets, &format!("?p={encoded}&q"), "?p=[REDACTED]&q");
}

#[test]
fn a_known_value_is_taken_out_of_json_that_is_shown_as_text() {
    let secrets = &*AWKWARD_SECRETS;
    let plain = serde_json::Value::from(AWKWARD).to_string();
    let ascii = plain.replace('ä', "\\u00e4");
    let web =
        ascii.replace('/', "\\/").replace('>', "\\u003e").replace('&', "\\u0026").replace('+', "\\u002B");
    for text in [&plain, &ascii, &web] {
        check(secrets, &format!("{{\"a\":{text},\"b\":\"\\n\"}}"), "{\"a\":\"[REDACTED]\",\"b\":\"\\n\"}");
    }
    let pair = SecretRedactor::new(["two 😀 words".to_owned()]).unwrap();
    check(&pair, "\"two \\ud83d\\ude00 words\"", "\"[REDACTED]\"");
}

#[test]
fn what_is_not_the_value_stays() {
    let secrets = SecretRedactor::new([KNOWN.to_owned(), "short".to_owned(), "%41%42%4".to_owned()]).unwrap();
    for text in [
        "short c2hvcnQ= 73686f7274 %73%68%6f%72%74",
        "Zq7-known-Valu WnE3LWtub3duLVZhbH 5a71372d6b6e6f776e2d56616c75",
        "zq7-KNOWN-value wne3lwtub3dulvzhbhvl",
        "%5A%71%37%2d%6b%6E%6F%77%6E%2D%56%61%6C%75",
        "Zq7\\u002dknown\\u002dValu",
        "Zq7-known- Value Zq7 -known-Value",
        "100% of %zz, C:\\users\\new\\u12, \\ud83d alone, %",
        "\\u00",
        "%4",
    ] {
        check(&secrets, text, text);
    }
}

#[test]
fn bytes_with_a_known_value_in_them_are_known() {
    let file = |text: &str| secrets().is_in_base64(&base64(text.as_bytes()));
    assert!(
        file("PASSWORD=Zq7-known-Value\n") && file("x Zq7-known-Value") && file("sk-mine 00 with spaces")
    );
    assert!(!file("PASSWORD=none\n") && !file(""));
}
