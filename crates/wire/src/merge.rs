//! Neighbouring pieces of one message as one text, so a client that is behind gets less, not later.

use std::borrow::Cow;
use std::sync::Arc;

use engine::{Body, Event, MessageId};

/// Merged text in one update. Larger answers become several.
const MERGED_BYTES_MAX: usize = 32 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Voice {
    Said,
    Thought,
}

pub(crate) struct Merged<'a> {
    pub(crate) voice: Voice,
    pub(crate) message: MessageId,
    pub(crate) text: Cow<'a, str>,
    /// How many events it is made of.
    pub(crate) taken: usize,
}

/// As many pieces from the first on as belong together and fit; nothing, if the first is none.
pub(crate) fn merged(events: &[Arc<Event>]) -> Option<Merged<'_>> {
    let (voice, message, first) = piece(&events.first()?.body)?;
    let mut merged = Merged { voice, message, text: Cow::Borrowed(first), taken: 1 };
    let further = events.iter().skip(1).map_while(|event| piece(&event.body));
    for (_, _, text) in further.take_while(|piece| (piece.0, piece.1) == (voice, message)) {
        if merged.text.len() + text.len() > MERGED_BYTES_MAX {
            break;
        }
        merged.text.to_mut().push_str(text);
        merged.taken += 1;
    }
    Some(merged)
}

fn piece(body: &Body) -> Option<(Voice, MessageId, &str)> {
    if let Body::Text { message, text } = body {
        return Some((Voice::Said, *message, text));
    }
    if let Body::Thought { message, text } = body {
        return Some((Voice::Thought, *message, text));
    }
    None
}
