//! Commands that go on in the terminal of an editor.

use sandbox::Mode;
use serde_json::{Value, json};
use testkit::server::{Client, run};
use testkit::{Line, Script, call, say};

use super::{setup, terminal, typed_to};

/// A command in the background, in the terminal of an editor that can be typed to; then these calls.
async fn check_background(lines: Vec<Vec<Line>>, test: impl AsyncFnOnce(&mut Client, u64, &Script)) {
    let start = vec![call("shell", r#"{"command":"cat","tty":true,"background":true}"#)];
    let all: Vec<_> = std::iter::once(start).chain(lines).chain([vec![say("done")]]).collect();
    let script = Script::new(all);
    run(setup(&script, Mode::Off), async |server| {
        let (mut client, _, turn) = typed_to(server).await;
        test(&mut client, turn, &script).await;
        client.drain_withdrawn();
        client.catch_up_all().await;
    })
    .await;
}

const TYPES: &str = r#"{"job":"job-1","text":"hi\n"}"#;

/// An editor that hangs keeps no command alive: what is typed is given up when the command is to end.
#[tokio::test]
async fn a_command_that_is_killed_ends_at_once_though_the_editor_hangs_at_what_was_typed() {
    let lines = vec![
        vec![call("job_input", TYPES)],
        // The editor opens this one only when it has what was typed.
        vec![call("shell", r#"{"command":"true"}"#)],
        vec![call("jobs", r#"{"action":"kill","job":"job-1"}"#)],
    ];
    check_background(lines, async |client, turn, script| {
        let (mut waiting, mut second, mut typed) = (None, None, false);
        loop {
            let asked = client.next_call().await;
            let method = asked["method"].as_str().unwrap().to_owned();
            let other = asked["params"]["terminalId"] == "term-2";
            match method.as_str() {
                "terminal/create" if asked["params"]["args"][1] == "true" => second = Some(asked),
                "terminal/write_stdin" => typed = true,
                "terminal/wait_for_exit" if !other => waiting = Some(asked),
                "terminal/kill" => {
                    client.respond(&asked, json!({})).await;
                    client.respond(&waiting.take().unwrap(), json!({ "signal": "SIGTERM" })).await;
                }
                _ => {
                    let answer = terminal(&method, "", &json!({ "exitCode": 0 })).unwrap().unwrap();
                    client.respond(&asked, answer).await;
                }
            }
            if typed && let Some(second) = second.take() {
                client.respond(&second, json!({ "terminalId": "term-2" })).await;
            }
            if method == "terminal/release" && !other {
                break;
            }
        }
        assert_eq!(client.stop_reason(turn).await, "end_turn");
        assert!(script.last_result().contains("job-1: killed"), "{}", script.last_result());
    })
    .await;
}

/// Its person learns of it, as of any other call that it does not answer.
#[tokio::test]
async fn an_editor_that_does_not_take_what_was_typed_is_said_to_be_silent() {
    let wait = r#"{"action":"wait","job":"job-1","seconds":600}"#;
    let lines = vec![vec![call("job_input", TYPES)], vec![call("jobs", wait)]];
    check_background(lines, async |client, turn, script| {
        let mut waiting = None;
        loop {
            let asked = client.next_call().await;
            let method = asked["method"].as_str().unwrap().to_owned();
            match method.as_str() {
                "terminal/wait_for_exit" => waiting = Some(asked),
                "terminal/write_stdin" => break,
                _ => {
                    let answer = terminal(&method, "", &Value::Null).unwrap().unwrap();
                    client.respond(&asked, answer).await;
                }
            }
        }
        tokio::time::pause();
        tokio::time::advance(std::time::Duration::from_secs(31)).await;
        tokio::time::resume();
        let is_notice = |frame: &Value| frame.to_string().contains("The editor did not answer");
        while !client.frames().iter().any(is_notice) {
            client.look("a notice").await;
        }
        client.respond(&waiting.unwrap(), json!({ "exitCode": 0 })).await;
        client.serve(turn, |method, _| terminal(method, "", &json!({ "exitCode": 0 }))).await;
        let told = script.last_result();
        assert!(told.contains("[the input did not arrive: the editor did not answer in time]"), "{told}");
    })
    .await;
}

/// The editor keeps the newest, and that is what the model is told.
#[tokio::test]
async fn a_background_command_that_wrote_more_than_the_editor_keeps_is_not_silent() {
    let wait = r#"{"action":"wait","job":"job-1","seconds":600}"#;
    check_background(vec![vec![call("jobs", wait)]], async |client, turn, script| {
        let (mut waiting, mut looks) = (None, 0);
        loop {
            let asked = client.next_call().await;
            let method = asked["method"].as_str().unwrap().to_owned();
            match method.as_str() {
                "terminal/wait_for_exit" => waiting = Some(asked),
                "terminal/output" => {
                    let (output, truncated) = [("early\n", false), ("the newest\n", true)][looks.min(1)];
                    looks += 1;
                    client.respond(&asked, json!({ "output": output, "truncated": truncated })).await;
                    // The last look comes after the end.
                    if let Some(waiting) = waiting.take() {
                        client.respond(&waiting, json!({ "exitCode": 0 })).await;
                    }
                }
                _ => {
                    let answer = terminal(&method, "", &Value::Null).unwrap().unwrap();
                    client.respond(&asked, answer).await;
                }
            }
            if method == "terminal/release" {
                break;
            }
        }
        assert_eq!(client.stop_reason(turn).await, "end_turn");
        let told = script.last_result();
        assert!(told.ends_with("early\n[earlier output was dropped]\nthe newest\n"), "{told}");
    })
    .await;
}
