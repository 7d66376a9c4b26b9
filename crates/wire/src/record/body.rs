//! The two places that choose a stored form: by body when writing, by name when reading.

use engine::Body;
use serde::{Deserialize, Serialize};

use super::content::{FileEditedRecord, LocationRecord};
use super::foreign::{JoinedRecord, OfferedRecord, ToolChangeRecord};
use super::said::{
    BlocksRecord, CommandsRecord, CompactingRecord, EmptyRecord, MessageRecord, MovedRecord, NoticeRecord,
    PlainRecord, PlanRecord, SettingRecord, TurnEndedRecord, UsageRecord,
};
use super::tool::{
    AskedRecord, PolicyBlockedRecord, ResolvedRecord, ToolEndRecord, ToolOutputRecord, ToolStartRecord,
    ToolTerminalRecord,
};
use super::{Fetch, Keep, RecordError};

pub(super) fn encode(body: &Body, keep: &mut Keep<'_>, out: &mut Vec<u8>) -> Result<(), RecordError> {
    match body {
        Body::Text { message, text } | Body::Thought { message, text } => {
            put(out, &MessageRecord::of(*message, text, keep))
        }
        Body::TurnStarted | Body::CancelRequested | Body::Cleared => put(out, &EmptyRecord {}),
        Body::TurnQueued { content } | Body::UserMessage { content } => {
            put(out, &BlocksRecord::of(content, keep))
        }
        Body::Plan { entries } => put(out, &PlanRecord::of(entries, keep)),
        Body::ToolStarted(start) => put(out, &ToolStartRecord::of(start, keep)),
        Body::ToolOutput { call, stream, text } => put(out, &ToolOutputRecord::of(call, *stream, text, keep)),
        Body::ToolTerminal { call, terminal, surface } => {
            put(out, &ToolTerminalRecord::of(call, terminal, *surface))
        }
        Body::ToolChanged(change) => put(out, &ToolChangeRecord::of(change, keep)),
        Body::ToolEnded(end) => put(out, &ToolEndRecord::of(end, keep)),
        Body::FileEdited { call, change } => put(out, &FileEditedRecord::of(call.as_ref(), change, keep)),
        Body::FileShown { location } => put(out, &LocationRecord::of(location)),
        Body::Asked { ask, request } => put(out, &AskedRecord::of(*ask, request, keep)),
        Body::Resolved { ask, call, resolution, by, reply, exactly } => {
            let record = ResolvedRecord::of((*ask, call.as_ref()), *resolution, by, reply.as_ref(), keep);
            put(out, &record.exactly(*exactly))
        }
        Body::PolicyBlocked { call, tool, path, mode, reason } => {
            put(out, &PolicyBlockedRecord::of(call.as_ref(), path.as_ref(), [tool, mode, reason], keep))
        }
        Body::SettingChanged { id, value } => put(out, &SettingRecord::of(id, value, keep)),
        Body::Offered { settings } => put(out, &OfferedRecord::of(settings, keep)),
        Body::Joined { agent, session, of, extra } => {
            put(out, &JoinedRecord::of([agent, session], of, extra.as_ref(), keep))
        }
        Body::Usage(usage) => put(out, &UsageRecord::of(usage)),
        Body::Commands { commands } => put(out, &CommandsRecord::of(commands, keep)),
        Body::Title { title } => put(out, &PlainRecord::of(title, keep)),
        Body::Notice { level, text } => put(out, &NoticeRecord::of(*level, text, keep)),
        Body::Compacting { given_up } => put(out, &CompactingRecord { given_up: *given_up }),
        Body::Compacted { summary } => put(out, &PlainRecord::of(summary, keep)),
        Body::Moved { cwd } => put(out, &MovedRecord::of(cwd)),
        Body::Foreign { payload } => put(out, &PlainRecord::of(&payload.0, keep)),
        Body::TurnEnded { stop, error } => put(out, &TurnEndedRecord::of(*stop, error.as_ref(), keep)),
    }
}

pub(super) fn decode(kind: &str, bytes: &[u8], fetch: &Fetch<'_>) -> Result<Body, RecordError> {
    match kind {
        "text" => take::<MessageRecord<'_>>(bytes)?.text(fetch),
        "thought" => take::<MessageRecord<'_>>(bytes)?.thought(fetch),
        "turn_queued" => take::<BlocksRecord<'_>>(bytes)?.turn_queued(fetch),
        "turn_started" => take::<EmptyRecord>(bytes).map(|_| Body::TurnStarted),
        "user_message" => take::<BlocksRecord<'_>>(bytes)?.user_message(fetch),
        "plan" => take::<PlanRecord<'_>>(bytes)?.body(fetch),
        "tool_started" => take::<ToolStartRecord<'_>>(bytes)?.body(fetch),
        "tool_output" => take::<ToolOutputRecord<'_>>(bytes)?.body(fetch),
        "tool_terminal" => take::<ToolTerminalRecord<'_>>(bytes)?.body(fetch),
        "tool_changed" => take::<ToolChangeRecord<'_>>(bytes)?.body(fetch),
        "tool_ended" => take::<ToolEndRecord<'_>>(bytes)?.body(fetch),
        "file_edited" => take::<FileEditedRecord<'_>>(bytes)?.body(fetch),
        "file_shown" => take::<LocationRecord<'_>>(bytes)?.file_shown(),
        "asked" => take::<AskedRecord<'_>>(bytes)?.body(fetch),
        "resolved" => take::<ResolvedRecord<'_>>(bytes)?.body(fetch),
        "cancel_requested" => take::<EmptyRecord>(bytes).map(|_| Body::CancelRequested),
        "policy_blocked" => take::<PolicyBlockedRecord<'_>>(bytes)?.body(fetch),
        "setting_changed" => take::<SettingRecord<'_>>(bytes)?.body(fetch),
        "offered" => take::<OfferedRecord<'_>>(bytes)?.body(fetch),
        "joined" => take::<JoinedRecord<'_>>(bytes)?.body(fetch),
        "usage" => take::<UsageRecord>(bytes).map(UsageRecord::body),
        "commands" => take::<CommandsRecord<'_>>(bytes)?.body(fetch),
        "title" => take::<PlainRecord<'_>>(bytes)?.title(fetch),
        "notice" => take::<NoticeRecord<'_>>(bytes)?.body(fetch),
        "cleared" => take::<EmptyRecord>(bytes).map(|_| Body::Cleared),
        "compacting" => {
            take::<CompactingRecord>(bytes).map(|record| Body::Compacting { given_up: record.given_up })
        }
        "compacted" => take::<PlainRecord<'_>>(bytes)?.compacted(fetch),
        "moved" => take::<MovedRecord<'_>>(bytes)?.body(),
        "foreign" => take::<PlainRecord<'_>>(bytes)?.foreign(fetch),
        "turn_ended" => take::<TurnEndedRecord<'_>>(bytes)?.body(fetch),
        _ => Err(RecordError::UnknownKind { kind: kind.to_owned() }),
    }
}

fn put(out: &mut Vec<u8>, record: &impl Serialize) -> Result<(), RecordError> {
    Ok(serde_json::to_writer(out, record)?)
}

fn take<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, RecordError> {
    Ok(serde_json::from_slice(bytes)?)
}
