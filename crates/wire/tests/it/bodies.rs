//! Arbitrary events: one strategy per type, so that a new variant is added in one place.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::PathBuf;
use std::sync::Arc;

use engine::{
    AskId, AskRequest, Body, CallId, Category, Choice, CommandSpec, Content, Exit, FileChange, Location,
    MessageId, NoticeLevel, Opaque, OutputStream, PlanEntry, Priority, Question, Resolution, Resolver,
    ResourceLink, Risk, SessionId, SettingSpec, Standing, StepStatus, Stop, SurfaceId, TerminalId,
    ToolChange, ToolClass, ToolContent, ToolEnd, ToolKind, ToolStart, Usage,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

fn text() -> BoxedStrategy<Arc<str>> {
    prop_oneof![".{0,24}", "[\\x00-\\x1f\"\\\\]{0,8}"].prop_map(Arc::from).boxed()
}

pub fn path() -> BoxedStrategy<PathBuf> {
    let bytes = vec(any::<u8>(), 0..12).prop_map(|bytes| {
        use std::os::unix::ffi::OsStringExt;
        PathBuf::from(std::ffi::OsString::from_vec(bytes))
    });
    prop_oneof![".{0,24}".prop_map(PathBuf::from), bytes].boxed()
}

fn call() -> impl Strategy<Value = CallId> {
    text().prop_map(CallId)
}

fn content() -> impl Strategy<Value = Content> {
    prop_oneof![
        text().prop_map(Content::Text),
        (text(), text(), option::of(text())).prop_map(|(mime, data, uri)| Content::Image { mime, data, uri }),
        (text(), text()).prop_map(|(mime, data)| Content::Audio { mime, data }),
        (text(), text(), vec(option::of(text()), 3), any::<Option<u64>>()).prop_map(
            |(uri, name, rest, size_bytes)| {
                let [mime, title, description] = rest.try_into().unwrap();
                Content::Link(ResourceLink { uri, name, mime, title, description, size_bytes })
            }
        ),
        (text(), option::of(text()), text()).prop_map(|(uri, mime, text)| Content::Resource {
            uri,
            mime,
            text
        }),
        (text(), option::of(text()), text()).prop_map(|(uri, mime, data)| Content::Binary {
            uri,
            mime,
            data
        }),
    ]
}

fn change() -> impl Strategy<Value = FileChange> {
    (path(), option::of(text()), option::of(text())).prop_map(|(path, before, after)| FileChange {
        path,
        before,
        after,
    })
}

fn tool_contents() -> impl Strategy<Value = Vec<ToolContent>> {
    vec(prop_oneof![content().prop_map(ToolContent::Block), change().prop_map(ToolContent::Diff)], 0..3)
}

fn location() -> impl Strategy<Value = Location> {
    (path(), any::<Option<u32>>()).prop_map(|(path, line)| Location { path, line })
}

fn tool_kind() -> impl Strategy<Value = ToolKind> {
    use ToolKind::{Delete, Edit, Execute, Fetch, Move, Other, Read, Search, SwitchMode, Think};
    select(vec![Read, Edit, Delete, Move, Search, Execute, Think, Fetch, SwitchMode, Other])
}

fn tool_start() -> impl Strategy<Value = ToolStart> {
    let client_terminal = option::of(any::<u64>().prop_map(SurfaceId));
    (call(), text(), text(), tool_kind(), vec(location(), 0..3), text(), client_terminal).prop_map(
        |(call, tool, title, kind, locations, input, client_terminal)| ToolStart {
            call,
            tool,
            title,
            kind,
            locations,
            input: Opaque(input),
            client_terminal,
        },
    )
}

fn tool_end() -> impl Strategy<Value = ToolEnd> {
    let exit = (any::<Option<i32>>(), option::of(text())).prop_map(|(code, signal)| Exit { code, signal });
    let raw = option::of(text().prop_map(Opaque));
    let flags = (any::<bool>(), any::<bool>());
    (call(), flags, tool_contents(), vec(location(), 0..3), raw, option::of(exit), any::<u64>()).prop_map(
        |(call, (failed, plain_text), content, locations, raw, exit, elapsed_ms)| ToolEnd {
            call,
            plain_text,
            failed,
            content,
            locations,
            raw,
            exit,
            elapsed_ms,
        },
    )
}

fn ask_request() -> impl Strategy<Value = AskRequest> {
    use ToolClass::{Edit, Execute, Network, Read};
    let class = select(vec![Read, Edit, Execute, Network]);
    let risk = select(vec![Risk::Low, Risk::Medium, Risk::High, Risk::Critical]);
    let words = (text(), text(), text(), text(), text());
    let question = (text(), vec(text(), 0..3), any::<bool>())
        .prop_map(|(text, choices, free_text)| Question { text, choices, free_text });
    let shown = (tool_contents(), option::of(question), option::of(text()), option::of(text()));
    (option::of(call()), words, tool_kind(), class, option::of(path()), risk, shown).prop_map(
        |(
            call,
            (tool, title, subject, input, reason),
            kind,
            class,
            path,
            risk,
            (preview, question, consent, rule),
        )| {
            AskRequest {
                call,
                tool,
                title,
                kind,
                class,
                path,
                subject,
                input: Opaque(input),
                risk,
                reason,
                preview,
                question,
                foreign: None,
                consent,
                rule,
            }
        },
    )
}

fn resolution() -> impl Strategy<Value = Resolution> {
    use Resolution::{
        AllowedAlways, AllowedOnce, Cancelled, DeniedAlways, DeniedOnce, EndedByRestart, TimedOut,
    };
    select(vec![AllowedOnce, AllowedAlways, DeniedOnce, DeniedAlways, Cancelled, TimedOut, EndedByRestart])
}

fn resolver() -> impl Strategy<Value = Resolver> {
    prop_oneof![
        text().prop_map(|reason| Resolver::Policy { reason }),
        text().prop_map(|reason| Resolver::Rule { reason }),
        (any::<u64>(), text(), proptest::option::of(text()), select(Standing::ALL.to_vec())).prop_map(
            |(id, name, remote, standing)| Resolver::Surface { id: SurfaceId(id), name, remote, standing }
        ),
        Just(Resolver::Engine),
    ]
}

fn usage() -> impl Strategy<Value = Usage> {
    let cost = prop_oneof![any::<f64>().prop_filter("finite", |cost| cost.is_finite()), 0.0..10.0f64];
    (any::<[u64; 7]>(), cost).prop_map(|(n, cost_usd)| Usage {
        context_used: n[0],
        context_size: n[1],
        input: n[2],
        output: n[3],
        cache_read: n[4],
        cache_write: n[5],
        reasoning: n[6],
        cost_usd,
        unpriced: n[0] % 2 == 1,
    })
}

fn spec() -> impl Strategy<Value = SettingSpec> {
    let choice =
        (text(), text(), text()).prop_map(|(value, name, description)| Choice { value, name, description });
    let category = select(vec![
        Category::Mode,
        Category::Model,
        Category::ModelConfig,
        Category::ThoughtLevel,
        Category::Other,
    ]);
    (text(), text(), text(), category, vec(choice, 0..3), text()).prop_map(
        |(id, name, description, category, choices, default)| SettingSpec {
            id,
            name,
            description,
            category,
            choices,
            default,
            words: None,
        },
    )
}

fn tool_change() -> impl Strategy<Value = ToolChange> {
    let known = (option::of(text()), option::of(tool_kind()), option::of(vec(location(), 0..3)));
    (call(), known, option::of(text()), option::of(tool_contents())).prop_map(
        |(call, (title, kind, locations), input, content)| ToolChange {
            call,
            title,
            kind,
            locations,
            input: input.map(Opaque),
            content,
        },
    )
}

fn plan_entry() -> impl Strategy<Value = PlanEntry> {
    let priority = select(vec![Priority::High, Priority::Medium, Priority::Low]);
    let status = select(vec![StepStatus::Pending, StepStatus::InProgress, StepStatus::Completed]);
    (text(), priority, status).prop_map(|(content, priority, status)| PlanEntry { content, priority, status })
}

fn command() -> impl Strategy<Value = CommandSpec> {
    (text(), text(), option::of(text())).prop_map(|(name, description, hint)| CommandSpec {
        name,
        description,
        hint,
    })
}

pub fn any_body() -> impl Strategy<Value = Body> {
    prop_oneof![spoken(), worked(), decided(), kept_aside()]
}

fn spoken() -> impl Strategy<Value = Body> {
    prop_oneof![
        vec(content(), 0..3).prop_map(|content| Body::TurnQueued { content }),
        Just(Body::TurnStarted),
        vec(content(), 0..3).prop_map(|content| Body::UserMessage { content }),
        (any::<u64>(), text()).prop_map(|(id, text)| Body::Text { message: MessageId(id), text }),
        (any::<u64>(), text()).prop_map(|(id, text)| Body::Thought { message: MessageId(id), text }),
        vec(plan_entry(), 0..3).prop_map(|entries| Body::Plan { entries }),
    ]
}

fn worked() -> impl Strategy<Value = Body> {
    let stream = select(vec![OutputStream::Stdout, OutputStream::Stderr]);
    prop_oneof![
        tool_start().prop_map(|start| Body::ToolStarted(Box::new(start))),
        (call(), stream, text()).prop_map(|(call, stream, text)| Body::ToolOutput { call, stream, text }),
        (call(), text(), any::<u64>()).prop_map(|(call, terminal, surface)| Body::ToolTerminal {
            call,
            terminal: TerminalId(terminal),
            surface: SurfaceId(surface),
        }),
        tool_end().prop_map(|end| Body::ToolEnded(Box::new(end))),
        (option::of(call()), change()).prop_map(|(call, change)| Body::FileEdited { call, change }),
        location().prop_map(|location| Body::FileShown { location }),
    ]
}

fn decided() -> impl Strategy<Value = Body> {
    prop_oneof![
        (any::<u64>(), ask_request())
            .prop_map(|(ask, request)| Body::Asked { ask: AskId(ask), request: Box::new(request) }),
        (any::<u64>(), option::of(call()), resolution(), resolver(), option::of(text()), any::<bool>())
            .prop_map(|(ask, call, resolution, by, reply, exactly)| {
                let ask = AskId(ask);
                Body::Resolved { ask, call, resolution, by, reply, exactly }
            }),
        option::of(text()).prop_map(|reason| Body::CancelRequested { reason }),
        (option::of(call()), text(), option::of(path()), text(), text()).prop_map(
            |(call, tool, path, mode, reason)| Body::PolicyBlocked { call, tool, path, mode, reason }
        ),
        (text(), text()).prop_map(|(id, value)| Body::SettingChanged { id, value }),
    ]
}

fn kept_aside() -> impl Strategy<Value = Body> {
    use Stop::{Cancelled, EndTurn, Failed, Interrupted, MaxTokens, MaxTurnRequests, Refusal};
    let level =
        select(vec![NoticeLevel::Info, NoticeLevel::Warning, NoticeLevel::Error, NoticeLevel::Damage]);
    let stop = select(vec![EndTurn, MaxTokens, MaxTurnRequests, Refusal, Cancelled, Failed, Interrupted]);
    prop_oneof![
        usage().prop_map(Body::Usage),
        vec(command(), 0..3).prop_map(|commands| Body::Commands { commands }),
        text().prop_map(|title| Body::Title { title }),
        (level, text()).prop_map(|(level, text)| Body::Notice { level, text }),
        Just(Body::Cleared),
        any::<bool>().prop_map(|given_up| Body::Compacting { given_up }),
        text().prop_map(|summary| Body::Compacted { summary }),
        (path(), option::of(path())).prop_map(|(cwd, from)| Body::Moved { cwd, from }),
        (text(), text(), "[a-z]{1,8}").prop_map(|(agent, session, of)| {
            let of = SessionId::parse(&of).unwrap();
            Body::Joined { agent, session, of, extra: Some(Opaque("{\"models\":1}".into())) }
        }),
        vec(spec(), 0..3).prop_map(|settings| Body::Offered { settings }),
        tool_change().prop_map(|change| Body::ToolChanged(Box::new(change))),
        text().prop_map(|payload| Body::Foreign { payload: Opaque(payload) }),
        (stop, option::of(text())).prop_map(|(stop, error)| Body::TurnEnded { stop, error }),
    ]
}
