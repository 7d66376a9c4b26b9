//! What a bridge sends, looked at and put in line to be kept: plain values, no clock and no database.
//!
//! **Invariant:** what is in line continues what is kept, without a gap and without anything twice. Whatever does not
//! fit is left out, or refused with a reason.

use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::HashMap;
use store::sql::log;
use wire::tunnel::{Batch, CardEntry, Entry, Source, ViewEntry};

/// Deltas since the last view that stands for itself; then another is asked for.
pub const DELTA_BYTES_MAX: u64 = 512 << 10;
/// After so much of them no more are taken until there is another: who looks would have to read them all.
const DELTA_BYTES_TAKEN: u64 = 4 * DELTA_BYTES_MAX;
/// What may be in line.
pub const LINE_BYTES_MAX: usize = 8 << 20;
const EVENTS_MAX: usize = 4096;
const ASKS_MAX: usize = 256;
/// Marks and names that come back as they came.
const WORD_BYTES_MAX: usize = 128;
/// Everybody who looks at a list of sessions gets their cards, and a card shows whole what somebody has to decide.
const CARD_BYTES_MAX: usize = 1 << 20;

/// How far something has come: what is kept, or what will be when all in line is kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Place {
    /// The last event.
    pub head: u64,
    /// Views are numbered as they are kept.
    pub view_number: u64,
    /// Where the last view led to.
    pub view_upto: Option<u64>,
    pub view_bytes: u64,
    /// The numbers of the last two views that stand for themselves; 0 for none.
    pub snapshot: u64,
    pub snapshot_before: u64,
}

impl Place {
    /// Where views can be continued.
    pub fn continues(&self) -> Option<u64> {
        self.view_upto.filter(|_| self.snapshot > 0 && self.view_bytes <= DELTA_BYTES_MAX)
    }
}

/// A view with its number.
#[derive(Debug, Clone)]
pub struct Numbered {
    pub number: u64,
    pub view: ViewEntry,
}

/// Why a frame is not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("this is no frame that a session's bridge sends: {0}")]
    Unreadable(String),
    #[error("events are missing: the mirror ends at {0}; come back to go on from there")]
    Gap(u64),
    #[error("the positions of a batch must rise")]
    Disorder,
    #[error("{0} must be an object of its own session")]
    Foreign(&'static str),
    #[error("{0} is too large")]
    TooLarge(&'static str),
}

/// What is in line.
#[derive(Debug, Default)]
pub struct Line {
    pub events: Vec<log::Entry>,
    pub views: Vec<Numbered>,
    pub card: Option<CardEntry>,
    /// What came with the last event.
    pub mark: Option<String>,
    pub source: Option<Source>,
    pub bytes: usize,
}

impl Line {
    pub fn is_empty(&self) -> bool {
        self.events.is_empty() && self.views.is_empty() && self.card.is_none() && self.source.is_none()
    }
}

/// Takes what one bridge sends about one session.
#[derive(Debug)]
pub struct Taking {
    session: String,
    sealed: bool,
    /// What will be when everything in line is kept.
    pub next: Place,
    pub line: Line,
    /// A view came that continues nothing: one that stands for itself is needed.
    pub torn: bool,
}

impl Taking {
    pub fn new(session: &str, sealed: bool, kept: Place) -> Self {
        Self { session: session.to_owned(), sealed, next: kept, line: Line::default(), torn: false }
    }

    pub fn take(&mut self, batch: Batch) -> Result<(), Refused> {
        if let Some(source) = batch.source {
            self.line.source = Some(checked(source)?);
        }
        if batch.mark.as_ref().is_some_and(|mark| !is_word(mark)) {
            return Err(Refused::Foreign("a mark"));
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

    fn events(&mut self, after: u64, events: Vec<Entry>, mark: Option<String>) -> Result<(), Refused> {
        let head = self.next.head;
        let mut before = after;
        for entry in &events {
            if entry.seq <= before || i64::try_from(entry.seq).is_err() {
                return Err(Refused::Disorder);
            }
            before = entry.seq;
            if !is_object(&entry.body, self.sealed) {
                return Err(Refused::Foreign("an event"));
            }
        }
        if events.len() > EVENTS_MAX {
            return Err(Refused::TooLarge("a batch"));
        }
        if events.is_empty() || before <= head {
            return Ok(());
        }
        // What is kept must end at a position that the batch knows too.
        if after != head && !events.iter().any(|entry| entry.seq == head) {
            return Err(Refused::Gap(head));
        }
        for entry in events.into_iter().filter(|entry| entry.seq > head) {
            let body = String::from(Box::<str>::from(entry.body));
            self.line.bytes += body.len();
            self.line.events.push(log::Entry { seq: entry.seq, kind: None, body });
        }
        self.next.head = before;
        self.line.mark = mark;
        Ok(())
    }

    fn view(&mut self, view: ViewEntry) -> Result<(), Refused> {
        if !self.is_own_view(&view) || i64::try_from(view.upto).is_err() {
            return Err(Refused::Foreign("a view"));
        }
        let bytes = view.body.get().len();
        let next = &mut self.next;
        let room = next.view_bytes.saturating_add(bytes as u64) <= DELTA_BYTES_TAKEN;
        match view.from {
            None => {
                self.torn = false;
                (next.snapshot_before, next.snapshot) = (next.snapshot, next.view_number + 1);
                next.view_bytes = 0;
            }
            Some(from) if room && next.snapshot > 0 && next.view_upto == Some(from) && view.upto >= from => {
                next.view_bytes += bytes as u64;
            }
            Some(_) => {
                self.torn = true;
                return Ok(());
            }
        }
        next.view_number += 1;
        next.view_upto = Some(view.upto);
        self.line.bytes += bytes;
        self.line.views.push(Numbered { number: next.view_number, view });
        Ok(())
    }

    /// It becomes a frame for browsers, so it must not be able to pass for another one.
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

    fn card(&mut self, card: CardEntry) -> Result<(), Refused> {
        #[derive(Deserialize)]
        struct Named<'a> {
            #[serde(borrow)]
            session: Cow<'a, str>,
        }
        let named = |body: &RawValue| {
            serde_json::from_str::<Named<'_>>(body.get()).ok().map(|card| card.session == self.session)
        };
        let own = if self.sealed { is_object(&card.body, true) } else { named(&card.body) == Some(true) };
        if !own {
            return Err(Refused::Foreign("a card"));
        }
        if card.body.get().len() > CARD_BYTES_MAX || card.asks.len() > ASKS_MAX {
            return Err(Refused::TooLarge("a card"));
        }
        self.line.bytes += card.body.get().len();
        self.line.card = Some(card);
        Ok(())
    }

    /// Everything up to here was kept after all: it is not in line any more.
    pub fn found(&mut self, kept: &Place) {
        self.line.events.retain(|entry| entry.seq > kept.head);
        self.line.views.retain(|view| view.number > kept.view_number);
    }
}

/// It stands in the database and in what others are told.
pub fn checked(source: Source) -> Result<Source, Refused> {
    let fits = is_word(&source.process) && source.lineage.as_deref().is_none_or(is_word);
    if fits { Ok(source) } else { Err(Refused::Foreign("a source")) }
}

fn is_word(text: &str) -> bool {
    (1..=WORD_BYTES_MAX).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// An object; of sealed ones the hub knows one member.
fn is_object(body: &RawValue, sealed: bool) -> bool {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Sealed<'a> {
        #[serde(borrow, rename = "sealed")]
        _sealed: Cow<'a, str>,
    }
    if sealed {
        return serde_json::from_str::<Sealed<'_>>(body.get()).is_ok();
    }
    body.get().starts_with('{')
}

#[cfg(test)]
mod tests;
