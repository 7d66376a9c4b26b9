//! The test harness: an app, what it sent, and frames as a server would send them.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui_core::backend::TestBackend;
use ratatui_core::terminal::Terminal;
use serde_json::{Value, json};
use wire::native::{Request, RequestEnvelope, ServerFrame};

use crate::app::{App, Effect, Input};
use crate::draw::draw;
use crate::{FullScreenOptions, StartOptions, Theme, WhichSession};

pub const SESSION: &str = "5e551011-0000-4000-8000-000000000001";

pub struct Harness {
    pub app: App,
    pub now: u64,
    pub sent: Vec<RequestEnvelope>,
    /// Effects other than requests.
    pub effects: Vec<Effect>,
    upto: u64,
}

impl Harness {
    pub fn new(start: WhichSession, shared: bool) -> Self {
        let start_options = StartOptions {
            session: start,
            folder: "/home/dev/loom".into(),
            settings: Default::default(),
            prompt: None,
        };
        let options = FullScreenOptions {
            theme: Theme { colour: true },
            shared,
            home: Some("/home/dev".into()),
            address: shared.then(|| "http://127.0.0.1:8062".into()),
            seed: 7,
            warnings: Vec::new(),
            interrupt_ends: false,
        };
        let app = App::new(start_options, options);
        Self { app, now: 1_000, sent: Vec::new(), effects: Vec::new(), upto: 0 }
    }

    /// A new session that is open and empty.
    pub fn open() -> Self {
        let mut harness = Self::new(WhichSession::New, true);
        harness.greet(json!([]));
        harness.reply(&json!({"is": "opened", "session": SESSION}));
        harness.view(true, json!([]), state(&json!({})));
        harness.sent.clear();
        harness
    }

    pub fn greet(&mut self, cards: Value) {
        self.input(Input::Connected);
        self.hello(true);
        self.told(json!({"on": "cards", "cards": cards, "gone": [], "older": null}));
    }

    pub fn hello(&mut self, makes_rules: bool) {
        self.told(json!({"on": "hello", "version": "0.1.0", "host": "loom", "role": "owner", "device": null,
            "makesRules": makes_rules, "folder": "/home/dev/loom", "folders": [],
            "sandbox": "workspace-write", "pushKey": null, "now": 1_700_000_000_000_i64}));
    }

    pub fn input(&mut self, input: Input) {
        for effect in self.app.apply(self.now, input) {
            match effect {
                Effect::Send(envelope) => self.sent.push(envelope),
                other => self.effects.push(other),
            }
        }
    }

    pub fn frame(&mut self, frame: Value) {
        let frame: ServerFrame = serde_json::from_value(frame).unwrap();
        self.input(Input::Frame(Box::new(frame)));
    }

    pub fn told(&mut self, told: Value) {
        self.frame(told);
    }

    /// Answers the last request.
    pub fn reply(&mut self, ok: &Value) {
        let id = self.sent.last().unwrap().id;
        self.frame(json!({"re": id, "ok": ok}));
    }

    pub fn refuse(&mut self, code: &str, message: &str) {
        let id = self.sent.last().unwrap().id;
        self.frame(json!({"re": id, "error": {"code": code, "message": message}}));
    }

    pub fn view(&mut self, reset: bool, rows: Value, state: Value) {
        self.upto += 10;
        self.told(
            json!({"on": "view", "session": SESSION, "upto": self.upto, "reset": reset, "earlier": false,
            "rows": rows, "appends": [], "state": state}),
        );
    }

    pub fn append(&mut self, row: u64, text: &str) {
        self.upto += 1;
        let append = json!({"row": row, "rev": 1_000 + self.upto, "text": text});
        self.told(
            json!({"on": "view", "session": SESSION, "upto": self.upto, "reset": false, "earlier": false,
            "rows": [], "appends": [append], "state": null}),
        );
    }

    /// Keys by name, with blanks between: `a ctrl-c enter alt-enter`.
    pub fn keys(&mut self, names: &str) {
        for name in names.split(' ') {
            let (modifiers, name) = match name.split_once('-') {
                Some(("ctrl", rest)) => (KeyModifiers::CONTROL, rest),
                Some(("alt", rest)) => (KeyModifiers::ALT, rest),
                _ => (KeyModifiers::NONE, name),
            };
            let code = match name {
                "enter" => KeyCode::Enter,
                "tab" => KeyCode::Tab,
                "esc" => KeyCode::Esc,
                "up" => KeyCode::Up,
                "down" => KeyCode::Down,
                "home" => KeyCode::Home,
                "end" => KeyCode::End,
                "pgup" => KeyCode::PageUp,
                "pgdn" => KeyCode::PageDown,
                "back" => KeyCode::Backspace,
                "f1" => KeyCode::F(1),
                "f2" => KeyCode::F(2),
                one => KeyCode::Char(one.chars().next().unwrap()),
            };
            self.input(Input::Key(KeyEvent::new(code, modifiers)));
        }
    }

    pub fn write(&mut self, text: &str) {
        for c in text.chars() {
            self.input(Input::Key(KeyEvent::new(KeyCode::Char(c), KeyModifiers::NONE)));
        }
    }

    pub fn requests(&self) -> Vec<&Request> {
        let told = |envelope: &&RequestEnvelope| !matches!(envelope.request, Request::Presence { .. });
        self.sent.iter().filter(told).map(|envelope| &envelope.request).collect()
    }

    /// The last request, except those that only report the focus.
    pub fn last(&self) -> Value {
        serde_json::to_value(self.requests().last().unwrap()).unwrap()
    }

    pub fn screen(&mut self, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        self.app.prepare(width, height);
        terminal
            .draw(|frame| {
                draw(&self.app, frame.buffer_mut());
            })
            .unwrap();
        let buffer = terminal.backend().buffer();
        let mut text = String::new();
        for y in 0..height {
            let line: String = (0..width).map(|x| buffer[(x, y)].symbol()).collect();
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// A session's state, with these parts different.
pub fn state(different: &Value) -> Value {
    let mut state = json!({
        "title": "Weave the net", "folder": "/home/dev/loom", "busy": false, "turn": null, "turnAt": null,
        "queue": [], "asks": [], "plan": null,
        "settings": [
            {"id": "model", "name": "Model", "description": "", "value": "offline",
             "choices": [{"value": "offline", "name": "Offline", "description": ""},
                         {"value": "offline-terse", "name": "Terse", "description": "says less"}]},
            {"id": "mode", "name": "Mode", "description": "", "value": "code", "choices": []},
            {"id": "approval", "name": "Approval", "description": "", "value": "auto", "choices": []},
        ],
        "commands": [{"name": "undo", "description": "Take back the last change", "hint": null},
                     {"name": "compact", "description": "Sum up what was said", "hint": "what to keep"}],
        "contextUsed": 3_800, "contextSize": 10_000, "costUsd": 0.42, "unpriced": false, "compacting": false,
        "others": [],
    });
    for (key, value) in different.as_object().unwrap() {
        state[key] = value.clone();
    }
    state
}

pub fn row(id: u64, what: Value) -> Value {
    let mut row = json!({"id": id, "rev": id, "at": 1_700_000_000_000_i64, "turn": 1, "under": null});
    for (key, value) in what.as_object().unwrap() {
        row[key] = value.clone();
    }
    row
}

pub fn said(id: u64, text: &str) -> Value {
    row(id, json!({"is": "said", "text": text, "more": 0}))
}

pub fn prompt(id: u64, text: &str) -> Value {
    row(id, json!({"is": "prompt", "from": "terminal", "text": text, "more": 0, "attached": []}))
}

pub fn tool(id: u64, different: &Value) -> Value {
    let mut what = json!({"is": "tool", "call": "c", "tool": "shell", "title": "cargo test", "kind": "execute",
        "state": "done", "reason": null, "decided": null, "input": "{\"command\":\"cargo test\"}", "output": "",
        "more": 0, "diffs": [], "places": [], "exit": 0, "signal": null, "elapsedMs": 1_200});
    for (key, value) in different.as_object().unwrap() {
        what[key] = value.clone();
    }
    row(id, what)
}

pub fn ask(id: u64, risk: &str, subject: &str) -> Value {
    json!({"session": SESSION, "ask": id, "at": 1, "row": null, "tool": "shell", "title": "Run a command",
        "kind": "execute", "risk": risk, "reason": "it changes files", "subject": subject,
        "folder": "/home/dev/loom", "input": "{}", "diffs": [], "text": "", "more": 0, "question": null})
}

pub fn diff() -> Value {
    json!({"path": "src/net.rs", "status": "changed", "added": 1, "removed": 1, "more": 0, "hunks": [
        {"id": null, "old": 9, "new": 9, "lines": [" fn knot() {", "-    loose();", "+    tight();", " }"]}]})
}

pub fn card(id: &str, title: &str, folder: &str, state: &str, updated: i64) -> Value {
    json!({"session": id, "title": title, "folder": folder, "source": "terminal", "createdAt": 1, "updatedAt": updated,
        "state": state, "line": null, "costUsd": null, "asks": []})
}
