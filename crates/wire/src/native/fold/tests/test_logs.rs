//! Logs: written by a test, or random.

use std::sync::Arc;

use engine::{
    AskId, AskRequest, Body, CallId, Content, Event, FileChange, MessageId, NoticeLevel, Opaque, Origin,
    OutputStream, PlanEntry, Priority, Question, Resolution, Resolver, Risk, Seq, Standing, StepStatus, Stop,
    SurfaceId, Timestamp, ToolClass, ToolEnd, ToolKind, ToolStart, TurnId, Usage,
};
use proptest::prelude::*;

/// Makes events from a script, keeping the order of turns.
#[derive(Default)]
struct Writer {
    events: Vec<Event>,
    running: Option<TurnId>,
    turns: u64,
    queue: Vec<TurnId>,
}

impl Writer {
    fn put(&mut self, origin: Origin, turn: Option<TurnId>, body: Body) {
        let seq = self.events.len() as u64 + 1;
        let at = Timestamp(1000 + i64::try_from(seq).unwrap());
        self.events.push(Event { seq: Seq(seq), at, origin, turn, body, relayed: None });
    }

    fn agent(&mut self, body: Body) {
        self.put(Origin::Agent, self.running, body);
    }

    fn prompt(&mut self, text: &str) {
        self.turns += 1;
        let (turn, content) = (TurnId(self.turns), vec![Content::text(text)]);
        if self.running.is_some() {
            self.queue.push(turn);
            return self.put(phone(), Some(turn), Body::TurnQueued { content });
        }
        self.start(turn, content);
    }

    fn start(&mut self, turn: TurnId, content: Vec<Content>) {
        self.running = Some(turn);
        self.put(phone(), Some(turn), Body::TurnStarted);
        self.put(phone(), Some(turn), Body::UserMessage { content });
    }

    fn ended(&mut self) {
        if self.running.is_none() {
            return;
        }
        self.agent(Body::TurnEnded { stop: Stop::EndTurn, error: None });
        self.running = None;
        if !self.queue.is_empty() {
            let turn = self.queue.remove(0);
            self.start(turn, vec![Content::text("queued")]);
        }
    }

    fn word(&mut self, line: &str) {
        let mut words = line.trim().splitn(2, ' ');
        let (word, rest) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let (first, second) = rest.split_once(' ').unwrap_or((rest, ""));
        let call = CallId(first.into());
        match word {
            "prompt" => self.prompt(rest),
            "ended" => self.ended(),
            "drop" => {
                if let Some(turn) = self.queue.pop() {
                    let body = Body::TurnEnded { stop: Stop::Cancelled, error: None };
                    self.put(phone(), Some(turn), body);
                }
            }
            "sub" => {
                let before = self.events.len();
                self.word(second);
                for event in self.events.iter_mut().skip(before) {
                    event.origin = Origin::Task { call: call.clone() };
                    if let Body::Text { message, .. } = &mut event.body {
                        *message = MessageId(message.0 + 100);
                    }
                }
            }
            "policy" | "allow" | "deny" | "reply" => self.resolve(word, first, second),
            "set" => {
                let body = Body::SettingChanged { id: "mode".into(), value: rest.into() };
                self.put(phone(), None, body);
            }
            _ => self.agent(body(word, rest, first, second)),
        }
    }

    fn resolve(&mut self, word: &str, ask: &str, rest: &str) {
        let surface = Resolver::Surface {
            id: SurfaceId(1),
            name: "phone".into(),
            remote: None,
            standing: Standing::OwnerAtMachine,
        };
        let (resolution, by) = match word {
            "policy" => (Resolution::AllowedOnce, Resolver::Policy { reason: "it may".into() }),
            "deny" => (Resolution::DeniedOnce, surface),
            _ => (Resolution::AllowedOnce, surface),
        };
        let (call, reply) = match word {
            "reply" => (None, Some(rest.into())),
            _ => (Some(CallId(rest.into())), None),
        };
        let (ask, exactly) = (AskId(number(ask)), false);
        let body = Body::Resolved { ask, call, resolution, by, reply, exactly };
        self.put(Origin::Engine, self.running, body);
    }
}

fn body(word: &str, rest: &str, first: &str, second: &str) -> Body {
    let call = CallId(first.into());
    match word {
        "say" => Body::Text { message: MessageId(1), text: rest.into() },
        "other" => Body::Text { message: MessageId(2), text: rest.into() },
        "thought" => Body::Thought { message: MessageId(1), text: rest.into() },
        "plan" => {
            let (priority, status) = (Priority::Medium, StepStatus::Pending);
            Body::Plan { entries: vec![PlanEntry { content: rest.into(), priority, status }] }
        }
        "tool" => Body::ToolStarted(Box::new(ToolStart::new(call, "tool".into(), "Tool".into()))),
        "out" => Body::ToolOutput { call, stream: OutputStream::Stdout, text: second.into() },
        "end" => Body::ToolEnded(Box::new(ToolEnd { elapsed_ms: 5, ..ToolEnd::of(call) })),
        "edit" => {
            let change = FileChange { path: second.into(), before: None, after: Some("x\n".into()) };
            Body::FileEdited { call: (!first.is_empty()).then_some(call), change }
        }
        "ask" => asked(first, Some(CallId(second.into())), None),
        "question" => {
            let (text, choices) = (Arc::from("which?"), Vec::new());
            asked(first, None, Some(Question { text, choices, free_text: true }))
        }
        "blocked" => Body::PolicyBlocked {
            call: Some(call),
            tool: "tool".into(),
            path: None,
            mode: "ask".into(),
            reason: "no".into(),
        },
        "usage" => Body::Usage(Usage { cost_usd: 0.5, ..Usage::default() }),
        "clear" => Body::Cleared,
        "notice" => Body::Notice { level: NoticeLevel::Info, text: rest.into() },
        other => panic!("no such word: {other}"),
    }
}

fn asked(ask: &str, call: Option<CallId>, question: Option<Question>) -> Body {
    let request = AskRequest {
        call,
        tool: "tool".into(),
        title: "Tool".into(),
        kind: ToolKind::Other,
        class: ToolClass::Execute,
        path: None,
        subject: "it".into(),
        input: Opaque("{}".into()),
        risk: Risk::Low,
        reason: "why".into(),
        preview: Vec::new(),
        question,
        foreign: None,
        consent: None,
        rule: None,
    };
    Body::Asked { ask: AskId(number(ask)), request: Box::new(request) }
}

fn number(text: &str) -> u64 {
    text.parse().unwrap_or_default()
}

fn phone() -> Origin {
    Origin::Surface { id: SurfaceId(1), name: "phone".into(), request: None, remote: None }
}

/// One line per event; a prompt is two events.
pub fn log(script: &str) -> Vec<Event> {
    let mut writer = Writer::default();
    script.lines().for_each(|line| writer.word(line));
    writer.events
}

/// Any order of any events that a session can write, sensible or not.
pub fn any_log() -> impl Strategy<Value = String> {
    let line = prop_oneof![
        6 => "say [a-z]{1,4}",
        2 => "other [a-zé]{1,4}",
        2 => "thought [a-z]{1,4}",
        3 => "prompt [a-z]{1,4}",
        3 => Just("ended".to_owned()),
        1 => Just("drop".to_owned()),
        4 => "tool c[0-9]",
        4 => "out c[0-9] [a-z]{1,5}",
        3 => "end c[0-9]",
        1 => "edit c[0-9] [ab]",
        1 => "ask [0-9] c[0-9]",
        1 => "(allow|deny|policy) [0-9] c[0-9]",
        1 => "question [0-9]",
        1 => "reply [0-9] yes",
        1 => "plan [a-z]",
        2 => "sub c[0-9] say [a-z]{1,3}",
        1 => "sub c[0-9] tool c[0-9]",
        1 => "set [a-z]",
        1 => "notice [a-z]",
        1 => "blocked c[0-9]",
        1 => Just("usage".to_owned()),
        1 => Just(format!("say {}", "long ".repeat(3000))),
        1 => Just(format!("out c1 {}", "é".repeat(3000))),
    ];
    let script = proptest::collection::vec(line, 0..300);
    (script, proptest::option::weighted(0.2, 0_usize..300)).prop_map(|(mut lines, clear)| {
        if let Some(at) = clear.filter(|at| *at < lines.len()) {
            // Only a turn can clear the history.
            lines.insert(at, "clear".to_owned());
            lines.insert(at, "prompt /clear".to_owned());
        }
        lines.join("\n")
    })
}
