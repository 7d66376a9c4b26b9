//! The script language of the session tests: who sends what in which order, and the effects.
//!
//! A line is `who: verb words`. `agent` is the running turn (`agent@1` a turn that may have ended),
//! `server` and `clock` are the server itself, `rules` is the file of rules (`rules: ask git push`), every other
//! name is a surface.

use std::fmt::Write as _;
use std::sync::Arc;

use super::asks::ActionKey;
use super::{Effect, Input, PermissionAnswer, Refusal, Sender, Session, TurnReport};
use crate::authority::{EDITOR_TERMINAL, Standing};
use crate::content::{Content, Opaque, OutputStream, ToolContent, ToolKind};
use crate::event::{
    AskRequest, Body, Family, NoticeLevel, Origin, PermissionEvent, Question, Resolver, Risk, SetupEvent,
    SpeechEvent, Stop, ToolClass, ToolEnd, ToolEvent, ToolStart, TurnEvent, Usage,
};
use crate::ids::{AskId, CallId, MessageId, Seq, SurfaceId, Timestamp, TurnId};
use crate::settings::{Category, Choice, MODE, SettingSpec, approval_spec};
use crate::stored_rules::{MemoryRules, RuleEffect, RuleHit, RuleScope};
use crate::tool_servers::SERVER_CONSENT;

pub(super) struct ScriptRunner {
    pub session: Session,
    /// The recorded events, as the store would have them.
    pub record: Vec<(Option<TurnId>, Body)>,
    unattended: bool,
    rules: Vec<(ActionKey, RuleEffect)>,
    /// The last turn that was started.
    turn: TurnId,
    pub shown: String,
}

pub(super) fn new_session(unattended: bool) -> Session {
    let choice = |value: &str| Choice { value: value.into(), name: value.into(), description: "".into() };
    let mode = SettingSpec {
        id: MODE.into(),
        name: "Mode".into(),
        description: "".into(),
        category: Category::Mode,
        choices: ["code", "ask", "architect"].map(choice).into(),
        default: "code".into(),
        words: None,
    };
    Session::new([mode, approval_spec()].into(), "/project".into(), None, unattended)
}

impl ScriptRunner {
    pub fn new(unattended: bool) -> Self {
        Self {
            session: new_session(unattended),
            record: Vec::new(),
            unattended,
            rules: Vec::new(),
            turn: TurnId(0),
            shown: String::new(),
        }
    }

    pub fn line(&mut self, line: &str) {
        let (who, said) = line.split_once(": ").expect("a line is `who: verb words`");
        let (verb, words) = said.split_once(' ').unwrap_or((said, ""));
        if (who, verb) == ("server", "restart") {
            return self.restart();
        }
        if who == "rules" {
            let effect = match verb {
                "allow" => RuleEffect::Allow,
                "ask" => RuleEffect::Ask,
                _ => RuleEffect::Deny,
            };
            return self.rules.push((("ask".into(), words.into(), None), effect));
        }
        let input = match who.split_once('@') {
            Some(("agent", turn)) => self.agent(TurnId(number(turn)), verb, words),
            _ if who == "agent" => self.agent(self.turn, verb, words),
            _ if who == "server" || who == "clock" => ours(verb, words),
            _ => surface(sender(who), verb, words),
        };
        self.feed(input);
    }

    pub fn feed(&mut self, input: Input) {
        let chooser = input.chooses_approval().cloned();
        match self.session.apply(Timestamp(0), input) {
            Ok(effects) => self.carry_out(effects),
            Err(refusal) => return self.refused(&refusal),
        }
        if let Some(by) = chooser {
            let waiting = self.session.open_requests();
            let hits = waiting.filter_map(|(ask, action)| Some((ask, self.hit(action)?))).collect();
            self.feed(Input::ApprovalChosen { by, hits });
        }
    }

    /// The rules' decision about an action.
    fn hit(&self, request: &AskRequest) -> Option<RuleHit> {
        let own: ActionKey =
            (Arc::clone(&request.tool), Arc::clone(&request.subject), request.consent.clone());
        let known = self.rules.iter().rev().find(|(action, _)| *action == own);
        let hit =
            known.map(|(_, effect)| RuleHit { consent: own.2.is_some(), effect: *effect, ..rule(true) });
        hit.or_else(|| self.session.granted(request, &MemoryRules::default()))
    }

    /// The server died and came back: only the record is left.
    fn restart(&mut self) {
        self.session = new_session(self.unattended);
        for (turn, body) in &self.record {
            self.session.observe(&Origin::Engine, *turn, body);
        }
        let effects = self.session.recover();
        self.carry_out(effects);
    }

    fn carry_out(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            let shown = show(&effect);
            writeln!(self.shown, "{shown}").unwrap();
            match effect {
                Effect::Record { turn, event, .. } => self.record.push((turn, event.body)),
                Effect::StartTurn { turn, .. } => self.turn = turn,
                Effect::Remember { tool, subject, consent, scope: _, allow } => {
                    let effect = if allow { RuleEffect::Allow } else { RuleEffect::Deny };
                    self.rules.push(((tool, subject, consent), effect));
                }
                Effect::GoOnAfter { .. }
                | Effect::CancelTurn { .. }
                | Effect::Wait { .. }
                | Effect::Settle { .. }
                | Effect::Wake { .. }
                | Effect::Accepted { .. }
                | Effect::Stop => {}
            }
        }
    }

    fn refused(&mut self, refusal: &Refusal) {
        writeln!(self.shown, "! {refusal}").unwrap();
    }

    fn agent(&self, turn: TurnId, verb: &str, words: &str) -> Input {
        let class = match verb {
            "ask" | "with" | "outside" | SERVER_CONSENT => Some(ToolClass::Execute),
            "edit" => Some(ToolClass::Edit),
            "read" => Some(ToolClass::Read),
            "fetch" => Some(ToolClass::Network),
            "question" | "which" => Some(ToolClass::Read),
            _ => None,
        };
        let report = match (class, verb) {
            (Some(class), _) => {
                let mut request = Box::new(action(verb, words, class));
                if verb == "with" {
                    // The same command as `ask`, with arguments besides.
                    let (input, subject) = words.split_once(' ').unwrap();
                    request = Box::new(action("ask", subject, class));
                    request.input = Opaque(input.into());
                }
                if verb == "outside" {
                    // The same command as `ask`, in the editor's terminal.
                    request.tool = "ask".into();
                    request.consent = Some(format!("{EDITOR_TERMINAL}{words}").into());
                }
                let choices = if verb == "which" { vec!["red".into(), "green".into()] } else { Vec::new() };
                let free_text = verb == "question";
                request.question = matches!(verb, "question" | "which").then(|| Question {
                    text: words.into(),
                    choices,
                    free_text,
                });
                let hit = self.hit(&request);
                TurnReport::Ask { request, hit }
            }
            (None, "set") => {
                let (id, value) = words.split_once(' ').unwrap();
                TurnReport::Change { id: id.into(), value: value.into() }
            }
            (None, "end") => TurnReport::Ended { stop: Stop::EndTurn, error: None },
            (None, "fail") => TurnReport::Ended { stop: Stop::Failed, error: Some(words.into()) },
            (None, _) => TurnReport::Emit(emitted(verb, words).into()),
        };
        Input::FromTurn { turn, within: None, report }
    }
}

pub(super) fn sender(name: &str) -> Sender {
    let id = name.bytes().fold(0, |id, byte| id * 31 + u64::from(byte));
    let sender = Sender::owner(SurfaceId(id), name);
    match name {
        // These names are at another machine, or have a token of their own.
        "elsewhere" => Sender { remote: Some(name.into()), standing: Standing::Other, ..sender },
        "client" => Sender { standing: Standing::Other, ..sender },
        _ => sender,
    }
}

pub(super) fn action(tool: &str, subject: &str, class: ToolClass) -> AskRequest {
    AskRequest { kind: ToolKind::Other, risk: Risk::Medium, ..AskRequest::new(tool, subject, class) }
}

pub(super) fn rule(allow: bool) -> RuleHit {
    let effect = if allow { RuleEffect::Allow } else { RuleEffect::Deny };
    RuleHit { effect, rule: "r".into(), source: "test".into(), exact: false, consent: false }
}

pub(super) fn started(call: &str) -> Body {
    Body::ToolStarted(Box::new(ToolStart::new(CallId(call.into()), call.into(), call.into())))
}

pub(super) fn ended(call: &str) -> Body {
    Body::ToolEnded(Box::new(ToolEnd {
        content: vec![ToolContent::Block(Content::text("done"))],
        elapsed_ms: 1,
        ..ToolEnd::of(CallId(call.into()))
    }))
}

fn number(text: &str) -> u64 {
    text.parse().unwrap()
}

fn ours(verb: &str, words: &str) -> Input {
    match verb {
        "close" => Input::Close { by: None, reason: None },
        "retire" => Input::Retire,
        "expire" => Input::AskExpired { ask: AskId(number(words)) },
        "put-back" => Input::PutBack { seen: Seq(number(words)), notice: "the store was put back".into() },
        _ => panic!("the server cannot {verb}"),
    }
}

fn surface(by: Sender, verb: &str, words: &str) -> Input {
    let answer = |by, answer| Input::Answer { by, ask: AskId(number(words)), answer };
    match verb {
        "prompt" => Input::Prompt { by, content: vec![Content::text(words)] },
        "cancel" if words.is_empty() => Input::Cancel { by, only: None },
        "cancel" => Input::Cancel { by, only: Some(TurnId(number(words))) },
        "allow" => answer(by, PermissionAnswer::AllowOnce),
        "always" => answer(by, PermissionAnswer::AllowAlways),
        "deny" => answer(by, PermissionAnswer::DenyOnce),
        "never" => answer(by, PermissionAnswer::DenyAlways),
        "exactly" => answer(by, PermissionAnswer::AllowExactly),
        "never-exactly" => answer(by, PermissionAnswer::DenyExactly),
        "cancel-turn" => answer(by, PermissionAnswer::CancelTurn),
        "withdraw" => answer(by, PermissionAnswer::Withdraw),
        "reply" => in_words(by, words, PermissionAnswer::Reply),
        "because" => in_words(by, words, PermissionAnswer::DenyBecause),
        "set" => {
            let (id, value) = words.split_once(' ').unwrap();
            Input::Change { by, id: id.into(), value: value.into() }
        }
        "rename" => Input::Rename { by, title: words.into() },
        "move" => Input::Move { by, cwd: words.into() },
        "close" => Input::Close { by: Some(by), reason: (!words.is_empty()).then(|| words.into()) },
        _ => panic!("a surface cannot {verb}"),
    }
}

fn in_words(by: Sender, words: &str, answer: fn(Arc<str>) -> PermissionAnswer) -> Input {
    let (ask, said) = words.split_once(' ').unwrap_or((words, ""));
    Input::Answer { by, ask: AskId(number(ask)), answer: answer(said.into()) }
}

fn emitted(verb: &str, words: &str) -> Body {
    let call = || CallId(words.into());
    match verb {
        "text" => Body::Text { message: MessageId(1), text: words.into() },
        "notice" => Body::Notice { level: NoticeLevel::Info, text: words.into() },
        "usage" => Body::Usage(Usage { input: number(words), ..Usage::default() }),
        "tool" => started(words),
        "output" => Body::ToolOutput { call: call(), stream: OutputStream::Stdout, text: "…".into() },
        "done" => ended(words),
        "turn-started" => Body::TurnStarted,
        "turn-ended" => Body::TurnEnded { stop: Stop::EndTurn, error: None },
        "user" => Body::UserMessage { content: vec![Content::text(words)] },
        "queued" => Body::TurnQueued { content: Vec::new() },
        "asked" => Body::Asked { ask: AskId(1), request: Box::new(action("ask", words, ToolClass::Execute)) },
        "cancelled" => Body::CancelRequested { reason: None },
        "setting" => Body::SettingChanged { id: MODE.into(), value: words.into() },
        "moved" => Body::Moved { cwd: words.into(), from: None },
        _ => panic!("the agent cannot {verb}"),
    }
}

fn show(effect: &Effect) -> String {
    match effect {
        Effect::Record { origin, turn, event: crate::backend::NewEvent { body, .. } } => {
            let turn = turn.map_or_else(|| "-".to_owned(), |turn| turn.0.to_string());
            format!("{turn} {}", show_body(origin, body))
        }
        Effect::GoOnAfter { seen } => format!("> go on after {seen}"),
        Effect::StartTurn { turn, .. } => format!("> start {}", turn.0),
        Effect::CancelTurn { turn } => format!("> cancel {}", turn.0),
        Effect::Wait { ask } => format!("> wait for {}", ask.0),
        Effect::Settle { resolution, reason } => format!("> tell the tool {resolution:?}: {reason}"),
        Effect::Wake { ask, said: Some(said), .. } => format!("> wake {} with {said:?}", ask.0),
        Effect::Wake { ask, resolution, reason, said: None } => {
            format!("> wake {} {resolution:?}: {reason}", ask.0)
        }
        Effect::Remember { tool, subject, consent: None, scope, allow } => {
            let scope = match scope {
                RuleScope::Shown => "",
                RuleScope::Subject => "exactly ",
                RuleScope::Arguments(_) => "exact arguments of ",
            };
            format!("> remember {scope}{tool} {subject}: {allow}")
        }
        Effect::Remember { consent: Some(digest), allow, .. } => format!("> remember {digest}: {allow}"),
        Effect::Accepted { turn } => format!("> accepted {}", turn.0),
        Effect::Stop => "> stop".into(),
    }
}

fn show_body(origin: &Origin, body: &Body) -> String {
    let by = match origin {
        Origin::Engine => "engine".into(),
        Origin::Agent => "agent".into(),
        Origin::Task { call } => format!("task {}", call.0).into(),
        Origin::Surface { name, .. } => Arc::clone(name),
    };
    match body.family() {
        Family::Turn(TurnEvent::Queued { .. }) => format!("queued by {by}"),
        Family::Turn(TurnEvent::Started) => format!("started by {by}"),
        Family::Turn(TurnEvent::UserMessage { content }) => match content.first() {
            Some(Content::Text(text)) => format!("{by} says: {text}"),
            other => format!("{by} says: {other:?}"),
        },
        Family::Speech(SpeechEvent::Text { text, .. }) => format!("text: {text}"),
        Family::Tool(ToolEvent::Started(start)) => format!("tool {} started", start.call.0),
        Family::Speech(SpeechEvent::Output { call, .. }) => format!("tool {} writes", call.0),
        Family::Tool(ToolEvent::Ended(end)) => {
            format!("tool {} {} by {by}", end.call.0, if end.failed { "failed" } else { "ended" })
        }
        Family::Permission(PermissionEvent::Asked { ask, request }) => {
            format!("ask {}: {}?", ask.0, request.subject)
        }
        Family::Permission(PermissionEvent::Resolved { ask, resolution, by, .. }) => {
            let by = match by {
                Resolver::Policy { .. } => "policy",
                Resolver::Rule { .. } => "rule",
                Resolver::Surface { name, .. } => name,
                Resolver::Engine => "engine",
            };
            format!("ask {}: {resolution:?} by {by}", ask.0)
        }
        Family::Turn(TurnEvent::CancelRequested { reason: None }) => format!("cancel by {by}"),
        Family::Turn(TurnEvent::CancelRequested { reason: Some(reason) }) => {
            format!("cancel by {by}: {reason}")
        }
        Family::Setup(SetupEvent::Setting { id, value }) => format!("{id} = {value} by {by}"),
        Family::Setup(SetupEvent::Title { title }) => format!("title: {title} by {by}"),
        Family::Setup(SetupEvent::Moved { cwd, .. }) => format!("moved to {}", cwd.display()),
        Family::Turn(TurnEvent::Ended { stop, .. }) => format!("ended by {by}: {stop:?}"),
        Family::Speech(_)
        | Family::Tool(_)
        | Family::Usage(_)
        | Family::Setup(_)
        | Family::Context(_)
        | Family::Other => show_other(body),
    }
}

fn show_other(body: &Body) -> String {
    if let Body::PolicyBlocked { mode, .. } = body {
        format!("blocked by {mode}")
    } else if let Body::Notice { text, .. } = body {
        format!("notice: {text}")
    } else {
        format!("{body:?}")
    }
}
