//! The stored form of each kind of event, and the two places that choose one: by body when writing,
//! by name when reading.

use std::borrow::Cow;

use engine::{AskId, Body, CallId, MessageId, Opaque, Usage};
use serde::{Deserialize, Serialize};

use super::content::{ChangeRecord, CommandRecord, ContentRecord, LocationRecord, StepRecord};
use super::text::{Place, Str};
use super::tool::{AskRecord, ResolverRecord, ToolEndRecord, ToolStartRecord, call_option};
use super::word::Word;
use super::{Fetch, Keep, RecordError};

#[derive(Serialize, Deserialize)]
struct Nothing {}

#[derive(Serialize, Deserialize)]
struct Blocks<'a> {
    #[serde(borrow)]
    content: Vec<ContentRecord<'a>>,
}

#[derive(Serialize, Deserialize)]
struct Message<'a> {
    message: u64,
    #[serde(borrow)]
    text: Str<'a>,
}

#[derive(Serialize, Deserialize)]
struct Plan<'a> {
    #[serde(borrow)]
    entries: Vec<StepRecord<'a>>,
}

#[derive(Serialize, Deserialize)]
struct ToolOutput<'a> {
    #[serde(borrow)]
    call: Str<'a>,
    #[serde(borrow)]
    stream: Cow<'a, str>,
    #[serde(borrow)]
    text: Str<'a>,
}

#[derive(Serialize, Deserialize)]
struct FileEdited<'a> {
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    call: Option<Str<'a>>,
    #[serde(borrow)]
    change: ChangeRecord<'a>,
}

#[derive(Serialize, Deserialize)]
struct Asked<'a> {
    ask: u64,
    #[serde(borrow)]
    request: AskRecord<'a>,
}

#[derive(Serialize, Deserialize)]
struct Resolved<'a> {
    ask: u64,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    call: Option<Str<'a>>,
    #[serde(borrow)]
    resolution: Cow<'a, str>,
    #[serde(borrow)]
    by: ResolverRecord<'a>,
}

#[derive(Serialize, Deserialize)]
struct PolicyBlocked<'a> {
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    call: Option<Str<'a>>,
    #[serde(borrow)]
    tool: Str<'a>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    path: Option<Place<'a>>,
    #[serde(borrow)]
    mode: Str<'a>,
    #[serde(borrow)]
    reason: Str<'a>,
}

#[derive(Serialize, Deserialize)]
struct SettingChanged<'a> {
    #[serde(borrow)]
    id: Str<'a>,
    #[serde(borrow)]
    value: Str<'a>,
}

#[derive(Serialize, Deserialize)]
#[serde(default)]
#[derive(Default)]
struct UsageRecord {
    context_used: u64,
    context_size: u64,
    input: u64,
    output: u64,
    cache_read: u64,
    cache_write: u64,
    reasoning: u64,
    cost_usd: f64,
}

#[derive(Serialize, Deserialize)]
struct Commands<'a> {
    #[serde(borrow)]
    commands: Vec<CommandRecord<'a>>,
}

/// The kinds that hold one piece of text and nothing else.
#[derive(Serialize, Deserialize)]
struct Plain<'a> {
    #[serde(borrow)]
    text: Str<'a>,
}

#[derive(Serialize, Deserialize)]
struct Notice<'a> {
    #[serde(borrow)]
    level: Cow<'a, str>,
    #[serde(borrow)]
    text: Str<'a>,
}

#[derive(Serialize, Deserialize)]
struct Moved<'a> {
    #[serde(borrow)]
    cwd: Place<'a>,
}

#[derive(Serialize, Deserialize)]
struct TurnEnded<'a> {
    #[serde(borrow)]
    stop: Cow<'a, str>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    error: Option<Str<'a>>,
}

pub(super) fn encode(body: &Body, keep: &mut Keep<'_>, out: &mut Vec<u8>) -> Result<(), RecordError> {
    match body {
        Body::Text { message, text } | Body::Thought { message, text } => {
            put(out, &Message { message: message.0, text: Str::of(text, keep) })
        }
        Body::TurnStarted | Body::CancelRequested | Body::Cleared => put(out, &Nothing {}),
        Body::TurnQueued { content } | Body::UserMessage { content } => {
            put(out, &Blocks { content: ContentRecord::all(content, keep) })
        }
        Body::Plan { entries } => {
            put(out, &Plan { entries: entries.iter().map(|entry| StepRecord::of(entry, keep)).collect() })
        }
        Body::ToolStarted(start) => put(out, &ToolStartRecord::of(start, keep)),
        Body::ToolOutput { call, stream, text } => {
            let record = ToolOutput {
                call: Str::here(&call.0),
                stream: stream.word().into(),
                text: Str::of(text, keep),
            };
            put(out, &record)
        }
        Body::ToolEnded(end) => put(out, &ToolEndRecord::of(end, keep)),
        Body::FileEdited { call, change } => {
            put(out, &FileEdited { call: call_text(call), change: ChangeRecord::of(change, keep) })
        }
        Body::FileShown { location } => put(out, &LocationRecord::of(location)),
        Body::Asked { ask, request } => {
            put(out, &Asked { ask: ask.0, request: AskRecord::of(request, keep) })
        }
        Body::Resolved { ask, call, resolution, by } => {
            let by = ResolverRecord::of(by, keep);
            put(
                out,
                &Resolved { ask: ask.0, call: call_text(call), resolution: resolution.word().into(), by },
            )
        }
        Body::PolicyBlocked { call, tool, path, mode, reason } => {
            let path = Place::of_option(path.as_ref());
            let [tool, mode, reason] = [tool, mode, reason].map(|text| Str::of(text, keep));
            put(out, &PolicyBlocked { call: call_text(call), tool, path, mode, reason })
        }
        Body::SettingChanged { id, value } => {
            put(out, &SettingChanged { id: Str::of(id, keep), value: Str::of(value, keep) })
        }
        Body::Usage(usage) => put(out, &UsageRecord::of(usage)),
        Body::Commands { commands } => {
            let commands = commands.iter().map(|command| CommandRecord::of(command, keep)).collect();
            put(out, &Commands { commands })
        }
        Body::Title { title: text } | Body::Compacted { summary: text } => {
            put(out, &Plain { text: Str::of(text, keep) })
        }
        Body::Foreign { payload } => put(out, &Plain { text: Str::of(&payload.0, keep) }),
        Body::Notice { level, text } => {
            put(out, &Notice { level: level.word().into(), text: Str::of(text, keep) })
        }
        Body::Moved { cwd } => put(out, &Moved { cwd: Place::of(cwd) }),
        Body::TurnEnded { stop, error } => {
            put(out, &TurnEnded { stop: stop.word().into(), error: Str::of_option(error.as_ref(), keep) })
        }
    }
}

pub(super) fn decode(kind: &str, bytes: &[u8], fetch: &Fetch<'_>) -> Result<Body, RecordError> {
    Ok(match kind {
        "text" => {
            let Message { message, text } = take(bytes)?;
            Body::Text { message: MessageId(message), text: text.fetched(fetch)? }
        }
        "thought" => {
            let Message { message, text } = take(bytes)?;
            Body::Thought { message: MessageId(message), text: text.fetched(fetch)? }
        }
        "turn_queued" => Body::TurnQueued { content: take::<Blocks<'_>>(bytes)?.contents(fetch)? },
        "turn_started" => empty(bytes, Body::TurnStarted)?,
        "user_message" => Body::UserMessage { content: take::<Blocks<'_>>(bytes)?.contents(fetch)? },
        "plan" => {
            let entries = take::<Plan<'_>>(bytes)?.entries;
            Body::Plan {
                entries: entries.into_iter().map(|entry| entry.entry(fetch)).collect::<Result<_, _>>()?,
            }
        }
        "tool_started" => Body::ToolStarted(Box::new(take::<ToolStartRecord<'_>>(bytes)?.start(fetch)?)),
        "tool_output" => take::<ToolOutput<'_>>(bytes)?.body(fetch)?,
        "tool_ended" => Body::ToolEnded(Box::new(take::<ToolEndRecord<'_>>(bytes)?.end(fetch)?)),
        "file_edited" => {
            let FileEdited { call, change } = take(bytes)?;
            Body::FileEdited { call: call_option(call, fetch)?, change: change.change(fetch)? }
        }
        "file_shown" => Body::FileShown { location: take::<LocationRecord<'_>>(bytes)?.location()? },
        "asked" => {
            let Asked { ask, request } = take(bytes)?;
            Body::Asked { ask: AskId(ask), request: Box::new(request.request(fetch)?) }
        }
        "resolved" => take::<Resolved<'_>>(bytes)?.body(fetch)?,
        "cancel_requested" => empty(bytes, Body::CancelRequested)?,
        "policy_blocked" => take::<PolicyBlocked<'_>>(bytes)?.body(fetch)?,
        "setting_changed" => {
            let SettingChanged { id, value } = take(bytes)?;
            Body::SettingChanged { id: id.fetched(fetch)?, value: value.fetched(fetch)? }
        }
        "usage" => Body::Usage(take::<UsageRecord>(bytes)?.usage()),
        "commands" => {
            let commands = take::<Commands<'_>>(bytes)?.commands.into_iter();
            Body::Commands {
                commands: commands.map(|command| command.command(fetch)).collect::<Result<_, _>>()?,
            }
        }
        "title" => Body::Title { title: take::<Plain<'_>>(bytes)?.text.fetched(fetch)? },
        "notice" => {
            let Notice { level, text } = take(bytes)?;
            Body::Notice { level: Word::of_word(&level)?, text: text.fetched(fetch)? }
        }
        "cleared" => empty(bytes, Body::Cleared)?,
        "compacted" => Body::Compacted { summary: take::<Plain<'_>>(bytes)?.text.fetched(fetch)? },
        "moved" => Body::Moved { cwd: take::<Moved<'_>>(bytes)?.cwd.path()? },
        "foreign" => Body::Foreign { payload: Opaque(take::<Plain<'_>>(bytes)?.text.fetched(fetch)?) },
        "turn_ended" => {
            let TurnEnded { stop, error } = take(bytes)?;
            Body::TurnEnded { stop: Word::of_word(&stop)?, error: Str::fetched_option(error, fetch)? }
        }
        _ => {
            return Err(RecordError::UnknownKind { kind: kind.to_owned() });
        }
    })
}

fn put(out: &mut Vec<u8>, record: &impl Serialize) -> Result<(), RecordError> {
    Ok(serde_json::to_writer(out, record)?)
}

fn take<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, RecordError> {
    Ok(serde_json::from_slice(bytes)?)
}

fn empty(bytes: &[u8], body: Body) -> Result<Body, RecordError> {
    let Nothing {} = take(bytes)?;
    Ok(body)
}

fn call_text(call: &Option<CallId>) -> Option<Str<'_>> {
    call.as_ref().map(|call| Str::here(&call.0))
}

impl Blocks<'_> {
    fn contents(self, fetch: &Fetch<'_>) -> Result<Vec<engine::Content>, RecordError> {
        self.content.into_iter().map(|content| content.content(fetch)).collect()
    }
}

impl ToolOutput<'_> {
    fn body(self, fetch: &Fetch<'_>) -> Result<Body, RecordError> {
        Ok(Body::ToolOutput {
            call: CallId(self.call.fetched(fetch)?),
            stream: Word::of_word(&self.stream)?,
            text: self.text.fetched(fetch)?,
        })
    }
}

impl Resolved<'_> {
    fn body(self, fetch: &Fetch<'_>) -> Result<Body, RecordError> {
        Ok(Body::Resolved {
            ask: AskId(self.ask),
            call: call_option(self.call, fetch)?,
            resolution: Word::of_word(&self.resolution)?,
            by: self.by.resolver(fetch)?,
        })
    }
}

impl PolicyBlocked<'_> {
    fn body(self, fetch: &Fetch<'_>) -> Result<Body, RecordError> {
        Ok(Body::PolicyBlocked {
            call: call_option(self.call, fetch)?,
            tool: self.tool.fetched(fetch)?,
            path: Place::path_option(self.path)?,
            mode: self.mode.fetched(fetch)?,
            reason: self.reason.fetched(fetch)?,
        })
    }
}

impl UsageRecord {
    fn of(usage: &Usage) -> Self {
        Self {
            context_used: usage.context_used,
            context_size: usage.context_size,
            input: usage.input,
            output: usage.output,
            cache_read: usage.cache_read,
            cache_write: usage.cache_write,
            reasoning: usage.reasoning,
            cost_usd: if usage.cost_usd.is_finite() { usage.cost_usd } else { 0.0 },
        }
    }

    fn usage(self) -> Usage {
        Usage {
            context_used: self.context_used,
            context_size: self.context_size,
            input: self.input,
            output: self.output,
            cache_read: self.cache_read,
            cache_write: self.cache_write,
            reasoning: self.reasoning,
            cost_usd: self.cost_usd,
        }
    }
}
