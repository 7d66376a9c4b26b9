//! Long sessions, made up: for what must stay fast however much there is.

use std::sync::Arc;

use engine::{
    Body, CallId, Content, Event, FileChange, MessageId, Opaque, Origin, OutputStream, PlanEntry, Priority,
    Seq, StepStatus, Stop, SurfaceId, Timestamp, ToolEnd, ToolKind, ToolStart, TurnId, Usage,
};

/// Events of one turn, about.
const PER_TURN: usize = 250;

/// A history of so many events, or a few more: turns in which much is said, some is run and something is
/// changed. With `turns` it is so many turns, however long each becomes.
pub fn long_log(events_min: usize, turns: Option<usize>) -> Vec<Event> {
    let turns = turns.unwrap_or(events_min / PER_TURN).max(1);
    let mut log = Log::default();
    for turn in 1..=turns {
        log.turn(turn as u64, events_min * turn / turns);
    }
    log.events
}

#[derive(Default)]
struct Log {
    events: Vec<Event>,
    turn: u64,
    messages: u64,
}

impl Log {
    fn put(&mut self, origin: Origin, body: Body) {
        let seq = self.events.len() as u64 + 1;
        let at = Timestamp(1_600_000_000_000 + i64::try_from(seq).unwrap_or_default() * 40);
        self.events.push(Event {
            seq: Seq(seq),
            at,
            origin,
            turn: Some(TurnId(self.turn)),
            body,
            relayed: None,
        });
    }

    fn agent(&mut self, body: Body) {
        self.put(Origin::Agent, body);
    }

    fn turn(&mut self, turn: u64, until: usize) {
        self.turn = turn;
        let phone = Origin::Surface { id: SurfaceId(1), name: "phone".into(), request: None, remote: None };
        let content = vec![Content::text(format!("What about part {turn}?"))];
        self.put(phone.clone(), Body::TurnStarted);
        self.put(phone, Body::UserMessage { content });
        let step = |status| PlanEntry { content: "look at it".into(), priority: Priority::Medium, status };
        self.agent(Body::Plan { entries: vec![step(StepStatus::InProgress)] });
        while self.events.len() + 8 < until {
            self.say(until);
            self.run(until);
        }
        self.agent(Body::Plan { entries: vec![step(StepStatus::Completed)] });
        self.agent(Body::Usage(Usage { input: 900, output: 120, cost_usd: 0.001, ..Usage::default() }));
        self.agent(Body::TurnEnded { stop: Stop::EndTurn, error: None });
    }

    fn say(&mut self, until: usize) {
        self.messages += 1;
        let message = MessageId(self.messages);
        for piece in 0..80 {
            if self.events.len() + 8 >= until {
                return;
            }
            let text: Arc<str> = match piece % 16 {
                0 => "\n\n## A heading\n\n".into(),
                7 => "`some_code()` and **more** ".into(),
                _ => "a few words of it ".into(),
            };
            self.agent(Body::Text { message, text });
        }
    }

    fn run(&mut self, until: usize) {
        let call = CallId(format!("call-{}", self.events.len()).into());
        self.agent(Body::ToolStarted(Box::new(ToolStart {
            kind: ToolKind::Execute,
            input: Opaque(r#"{"command":"cargo test"}"#.into()),
            ..ToolStart::new(call.clone(), "bash".into(), "cargo test".into())
        })));
        for line in 0..40 {
            if self.events.len() + 8 >= until {
                break;
            }
            let text = format!("\u{1b}[32mtest part_{line} ... ok\u{1b}[0m\n").into();
            self.agent(Body::ToolOutput { call: call.clone(), stream: OutputStream::Stdout, text });
        }
        let change = FileChange {
            path: "/project/src/part.rs".into(),
            before: Some("fn a() {}\n".into()),
            after: Some("fn a() {}\nfn b() {}\n".into()),
        };
        self.agent(Body::FileEdited { call: Some(call.clone()), change });
        self.agent(Body::ToolEnded(Box::new(ToolEnd { elapsed_ms: 1200, ..ToolEnd::of(call) })));
    }
}
