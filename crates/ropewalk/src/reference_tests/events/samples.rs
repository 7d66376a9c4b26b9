//! A sample of every kind of event with all of its fields: a new field does not compile before it is here.

use engine::{
    AskId, AskOption, AskRequest, Body, CallId, Category, Choice, CommandSpec, Content, Exit, FileChange,
    ForeignAsk, Location, MessageId, NoticeLevel, Opaque, OutputStream, PlanEntry, Priority, Question,
    Resolution, Resolver, Risk, SessionId, SettingSpec, Standing, StepStatus, Stop, SurfaceId, TerminalId,
    ToolChange, ToolClass, ToolContent, ToolEnd, ToolKind, ToolStart, Usage,
};

/// The first of a kind has every field; further ones are shown differently to clients.
pub fn all() -> Vec<Body> {
    [spoken(), tools(), permissions(), settings(), turns()].concat()
}

fn call() -> CallId {
    CallId("c1".into())
}

fn change() -> FileChange {
    FileChange { path: "/w/a".into(), before: Some("a".into()), after: Some("b".into()) }
}

fn location() -> Location {
    Location { path: "/w/a".into(), line: Some(1) }
}

fn spoken() -> Vec<Body> {
    let (message, content) = (MessageId(1), vec![Content::text("a")]);
    let step = PlanEntry { content: "a".into(), priority: Priority::High, status: StepStatus::Pending };
    vec![
        Body::TurnQueued { content: content.clone() },
        Body::TurnStarted,
        Body::UserMessage { content },
        Body::Text { message, text: "a".into() },
        Body::Thought { message, text: "a".into() },
        Body::Plan { entries: vec![step] },
    ]
}

fn tools() -> Vec<Body> {
    vec![
        Body::ToolStarted(Box::new(ToolStart {
            call: call(),
            tool: "shell".into(),
            title: "a".into(),
            kind: ToolKind::Execute,
            locations: vec![location()],
            input: Opaque("{}".into()),
            client_terminal: Some(SurfaceId(1)),
        })),
        Body::ToolOutput { call: call(), stream: OutputStream::Stdout, text: "a".into() },
        Body::ToolTerminal { call: call(), terminal: TerminalId("t".into()), surface: SurfaceId(1) },
        Body::ToolChanged(Box::new(ToolChange {
            call: call(),
            title: Some("a".into()),
            kind: Some(ToolKind::Execute),
            locations: Some(vec![location()]),
            input: Some(Opaque("{}".into())),
            content: Some(vec![ToolContent::Diff(change())]),
        })),
        Body::ToolEnded(Box::new(ToolEnd {
            call: call(),
            failed: true,
            content: vec![ToolContent::Diff(change())],
            locations: vec![location()],
            raw: Some(Opaque("{}".into())),
            exit: Some(Exit { code: Some(1), signal: Some("SIGTERM".into()) }),
            plain_text: true,
            elapsed_ms: 1,
        })),
        Body::FileEdited { call: Some(call()), change: change() },
        Body::FileShown { location: location() },
    ]
}

fn permissions() -> Vec<Body> {
    let option = AskOption { id: "yes".into(), name: "Yes".into(), means: Resolution::AllowedOnce };
    let request = AskRequest {
        call: Some(call()),
        tool: "shell".into(),
        title: "a".into(),
        kind: ToolKind::Execute,
        class: ToolClass::Execute,
        path: Some("/w/a".into()),
        subject: "a".into(),
        input: Opaque("{}".into()),
        risk: Risk::Low,
        reason: "a".into(),
        preview: vec![ToolContent::Diff(change())],
        question: Some(Question { text: "a".into(), choices: vec!["b".into()], free_text: true }),
        foreign: Some(Box::new(ForeignAsk { options: vec![option], params: Opaque("{}".into()) })),
        consent: Some("a".into()),
        rule: Some("shell(a:*)".into()),
    };
    let by = Resolver::Surface {
        id: SurfaceId(1),
        name: "editor".into(),
        remote: Some("anna".into()),
        standing: Standing::OwnerAtMachine,
    };
    vec![
        Body::Asked { ask: AskId(1), request: Box::new(request) },
        Body::Resolved {
            ask: AskId(1),
            call: Some(call()),
            resolution: Resolution::AllowedOnce,
            by,
            reply: Some("a".into()),
            exactly: true,
        },
        Body::CancelRequested { reason: Some("a".into()) },
        Body::PolicyBlocked {
            call: Some(call()),
            tool: "shell".into(),
            path: Some("/w/a".into()),
            mode: "read-only".into(),
            reason: "a".into(),
        },
    ]
}

fn settings() -> Vec<Body> {
    let spec = SettingSpec {
        id: "model".into(),
        name: "Model".into(),
        description: "a".into(),
        category: Category::Model,
        choices: vec![Choice { value: "a".into(), name: "A".into(), description: "b".into() }],
        default: "a".into(),
        words: Some(Opaque("{}".into())),
    };
    let command = CommandSpec { name: "help".into(), description: "a".into(), hint: Some("b".into()) };
    vec![
        Body::SettingChanged { id: "model".into(), value: "a".into() },
        Body::Offered { settings: vec![spec] },
        Body::Joined {
            agent: "a".into(),
            session: "b".into(),
            of: SessionId::parse("s-1").unwrap(),
            extra: Some(Opaque("{}".into())),
        },
        Body::Usage(Usage {
            context_used: 1,
            context_size: 1,
            input: 1,
            output: 1,
            cache_read: 1,
            cache_write: 1,
            reasoning: 1,
            cost_usd: 0.5,
            unpriced: true,
        }),
        Body::Commands { commands: vec![command] },
        Body::Title { title: "a".into() },
        Body::Notice { level: NoticeLevel::Info, text: "a".into() },
        Body::Notice { level: NoticeLevel::Error, text: "a".into() },
    ]
}

fn turns() -> Vec<Body> {
    let ended = |stop: &Stop| Body::TurnEnded { stop: *stop, error: Some("a".into()) };
    let mut bodies = vec![
        Body::Cleared,
        Body::Compacting { given_up: true },
        Body::Compacted { summary: "a".into() },
        Body::Moved { cwd: "/w".into(), from: Some("/v".into()) },
        Body::Foreign { payload: Opaque("{}".into()) },
    ];
    bodies.extend(Stop::ALL.iter().map(ended));
    bodies
}
