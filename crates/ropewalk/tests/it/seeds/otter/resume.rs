//! "Resume after disconnect" of otter's document, and what follows it.

use std::io::Write;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::{SERVE, greeted, message, numbers};
use crate::doors::clients::events::follow;
use crate::doors::web::{Answer, Ask, secured};
use crate::seeds::program::{DEADLINE, Program, TOKEN, command, ended, home, http_server, link};

const HTTP: [&str; 5] = ["otter", "serve", "--http", "--port", "0"];

/// "Resume after disconnect": its request and its answer, number by number.
#[test]
fn the_example_of_the_document_is_answered_literally() {
    let (mut otter, session) = greeted(&SERVE);
    for (id, mode) in (2..).zip(["plan", "build", "plan", "build", "plan"]) {
        otter.call(id, "session/setMode", &json!({ "sessionId": session, "mode": mode }));
    }
    let params = json!({ "sessionId": session, "sinceEventId": 2 });
    let (again, answer) = otter.call(7, "session/resume", &params);
    assert_eq!(numbers(&again), [3, 4, 5]);
    let expected = json!({ "sessionId": session, "replayed": 3, "lastEventId": 5, "truncated": false });
    assert_eq!(answer, json!({ "jsonrpc": "2.0", "id": 7, "result": expected }));
    assert!(session.as_str().unwrap().starts_with("otter-"), "{session}");
}

/// "Resume after disconnect": over HTTP it is the header.
#[test]
fn over_http_a_client_goes_on_after_its_last_event_id() {
    let server = http_server(&home(), "chimera", &HTTP, "OTTER_SERVER_TOKEN");
    let new = Ask::post("/session", "{}").token(TOKEN).send(&server);
    assert_eq!(new.status, 201, "{}", new.error());
    let session = new.json()["session_id"].as_str().unwrap().to_owned();
    let sent =
        Ask::post(&format!("/session/{session}/message"), r#"{"text":"list"}"#).token(TOKEN).send(&server);
    assert_eq!(sent.status, 202);
    let events = |since: Option<u64>| {
        let mut ask = Ask::get(&format!("/session/{session}/events")).token(TOKEN);
        if let Some(since) = since {
            ask = ask.header("last-event-id", &since.to_string());
        }
        let (send, heard) = sync_channel(1 << 10);
        assert_eq!(follow(server.address(), &ask, move |event| drop(send.send(event))).0, 200);
        let mut seen = Vec::new();
        loop {
            let event = heard.recv_timeout(DEADLINE).unwrap();
            let ended = event.name.as_deref() == Some("result");
            seen.push((event.id.unwrap().parse::<u64>().unwrap(), event.name.unwrap(), event.data));
            if ended {
                return seen;
            }
        }
    };
    let all = events(None);
    assert_eq!(all[0].0, 1);
    assert_eq!(events(Some(2)), all[2..]);
    // At or above the latest id nothing is told again: what comes is what is new.
    let mut latest = all.last().unwrap().0;
    for beyond in [0, 1, 1000] {
        let ask = Ask::get(&format!("/session/{session}/events")).token(TOKEN);
        let ask = ask.header("last-event-id", &(latest + beyond).to_string());
        let (send, heard) = sync_channel(1 << 10);
        assert_eq!(follow(server.address(), &ask, move |event| drop(send.send(event))).0, 200);
        let title = format!("{beyond} beyond the latest");
        let renamed = Ask::new("PATCH", &format!("/sessions/{session}"))
            .token(TOKEN)
            .header("content-type", "application/json")
            .body(json!({ "title": title }).to_string().as_bytes());
        assert_eq!(renamed.send(&server).status, 200);
        let first = heard.recv_timeout(DEADLINE).unwrap();
        assert_eq!(first.data["data"]["title"], title, "{:?} {}", first.name, first.data);
        latest += 1;
        assert_eq!(first.id, Some(latest.to_string()));
    }
}

/// "Event ids", "Cursor edge cases".
#[test]
fn a_client_resumes_at_any_cursor() {
    let (mut otter, session) = greeted(&SERVE);
    let (told, _) = otter.call(3, "session/message", &message(&session, "list"));
    let last = told.len() as u64;
    assert_eq!(numbers(&told), (1..=last).collect::<Vec<_>>());
    let mut id = 3;
    let mut resume = |params: Value| {
        id += 1;
        let (again, answer) = otter.call(id, "session/resume", &params);
        (again, answer["result"].clone())
    };
    let (again, answer) = resume(json!({ "sessionId": session, "sinceEventId": 2 }));
    assert_eq!(again, told[2..], "strictly greater, in order, in the same shape");
    let expected =
        json!({ "sessionId": session, "replayed": last - 2, "lastEventId": last, "truncated": false });
    assert_eq!(answer, expected);
    for everything in [json!(0), json!(-5), json!("7"), json!(1.5), Value::Null] {
        let (again, answer) = resume(json!({ "sessionId": session, "sinceEventId": everything }));
        assert_eq!((again.len() as u64, &answer["replayed"]), (last, &json!(last)), "{everything}");
    }
    assert_eq!(resume(json!({ "sessionId": session })).0, told, "omitted");
    for nothing in [last, last + 1, last + 1000] {
        let (again, answer) = resume(json!({ "sessionId": session, "sinceEventId": nothing }));
        assert!(again.is_empty(), "{nothing}: {again:?}");
        let expected =
            json!({ "sessionId": session, "replayed": 0, "lastEventId": last, "truncated": false });
        assert_eq!(answer, expected, "{nothing}");
    }
}

/// "Bounded history": 1024, or what the variable says. For programs that embed a server it is an argument
/// (`crates/embed/tests/it/options.rs`).
#[test]
fn the_last_1024_updates_are_kept_or_as_many_as_the_variable_says() {
    let replayed = |otter: &mut Program, id: u64, session: &Value, since: u64| {
        let (again, answer) =
            otter.call(id, "session/resume", &json!({ "sessionId": session, "sinceEventId": since }));
        let answer = &answer["result"];
        assert_eq!(answer["replayed"], again.len());
        (again.len() as u64, answer["lastEventId"].as_u64().unwrap(), answer["truncated"] == true)
    };
    let (mut otter, session) = greeted(&SERVE);
    otter.call(3, "session/message", &message(&session, "stream 1100 10"));
    let (kept, last, truncated) = replayed(&mut otter, 4, &session, 1);
    assert_eq!((kept, truncated), (1024, true), "of {last}");
    assert_eq!(replayed(&mut otter, 5, &session, last - 1024), (1024, last, false));
    assert_eq!(replayed(&mut otter, 6, &session, last - 1), (1, last, false));
    let home = Arc::clone(&otter.home);
    otter.close();
    let few = |home: &TempDir| {
        let mut few = command(&link(home, "chimera"), home, &SERVE);
        few.env("OTTER_ACP_DEFAULT_HISTORY_SIZE", "10");
        few
    };
    let mut otter = Program::run(&home, few(&home));
    otter.call(1, "initialize", &json!({}));
    assert_eq!(replayed(&mut otter, 2, &session, 1), (10, last, true));
    let mut wrong = command(&link(&home, "chimera"), &home, &SERVE);
    wrong.env("OTTER_ACP_DEFAULT_HISTORY_SIZE", "many").stdin(std::process::Stdio::null());
    assert_eq!(wrong.output().unwrap().status.code(), Some(2));
}

/// "Capability advertisement": the later form, in the same answer; version 2 for who asks for it.
#[test]
fn the_handshake_has_both_forms() {
    let mut otter = Program::named(&home(), "chimera", &SERVE);
    let advertised = json!({
        "promptCapabilities": {"text": true},
        "sessionCapabilities": {"cancel": true, "resume": true},
        "toolApproval": true,
        "eventIds": true,
    });
    for (id, (params, version)) in (1..).zip([
        (json!({}), json!("0.1")),
        (json!({ "protocolVersion": 2 }), json!(2)),
        (json!({ "protocolVersion": 1 }), json!("0.1")),
        (json!({ "protocolVersion": "0.1" }), json!("0.1")),
    ]) {
        let (_, hello) = otter.call(id, "initialize", &params);
        assert_eq!(hello["result"]["protocolVersion"], version, "{params}");
        assert_eq!(hello["result"]["agentCapabilities"], advertised, "{params}");
    }
}

/// "If the client's `sinceEventId` cursor is older than the oldest retained id": here only where something in between is gone.
#[test]
fn differs_truncated_says_that_something_was_missed() {
    let home = home();
    let mut few = command(&link(&home, "chimera"), &home, &SERVE);
    few.env("OTTER_ACP_DEFAULT_HISTORY_SIZE", "3");
    let mut otter = Program::run(&home, few);
    otter.call(1, "initialize", &json!({}));
    let (_, new) = otter.call(2, "session/new", &json!({}));
    let session = &new["result"]["sessionId"];
    let told = |otter: &mut Program, id: u64, since: u64| {
        let params = json!({ "sessionId": session, "sinceEventId": since });
        otter.call(id, "session/resume", &params).1["result"]["truncated"] == true
    };
    assert!(!told(&mut otter, 3, 0), "there is nothing yet");
    for (id, mode) in (4..).zip(["plan", "build", "plan"]) {
        otter.call(id, "session/setMode", &json!({ "sessionId": session, "mode": mode }));
    }
    assert!(!told(&mut otter, 7, 0), "0 is older than the oldest, 1, and nothing is missed");
    otter.call(8, "session/setMode", &json!({ "sessionId": session, "mode": "build" }));
    assert!(told(&mut otter, 9, 0), "1 is gone");
    assert!(!told(&mut otter, 10, 1), "1 is older than the oldest, 2, and nothing is missed");
}

/// Every request over HTTP needs the token, also from this machine, and it has at least 16 characters.
#[test]
fn differs_http_asks_for_a_token() {
    let short = home();
    let mut refused = command(&link(&short, "chimera"), &short, &HTTP);
    refused.env("OTTER_SERVER_TOKEN", "fifteen-letters").stdin(std::process::Stdio::null());
    let refused = refused.output().unwrap();
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("16"), "{refused:?}");
    let server = http_server(&home(), "chimera", &HTTP, "OTTER_SERVER_TOKEN");
    assert_eq!(Ask::post("/session", "{}").bare().send(&server).status, 401);
    assert_eq!(Ask::post("/session", "{}").token("another-token-0123456789").send(&server).status, 401);
    assert_eq!(Ask::post("/session", "{}").token(TOKEN).send(&server).status, 201);
}

/// "Transport security": an option of the HTTP server alone, with which it is spoken to over TLS and in no other way.
#[test]
fn the_http_server_is_spoken_to_over_tls() {
    let home = home();
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let (certificate, key) = (home.path().join("cert.pem"), home.path().join("key.pem"));
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let files = ["--tls-cert", certificate.to_str().unwrap(), "--tls-key", key.to_str().unwrap()];
    let server = http_server(&home, "chimera", &[&HTTP[..], &files].concat(), "OTTER_SERVER_TOKEN");
    assert!(server.url.starts_with("https://127.0.0.1:"), "{}", server.url);
    let ask = |ask: Ask| {
        let mut secure = secured(server.connect(), made.cert.der().clone());
        secure.write_all(&ask.token(TOKEN).bytes(server.port)).unwrap();
        Answer::read(&mut secure)
    };
    let began = Instant::now();
    while ask(Ask::get("/health")).status != 200 {
        assert!(began.elapsed() < DEADLINE, "it does not get ready");
        std::thread::sleep(Duration::from_millis(20));
    }
    let new = ask(Ask::post("/session", "{}"));
    assert_eq!(new.status, 201, "{}", new.error());
    assert!(new.json()["session_id"].as_str().unwrap().starts_with("otter-"));
    let mut plain = server.connect();
    plain.write_all(&Ask::get("/health").bytes(server.port)).unwrap();
    assert_eq!(Answer::read(&mut plain).json()["error"], "tls_required");
    let stdio = ended(&home, "chimera", &[&SERVE[..], &files].concat());
    assert_eq!(stdio.code, 2, "there is nothing to protect on standard input: {}", stdio.err);
}

/// There is no certificate but the person's own, so `--tls` is the two files of it.
#[test]
fn differs_tls_is_a_certificate_and_its_key() {
    let home = home();
    for (more, named) in [(&["--tls"][..], "--tls-"), (&["--tls-cert", "a.pem"], "--tls-key")] {
        let refused = ended(&home, "chimera", &[&HTTP[..], more].concat());
        assert_eq!(refused.code, 2, "{more:?}: {}", refused.err);
        assert!(refused.err.contains(named), "{more:?}: {}", refused.err);
        assert!(!refused.err.contains("-- --tls"), "that would start a program: {}", refused.err);
    }
}

/// A program that has the session in memory looks whether another one went on with it.
#[test]
fn what_another_process_did_is_told_by_resume_and_by_load() {
    let home = home();
    let mut otter = Program::named(&home, "chimera", &SERVE);
    otter.call(1, "initialize", &json!({}));
    let session = otter.call(2, "session/new", &json!({})).1["result"]["sessionId"].clone();
    let own = otter.call(3, "session/message", &message(&session, "list")).0.len() as u64;
    let elsewhere = |text: &str| {
        ended(&home, "ropewalk", &["run", "--resume", session.as_str().unwrap(), text]).with(0);
    };
    elsewhere("stream 600 1");
    let missed = json!({ "sessionId": session, "sinceEventId": own });
    let (told, answer) = otter.call(4, "session/resume", &missed);
    let last = answer["result"]["lastEventId"].as_u64().unwrap();
    // What was missed may come before, as it does to every client that is attached.
    assert!(numbers(&told).ends_with(&(own + 1..=last).collect::<Vec<_>>()), "{:?}", numbers(&told));
    assert!(last > own + 600, "{answer}");
    elsewhere("list");
    let told = numbers(&otter.call(5, "session/load", &json!({ "sessionId": session })).0);
    let newest = *told.last().unwrap();
    assert!(newest > last && told.ends_with(&(1..=newest).collect::<Vec<_>>()), "{told:?}");
}
