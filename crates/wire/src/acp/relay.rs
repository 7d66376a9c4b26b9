//! Events that an external agent said, in its own words.

use std::sync::Arc;

use engine::{APPROVAL, Body, Event, Opaque, SettingSpec, ToolChange, ToolContent};

use super::updates::{Tail, Updates};
use crate::dialect::View;
use crate::transcript::block_text;

impl Updates {
    /// Says whether it was told. A terminal that is gone cannot be shown again: then the event is told in our
    /// own words. An empty text says that another event's words say this too.
    pub(super) fn relayed(&mut self, event: &Event, relayed: &Opaque, view: View, out: &mut Vec<u8>) -> bool {
        let about_call =
            matches!(event.body, Body::ToolStarted(_) | Body::ToolChanged(_) | Body::ToolEnded(_));
        if view.replay && about_call && relayed.0.contains(r#""terminal""#) {
            return false;
        }
        let is_history = self.note(event, relayed, view);
        if is_history || !view.replay {
            self.foreign(&relayed.0, out);
        }
        true
    }

    /// Takes note of an event as if it had been told in our words. Says whether it is part of history.
    /// What is offered, chosen and spent is known from the beginning as it is at the end of history.
    fn note(&mut self, event: &Event, relayed: &Opaque, view: View) -> bool {
        match &event.body {
            Body::Offered { .. } | Body::SettingChanged { .. } if view.replay => false,
            Body::Offered { settings } => {
                self.offered(settings);
                false
            }
            Body::SettingChanged { id, value } => {
                self.settings.set(Arc::clone(id), Arc::clone(value));
                false
            }
            Body::Usage(usage) => {
                self.turn_usage.add_from(&event.origin, usage);
                if !view.replay {
                    self.spent.add_from(&event.origin, usage);
                }
                false
            }
            Body::ToolStarted(start) => {
                if !relayed.0.contains(r#""terminal_info""#) {
                    self.plain.insert(start.call.clone());
                }
                true
            }
            Body::ToolChanged(change) => {
                self.shows(event, change);
                true
            }
            Body::ToolEnded(end) => {
                self.tails.remove(&end.call);
                self.plain.remove(&end.call);
                self.terminals.remove(&end.call);
                true
            }
            Body::TurnQueued { .. }
            | Body::TurnStarted
            | Body::UserMessage { .. }
            | Body::Text { .. }
            | Body::Thought { .. }
            | Body::Plan { .. }
            | Body::ToolOutput { .. }
            | Body::ToolTerminal { .. }
            | Body::FileEdited { .. }
            | Body::FileShown { .. }
            | Body::Asked { .. }
            | Body::Resolved { .. }
            | Body::CancelRequested
            | Body::PolicyBlocked { .. }
            | Body::Joined { .. }
            | Body::Commands { .. }
            | Body::Title { .. }
            | Body::Notice { .. }
            | Body::Cleared
            | Body::Compacting { .. }
            | Body::Compacted { .. }
            | Body::Moved { .. }
            | Body::Foreign { .. }
            | Body::TurnEnded { .. } => true,
        }
    }

    /// What comes later is added to what is shown already.
    pub(super) fn shows(&mut self, event: &Event, change: &ToolChange) {
        let Some(content) = &change.content else { return };
        let mut tail = Tail { parent: event.origin.task().cloned(), ..Tail::default() };
        for piece in content {
            if let ToolContent::Block(block) = piece {
                tail.push(&block_text(block));
            }
        }
        self.tails.insert(change.call.clone(), tail);
    }

    fn offered(&mut self, settings: &[SettingSpec]) {
        let ours = self.specs.iter().filter(|spec| *spec.id == *APPROVAL).cloned();
        self.specs = settings.iter().cloned().chain(ours).collect();
        for spec in self.specs.iter() {
            if !spec.offers(self.settings.get(&spec.id)) {
                self.settings.set(Arc::clone(&spec.id), Arc::clone(&spec.default));
            }
        }
    }

    /// The answer to a load has the options as they are, so history does not.
    pub(super) fn offers(&mut self, settings: &[SettingSpec], view: View, out: &mut Vec<u8>) {
        if !view.replay {
            self.offered(settings);
            self.write_options(out);
        }
    }
}
