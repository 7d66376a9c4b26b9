//! Secrets in a whole turn: what the tools do with them, and that nobody else ever gets to see them.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use guard::SecretRedactor;
use serde_json::json;
use testkit::server::{Setup, run};
use testkit::{Line, Script, call, say};

const HEX: &str = "0123456789abcdef";
const CAPITALS: &str = "ABCDEFGHJKLMNPQRSTUVWXYZ234567";
const LETTERS: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

/// Kinds of secrets: what stands before, what it is made of, how long it is, what stands behind.
const KINDS: [(&str, &str, usize, &str); 25] = [
    ("sk-", LETTERS, 40, ""),
    ("sk-ant-api03-", LETTERS, 60, ""),
    ("AIza", LETTERS, 35, ""),
    ("ghp_", LETTERS, 36, ""),
    ("gho_", LETTERS, 36, ""),
    ("ghs_", LETTERS, 36, ""),
    ("github_pat_", LETTERS, 70, ""),
    ("glpat-", LETTERS, 20, ""),
    ("AKIA", CAPITALS, 16, ""),
    ("ASIA", CAPITALS, 16, ""),
    ("aws_secret_access_key = ", LETTERS, 40, ""),
    ("password=", LETTERS, 12, ""),
    ("\"password\": \"", LETTERS, 16, "\","),
    ("client_secret=", HEX, 32, "&x=1"),
    ("TOKEN: ", HEX, 40, ""),
    ("api_key='", LETTERS, 24, "'"),
    ("Authorization: Bearer ", LETTERS, 30, ""),
    ("xoxb-123456789012-", LETTERS, 24, ""),
    ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIx", LETTERS, 30, ".c2lnbmF0dXJl"),
    ("npm_", LETTERS, 36, ""),
    ("hf_", LETTERS, 34, ""),
    ("sk_live_", LETTERS, 24, ""),
    ("https://hooks.slack.com/services/T00000000/B00000000/", LETTERS, 24, ""),
    ("postgres://me:", LETTERS, 18, "@db.example/x"),
    ("-----BEGIN PRIVATE KEY-----\n", LETTERS, 64, "\n-----END PRIVATE KEY-----"),
];

struct Planted {
    text: String,
    secret: String,
}

/// Made-up secrets, so many of each kind, the same each time.
fn planted(of_each: u64) -> Vec<Planted> {
    let mut state = 20_240_229_u64;
    let mut next = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap() % below
    };
    let mut all = Vec::new();
    for _ in 0..of_each {
        for (before, alphabet, length, behind) in KINDS {
            // One of each sort, so that chance makes no word.
            let sure = if alphabet == LETTERS { "a7Q2" } else { "A2D7" };
            let sure = if alphabet == HEX { "a7d2" } else { sure };
            let rest = (4..length).map(|_| char::from(alphabet.as_bytes()[next(alphabet.len())]));
            let secret: String = sure.chars().chain(rest).collect();
            all.push(Planted { text: format!("{before}{secret}{behind}"), secret });
        }
    }
    all
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found
}

fn contains(bytes: &[u8], wanted: &str) -> bool {
    bytes.windows(wanted.len()).any(|window| window == wanted.as_bytes())
}

/// In pieces of one to seven bytes.
fn in_pieces(text: &str) -> Vec<Line> {
    let mut rest = text;
    let mut lines = Vec::new();
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(rest.len().min(1 + lines.len() % 7));
        lines.push(say(piece));
        rest = after;
    }
    lines
}

fn guarded(script: &Script) -> Setup {
    Setup { redactor: Some(Arc::new(SecretRedactor::new([]).unwrap())), ..Setup::script(script) }
}

#[tokio::test]
async fn two_hundred_planted_secrets_reach_neither_the_client_nor_the_disk() {
    let secrets = planted(8);
    assert_eq!(secrets.len(), 200);
    let text: String = secrets.iter().map(|planted| format!("{}\n", planted.text)).collect();
    let write = call("write", json!({ "path": "keys.txt", "text": text }).to_string());
    let edit = json!({ "path": "keys.txt", "old": secrets[0].text, "new": secrets[1].text });
    let script = Script::new([
        [in_pieces(&text), vec![write]].concat(),
        vec![call("edit", edit.to_string())],
        vec![call("shell", r#"{"command":"cat keys.txt"}"#)],
        in_pieces(&text),
    ]);
    run(guarded(&script).on_disk(), async |server| {
        let mut client = server.client().await;
        client.answer_all("allow_once");
        let session = client.new_session().await;
        assert_eq!(client.prompt(&session, &text).await, "end_turn");

        // The tools and the model worked with what was really said.
        let made = fs::read_to_string(server.workspace().join("keys.txt")).unwrap();
        assert_eq!(made, text.replacen(&secrets[0].text, &secrets[1].text, 1));
        let told = format!("{:?}", script.requests().last().unwrap());
        assert!(told.contains(&secrets[5].secret));

        let frames: Vec<_> = client.frames().iter().map(ToString::to_string).collect();
        let received = frames.concat();
        assert!(received.matches("[REDACTED]").count() > 1000);
        client.hang_up().await;
        server.restart().await;
        let stored: Vec<_> =
            files(&server.folder("state")).iter().map(|file| fs::read(file).unwrap()).collect();
        assert!(stored.iter().any(|bytes| contains(bytes, "[REDACTED]")));
        for planted in &secrets {
            // Neither whole nor its last half.
            let (_, half) = planted.secret.split_at(planted.secret.len() / 2);
            assert!(!received.contains(half), "the client was told {}", planted.text);
            assert!(!stored.iter().any(|bytes| contains(bytes, half)), "the store has {}", planted.text);
        }
    })
    .await;
}

#[tokio::test]
async fn a_title_has_no_secrets_wherever_it_is_shown() {
    let script = Script::new([vec![say("done")]]);
    run(guarded(&script).on_disk(), async |server| {
        let mut client = server.client().await;
        let session = client.new_session().await;
        client.prompt(&session, "log in with ghp_4fGh7Jk2Lm9Np3Qr5St8Uv1Wx6Yz0AbCdEfG").await;
        let title = server.handle(&session).await.snapshot().title.clone().unwrap();
        assert!(title.contains("[REDACTED]") && !title.contains("4fGh7"), "{title}");
        let listed = client.call("session/list", json!({})).await.to_string();
        assert!(listed.contains("[REDACTED]") && !listed.contains("4fGh7"), "{listed}");
        client.hang_up().await;
    })
    .await;
}

#[tokio::test]
async fn an_answer_about_a_secret_counts_here_and_is_written_nowhere() {
    let command = r#"{"command":"echo password=hunter2 >> made"}"#;
    let script = Script::new([vec![call("shell", command)], vec![], vec![call("shell", command)], vec![]]);
    run(guarded(&script), async |server| {
        let mut client = server.client().await;
        let session = client.new_session().await;
        let turn = client.send_prompt(&session, "go").await;
        let ask = client.next_ask().await;
        assert!(!ask.to_string().contains("hunter2"), "{ask}");
        client.answer(&ask, "allow_always").await;
        client.stop_reason(turn).await;
        // The same again is not asked; what is done is done with the secret itself.
        client.prompt(&session, "again").await;
        let made = fs::read_to_string(server.workspace().join("made")).unwrap();
        assert_eq!(made, "password=hunter2\npassword=hunter2\n");
        let frames: String = client.frames().iter().map(ToString::to_string).collect();
        assert!(!frames.contains("hunter2") && frames.contains("not saved"), "{frames}");
        client.hang_up().await;
    })
    .await;
}

#[tokio::test]
async fn what_is_held_back_is_there_when_the_turn_is_cancelled_or_fails() {
    let cancelled = vec![say("the end sk-4fG"), Line::Hang];
    let failed = vec![say("then sk-4fGh7Jk2Lm9Np3Qr5"), testkit::fail("gone: ghp_4fGh7Jk2Lm9Np3Qr5St8")];
    let script = Script::new([cancelled, failed]);
    run(guarded(&script), async |server| {
        let mut client = server.client().await;
        let session = client.new_session().await;
        let turn = client.send_prompt(&session, "go").await;
        client.next_update_of("agent_message_chunk").await;
        client.notify("session/cancel", json!({ "sessionId": session })).await;
        assert_eq!(client.stop_reason(turn).await, "cancelled");
        assert_eq!(client.said(), "the end sk-4fG");
        let turn = client.send_prompt(&session, "again").await;
        client.reply(turn).await.unwrap_err();
        assert!(client.said().ends_with("then sk-[REDACTED]"), "{}", client.said());
        let frames: String = client.frames().iter().map(ToString::to_string).collect();
        assert!(!frames.contains("Lm9Np3Qr5"), "{frames}");
        client.hang_up().await;
    })
    .await;
}
