//! Events that an external agent said, in its own words.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use engine::{
    APPROVAL, Body, Event, Family, Opaque, SettingSpec, SetupEvent, ToolChange, ToolContent, ToolEvent,
};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::consoles::Tail;
use super::updates::Updates;
use crate::dialect::View;
use crate::transcript::block_text;

/// How the begin of a call announces a terminal of its own, which needs a client that has such.
const TERMINAL_INFO: &str = r#""terminal_info""#;

/// The beginning of the names of terminals that an external agent uses and this server keeps: no client knows
/// them.
pub const SERVER_TERMINAL: &str = "ropewalk-terminal-";

/// What a call was given and gave. The protocol takes any value there, and strict clients an object alone.
const RAW_FIELDS: [(&str, &str); 2] = [("rawInput", "input"), ("rawOutput", "output")];

/// The agent's words, with objects where strict clients read nothing else: as in our own updates, what is none
/// stands in one. All other words stay as they are.
fn with_objects(words: &str) -> Cow<'_, str> {
    if !RAW_FIELDS.iter().any(|(field, _)| words.contains(field)) {
        return words.into();
    }
    let Ok(mut fields) = serde_json::from_str::<BTreeMap<String, Box<RawValue>>>(words) else {
        return words.into();
    };
    let mut changed = false;
    for (field, name) in RAW_FIELDS {
        let Some(value) = fields.get(field).filter(|value| !value.get().starts_with('{')) else { continue };
        changed = true;
        match wrapped(name, value) {
            Some(object) => drop(fields.insert(field.to_owned(), object)),
            None => drop(fields.remove(field)),
        }
    }
    match serde_json::to_string(&fields) {
        Ok(words) if changed => words.into(),
        Ok(_) | Err(_) => words.into(),
    }
}

/// The value in an object, under this name. Nothing stays nothing.
fn wrapped(name: &str, value: &RawValue) -> Option<Box<RawValue>> {
    let object = format!("{{{name:?}:{}}}", value.get());
    RawValue::from_string(object).ok().filter(|_| value.get() != "null")
}

/// The same for the call in a permission request.
pub(super) fn put_objects(call: &mut Map<String, Value>) {
    for (field, name) in RAW_FIELDS {
        let Some(value) = call.get_mut(field).filter(|value| !value.is_object()) else { continue };
        if value.is_null() {
            call.remove(field);
        } else {
            *value = json!({ name: value.take() });
        }
    }
}

impl Updates {
    /// Says whether it was told. A terminal that the client does not know cannot be shown: then the event is
    /// told in our own words. An empty text says that another event's words say this too.
    pub(super) fn relayed(&mut self, event: &Event, relayed: &Opaque, view: View, out: &mut Vec<u8>) -> bool {
        if relayed.0.contains(r#""terminal""#) && self.shows_unknown_terminal(event, relayed, view) {
            return false;
        }
        if let Body::ToolEnded(end) = &event.body {
            self.flush_call(&end.call, out);
        }
        let is_history = self.note(event, relayed, view);
        if is_history || !view.replay {
            self.foreign(&with_objects(&relayed.0), out);
        }
        true
    }

    fn shows_unknown_terminal(&mut self, event: &Event, relayed: &Opaque, view: View) -> bool {
        let (call, begins) = if let Body::ToolStarted(start) = &event.body {
            (&start.call, true)
        } else if let Body::ToolChanged(change) = &event.body {
            (&change.call, false)
        } else if let Body::ToolEnded(end) = &event.body {
            (&end.call, false)
        } else {
            return false;
        };
        let without = if begins {
            self.consoles.begin_without(call, relayed.0.contains(TERMINAL_INFO))
        } else {
            self.consoles.is_without(call)
        };
        // A terminal that is gone is known to nobody.
        view.replay || relayed.0.contains(SERVER_TERMINAL) || without
    }

    /// Takes note of an event as if it had been told in our words. Says whether it is part of history.
    /// What is offered, chosen and spent is known from the beginning as it is at the end of history.
    fn note(&mut self, event: &Event, relayed: &Opaque, view: View) -> bool {
        match event.body.family() {
            Family::Setup(SetupEvent::Offered { settings }) => {
                if !view.replay {
                    self.offered(settings);
                }
                false
            }
            Family::Setup(SetupEvent::Setting { id, value }) => {
                if !view.replay {
                    self.settings.set(Arc::clone(id), Arc::clone(value));
                }
                false
            }
            Family::Usage(usage) => {
                self.turn_usage.add_from(&event.origin, usage);
                if !view.replay {
                    self.spent.add_from(&event.origin, usage);
                }
                false
            }
            Family::Tool(ToolEvent::Started(start)) => {
                self.consoles.began_elsewhere(&start.call, relayed.0.contains(TERMINAL_INFO));
                true
            }
            Family::Tool(ToolEvent::Changed(change)) => {
                self.shows(event, change);
                true
            }
            Family::Tool(ToolEvent::Ended(end)) => {
                self.consoles.ended(&end.call);
                true
            }
            Family::Setup(
                SetupEvent::Joined { .. }
                | SetupEvent::Commands { .. }
                | SetupEvent::Title { .. }
                | SetupEvent::Moved { .. },
            )
            | Family::Turn(_)
            | Family::Speech(_)
            | Family::Permission(_)
            | Family::Context(_)
            | Family::Other => true,
        }
    }

    /// What comes later is added to what is shown already.
    pub(super) fn shows(&mut self, event: &Event, change: &ToolChange) {
        let Some(content) = &change.content else { return };
        let mut tail = Tail::of_agent(event.origin.task().cloned());
        for piece in content {
            if let ToolContent::Block(block) = piece {
                tail.push(&block_text(block));
            }
        }
        self.consoles.shows(&change.call, tail);
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
