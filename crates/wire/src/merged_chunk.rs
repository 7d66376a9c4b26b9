//! Merges adjacent chunks of one message, so a slow client gets fewer updates instead of late ones.

use std::borrow::Cow;
use std::sync::Arc;

use engine::{Body, CallId, Event, MessageId};

/// Limit for the merged text of one update. Longer answers become several updates.
const MERGED_BYTES_MAX: usize = 32 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChunkKind {
    Said,
    Thought,
}

impl ChunkKind {
    /// The kind of update that carries it.
    pub(crate) fn chunk(self) -> &'static str {
        match self {
            Self::Said => "agent_message_chunk",
            Self::Thought => "agent_thought_chunk",
        }
    }
}

pub(crate) struct MergedChunk<'a> {
    pub(crate) voice: ChunkKind,
    pub(crate) message: MessageId,
    pub(crate) text: Cow<'a, str>,
    /// The parent call, if a sub-agent wrote it.
    pub(crate) parent: Option<&'a CallId>,
    /// How many events were merged.
    pub(crate) taken: usize,
}

/// Merges as many chunks as belong together and fit. `None` if the first event is not a chunk.
pub(crate) fn merge_chunks(events: &[Arc<Event>]) -> Option<MergedChunk<'_>> {
    let event = events.first()?;
    let (voice, message, first) = piece(event)?;
    let parent = event.origin.task();
    let mut merged = MergedChunk { voice, message, text: Cow::Borrowed(first), parent, taken: 1 };
    // An imported history may give several sub-agents the same message ids.
    let further = events.iter().skip(1).take_while(|event| event.origin.task() == parent);
    let further = further.map_while(|event| piece(event));
    for (_, _, text) in further.take_while(|piece| (piece.0, piece.1) == (voice, message)) {
        if merged.text.len() + text.len() > MERGED_BYTES_MAX {
            break;
        }
        merged.text.to_mut().push_str(text);
        merged.taken += 1;
    }
    Some(merged)
}

/// Chunks with an external agent's own update are not merged.
fn piece(event: &Event) -> Option<(ChunkKind, MessageId, &str)> {
    if event.relayed.is_some() {
        return None;
    }
    if let Body::Text { message, text } = &event.body {
        return Some((ChunkKind::Said, *message, text));
    }
    if let Body::Thought { message, text } = &event.body {
        return Some((ChunkKind::Thought, *message, text));
    }
    None
}
