//! The stored form of messages, plans, notices, settings, usage and the end of a turn.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

use engine::{Body, CommandSpec, Content, MessageId, NoticeLevel, Opaque, PlanEntry, Stop, Usage};
use serde::{Deserialize, Serialize};

use super::content::{CommandRecord, ContentRecord, StepRecord};
use super::enum_words::Word;
use super::inline_or_blob_text::{StoredPath, StoredText};
use super::{GetBlob, PutBlob, RecordError};

#[derive(Serialize, Deserialize)]
pub(super) struct EmptyRecord {}

#[derive(Serialize, Deserialize)]
pub(super) struct CompactingRecord {
    pub(super) given_up: bool,
}

#[derive(Serialize, Deserialize)]
pub(super) struct MessageRecord<'a> {
    message: u64,
    #[serde(borrow)]
    text: StoredText<'a>,
}

impl<'a> MessageRecord<'a> {
    pub(super) fn of(message: MessageId, text: &'a str, keep: &mut PutBlob<'_>) -> Self {
        Self { message: message.0, text: StoredText::of(text, keep) }
    }

    pub(super) fn text(self, fetch: &GetBlob<'_>) -> Result<Body, RecordError> {
        Ok(Body::Text { message: MessageId(self.message), text: self.text.fetched(fetch)? })
    }

    pub(super) fn thought(self, fetch: &GetBlob<'_>) -> Result<Body, RecordError> {
        Ok(Body::Thought { message: MessageId(self.message), text: self.text.fetched(fetch)? })
    }
}

#[derive(Serialize, Deserialize)]
pub(super) struct BlocksRecord<'a> {
    #[serde(borrow)]
    content: Vec<ContentRecord<'a>>,
}

impl<'a> BlocksRecord<'a> {
    pub(super) fn of(content: &'a [Content], keep: &mut PutBlob<'_>) -> Self {
        Self { content: content.iter().map(|content| ContentRecord::of(content, keep)).collect() }
    }

    pub(super) fn turn_queued(self, fetch: &GetBlob<'_>) -> Result<Body, RecordError> {
        Ok(Body::TurnQueued { content: self.content(fetch)? })
    }

    pub(super) fn user_message(self, fetch: &GetBlob<'_>) -> Result<Body, RecordError> {
        Ok(Body::UserMessage { content: self.content(fetch)? })
    }

    fn content(self, fetch: &GetBlob<'_>) -> Result<Vec<Content>, RecordError> {
        self.content.into_iter().map(|content| content.content(fetch)).collect()
    }
}

#[derive(Serialize, Deserialize)]
pub(super) struct PlanRecord<'a> {
    #[serde(borrow)]
    entries: Vec<StepRecord<'a>>,
}

impl<'a> PlanRecord<'a> {
    pub(super) fn of(entries: &'a [PlanEntry], keep: &mut PutBlob<'_>) -> Self {
        Self { entries: entries.iter().map(|entry| StepRecord::of(entry, keep)).collect() }
    }

    pub(super) fn body(self, fetch: &GetBlob<'_>) -> Result<Body, RecordError> {
        let entries = self.entries.into_iter().map(|entry| entry.entry(fetch));
        Ok(Body::Plan { entries: entries.collect::<Result<_, _>>()? })
    }
}

#[derive(Serialize, Deserialize)]
pub(super) struct CommandsRecord<'a> {
    #[serde(borrow)]
    commands: Vec<CommandRecord<'a>>,
}

impl<'a> CommandsRecord<'a> {
    pub(super) fn of(commands: &'a [CommandSpec], keep: &mut PutBlob<'_>) -> Self {
        Self { commands: commands.iter().map(|command| CommandRecord::of(command, keep)).collect() }
    }

    pub(super) fn body(self, fetch: &GetBlob<'_>) -> Result<Body, RecordError> {
        let commands = self.commands.into_iter().map(|command| command.command(fetch));
        Ok(Body::Commands { commands: commands.collect::<Result<_, _>>()? })
    }
}

/// The kinds that hold one text and nothing else.
#[derive(Serialize, Deserialize)]
pub(super) struct PlainRecord<'a> {
    #[serde(borrow)]
    text: StoredText<'a>,
}

impl<'a> PlainRecord<'a> {
    pub(super) fn of(text: &'a str, keep: &mut PutBlob<'_>) -> Self {
        Self { text: StoredText::of(text, keep) }
    }

    pub(super) fn title(self, fetch: &GetBlob<'_>) -> Result<Body, RecordError> {
        Ok(Body::Title { title: self.text.fetched(fetch)? })
    }

    pub(super) fn compacted(self, fetch: &GetBlob<'_>) -> Result<Body, RecordError> {
        Ok(Body::Compacted { summary: self.text.fetched(fetch)? })
    }

    pub(super) fn foreign(self, fetch: &GetBlob<'_>) -> Result<Body, RecordError> {
        Ok(Body::Foreign { payload: Opaque(self.text.fetched(fetch)?) })
    }
}

#[derive(Serialize, Deserialize)]
pub(super) struct NoticeRecord<'a> {
    #[serde(borrow)]
    level: Cow<'a, str>,
    #[serde(borrow)]
    text: StoredText<'a>,
}

impl<'a> NoticeRecord<'a> {
    pub(super) fn of(level: NoticeLevel, text: &'a str, keep: &mut PutBlob<'_>) -> Self {
        Self { level: level.as_str().into(), text: StoredText::of(text, keep) }
    }

    pub(super) fn body(self, fetch: &GetBlob<'_>) -> Result<Body, RecordError> {
        Ok(Body::Notice { level: Word::read(&self.level)?, text: self.text.fetched(fetch)? })
    }
}

#[derive(Serialize, Deserialize)]
pub(super) struct SettingRecord<'a> {
    #[serde(borrow)]
    id: StoredText<'a>,
    #[serde(borrow)]
    value: StoredText<'a>,
}

impl<'a> SettingRecord<'a> {
    pub(super) fn of(id: &'a str, value: &'a str, keep: &mut PutBlob<'_>) -> Self {
        Self { id: StoredText::of(id, keep), value: StoredText::of(value, keep) }
    }

    pub(super) fn body(self, fetch: &GetBlob<'_>) -> Result<Body, RecordError> {
        Ok(Body::SettingChanged { id: self.id.fetched(fetch)?, value: self.value.fetched(fetch)? })
    }
}

#[derive(Serialize, Deserialize)]
pub(super) struct MovedRecord<'a> {
    #[serde(borrow)]
    cwd: StoredPath<'a>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    from: Option<StoredPath<'a>>,
}

impl<'a> MovedRecord<'a> {
    pub(super) fn of(cwd: &'a Path, from: Option<&'a Path>) -> Self {
        Self { cwd: StoredPath::of(cwd), from: from.map(StoredPath::of) }
    }

    pub(super) fn body(self) -> Result<Body, RecordError> {
        let from = self.from.map(|from| from.path()).transpose()?;
        Ok(Body::Moved { cwd: self.cwd.path()?, from })
    }
}

#[derive(Serialize, Deserialize)]
pub(super) struct TurnEndedRecord<'a> {
    #[serde(borrow)]
    stop: Cow<'a, str>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    error: Option<StoredText<'a>>,
}

impl<'a> TurnEndedRecord<'a> {
    pub(super) fn of(stop: Stop, error: Option<&'a Arc<str>>, keep: &mut PutBlob<'_>) -> Self {
        Self { stop: stop.as_str().into(), error: StoredText::of_option(error, keep) }
    }

    pub(super) fn body(self, fetch: &GetBlob<'_>) -> Result<Body, RecordError> {
        Ok(Body::TurnEnded {
            stop: Word::read(&self.stop)?,
            error: StoredText::fetched_option(self.error, fetch)?,
        })
    }
}

#[derive(Serialize, Deserialize)]
pub(super) struct CancelRecord<'a> {
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    reason: Option<StoredText<'a>>,
}

impl<'a> CancelRecord<'a> {
    pub(super) fn of(reason: Option<&'a Arc<str>>, keep: &mut PutBlob<'_>) -> Self {
        Self { reason: StoredText::of_option(reason, keep) }
    }

    pub(super) fn body(self, fetch: &GetBlob<'_>) -> Result<Body, RecordError> {
        Ok(Body::CancelRequested { reason: StoredText::fetched_option(self.reason, fetch)? })
    }
}

#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct UsageRecord {
    context_used: u64,
    context_size: u64,
    input: u64,
    output: u64,
    cache_read: u64,
    cache_write: u64,
    reasoning: u64,
    cost_usd: f64,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    unpriced: bool,
}

impl UsageRecord {
    pub(super) fn of(usage: &Usage) -> Self {
        Self {
            context_used: usage.context_used,
            context_size: usage.context_size,
            input: usage.input,
            output: usage.output,
            cache_read: usage.cache_read,
            cache_write: usage.cache_write,
            reasoning: usage.reasoning,
            cost_usd: if usage.cost_usd.is_finite() { usage.cost_usd } else { 0.0 },
            unpriced: usage.unpriced,
        }
    }

    pub(super) fn body(self) -> Body {
        Body::Usage(Usage {
            context_used: self.context_used,
            context_size: self.context_size,
            input: self.input,
            output: self.output,
            cache_read: self.cache_read,
            cache_write: self.cache_write,
            reasoning: self.reasoning,
            cost_usd: self.cost_usd,
            unpriced: self.unpriced,
        })
    }
}
