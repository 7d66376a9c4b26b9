//! Line mode in a session that others use too, and on a connection that breaks.

use serde_json::{Value, json};

use super::*;
use crate::connection::Dialing;
use crate::tests::harness::{SESSION, ask, row, said, state};
use crate::{StartOptions, WhichSession};

struct Nowhere;

impl Dial for Nowhere {
    fn dial(&self) -> Dialing {
        Box::pin(async { Err("there is no server".into()) })
    }
}

/// A script that has sent its prompt, and the server's end of its connection.
struct Script {
    lines: LineMode<'static>,
    sent_requests: mpsc::Receiver<RequestEnvelope>,
    _server_frames: mpsc::Sender<ServerFrame>,
    written: mpsc::Receiver<Output>,
    prompt_id: u64,
    upto: u64,
}

impl Script {
    async fn start() -> Self {
        Self::start_as(false).await
    }

    async fn start_as(attended: bool) -> Self {
        let (requests, sent_requests) = mpsc::channel(64);
        let (server_frames, frames) = mpsc::channel(64);
        let (writer, written) = mpsc::channel(64);
        let (_, reads) = mpsc::channel(1);
        let start_options = StartOptions {
            session: WhichSession::Named(SESSION.into()),
            folder: "/".into(),
            settings: Default::default(),
            prompt: Some("weave".into()),
        };
        let options = LineModeOptions { attended, screen: false, one_screen: false, colour: false, seed: 1 };
        let pipes = Pipes { reads, writer };
        let connection = ServerConnection { requests, frames };
        let lines =
            LineMode::new(start_options, options, &Nowhere, connection, pipes, stop_signals().unwrap());
        let mut script =
            Self { lines, sent_requests, _server_frames: server_frames, written, prompt_id: 0, upto: 0 };
        script.lines.step(Step::Watch(SESSION.into())).await;
        script.view(json!([]), state(&json!({}))).await;
        script.lines.send_next().await;
        assert_eq!(script.requests()[1]["do"], "prompt");
        script
    }

    async fn frame(&mut self, frame: Value) {
        let frame = serde_json::from_value(frame).unwrap();
        assert_eq!(self.lines.frame(frame).await, None);
    }

    async fn view(&mut self, rows: Value, state: Value) {
        self.upto += 10;
        self.frame(json!({"on": "view", "session": SESSION, "upto": self.upto, "reset": false,
            "earlier": false, "rows": rows, "appends": [], "state": state}))
            .await;
    }

    async fn hello(&mut self, makes_rules: bool) {
        self.frame(
            json!({"on": "hello", "version": "0.1.0", "host": "loom", "role": "owner", "device": null,
            "makesRules": makes_rules, "folder": "/", "folders": [], "sandbox": "workspace-write",
            "pushKey": null, "now": 1}),
        )
        .await;
        // A new connection sends the prompt anew, under the same key.
        if self.lines.turn.as_ref().is_some_and(|turn| turn.prompt_id != self.prompt_id) {
            self.prompt_id = self.lines.turn.as_ref().map_or(0, |turn| turn.prompt_id);
        }
    }

    async fn taken(&mut self, turn: u64) {
        self.frame(json!({"re": self.prompt_id, "ok": {"is": "taken", "turn": turn}})).await;
    }

    /// What was asked of the server since the last look.
    fn requests(&mut self) -> Vec<Value> {
        let mut requests = Vec::new();
        while let Ok(envelope) = self.sent_requests.try_recv() {
            if matches!(envelope.request, Request::Prompt { .. }) {
                self.prompt_id = envelope.id;
            }
            requests.push(serde_json::to_value(envelope).unwrap());
        }
        requests
    }

    /// What was said on standard error since the last look.
    fn said(&mut self) -> String {
        let mut said = String::new();
        while let Ok(output) = self.written.try_recv() {
            if let Output::Err { text, .. } = output {
                said.push_str(&text);
                said.push('\n');
            }
        }
        said
    }

    fn out(&mut self) -> String {
        let mut out = String::new();
        while let Ok(output) = self.written.try_recv() {
            if let Output::Out(text) = output {
                out.push_str(&text);
            }
        }
        out
    }
}

fn ended(id: u64, turn: u64) -> Value {
    row(
        id,
        json!({"is": "ended", "turn": turn, "stop": "endTurn", "error": null, "elapsedMs": 5, "tools": 0,
        "files": 0, "added": 0, "removed": 0, "costUsd": null}),
    )
}

fn asking(turn: u64) -> Value {
    state(&json!({"busy": true, "turn": turn, "asks": [ask(9, "low", "make")]}))
}

#[tokio::test]
async fn what_others_are_asked_is_not_refused_by_a_script() {
    let mut script = Script::start().await;
    script.view(json!([]), asking(1)).await;
    script.taken(2).await;
    assert_eq!(script.requests(), [] as [Value; 0]);
    script.view(json!([]), asking(2)).await;
    assert_eq!(script.requests()[0]["decision"], "denyOnce");
}

#[tokio::test]
async fn what_was_asked_before_the_prompt_was_confirmed_is_refused_then() {
    let mut script = Script::start().await;
    script.view(json!([]), asking(2)).await;
    assert_eq!(script.requests(), [] as [Value; 0]);
    script.taken(2).await;
    assert_eq!(script.requests()[0]["decision"], "denyOnce");
}

#[tokio::test]
async fn an_interrupt_stops_our_turn_and_no_other() {
    let mut script = Script::start().await;
    assert_eq!(script.lines.stop().await, None);
    assert_eq!(script.requests(), [] as [Value; 0]);
    script.taken(2).await;
    let requests = script.requests();
    assert_eq!((&requests[0]["do"], &requests[0]["turn"]), (&"cancel".into(), &2.into()));
    assert_eq!(script.lines.stop().await, Some(LineModeExit::Code(INTERRUPTED)));
}

#[tokio::test]
async fn the_end_of_another_turn_is_not_ours() {
    let mut script = Script::start().await;
    script.view(json!([ended(3, 1)]), Value::Null).await;
    script.taken(2).await;
    assert!(script.lines.turn.is_some());
    // Another one that waited ended in the same breath.
    script.view(json!([ended(5, 2), ended(6, 3)]), Value::Null).await;
    assert!(script.lines.turn.is_none());
}

#[tokio::test]
async fn an_end_that_was_told_before_the_confirmation_is_not_missed() {
    let mut script = Script::start().await;
    script.view(json!([ended(3, 2)]), Value::Null).await;
    script.taken(2).await;
    assert!(script.lines.turn.is_none());
}

#[tokio::test]
async fn a_prompt_that_waited_and_was_taken_back_is_not_waited_for() {
    let note =
        json!([row(3, json!({"is": "note", "turn": 2, "text": "a prompt that waited was cancelled"}))]);
    let queue = json!([{"turn": 2, "from": "terminal", "text": "weave"}]);
    let mut script = Script::start().await;
    script.taken(2).await;
    script.view(json!([]), state(&json!({"busy": true, "turn": 1, "queue": queue}))).await;
    assert!(script.lines.turn.is_some());
    script.view(note, state(&json!({"busy": true, "turn": 1}))).await;
    assert!(script.lines.turn.is_none());
    assert_eq!(script.lines.code, INTERRUPTED);
}

#[tokio::test]
async fn all_that_was_shortened_is_fetched_also_when_the_line_breaks() {
    let short = |id: u64, text: &str| row(id, json!({"is": "said", "text": text, "more": 4}));
    let mut script = Script::start().await;
    script.taken(2).await;
    script.view(json!([short(3, "one"), short(4, "two"), ended(5, 2)]), Value::Null).await;
    let first = script.requests();
    assert_eq!((first.len(), &first[0]["row"]), (1, &3.into()));
    script.hello(true).await;
    for (id, text) in [(3, "one end"), (4, "two end")] {
        let request = script.requests().pop().unwrap();
        assert_eq!((&request["do"], &request["row"]), (&"whole".into(), &id.into()));
        assert!(script.lines.turn.is_some());
        script
            .frame(json!({"re": request["id"], "ok": {"is": "rows", "rows": [said(id, text)], "earlier": false}}))
            .await;
    }
    assert!(script.lines.turn.is_none());
    assert_eq!(script.out().matches(" end").count(), 2);
}

#[tokio::test]
async fn exit_and_quit_end_it_as_the_end_of_input_does() {
    for command in ["/exit", "/quit", "  /exit  "] {
        let mut script = Script::start().await;
        script.lines.read("once more".into()).await;
        script.lines.read(command.into()).await;
        assert!(script.lines.read_all, "{command:?}");
        // What was written before it is still done.
        script.taken(2).await;
        script.view(json!([ended(3, 2)]), Value::Null).await;
        assert_eq!(script.lines.send_next().await, None);
        assert_eq!(script.requests()[0]["text"], "once more");
        script.taken(3).await;
        script.view(json!([ended(5, 3)]), Value::Null).await;
        assert_eq!(script.lines.send_next().await, Some(DONE), "{command:?}");
        assert_eq!(script.requests(), [] as [Value; 0], "{command:?}");
    }
}

#[tokio::test]
async fn a_prompt_that_only_begins_like_exit_is_a_prompt() {
    let mut script = Script::start().await;
    script.lines.read("/exits are where?".into()).await;
    assert!(!script.lines.read_all);
    assert_eq!(script.lines.prompts, ["/exits are where?"]);
}

/// Whoever leaves cannot be asked any more: what our turn asks is refused, and nothing waits for ever.
#[tokio::test]
async fn who_leaves_at_a_question_has_refused_it() {
    let mut script = Script::start_as(true).await;
    script.taken(2).await;
    script.view(json!([]), asking(2)).await;
    assert!(script.lines.open_ask.is_some());
    assert_eq!(script.requests(), [] as [Value; 0]);
    script.lines.read("/exit".into()).await;
    assert_eq!(script.requests()[0]["decision"], "denyOnce");
    assert!(script.lines.open_ask.is_none());
}

#[tokio::test]
async fn help_says_how_to_leave_and_asks_the_server_for_the_rest() {
    let mut script = Script::start().await;
    script.said();
    script.lines.read("/help".into()).await;
    assert!(script.said().contains("/exit, /quit or Ctrl-D"));
    assert_eq!(script.lines.prompts, ["/help"]);
}

#[tokio::test]
async fn a_question_says_for_how_long_always_is() {
    let mut ask = ask(9, "low", "make install");
    ask["rule"] = "shell(make install:*)".into();
    for (makes_rules, expected) in [
        (true, "a for always in this folder (shell(make install:*))"),
        (false, "a for always in this session (shell make install)"),
    ] {
        let mut script = Script::start_as(true).await;
        script.hello(makes_rules).await;
        script.taken(2).await;
        let asked = state(&json!({"busy": true, "turn": 2, "asks": [ask.clone()]}));
        script.view(json!([]), asked).await;
        let said = script.said();
        assert!(said.contains(expected), "{said}");
    }
}

#[tokio::test]
async fn a_command_at_a_question_waits_for_the_end_of_the_turn_and_answers_nothing() {
    let mut question = ask(9, "low", "");
    question["question"] = json!({"text": "Which file?", "choices": [], "freeText": true});
    for asked in [question, ask(9, "low", "make")] {
        let commands = json!([{"name": "bridge", "description": "", "hint": null}]);
        let asking = state(&json!({"busy": true, "turn": 2, "asks": [asked], "commands": commands}));
        let mut script = Script::start_as(true).await;
        script.taken(2).await;
        script.view(json!([]), asking).await;
        script.said();
        script.lines.read("/bridge".into()).await;
        assert_eq!(script.requests(), [] as [Value; 0]);
        assert_eq!((script.said().as_str(), script.lines.prompts.len()), ("queued: /bridge\n", 1));
        assert!(script.lines.open_ask.is_some());
    }
}
