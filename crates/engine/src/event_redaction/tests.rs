//! Redaction on the way into the log, with a test redactor: `S` followed by three or more digits is a secret.

use proptest::prelude::*;

use super::*;
use crate::content::{Exit, StepStatus, ToolKind};
use crate::event::{NoticeLevel, Resolution, Risk, Stop, ToolClass, Usage};
use crate::ids::AskId;
use crate::{Priority, Standing, SurfaceId};

struct ToyRedactor;

/// A text that comes in pieces, all of it.
#[derive(Default)]
struct ToyStream {
    text: String,
    let_out: usize,
}

impl ToyRedactor {
    /// The text from here on without its secrets, and how much at the end may be part of one.
    fn clean(text: &str, from: usize, more: bool) -> (String, usize) {
        let mut out = String::new();
        let (mut at, mut copied) = (0, from);
        while let Some(start) = text[at..].find('S').map(|found| at + found) {
            let digits = text[start + 1..].bytes().take_while(u8::is_ascii_digit).count();
            let end = start + 1 + digits;
            if more && end == text.len() {
                let hold = start.max(copied);
                out.push_str(&text[copied..hold]);
                return (out, text.len() - hold);
            }
            if digits >= 3 && end > copied {
                out.push_str(&text[copied..(start + 1).max(copied)]);
                out.push('*');
                copied = end;
            }
            at = end;
        }
        out.push_str(&text[copied..]);
        (out, 0)
    }
}

impl Redactor for ToyRedactor {
    fn redact(&self, text: &str) -> Option<String> {
        let (clean, _) = Self::clean(text, 0, false);
        (clean != text).then_some(clean)
    }

    fn redact_json(&self, json: &str) -> Option<String> {
        self.redact(json)
    }

    fn is_in_base64(&self, data: &str) -> bool {
        data.contains("S12345")
    }

    fn stream(&self) -> Box<dyn StreamRedactor> {
        Box::new(ToyStream::default())
    }
}

impl StreamRedactor for ToyStream {
    fn push(&mut self, piece: &str) -> RedactedPiece {
        self.text.push_str(piece);
        let (clean, held) = ToyRedactor::clean(&self.text, self.let_out, true);
        self.let_out = self.text.len() - held;
        if clean == piece { RedactedPiece::Unchanged } else { RedactedPiece::Text(clean) }
    }

    fn pause(&mut self) -> Option<String> {
        let (clean, _) = ToyRedactor::clean(&self.text, self.let_out, false);
        self.let_out = self.text.len();
        (!clean.is_empty()).then_some(clean)
    }
}

const TURN: Option<TurnId> = Some(TurnId(1));

fn text(message: u64, text: &str) -> Body {
    Body::Text { message: MessageId(message), text: text.into() }
}

fn output(call: &str, stream: OutputStream, text: &str) -> Body {
    Body::ToolOutput { call: CallId(call.into()), stream, text: text.into() }
}

fn end(call: &str) -> ToolEnd {
    ToolEnd::of(CallId(call.into()))
}

fn ended(turn: u64) -> (Option<TurnId>, Body) {
    (Some(TurnId(turn)), Body::TurnEnded { stop: Stop::EndTurn, error: None })
}

/// What the log gets of these events, a word for each.
fn logged(events: Vec<(Option<TurnId>, Body)>) -> Vec<String> {
    let mut redaction = Redaction::new(Arc::new(ToyRedactor));
    let mut log = Vec::new();
    for (turn, body) in events {
        log.extend(
            redaction.before(&Origin::Agent, turn, &body).into_iter().map(|record| brief(&record.body)),
        );
        log.extend(redaction.clean(&Origin::Agent, turn, body).map(|body| brief(&body)));
    }
    log
}

fn brief(body: &Body) -> String {
    if let Body::Text { message, text } | Body::Thought { message, text } = body {
        format!("{}:{text}", message.0)
    } else if let Body::ToolOutput { call, stream, text } = body {
        format!("{}{}:{text}", call.0, if *stream == OutputStream::Stdout { 1 } else { 2 })
    } else {
        format!("{body:?}").split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default().to_owned()
    }
}

#[test]
fn what_is_held_stands_before_whatever_ends_it() {
    let at = |body| (TURN, body);
    for (events, expected) in [
        (vec![at(text(1, "a S1")), at(text(1, "23 b")), ended(1)], vec!["1:a ", "1:S* b", "TurnEnded"]),
        (vec![at(text(1, "a S1")), at(text(2, "23"))], vec!["1:a ", "1:S1", "2:23"]),
        (
            vec![at(text(1, "S12")), at(Body::Usage(Usage::default())), at(text(1, "34 c"))],
            vec!["1:S12", "Usage", "1:* c"],
        ),
        (
            vec![at(text(1, "S12")), at(Body::CancelRequested { reason: None }), ended(2), at(text(1, "3"))],
            vec!["CancelRequested", "TurnEnded"],
        ),
        (
            vec![at(text(1, "S12")), at(Body::CancelRequested { reason: None }), ended(1)],
            vec!["CancelRequested", "1:S12", "TurnEnded"],
        ),
        (
            vec![
                at(output("a", OutputStream::Stdout, "S1")),
                at(output("b", OutputStream::Stdout, "xS2")),
                at(output("a", OutputStream::Stderr, "S9")),
                at(Body::Notice { level: NoticeLevel::Info, text: "S123".into() }),
                at(Body::ToolEnded(Box::new(end("a")))),
                at(output("b", OutputStream::Stdout, "22")),
                at(Body::ToolEnded(Box::new(end("b")))),
            ],
            vec!["b1:x", "Notice", "a1:S1", "a2:S9", "ToolEnded", "b1:S*", "ToolEnded"],
        ),
    ] {
        assert_eq!(logged(events), expected);
    }
}

#[test]
fn sub_agents_that_speak_at_the_same_time_do_not_cut_each_others_secrets() {
    let task = |call: &str| Origin::Task { call: CallId(call.into()) };
    let mut redaction = Redaction::new(Arc::new(ToyRedactor));
    let mut log = Vec::new();
    for (origin, body) in [
        (task("a"), text(1, "x S1")),
        (task("b"), text(2, "y S9")),
        (task("a"), text(1, "23 z")),
        (Origin::Engine, Body::Notice { level: NoticeLevel::Info, text: "n".into() }),
        (task("b"), Body::Usage(Usage::default())),
        (task("a"), text(1, " S4")),
        (Origin::Agent, Body::ToolEnded(Box::new(end("a")))),
        (task("b"), text(2, "S7")),
        (Origin::Agent, Body::TurnEnded { stop: Stop::EndTurn, error: None }),
    ] {
        log.extend(redaction.before(&origin, TURN, &body).into_iter().map(|record| brief(&record.body)));
        log.extend(redaction.clean(&origin, TURN, body).map(|body| brief(&body)));
    }
    let expected = [
        "1:x ",
        "2:y ",
        "1:S* z",
        "Notice",
        "2:S9",
        "Usage",
        "1: ",
        "1:S4",
        "ToolEnded",
        "2:S7",
        "TurnEnded",
    ];
    assert_eq!(log, expected);
    assert!(redaction.streams.is_empty());
}

#[test]
fn text_without_a_secret_is_handed_on_and_not_copied() {
    let mut redaction = Redaction::new(Arc::new(ToyRedactor));
    for piece in ["hello ", "world", "ä"] {
        let said: Arc<str> = piece.into();
        let body = Body::Text { message: MessageId(1), text: Arc::clone(&said) };
        let Some(Body::Text { text, .. }) = redaction.clean(&Origin::Agent, TURN, body) else {
            panic!("{piece}")
        };
        assert!(Arc::ptr_eq(&text, &said));
    }
}

fn secret() -> Arc<str> {
    "key S12345 end".into()
}

fn path() -> PathBuf {
    PathBuf::from(&*secret())
}

fn contents() -> Vec<Content> {
    let link = ResourceLink {
        uri: secret(),
        name: secret(),
        mime: None,
        title: Some(secret()),
        description: Some(secret()),
        size_bytes: None,
    };
    vec![
        Content::Text(secret()),
        Content::Image { mime: "i".into(), data: "d".into(), uri: Some(secret()) },
        Content::Link(link),
        Content::Resource { uri: secret(), mime: None, text: secret() },
        Content::Binary { uri: secret(), mime: None, data: "d".into() },
    ]
}

fn change() -> FileChange {
    FileChange { path: path(), before: Some(secret()), after: Some(secret()) }
}

fn shown() -> Vec<ToolContent> {
    contents().into_iter().map(ToolContent::Block).chain([ToolContent::Diff(change())]).collect()
}

fn location() -> Location {
    Location { path: path(), line: None }
}

fn about_tools() -> Vec<Body> {
    let start = ToolStart {
        kind: ToolKind::Read,
        locations: vec![location()],
        input: Opaque(secret()),
        ..ToolStart::new(CallId("c".into()), secret(), secret())
    };
    let request = AskRequest {
        call: None,
        tool: secret(),
        title: secret(),
        kind: ToolKind::Read,
        class: ToolClass::Read,
        path: Some(path()),
        subject: secret(),
        input: Opaque(secret()),
        risk: Risk::Low,
        reason: secret(),
        preview: shown(),
        question: Some(Question { text: secret(), choices: vec![secret()], free_text: true }),
        foreign: Some(Box::new(ForeignAsk {
            options: vec![AskOption { id: "o".into(), name: secret(), means: Resolution::AllowedOnce }],
            params: Opaque(secret()),
        })),
        consent: None,
        rule: None,
    };
    let exit = Some(Exit { code: Some(0), signal: None });
    let raw = Some(Opaque(secret()));
    let finish = ToolEnd { content: shown(), locations: vec![location()], raw, exit, ..end("c") };
    let reply = || Some(secret());
    let resolution = Resolution::AllowedOnce;
    let resolved =
        |by| Body::Resolved { ask: AskId(1), call: None, resolution, by, reply: reply(), exactly: false };
    let mode = "m".into();
    vec![
        Body::ToolStarted(Box::new(start)),
        output("c", OutputStream::Stdout, &secret()),
        Body::ToolEnded(Box::new(finish)),
        Body::FileEdited { call: None, change: change() },
        Body::FileShown { location: location() },
        Body::Asked { ask: AskId(1), request: Box::new(request) },
        resolved(Resolver::Policy { reason: secret() }),
        resolved(Resolver::Rule { reason: secret() }),
        resolved(Resolver::Surface {
            id: SurfaceId::random(),
            name: "x".into(),
            remote: None,
            standing: Standing::OwnerAtMachine,
        }),
        Body::PolicyBlocked { call: None, tool: secret(), path: Some(path()), mode, reason: secret() },
    ]
}

fn about_talk() -> Vec<Body> {
    let entry = PlanEntry { content: secret(), priority: Priority::Low, status: StepStatus::Pending };
    let command = CommandSpec { name: secret(), description: secret(), hint: Some(secret()) };
    vec![
        Body::TurnQueued { content: contents() },
        Body::UserMessage { content: contents() },
        Body::Text { message: MessageId(1), text: secret() },
        Body::Thought { message: MessageId(1), text: secret() },
        Body::Plan { entries: vec![entry] },
        Body::Commands { commands: vec![command] },
        Body::Title { title: secret() },
        Body::Notice { level: NoticeLevel::Info, text: secret() },
        Body::Compacted { summary: secret() },
        Body::Foreign { payload: Opaque(secret()) },
        Body::TurnEnded { stop: Stop::Failed, error: Some(secret()) },
    ]
}

#[test]
fn every_kind_of_event_is_cleaned() {
    for body in about_tools().into_iter().chain(about_talk()) {
        let raw = format!("{body:?}").matches("S12345").count();
        let clean = format!("{:?}", clean_body(&ToyRedactor, body));
        assert!(!clean.contains("S12345"), "{clean}");
        assert_eq!(clean.matches("key S* end").count(), raw, "{clean}");
    }
}

proptest! {
    #[test]
    fn streams_in_pieces_of_any_size_come_out_whole_and_in_order(
        pieces in prop::collection::vec((0_usize..4, "[S0-9a ]{1,4}", prop::bool::weighted(0.1)), 0..60),
    ) {
        let mut redaction = Redaction::new(Arc::new(ToyRedactor));
        let mut said = vec![String::new(); 4];
        let mut log: Vec<String> = vec![String::new(); 4];
        let mut take = |body: &Body| {
            let Body::ToolOutput { call, text, .. } = body else { panic!("{body:?}") };
            let call: usize = call.0.parse().unwrap();
            log[call].push_str(text);
        };
        for (call, piece, meanwhile) in &pieces {
            said[*call].push_str(piece);
            let mut bodies = vec![output(&call.to_string(), OutputStream::Stdout, piece)];
            if *meanwhile {
                bodies.insert(0, Body::CancelRequested { reason: None });
            }
            for body in bodies {
                redaction.before(&Origin::Agent, TURN, &body).iter().for_each(|record| take(&record.body));
                if let Some(body) = redaction.clean(&Origin::Agent, TURN, body)
                    && !matches!(body, Body::CancelRequested { .. })
                {
                    take(&body);
                }
            }
        }
        let (turn, last) = ended(1);
        redaction.before(&Origin::Agent, turn, &last).iter().for_each(|record| take(&record.body));
        prop_assert!(redaction.streams.is_empty());
        for (said, log) in said.iter().zip(&log) {
            prop_assert_eq!(&ToyRedactor.redact(said).unwrap_or_else(|| said.clone()), log);
        }
    }

    #[test]
    fn a_history_is_cleaned_across_its_events(sizes in prop::collection::vec(1_usize..5, 1..20)) {
        let whole = "say S1234 and S99 and S567";
        let mut rest = whole;
        let mut events = Vec::new();
        for size in sizes.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (piece, after) = rest.split_at((*size).min(rest.len()));
            let body = text(1, piece);
            events.push(Event { seq: Seq(1), at: Timestamp(1), origin: Origin::Agent, turn: TURN, body, relayed: None });
            rest = after;
        }
        let clean = Redaction::new(Arc::new(ToyRedactor)).history(events);
        let joined: String = clean.iter().map(|event| brief(&event.body).split_off(2)).collect();
        prop_assert_eq!(joined, "say S* and S99 and S*");
    }
}
