//! "Permission round-trip", and: "The last two persist into the audit log and bias future decisions for the same (tool, normalized_args) key."

use std::fs;
use std::sync::Arc;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::{greeted, kinds_of, until_kind};
use crate::doors::web::{Server, Socket};
use crate::seeds::program::{Program, ended, home, http_server};

/// "Permission round-trip": the frames of the document, with each of the four decisions.
#[test]
fn a_permission_is_asked_and_answered_in_the_documents_frames() {
    let (mut ferret, session) =
        greeted(&["ferret", "serve", "--sandbox", "workspace-write", "--approval", "auto"]);
    let asked = |ferret: &mut Program, id: u64, command: &str| {
        ferret.send(&json!({
            "jsonrpc": "2.0", "id": id, "method": "session/message",
            "params": { "sessionId": session, "message": format!("run {command}") },
        }));
        until_kind(ferret, "permission_request").1
    };
    let request = asked(&mut ferret, 3, "git push origin main");
    assert_eq!(request["sessionId"], session);
    assert!(request["id"].as_str().unwrap().starts_with("perm-"), "{request}");
    assert_eq!(request["tool"], "Bash");
    assert_eq!(request["args"], json!({ "command": "git push origin main" }));
    assert_eq!(request["risk"], "medium");
    let respond = |id: u64, request: &Value, decision: &str| {
        json!({
            "jsonrpc": "2.0", "id": id, "method": "permission/respond",
            "params": { "sessionId": session, "id": request["id"], "decision": decision },
        })
    };
    ferret.send(&respond(42, &request, "allow"));
    let (_, answer) = ferret.until_answer(&json!(42));
    assert_eq!(answer, json!({"jsonrpc":"2.0","id":42,"result":{"ok":true}}));
    ferret.until_answer(&json!(3));
    // Once means once.
    let request = asked(&mut ferret, 4, "git push origin main");
    ferret.send(&respond(43, &request, "deny"));
    assert_eq!(ferret.until_answer(&json!(43)).1["result"], json!({ "ok": true }));
    ferret.until_answer(&json!(4));
    // The last two hold for the same command from then on.
    for (decision, command, first) in [("always", "touch made", 5), ("never", "touch other", 8)] {
        let request = asked(&mut ferret, first, &format!("{command}; true"));
        ferret.send(&respond(50 + first, &request, decision));
        assert_eq!(ferret.until_answer(&json!(50 + first)).1["result"], json!({ "ok": true }));
        ferret.until_answer(&json!(first));
        let params = json!({ "sessionId": session, "message": format!("run {command}; true") });
        let (updates, _) = ferret.call(first + 1, "session/message", &params);
        assert!(!kinds_of(&updates).contains(&"permission_request"), "{decision}: {updates:?}");
    }
    let work = ferret.home.path().join("work");
    assert!(work.join("made").exists() && !work.join("other").exists());
}

/// A client that answers what it is asked in one message with this decision, and says whether it was asked.
trait Answering {
    fn send(&mut self, frame: Value);
    fn frame(&mut self) -> Value;

    #[track_caller]
    fn asked(&mut self, session: &Value, message: &str, decision: &str) -> bool {
        let params = json!({ "sessionId": session, "message": message });
        self.send(json!({ "jsonrpc": "2.0", "id": "said", "method": "session/message", "params": params }));
        let mut asked = false;
        loop {
            let frame = self.frame();
            assert!(frame.get("error").is_none(), "{frame}");
            if frame["params"]["kind"] == "permission_request" {
                asked = true;
                let id = &frame["params"]["id"];
                let params = json!({ "sessionId": session, "id": id, "decision": decision });
                let method = "permission/respond";
                self.send(json!({ "jsonrpc": "2.0", "id": "answer", "method": method, "params": params }));
            }
            if frame["id"] == "said" {
                return asked;
            }
        }
    }
}

impl Answering for Program {
    fn send(&mut self, frame: Value) {
        Program::send(self, &frame);
    }

    fn frame(&mut self) -> Value {
        self.next()
    }
}

impl Answering for Socket {
    fn send(&mut self, frame: Value) {
        Socket::send(self, &frame);
    }

    fn frame(&mut self) -> Value {
        Socket::frame(self).expect("the socket is open")
    }
}

/// The same promises, whoever answers. `home` is that of the server.
fn hold_for_the_same_arguments(client: &mut dyn Answering, session: &Value, home: &TempDir) {
    let file = |name: &str| fs::read_to_string(home.path().join("work").join(name)).ok();
    // The file is the same, what is written is not.
    assert!(client.asked(session, "write a.txt: one", "always"));
    assert!(!client.asked(session, "write a.txt: one", "deny"));
    assert!(client.asked(session, "write a.txt: two", "deny"));
    assert_eq!(file("a.txt").as_deref(), Some("one\n"));
    assert!(client.asked(session, "write b.txt: one", "never"));
    assert!(!client.asked(session, "write b.txt: one", "allow"));
    assert_eq!(file("b.txt"), None);
    assert!(client.asked(session, "write b.txt: two", "allow"));
    assert_eq!(file("b.txt").as_deref(), Some("two\n"));
    // A single command is the same however it is spaced.
    assert!(client.asked(session, "run touch made", "always"));
    assert!(!client.asked(session, "run touch   made", "deny"));
    assert!(client.asked(session, "run touch made more", "deny"));
    assert!(client.asked(session, "run touch other", "never"));
    assert!(!client.asked(session, "run touch  other", "allow"));
    assert_eq!((file("made"), file("more"), file("other")), (Some(String::new()), None, None));
}

/// What was answered before still holds.
fn still_hold(client: &mut dyn Answering, session: &Value) {
    assert!(!client.asked(session, "write a.txt: one", "deny"));
    assert!(!client.asked(session, "write b.txt: one", "allow"));
    assert!(!client.asked(session, "run touch  made", "deny"));
    assert!(!client.asked(session, "run touch other", "allow"));
    assert!(client.asked(session, "write a.txt: three", "deny"));
    assert!(client.asked(session, "run touch made too", "deny"));
}

/// The answers for good that the audit has, as tool, subject, resolution and scope.
fn audited(home: &TempDir) -> Vec<[String; 4]> {
    let query = ended(home, "ropewalk", &["audit", "query", "--type", "acp.permission", "--json"]).with(0);
    let rows = serde_json::from_str::<Value>(&query.out).unwrap()["rows"].clone();
    let text = |row: &Value, member: &str| row["details"][member].as_str().unwrap_or_default().to_owned();
    let members = |row: &Value| ["tool", "subject", "resolution", "scope"].map(|member| text(row, member));
    let about_arguments = |row: &&Value| row["details"]["scope"].is_string();
    rows.as_array().unwrap().iter().filter(about_arguments).map(members).collect()
}

#[test]
fn the_owners_always_and_never_hold_for_the_same_tool_and_arguments() {
    let home = home();
    let arguments = ["ferret", "serve", "--approval", "suggest"];
    let mut ferret = Program::named(&home, "chimera", &arguments);
    ferret.call(1, "initialize", &json!({}));
    let session = ferret.call(2, "session/new", &json!({})).1["result"]["sessionId"].clone();
    hold_for_the_same_arguments(&mut ferret, &session, &home);
    // It is killed, not ended.
    drop(ferret);
    let mut ferret = Program::named(&home, "chimera", &arguments);
    ferret.call(1, "initialize", &json!({}));
    let (_, loaded) = ferret.call(2, "session/load", &json!({ "sessionId": session }));
    assert_eq!(loaded["result"]["sessionId"], session, "{loaded}");
    still_hold(&mut ferret, &session);
    let rules = fs::read_to_string(home.path().join(".config/ropewalk/permissions.toml")).unwrap();
    assert!(rules.contains("touch made"), "{rules}");
    assert_eq!(ferret.close().0, Some(0));
    let kept = audited(&home);
    for (tool, resolution) in [("write", "allowed_always"), ("shell", "denied_always")] {
        let is = |row: &&[String; 4]| row[0] == tool && row[2] == resolution && row[3] == "arguments";
        assert_eq!(kept.iter().filter(is).count(), 1, "{kept:?}");
    }
}

const CLIENTS_TOKEN: &str = "the-token-of-somebody-else-0123456789";

fn served(home: &Arc<TempDir>) -> Server {
    let arguments = ["ferret", "serve", "--http", "--port", "0", "--approval", "suggest"];
    http_server(home, "chimera", &arguments, "FERRET_SERVER_TOKEN")
}

fn socket(server: &Server, token: &str) -> Socket {
    let mut socket = Socket::to(server.address(), token);
    let hello = socket.call("initialize", &json!({}));
    assert_eq!(hello["result"]["protocolVersion"], "0.2", "{hello}");
    socket
}

/// From somebody who makes no rules of this machine they hold in the session: it stands in its log.
#[test]
fn somebody_elses_always_and_never_hold_for_the_same_tool_and_arguments_in_the_session() {
    let home = home();
    let settings = home.path().join(".config/ropewalk");
    fs::create_dir_all(&settings).unwrap();
    let client = format!("[[clients]]\nid = \"ci\"\ntoken = \"{CLIENTS_TOKEN}\"\n");
    fs::write(settings.join("config.toml"), client).unwrap();
    let server = served(&home);
    let mut client = socket(&server, CLIENTS_TOKEN);
    let session = client.call("session/new", &json!({}))["result"]["sessionId"].clone();
    hold_for_the_same_arguments(&mut client, &session, &home);
    // It is killed, not ended.
    drop((client, server));
    let server = served(&home);
    let mut client = socket(&server, CLIENTS_TOKEN);
    let loaded = client.call("session/load", &json!({ "sessionId": session }));
    assert_eq!(loaded["result"]["sessionId"], session, "{loaded}");
    still_hold(&mut client, &session);
    // Another session knows nothing of it, and no rule was written.
    let other = client.call("session/new", &json!({}))["result"]["sessionId"].clone();
    assert!(client.asked(&other, "write a.txt: one", "deny"));
    assert!(!settings.join("permissions.toml").exists());
    assert_eq!(server.stop().0, Some(0));
    assert!(audited(&home).iter().any(|row| row[2] == "denied_always"), "{:?}", audited(&home));
}

/// "The same (tool, normalized_args) key": the blanks of a single command are normalized, those of several commands in one are
/// not, because there a blank may be part of a text, and a wrong guess would allow another command for good.
#[test]
fn differs_blanks_count_in_a_command_of_several_parts() {
    let (mut ferret, session) = greeted(&["ferret", "serve", "--approval", "suggest"]);
    assert!(ferret.asked(&session, "run touch one", "always"));
    assert!(!ferret.asked(&session, "run touch   one", "deny"), "one command");
    assert!(ferret.asked(&session, "run touch a && touch b", "always"));
    assert!(!ferret.asked(&session, "run touch a && touch b", "deny"), "the same text");
    assert!(ferret.asked(&session, "run touch a  &&  touch b", "deny"), "other blanks");
}

/// "Bias future decisions for the same (tool, normalized_args) key": in the same project, where the owner at the machine answers;
/// from anybody else in the same session.
#[test]
fn differs_an_answer_for_good_holds_in_the_folder_or_in_the_session() {
    let home = home();
    let other = home.path().join("other");
    fs::create_dir(&other).unwrap();
    let mut ferret = Program::named(&home, "chimera", &["ferret", "serve", "--approval", "suggest"]);
    ferret.call(1, "initialize", &json!({}));
    let mut new = |params: Value| ferret.call(2, "session/new", &params).1["result"]["sessionId"].clone();
    let (first, second) = (new(json!({})), new(json!({})));
    let elsewhere = new(json!({ "cwd": other }));
    assert!(ferret.asked(&first, "run touch made", "always"));
    assert!(!ferret.asked(&second, "run touch made", "deny"), "another session of the folder");
    assert!(ferret.asked(&elsewhere, "run touch made", "deny"), "another folder");
    ferret.close();
    // A named client's answer: another session of the same folder asks again.
    let settings = home.path().join(".config/ropewalk");
    let client = format!("[[clients]]\nid = \"ci\"\ntoken = \"{CLIENTS_TOKEN}\"\n");
    fs::write(settings.join("config.toml"), client).unwrap();
    let server = served(&home);
    let mut client = socket(&server, CLIENTS_TOKEN);
    let [first, second] =
        [(); 2].map(|()| client.call("session/new", &json!({}))["result"]["sessionId"].clone());
    assert!(client.asked(&first, "run touch theirs", "always"));
    assert!(!client.asked(&first, "run touch theirs", "deny"), "the same session");
    assert!(client.asked(&second, "run touch theirs", "deny"), "another session");
    assert_eq!(server.stop().0, Some(0));
}
