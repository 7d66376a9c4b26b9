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
        let is_history = self.note(event, relayed);
        if is_history || !view.replay {
            self.foreign(&relayed.0, out);
        }
        true
    }

    /// Takes note of an event as if it had been told in our words. Says whether it is part of history.
    fn note(&mut self, event: &Event, relayed: &Opaque) -> bool {
        if let Body::Offered { settings } = &event.body {
            self.offered(settings);
        } else if let Body::SettingChanged { id, value } = &event.body {
            self.settings.set(Arc::clone(id), Arc::clone(value));
        } else if let Body::Usage(usage) = &event.body {
            self.turn_usage.add_from(&event.origin, usage);
            self.spent.add_from(&event.origin, usage);
        } else {
            self.note_call(event, relayed);
            return true;
        }
        false
    }

    fn note_call(&mut self, event: &Event, relayed: &Opaque) {
        if let Body::ToolStarted(start) = &event.body {
            if !relayed.0.contains(r#""terminal_info""#) {
                self.plain.insert(start.call.clone());
            }
        } else if let Body::ToolChanged(change) = &event.body {
            self.shows(event, change);
        } else if let Body::ToolEnded(end) = &event.body {
            self.tails.remove(&end.call);
            self.plain.remove(&end.call);
            self.terminals.remove(&end.call);
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

    pub(super) fn offered(&mut self, settings: &[SettingSpec]) {
        let ours = self.specs.iter().filter(|spec| *spec.id == *APPROVAL).cloned();
        self.specs = settings.iter().cloned().chain(ours).collect();
        for spec in self.specs.iter() {
            if !spec.offers(self.settings.get(&spec.id)) {
                self.settings.set(Arc::clone(&spec.id), Arc::clone(&spec.default));
            }
        }
    }

    /// All options as they are. The answer to a load has them, so history does not.
    pub(super) fn options(&self, view: View, out: &mut Vec<u8>) {
        if !view.replay {
            self.write_options(out);
        }
    }
}
