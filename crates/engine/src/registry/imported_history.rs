//! The history of an imported session, on its way into the store piece by piece.

use std::sync::Arc;

use tokio::sync::mpsc;

use crate::backend::BoxFuture;
use crate::event::{Body, Event};
use crate::event_redaction::Redaction;
use crate::ids::{Seq, Timestamp};
use crate::redactor_trait::Redactor;
use crate::settings::APPROVAL;
use crate::store::EventSource;

/// The pieces of a history. It is complete only if its last piece is [`HistoryPiece::End`]: its sender may
/// die.
pub type History = mpsc::Receiver<HistoryPiece>;

#[derive(Debug)]
pub enum HistoryPiece {
    Events(Vec<Event>),
    /// There are no more.
    End,
    /// There are more, and this is why they do not come.
    Failed(String),
}

/// A history that is completely in memory.
pub(super) fn whole(events: Vec<Event>) -> History {
    let (sender, pieces) = mpsc::channel(2);
    // There is room for two.
    drop(sender.try_send(HistoryPiece::Events(events)));
    drop(sender.try_send(HistoryPiece::End));
    pieces
}

/// Removes secrets and approvals that were given elsewhere, and numbers the remaining events from 1.
pub(super) struct Import {
    pieces: History,
    redaction: Option<Redaction>,
    /// The last assigned position.
    seq: Seq,
    /// The time of the last event.
    at: Timestamp,
    now: Timestamp,
    over: bool,
}

impl Import {
    pub(super) fn new(pieces: History, redactor: Option<Arc<dyn Redactor>>, now: Timestamp) -> Self {
        let redaction = redactor.map(Redaction::new);
        Self { pieces, redaction, seq: Seq::START, at: Timestamp(0), now, over: false }
    }

    fn imported(&mut self, event: Event) -> Option<Arc<Event>> {
        // An approval that was given elsewhere does not hold here.
        if matches!(&event.body, Body::SettingChanged { id, .. } if **id == *APPROVAL) {
            return None;
        }
        self.seq = self.seq.next();
        // A time to come would keep the session on top of every list, and in memory for ever. One after
        // the import would pass for something that happened here.
        Some(Arc::new(Event { seq: self.seq, at: event.at.min(self.now), ..event.imported() }))
    }
}

impl EventSource for Import {
    fn next(&mut self) -> BoxFuture<'_, Result<Vec<Arc<Event>>, String>> {
        Box::pin(async move {
            loop {
                if self.over {
                    return Ok(Vec::new());
                }
                let events = match self.pieces.recv().await {
                    None => return Err("reading the events stopped before the last one".to_owned()),
                    Some(HistoryPiece::Failed(reason)) => return Err(reason),
                    Some(HistoryPiece::Events(events)) => {
                        self.at = events.last().map_or(self.at, |event| event.at);
                        match &mut self.redaction {
                            Some(redaction) => redaction.history_piece(events),
                            None => events,
                        }
                    }
                    Some(HistoryPiece::End) => {
                        self.over = true;
                        let at = self.at;
                        self.redaction.as_mut().map_or_else(Vec::new, |redaction| redaction.history_rest(at))
                    }
                };
                let events: Vec<_> = events.into_iter().filter_map(|event| self.imported(event)).collect();
                if !events.is_empty() || self.over {
                    return Ok(events);
                }
            }
        })
    }
}
