//! Selects the stored form: by body when writing, by kind when reading.

use engine::Body;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::content::{FileEditedRecord, LocationRecord};
use super::external::{JoinedRecord, OfferedRecord, ToolChangeRecord};
use super::message::{
    BlocksRecord, CancelRecord, CommandsRecord, CompactingRecord, EmptyRecord, MessageRecord, MovedRecord,
    NoticeRecord, PlainRecord, PlanRecord, SettingRecord, TurnEndedRecord, UsageRecord,
};
use super::tool::{
    AskedRecord, PolicyBlockedRecord, ResolvedRecord, ToolEndRecord, ToolOutputRecord, ToolStartRecord,
    ToolTerminalRecord,
};
use super::{GetBlob, PutBlob, RecordError};

/// The name of a body's kind, which is stored beside the body.
pub fn kind(body: &Body) -> &'static str {
    match body {
        Body::TurnQueued { .. } => "turn_queued",
        Body::TurnStarted => "turn_started",
        Body::UserMessage { .. } => "user_message",
        Body::Text { .. } => "text",
        Body::Thought { .. } => "thought",
        Body::Plan { .. } => "plan",
        Body::ToolStarted(_) => "tool_started",
        Body::ToolOutput { .. } => "tool_output",
        Body::ToolTerminal { .. } => "tool_terminal",
        Body::ToolChanged(_) => "tool_changed",
        Body::ToolEnded(_) => "tool_ended",
        Body::FileEdited { .. } => "file_edited",
        Body::FileShown { .. } => "file_shown",
        Body::Asked { .. } => "asked",
        Body::Resolved { .. } => "resolved",
        Body::CancelRequested { .. } => "cancel_requested",
        Body::PolicyBlocked { .. } => "policy_blocked",
        Body::SettingChanged { .. } => "setting_changed",
        Body::Offered { .. } => "offered",
        Body::Joined { .. } => "joined",
        Body::Usage(_) => "usage",
        Body::Commands { .. } => "commands",
        Body::Title { .. } => "title",
        Body::Notice { .. } => "notice",
        Body::Cleared => "cleared",
        Body::Compacting { .. } => "compacting",
        Body::Compacted { .. } => "compacted",
        Body::Moved { .. } => "moved",
        Body::Foreign { .. } => "foreign",
        Body::TurnEnded { .. } => "turn_ended",
    }
}

/// The destination of a stored form.
pub(super) trait RecordSink {
    fn put(&mut self, record: &impl Serialize) -> Result<(), RecordError>;
}

/// Appends it as text.
impl RecordSink for Vec<u8> {
    fn put(&mut self, record: &impl Serialize) -> Result<(), RecordError> {
        Ok(serde_json::to_writer(self, record)?)
    }
}

/// Becomes what was written.
impl RecordSink for Value {
    fn put(&mut self, record: &impl Serialize) -> Result<(), RecordError> {
        *self = serde_json::to_value(record)?;
        Ok(())
    }
}

pub(super) fn encode(
    body: &Body,
    keep: &mut PutBlob<'_>,
    out: &mut impl RecordSink,
) -> Result<(), RecordError> {
    match body {
        Body::Text { message, text } | Body::Thought { message, text } => {
            out.put(&MessageRecord::of(*message, text, keep))
        }
        Body::TurnStarted | Body::Cleared => out.put(&EmptyRecord {}),
        Body::CancelRequested { reason } => out.put(&CancelRecord::of(reason.as_ref(), keep)),
        Body::TurnQueued { content } | Body::UserMessage { content } => {
            out.put(&BlocksRecord::of(content, keep))
        }
        Body::Plan { entries } => out.put(&PlanRecord::of(entries, keep)),
        Body::ToolStarted(start) => out.put(&ToolStartRecord::of(start, keep)),
        Body::ToolOutput { call, stream, text } => out.put(&ToolOutputRecord::of(call, *stream, text, keep)),
        Body::ToolTerminal { call, terminal, surface } => {
            out.put(&ToolTerminalRecord::of(call, terminal, *surface))
        }
        Body::ToolChanged(change) => out.put(&ToolChangeRecord::of(change, keep)),
        Body::ToolEnded(end) => out.put(&ToolEndRecord::of(end, keep)),
        Body::FileEdited { call, change } => out.put(&FileEditedRecord::of(call.as_ref(), change, keep)),
        Body::FileShown { location } => out.put(&LocationRecord::of(location)),
        Body::Asked { ask, request } => out.put(&AskedRecord::of(*ask, request, keep)),
        Body::Resolved { ask, call, resolution, by, reply, exactly } => {
            let record = ResolvedRecord::of((*ask, call.as_ref()), *resolution, by, reply.as_ref(), keep);
            out.put(&record.exactly(*exactly))
        }
        Body::PolicyBlocked { call, tool, path, mode, reason } => {
            out.put(&PolicyBlockedRecord::of(call.as_ref(), path.as_ref(), [tool, mode, reason], keep))
        }
        Body::SettingChanged { id, value } => out.put(&SettingRecord::of(id, value, keep)),
        Body::Offered { settings } => out.put(&OfferedRecord::of(settings, keep)),
        Body::Joined { agent, session, of, extra } => {
            out.put(&JoinedRecord::of([agent, session], of, extra.as_ref(), keep))
        }
        Body::Usage(usage) => out.put(&UsageRecord::of(usage)),
        Body::Commands { commands } => out.put(&CommandsRecord::of(commands, keep)),
        Body::Title { title } => out.put(&PlainRecord::of(title, keep)),
        Body::Notice { level, text } => out.put(&NoticeRecord::of(*level, text, keep)),
        Body::Compacting { given_up } => out.put(&CompactingRecord { given_up: *given_up }),
        Body::Compacted { summary } => out.put(&PlainRecord::of(summary, keep)),
        Body::Moved { cwd, from } => out.put(&MovedRecord::of(cwd, from.as_deref())),
        Body::Foreign { payload } => out.put(&PlainRecord::of(&payload.0, keep)),
        Body::TurnEnded { stop, error } => out.put(&TurnEndedRecord::of(*stop, error.as_ref(), keep)),
    }
}

pub(super) fn decode(kind: &str, bytes: &[u8], fetch: &GetBlob<'_>) -> Result<Body, RecordError> {
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
        "cancel_requested" => take::<CancelRecord<'_>>(bytes)?.body(fetch),
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

fn take<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, RecordError> {
    Ok(serde_json::from_slice(bytes)?)
}
