//! "Audit": what is done over ACP has the rows that the command line has for it.

use std::collections::BTreeMap;
use std::io::Read;
use std::process::Stdio;
use std::sync::Arc;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{STDIO, greeted, is_delta, post, served, stream, until};
use crate::command_output::CommandOutput;
use crate::seeds::program::{DEADLINE, Program, command, ended, home, link};

/// Every row about a session, by sessions in their order.
fn rows_of_sessions(home: &TempDir) -> Vec<Vec<Value>> {
    let shown = ended(home, "ropewalk", &["audit", "show", "--json"]).with(0).json();
    let mut order = Vec::new();
    let mut sessions: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for row in shown["rows"].as_array().unwrap() {
        if row["resource_type"] != "session" || row["event_type"] == "acp.initialize" {
            continue;
        }
        let id = row["resource_id"].as_str().unwrap().to_owned();
        if !order.contains(&id) {
            order.push(id.clone());
        }
        sessions.entry(id).or_default().push(row.clone());
    }
    order.iter().map(|id| sessions.remove(id).unwrap()).collect()
}

/// Rows without what is another one each time (times, the chain, ids, and `seq`, which numbers the events of a session) and
/// without the name of the client, which is a difference of its own.
fn without_who(rows: &[Value]) -> Vec<Value> {
    let plain = |row: &Value| {
        let mut row = row.clone();
        for name in ["timestamp", "hmac", "prev_hmac", "file", "line", "resource_id"] {
            row.as_object_mut().unwrap().remove(name);
        }
        for name in ["elapsed_ms", "seq", "call"] {
            row["details"].as_object_mut().unwrap().remove(name);
        }
        for who in ["client", "run"] {
            for field in ["/details/peer", "/actor"] {
                if let Some(value) = row.pointer_mut(field).filter(|value| *value == who) {
                    *value = json!("WHO");
                }
            }
        }
        row
    };
    rows.iter().map(plain).collect()
}

fn kinds(rows: &[Value]) -> Vec<&str> {
    rows.iter().map(|row| row["event_type"].as_str().unwrap()).collect()
}

/// One turn by the bridge and the same by the command line: the rows of both.
fn audited() -> (Arc<TempDir>, [Vec<Value>; 2]) {
    let home = home();
    let mut bernstein = Program::named(&home, "bernstein", &STDIO);
    bernstein.call(1, "prompt", &json!({ "prompt": "run echo hi > made; true", "mode": "auto" }));
    until(&mut bernstein, |frame| is_delta(frame, "turn_ended"));
    bernstein.close();
    ended(&home, "ropewalk", &["run", "--approval", "full", "run echo hi > made; true"]).with(0);
    let both = rows_of_sessions(&home).try_into().unwrap();
    (home, both)
}

/// The same but for time, chain, numbers and who it was. The last row of the command line's is a difference of its own.
#[test]
fn the_audit_has_the_same_entries_as_for_the_command_line() {
    let (home, both) = audited();
    let [bridge, mut line] = both.map(|rows| without_who(&rows));
    let back = line.iter().rposition(|row| row["event_type"] == "session.setting").unwrap();
    line.remove(back);
    assert_eq!(
        kinds(&bridge),
        [
            "session.created",
            "session.setting",
            "acp.prompt",
            "acp.permission",
            "tool.call",
            "turn.ended",
            "session.closed"
        ]
    );
    assert_eq!(bridge, line);
    ended(&home, "ropewalk", &["audit", "verify"]).with(0);
}

/// `cancel` and an interrupt of the command line, both in the middle of a turn.
#[test]
fn a_cancel_has_the_same_entries_as_an_interrupt_of_the_command_line() {
    let home = home();
    let mut bernstein = Program::named(&home, "bernstein", &STDIO);
    let prompt = json!({ "prompt": "sleep 600000", "mode": "auto" });
    let session = bernstein.call(1, "prompt", &prompt).1["result"]["sessionId"].clone();
    until(&mut bernstein, |frame| is_delta(frame, "turn_started"));
    assert_eq!(
        bernstein.call(2, "cancel", &json!({ "sessionId": session })).1["result"]["reason"],
        "client_cancel"
    );
    bernstein.close();
    let arguments = ["run", "--approval", "full", "--format", "stream-json", "sleep 600000"];
    let mut run = command(&link(&home, "ropewalk"), &home, &arguments);
    let mut run = run.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    run.stdout.as_mut().unwrap().read_exact(&mut [0; 1]).unwrap();
    kill_process(Pid::from_child(&run), Signal::INT).unwrap();
    CommandOutput::of(run).with(130);
    let both: [Vec<Value>; 2] = rows_of_sessions(&home).try_into().unwrap();
    let [bridge, mut line] = both.map(|rows| without_who(&rows));
    let back = line.iter().rposition(|row| row["event_type"] == "session.setting").unwrap();
    line.remove(back);
    let expected =
        ["session.created", "session.setting", "acp.prompt", "acp.cancel", "turn.ended", "session.closed"];
    assert_eq!(kinds(&bridge), expected);
    assert_eq!(bridge, line);
}

fn cancels(home: &TempDir) -> Vec<Value> {
    let rows = rows_of_sessions(home);
    assert_eq!(rows.len(), 1, "{rows:?}");
    let cancels = rows[0].iter().filter(|row| row["event_type"] == "acp.cancel");
    cancels.map(|row| json!([row["actor"], row["details"]["peer"], row["details"]["reason"]])).collect()
}

/// Whatever the session does: a command runs, a question waits, nothing. The reason is the client's.
#[test]
fn every_cancel_has_its_row_with_its_reason() {
    let expected = [json!(["acp_bridge", "client", "user_done"])];
    for (prompt, reached) in [
        ("sleep 600000", "turn_started"),
        ("run touch made; true", "requestPermission"),
        ("list", "turn_ended"),
    ] {
        let mut bernstein = greeted();
        let session =
            bernstein.call(2, "prompt", &json!({ "prompt": prompt })).1["result"]["sessionId"].clone();
        until(&mut bernstein, |frame| is_delta(frame, reached) || frame["method"] == reached);
        let cancel = json!({ "sessionId": session, "reason": "user_done" });
        let (_, answer) = bernstein.call(3, "cancel", &cancel);
        assert_eq!(
            answer["result"],
            json!({ "sessionId": session, "cancelled": true, "reason": "user_done" })
        );
        assert_eq!(bernstein.call(4, "cancel", &cancel).1["error"]["code"], -32001);
        let home = Arc::clone(&bernstein.home);
        bernstein.close();
        assert_eq!(cancels(&home), expected, "{prompt}");
        ended(&home, "ropewalk", &["audit", "verify"]).with(0);
    }
}

/// The same over HTTP, where each request stands alone.
#[test]
fn over_http_a_cancel_has_its_row_too() {
    for (prompt, reached) in [("sleep 600000", "turn_started"), ("list", "turn_ended")] {
        let server = served();
        let frame = json!({ "jsonrpc": "2.0", "id": 1, "method": "prompt", "params": { "prompt": prompt } });
        let events = stream(&server, &frame.to_string());
        let session = events.recv_timeout(DEADLINE).unwrap().data["result"]["sessionId"].clone();
        while !is_delta(&events.recv_timeout(DEADLINE).unwrap().data, reached) {}
        let cancel = json!({ "sessionId": session, "reason": "user_done" });
        let frame = json!({ "jsonrpc": "2.0", "id": 2, "method": "cancel", "params": cancel });
        assert_eq!(post(&server, &frame.to_string()).json()["result"]["cancelled"], true);
        let home = Arc::clone(&server.home);
        assert_eq!(server.stop().0, Some(0));
        // There is no connection that a name belongs to: it is the one of the token.
        assert_eq!(cancels(&home), [json!(["acp_bridge", "local", "user_done"])], "{prompt}");
    }
}

/// "Byte-identical (modulo timestamp + chain HMAC)": here the rows also say through which client it was done, and where
/// nobody but a client can have done it, that client is the actor.
#[test]
fn differs_the_audit_says_who_it_was() {
    let (_home, both) = audited();
    for (rows, name) in both.iter().zip(["client", "run"]) {
        let by = |kind: &str| rows.iter().find(|row| row["event_type"] == kind).unwrap();
        assert_eq!(by("acp.prompt")["details"]["peer"], name);
        assert_eq!(by("acp.prompt")["actor"], "acp_bridge");
        assert_eq!(
            (&by("session.setting")["details"]["peer"], &by("session.setting")["actor"]),
            (&json!(name), &json!(name))
        );
    }
}

/// What `--approval` allows holds for one prompt: the command line puts back what held before, and says so. A client's mode
/// holds until it sets another one.
#[test]
fn differs_a_run_puts_the_approval_back() {
    let (_home, [bridge, line]) = audited();
    let chosen = |rows: &[Value]| -> Vec<Value> {
        let settings = rows.iter().filter(|row| row["event_type"] == "session.setting");
        settings.map(|row| row["details"]["value"].clone()).collect()
    };
    assert_eq!((chosen(&bridge), chosen(&line)), (vec![json!("full")], vec![json!("full"), json!("auto")]));
}

/// A client that names no mode is in manual mode, the command line without `--approval` has the usual one: that is another
/// operation, and its rows say so. One more row says who chose the mode, so the numbers after it are higher by one.
#[test]
fn differs_the_audit_says_which_approval_held() {
    let home = home();
    let mut bernstein = Program::named(&home, "bernstein", &STDIO);
    bernstein.call(1, "prompt", &json!({ "prompt": "list" }));
    until(&mut bernstein, |frame| is_delta(frame, "turn_ended"));
    bernstein.close();
    ended(&home, "ropewalk", &["run", "list"]).with(0);
    let [client, run]: [Vec<Value>; 2] = rows_of_sessions(&home).try_into().unwrap();
    let prompted = |rows: &[Value]| {
        rows.iter().find(|row| row["event_type"] == "acp.prompt").unwrap()["details"].clone()
    };
    let chosen = |rows: &[Value]| -> Vec<Value> {
        let settings = rows.iter().filter(|row| row["event_type"] == "session.setting");
        settings.map(|row| row["details"]["value"].clone()).collect()
    };
    assert_eq!(
        (&prompted(&client)["preset"], &prompted(&run)["preset"]),
        (&json!("suggest"), &json!("auto"))
    );
    assert_eq!((chosen(&client), chosen(&run)), (vec![json!("suggest")], Vec::new()));
    let number = |rows: &[Value]| prompted(rows)["seq"].as_u64().unwrap();
    assert_eq!(number(&client), number(&run) + 1);
}
