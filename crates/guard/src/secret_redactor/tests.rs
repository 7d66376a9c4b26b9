//! What is a secret, what only looks like one, and that pieces make no difference.

use std::sync::LazyLock;

use super::*;

mod encoded;
mod split_text;
mod token_kinds;

const KNOWN: &str = "Zq7-known-Value";

static SECRETS: LazyLock<SecretRedactor> =
    LazyLock::new(|| SecretRedactor::new([KNOWN.into(), "sk-mine 00 with spaces".into()]).unwrap());

fn secrets() -> &'static SecretRedactor {
    &SECRETS
}

fn redacted(text: &str) -> String {
    secrets().redact(text).unwrap_or_else(|| text.to_owned())
}

#[test]
fn a_secret_is_taken_out_and_its_kind_stays() {
    let key = "4fGh7Jk2Lm9Np3Qr5St8Uv1Wx6Yz0AbCdEfG";
    for (text, expected) in [
        ("use sk-4fGh7Jk2Lm9Np3Qr now", "use sk-[REDACTED] now"),
        ("sk-ant-api03-abc_DEF-0123456789", "sk-ant-[REDACTED]"),
        ("(sk-proj-abc_DEF-0123456789)", "(sk-proj-[REDACTED])"),
        ("AIzaSyA1234567890abcdefghijklmnopqrstuv", "AIza[REDACTED]"),
        (&format!("ghp_{key} gho_{key}"), "ghp_[REDACTED] gho_[REDACTED]"),
        (&format!("https://x?t=github_pat_{key}&u=1"), "https://x?t=github_pat_[REDACTED]&u=1"),
        ("glpat-aBcDeFgH1234567890xy.", "glpat-[REDACTED]."),
        ("id AKIAIOSFODNN7EXAMPLE,", "id AKIA[REDACTED],"),
        ("ASIAIOSFODNN7EXAMPL2", "ASIA[REDACTED]"),
        (
            "aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY\nnext",
            "aws_secret_access_key = [REDACTED]\nnext",
        ),
        ("password=hunter2", "password=[REDACTED]"),
        ("DB_PASSWORD: 'tr0ub4dor&3'", "DB_PASSWORD: '[REDACTED]'"),
        ("{\"password\": \"hunter2!\", \"a\": 1}", "{\"password\": \"[REDACTED]\", \"a\": 1}"),
        ("mysql --password hunter2 -u me", "mysql --password [REDACTED] -u me"),
        ("client_secret=ab12cd34ef&x=1", "client_secret=[REDACTED]&x=1"),
        ("API_KEY=ab12cd34ef56", "API_KEY=[REDACTED]"),
        ("const TOKEN = \"ab12cd34ef56\";", "const TOKEN = \"[REDACTED]\";"),
        ("//registry/:_authToken=ab12cd34-ef56", "//registry/:_authToken=[REDACTED]"),
        ("Authorization: Bearer abc.DEF-123_456", "Authorization: Bearer [REDACTED]"),
        ("Authorization: Basic dXNlcjpwYXNzd29yZA==", "Authorization: Basic [REDACTED]"),
        ("xoxb-123456789012-abcdefABCDEF", "xoxb-[REDACTED]"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl;", "eyJ[REDACTED];"),
        (&format!("npm_{key}"), "npm_[REDACTED]"),
        (&format!("hf_{key}"), "hf_[REDACTED]"),
        ("sk_live_4eC39HqLyjWDarjtT1zdp7dc", "sk_live_[REDACTED]"),
        (
            "https://hooks.slack.com/services/T00000000/B00000000/XXXXXXXXXXXXXXXXXXXXXXXX",
            "https://hooks.slack.com/services/[REDACTED]",
        ),
        ("postgres://me:s3cr3t@db/x", "postgres://me:[REDACTED]@db/x"),
        ("redis://:pass@host", "redis://:[REDACTED]@host"),
        ("the Zq7-known-Value is", "the [REDACTED] is"),
        ("aZq7-known-Value", "aZq7[REDACTED]"),
        ("sk-mine 00 with spaces", "[REDACTED]"),
        ("\\nghp_4fGh7Jk2Lm9Np3Qr5St8", "\\nghp_[REDACTED]"),
        ("%3Dghp_4fGh7Jk2Lm9Np3Qr5St8", "%3Dghp_[REDACTED]"),
        ("\x1b[01;31mghp_4fGh7Jk2Lm9Np3Qr5St8\x1b[m", "\x1b[01;31mghp_[REDACTED]\x1b[m"),
        ("a title with sk-4fGh7J…", "a title with sk-[REDACTED]…"),
        ("Zq7-known-ValueZq7-known-Value", "[REDACTED][REDACTED]"),
        ("Zq7-known-Valueghp_4fGh7Jk2Lm9Np3Qr5St8", "[REDACTED]ghp_[REDACTED]"),
        // Of several secrets that overlap nothing is left.
        ("https://ghp_4fGh7Jk2Lm9Np3Qr5St8:s3cr3t@host", "https://ghp_[REDACTED]:[REDACTED]@host"),
        ("password=x1-sk-mine 00 with spaces", "password=[REDACTED]"),
    ] {
        let text: &str = text;
        assert_eq!(redacted(text), expected, "{text}");
        assert_eq!(redacted(&redacted(text)), redacted(text), "once is enough: {text}");
    }
}

#[test]
fn a_private_key_is_taken_out_between_its_first_and_last_line() {
    let body = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcw\nggSjAgEAAoIBAQC7";
    let text = format!("-----BEGIN RSA PRIVATE KEY-----\n{body}\n-----END RSA PRIVATE KEY-----\n");
    let clean = "-----BEGIN RSA PRIVATE KEY-----\n[REDACTED]\n-----END RSA PRIVATE KEY-----\n";
    assert_eq!(redacted(&text), clean);
    let spelled = text.replace('\n', "\\n");
    assert_eq!(redacted(&spelled), clean.replace('\n', "\\n"));
    let unended = format!("-----BEGIN PRIVATE KEY-----\n{body}");
    assert_eq!(redacted(&unended), "-----BEGIN PRIVATE KEY-----\n[REDACTED]");
    let public = text.replace("RSA PRIVATE", "PUBLIC");
    assert_eq!(redacted(&public), public);
}

#[test]
fn what_programs_and_people_write_is_left_alone() {
    for text in [
        "token = next_token()",
        "let token = self.tokens[i2];",
        "password: String,",
        "password: Option<String>,",
        "api_key: &str",
        "fn login(password: &str, token: Token2D) -> Secret",
        "connect(password=password1, token=token12)",
        "<div class=\"sk-fading-circle\"><div class=\"sk-circle12 sk-child\">",
        ".sk-cube-grid .sk-cube1 { animation: sk-bounce-delay-2s }",
        "commit 2e57532a9be0d1c2f3a4b5c6d7e8f9a0b1c2d3e4",
        "550e8400-e29b-41d4-a716-446655440000",
        "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk",
        "secret=true",
        "token: <your-token>",
        "api_key=<your-key-0001>",
        "Authorization: Bearer $TOKEN",
        "Authorization: Bearer ${ACCESS_TOKEN_2}",
        "password: ${{ secrets.DB_PASSWORD_1 }}",
        "password={{ db_password_1 }}",
        "password=\"$DB_PASSWORD1\"",
        "PASSWORD=$(pass show db1)",
        "the token 12345678 is a number, the password is long",
        "max_tokens=4096 tokenizer=cl100k_base token_count: 12345678",
        "password: \"Must have at least 8 characters\"",
        "a bearer of 100 good news",
        "https://example.com:8080/a@b",
        "http://localhost:5173",
        "use http://user@host/path",
        "eyJhbGciOiJIUzI1NiJ9",
        "npm_config_registry_and_more_words_1",
        "ASIA PACIFIC, AKIA",
        "if password == other.password1 { return }",
        "secret: config.secrets.first2,",
        "token_file=/run/secrets/token1",
        "password=****** token=xxxxxxxx",
        "\"token\": \"string\", \"secret\": \"my-secret\"",
        "-----BEGIN PRIVATE KEY-----\" is what it begins with",
        "task-4fGh7Jk2Lm9Np3Qr5St8",
    ] {
        assert_eq!(secrets().redact(text), None, "{text}");
    }
}

#[test]
fn fewer_than_one_line_of_a_hundred_is_taken_for_a_secret_in_this_project() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let mut folders = vec![std::path::PathBuf::from(root)];
    let (mut lines, mut wrong) = (0, Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            // What is made by building, and the tests that have secrets planted.
            if name.starts_with('.') || name == "target" || name == "node_modules" || name.contains("secrets")
            {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            if path.ends_with("redact/tests.rs")
                || path.parent().is_some_and(|folder| folder.ends_with("redact/tests"))
            {
                continue;
            }
            let Ok(text) = std::fs::read_to_string(&path) else { continue };
            for line in text.lines() {
                lines += 1;
                wrong.extend(
                    SECRETS_FOR_CORPUS
                        .with(|secrets| secrets.redact(line))
                        .map(|line| format!("{name}: {line}")),
                );
            }
        }
    }
    assert!(lines > 30_000, "{lines}");
    assert!(wrong.len() * 1000 <= lines, "{} of {lines}: {wrong:#?}", wrong.len());
}

thread_local! {
    static SECRETS_FOR_CORPUS: SecretRedactor = SecretRedactor::new([]).unwrap();
}

#[test]
fn json_stays_json_and_strings_are_judged_as_what_they_mean() {
    for (json, expected) in [
        (r#"{"a": 1.50, "b": [true]}"#, None),
        (
            r#"{"command":"curl -H \"Authorization: Bearer abc123def456\""}"#,
            Some(r#"{"command":"curl -H \"Authorization: Bearer [REDACTED]\""}"#),
        ),
        (r#"{"password":"hunter2","n":1e3}"#, Some(r#"{"password":"[REDACTED]","n":1e3}"#)),
        (r#"{"apiSecretKey" : "ab12cd34ef"}"#, Some(r#"{"apiSecretKey" : "[REDACTED]"}"#)),
        (r#"{"t":"sk\u002d4fGh7Jk2Lm9Np3Qr"}"#, Some(r#"{"t":"sk-[REDACTED]"}"#)),
        (
            r#""-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcw\n-----END PRIVATE KEY-----""#,
            Some(r#""-----BEGIN PRIVATE KEY-----\n[REDACTED]\n-----END PRIVATE KEY-----""#),
        ),
        (r#"{"password": "Enter it", "token": "string"}"#, None),
        ("no json password=hunter2 \"", Some("no json password=[REDACTED] \"")),
    ] {
        assert_eq!(secrets().redact_json(json).as_deref(), expected, "{json}");
    }
}

#[test]
fn a_value_may_end_with_a_character_of_several_bytes() {
    for value in ["Vt:ä€😀", "Ä", "T😀", "Tä1€"] {
        for text in [format!("password: {value}"), format!("token: {value}"), format!("curl -u a:{value} x")]
        {
            redacted(&text);
        }
    }
}

#[test]
fn passwords_in_the_files_and_commands_of_many_programs_are_taken_out() {
    for (text, secret) in [
        ("DB_PASS=hunter2x", "hunter2x"),
        ("ansible_ssh_pass=Sommer2024", "Sommer2024"),
        ("pass: hunter2277", "hunter2277"),
        ("\"smtp_pass\": \"hunter2x\"", "hunter2x"),
        ("<password>hunter2x</password>", "hunter2x"),
        ("<db-password>hunter2x</db-password>", "hunter2x"),
        ("machine example.org login me password hunter2x", "hunter2x"),
        ("define('DB_PASSWORD', 'hunter2x');", "hunter2x"),
        ("define( \"DB_PASSWORD\", \"hunter2x\" );", "hunter2x"),
        ("\"auth\": \"bWU6aHVudGVyMng=\"", "bWU6aHVudGVyMng="),
        (
            "PrivateKey = yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=",
            "yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=",
        ),
        (
            "    client-key-data: LS0tLS1CRUdJTiBSU0EgUFJJVkFURSBLRVktLS0tLQ==",
            "LS0tLS1CRUdJTiBSU0EgUFJJVkFURSBLRVktLS0tLQ==",
        ),
        (
            "root:$6$saltsalt$qFmFH.bQmmtXzyBY0s9v7Oicd2z4XSIecDzlB5KiA2:19000:",
            "saltsalt$qFmFH.bQmmtXzyBY0s9v7Oicd2z4XSIecDzlB5KiA2",
        ),
        (
            "me:$2y$10$abcdefghijklmnopqrstuv1234567890ABCDEFGHIJKLMNOPQRSTU",
            "10$abcdefghijklmnopqrstuv1234567890ABCDEFGHIJKLMNOPQRSTU",
        ),
        (
            "https://0123456789abcdef0123456789abcdef01234567@github.com/x/y",
            "0123456789abcdef0123456789abcdef01234567",
        ),
        ("Cookie: sid=a8f5f167f44f4964e6c998de; theme=dark", "sid=a8f5f167f44f4964e6c998de; theme=dark"),
        (
            "?a=b&X-Amz-Signature=0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
            "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
        ),
        (
            "?sv=2022&sig=Zm9vYmFyMTIzNDU2Nzg5MGFiY2RlZmdoaWprbG1ub3A%3D",
            "Zm9vYmFyMTIzNDU2Nzg5MGFiY2RlZmdoaWprbG1ub3A%3D",
        ),
        ("mysql -u root -phunter2x db", "hunter2x"),
        ("mysqldump -h db -p'hunter2x' x", "hunter2x"),
        ("sshpass -p hunter2x ssh me@host", "hunter2x"),
        ("docker login -u me -p hunter2x host", "hunter2x"),
        ("redis-cli -h host -a hunter2x ping", "hunter2x"),
    ] {
        assert_eq!(redacted(text), text.replace(secret, "[REDACTED]"), "{text}");
    }
}

#[test]
fn what_only_looks_like_such_a_password_stays() {
    for text in [
        "PASS: tests/parse1.sh",
        "PASS test_parse_12 (0.3s)",
        "pass: test12",
        "let render_pass = pipeline2",
        "fn first_pass(input2: &str) -> u8 {}",
        "compass = heading1",
        "bypass=always1",
        "if pass == 2 { second_pass(x1) }",
        "let password = password_from(input1)?;",
        "Vec<Token> tokens1",
        "['password', 'address1', 'email2']",
        "login with your password and click",
        "{ \"auth\": \"oauth2\" }",
        "privateKey: Uint8Array",
        "const privateKey = await load(path1)",
        "costs $5 and $6 per month",
        "https://git@github.com/x/y",
        "https://example.org/x@y",
        "cookie: none",
        "pub const SO_USER_COOKIE: c_int = 0x1015ab34;",
        "cookie: u64 = 0x12ab34cd56ef;",
        "Cookie: a header that browsers send, see RFC 6265",
        "mkdir -p build2/x1",
        "ssh -p 2222 host",
        "docker run -p 8080:80 image1",
        "mysql -u root -p db",
        "ls -a folder12",
        "sig=abc",
    ] {
        assert_eq!(redacted(text), text, "{text}");
    }
}
