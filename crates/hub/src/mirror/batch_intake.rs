//! Checks the batches that a bridge sends, and queues them to be stored: plain values, no clock and no database.
//!
//! **Invariant:** the queue continues what is stored, without a gap and without repetition. Whatever does not fit is left
//! out, or refused with a reason.

use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::HashMap;
use store::sql::log;
use wire::tunnel::{CardEntry, EventEntry, LogSource, MirrorBatch, ViewEntry};

/// Bytes of deltas after the last snapshot; beyond that, another snapshot is requested.
pub const DELTA_BYTES_MAX: u64 = 512 << 10;
/// Beyond this, deltas are dropped until there is another snapshot: a watching browser would have to read them all.
const DELTA_BYTES_TAKEN: u64 = 4 * DELTA_BYTES_MAX;
/// Bytes that may be queued.
pub const PENDING_BYTES_MAX: usize = 8 << 20;
const EVENTS_MAX: usize = 4096;
const ASKS_MAX: usize = 256;
/// Marks and names that are returned unchanged.
const WORD_BYTES_MAX: usize = 128;
/// Large, because a card shows all of what a person has to decide; limited, because every list of sessions carries it.
const CARD_BYTES_MAX: usize = 1 << 20;

/// How far a mirror has come: what is stored, or what will be when the queue is stored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MirrorPosition {
    /// The last event.
    pub head: u64,
    /// The number of the last view; views are numbered as they are stored.
    pub view_number: u64,
    /// The log position that the last view leads to.
    pub view_upto: Option<u64>,
    pub view_bytes: u64,
    /// The numbers of the last two snapshots; 0 for none.
    pub snapshot: u64,
    pub snapshot_before: u64,
}

impl MirrorPosition {
    /// The position from which the bridge may send deltas; `None` if it has to send a snapshot.
    pub fn continues(&self) -> Option<u64> {
        self.view_upto.filter(|_| self.snapshot > 0 && self.view_bytes <= DELTA_BYTES_MAX)
    }
}

/// A view with its number.
#[derive(Debug, Clone)]
pub struct NumberedView {
    pub number: u64,
    pub view: ViewEntry,
}

/// Why a frame is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BridgeFrameError {
    #[error("invalid frame of a bridge: {0}")]
    Unreadable(String),
    #[error("events are missing: the mirror ends at {0}; reconnect to continue from there")]
    Gap(u64),
    #[error("the positions of a batch must increase")]
    Disorder,
    #[error("{0} must be an object of its own session")]
    Foreign(&'static str),
    #[error("{0} is too large")]
    TooLarge(&'static str),
}

/// What is queued to be stored.
#[derive(Debug, Default)]
pub struct PendingBatch {
    pub events: Vec<log::LogEntry>,
    pub views: Vec<NumberedView>,
    pub card: Option<CardEntry>,
    /// The mark that came with the last event.
    pub mark: Option<String>,
    pub source: Option<LogSource>,
    pub bytes: usize,
}

impl PendingBatch {
    pub fn is_empty(&self) -> bool {
        self.events.is_empty() && self.views.is_empty() && self.card.is_none() && self.source.is_none()
    }
}

/// Checks and queues what one bridge sends about one session.
#[derive(Debug)]
pub struct BatchIntake {
    session: String,
    sealed: bool,
    /// The position when everything queued is stored.
    pub next: MirrorPosition,
    pub pending: PendingBatch,
    /// A delta came that continues nothing, so a snapshot is needed.
    pub needs_snapshot: bool,
}

impl BatchIntake {
    pub fn new(session: &str, sealed: bool, stored: MirrorPosition) -> Self {
        Self {
            session: session.to_owned(),
            sealed,
            next: stored,
            pending: PendingBatch::default(),
            needs_snapshot: false,
        }
    }

    pub fn take(&mut self, batch: MirrorBatch) -> Result<(), BridgeFrameError> {
        if let Some(source) = batch.source {
            self.pending.source = Some(checked_source(source)?);
        }
        if batch.mark.as_ref().is_some_and(|mark| !is_word(mark)) {
            return Err(BridgeFrameError::Foreign("a mark"));
        }
        self.events(batch.after, batch.events, batch.mark)?;
        if let Some(view) = batch.view {
            self.view(view)?;
        }
        if let Some(card) = batch.card {
            self.card(card)?;
        }
        Ok(())
    }

    fn events(
        &mut self,
        after: u64,
        events: Vec<EventEntry>,
        mark: Option<String>,
    ) -> Result<(), BridgeFrameError> {
        let head = self.next.head;
        let mut before = after;
        for entry in &events {
            if entry.seq <= before || i64::try_from(entry.seq).is_err() {
                return Err(BridgeFrameError::Disorder);
            }
            before = entry.seq;
            if !is_object(&entry.body, self.sealed) {
                return Err(BridgeFrameError::Foreign("an event"));
            }
        }
        if events.len() > EVENTS_MAX {
            return Err(BridgeFrameError::TooLarge("a batch"));
        }
        if events.is_empty() || before <= head {
            return Ok(());
        }
        // The stored log must end at a position that is in the batch too.
        if after != head && !events.iter().any(|entry| entry.seq == head) {
            return Err(BridgeFrameError::Gap(head));
        }
        for entry in events.into_iter().filter(|entry| entry.seq > head) {
            let body = String::from(Box::<str>::from(entry.body));
            self.pending.bytes += body.len();
            self.pending.events.push(log::LogEntry { seq: entry.seq, kind: None, body });
        }
        self.next.head = before;
        self.pending.mark = mark;
        Ok(())
    }

    fn view(&mut self, view: ViewEntry) -> Result<(), BridgeFrameError> {
        if !self.is_own_view(&view) || i64::try_from(view.upto).is_err() {
            return Err(BridgeFrameError::Foreign("a view"));
        }
        let bytes = view.body.get().len();
        let next = &mut self.next;
        let room = next.view_bytes.saturating_add(bytes as u64) <= DELTA_BYTES_TAKEN;
        match view.from {
            None => {
                self.needs_snapshot = false;
                (next.snapshot_before, next.snapshot) = (next.snapshot, next.view_number + 1);
                next.view_bytes = 0;
            }
            Some(from) if room && next.snapshot > 0 && next.view_upto == Some(from) && view.upto >= from => {
                next.view_bytes += bytes as u64;
            }
            Some(_) => {
                self.needs_snapshot = true;
                return Ok(());
            }
        }
        next.view_number += 1;
        next.view_upto = Some(view.upto);
        self.pending.bytes += bytes;
        self.pending.views.push(NumberedView { number: next.view_number, view });
        Ok(())
    }

    /// A view becomes a frame for browsers, so its body must not be able to pass for another frame.
    fn is_own_view(&self, view: &ViewEntry) -> bool {
        if self.sealed {
            return is_object(&view.body, true);
        }
        let Ok(members) = serde_json::from_str::<HashMap<Cow<'_, str>, &RawValue>>(view.body.get()) else {
            return false;
        };
        let is = |name: &str, text: &str| {
            members.get(name).is_some_and(|value| {
                serde_json::from_str::<Cow<'_, str>>(value.get()).is_ok_and(|value| value == text)
            })
        };
        let upto = members.get("upto").is_some_and(|upto| upto.get() == view.upto.to_string());
        let plain = !members.contains_key("on") && !members.contains_key("re");
        plain && upto && is("session", &self.session)
    }

    fn card(&mut self, card: CardEntry) -> Result<(), BridgeFrameError> {
        #[derive(Deserialize)]
        struct CardSession<'a> {
            #[serde(borrow)]
            session: Cow<'a, str>,
        }
        let named = |body: &RawValue| {
            serde_json::from_str::<CardSession<'_>>(body.get()).ok().map(|card| card.session == self.session)
        };
        let own = if self.sealed { is_object(&card.body, true) } else { named(&card.body) == Some(true) };
        if !own {
            return Err(BridgeFrameError::Foreign("a card"));
        }
        if card.body.get().len() > CARD_BYTES_MAX || card.asks.len() > ASKS_MAX {
            return Err(BridgeFrameError::TooLarge("a card"));
        }
        self.pending.bytes += card.body.get().len();
        self.pending.card = Some(card);
        Ok(())
    }

    /// Removes from the queue what turned out to be stored.
    pub fn drop_stored(&mut self, stored: &MirrorPosition) {
        self.pending.events.retain(|entry| entry.seq > stored.head);
        self.pending.views.retain(|view| view.number > stored.view_number);
    }
}

/// Checks a source, which is stored in the database and sent to other machines.
pub fn checked_source(source: LogSource) -> Result<LogSource, BridgeFrameError> {
    let fits = is_word(&source.process) && source.lineage.as_deref().is_none_or(is_word);
    if fits { Ok(source) } else { Err(BridgeFrameError::Foreign("a source")) }
}

fn is_word(text: &str) -> bool {
    (1..=WORD_BYTES_MAX).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Whether a body is an object; a sealed one has exactly one member.
fn is_object(body: &RawValue, sealed: bool) -> bool {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct SealedObject<'a> {
        #[serde(borrow, rename = "sealed")]
        _sealed: Cow<'a, str>,
    }
    if sealed {
        return serde_json::from_str::<SealedObject<'_>>(body.get()).is_ok();
    }
    body.get().starts_with('{')
}

#[cfg(test)]
mod tests;
