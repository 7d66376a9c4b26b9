//! Events that carry an external agent's original update, which is relayed instead of our own encoding.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use engine::{
    APPROVAL, Body, Event, Family, Opaque, SettingSpec, SetupEvent, ToolChange, ToolContent, ToolEvent,
};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::terminal_output::OutputTail;
use super::updates::Updates;
use crate::dialect::EncodeContext;
use crate::transcript::block_text;

/// Marks the start of a call that announces a terminal, which needs a client that supports terminals.
const TERMINAL_INFO: &str = r#""terminal_info""#;

/// Prefix of the ids of terminals that an external agent uses and this server runs; no client knows them.
pub const SERVER_TERMINAL: &str = "ropewalk-terminal-";

/// Fields for a call's input and output. The protocol allows any value there; strict clients accept only
/// objects.
const RAW_FIELDS: [(&str, &str); 2] = [("rawInput", "input"), ("rawOutput", "output")];

/// The agent's update, with objects where strict clients accept nothing else: as in our own updates, any
/// other value is wrapped in an object. The rest of the update is unchanged.
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

/// Wraps the value in an object under this name. `None` for null.
fn wrapped(name: &str, value: &RawValue) -> Option<Box<RawValue>> {
    let object = format!("{{{name:?}:{}}}", value.get());
    RawValue::from_string(object).ok().filter(|_| value.get() != "null")
}

/// The same for the tool call of a permission request.
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
    /// Returns whether the event was relayed. An update that shows a terminal unknown to the client cannot
    /// be relayed; the event is then encoded in our own form. An empty `relayed` text means that another
    /// event's update covers this event.
    pub(super) fn relayed(
        &mut self,
        event: &Event,
        relayed: &Opaque,
        context: EncodeContext,
        out: &mut Vec<u8>,
    ) -> bool {
        if relayed.0.contains(r#""terminal""#) && self.shows_unknown_terminal(event, relayed, context) {
            return false;
        }
        if let Body::ToolEnded(end) = &event.body {
            self.flush_call(&end.call, out);
        }
        let is_history = self.note(event, relayed, context);
        if is_history || !context.replay {
            self.foreign(&with_objects(&relayed.0), out);
        }
        true
    }

    fn shows_unknown_terminal(&mut self, event: &Event, relayed: &Opaque, context: EncodeContext) -> bool {
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
            self.command_outputs.begin_foreign(call, relayed.0.contains(TERMINAL_INFO))
        } else {
            self.command_outputs.lacks_terminal(call)
        };
        // No client knows a terminal that no longer exists.
        context.replay || relayed.0.contains(SERVER_TERMINAL) || without
    }

    /// Updates the encoder's state as if the event had been encoded in our own form. Returns whether the
    /// event is part of the history: offered settings, chosen settings and usage are sent in their final
    /// state at the start of a replay.
    fn note(&mut self, event: &Event, relayed: &Opaque, context: EncodeContext) -> bool {
        match event.body.family() {
            Family::Setup(SetupEvent::Offered { settings }) => {
                if !context.replay {
                    self.replace_offered(settings);
                }
                false
            }
            Family::Setup(SetupEvent::Setting { id, value }) => {
                if !context.replay {
                    self.settings.set(Arc::clone(id), Arc::clone(value));
                }
                false
            }
            Family::Usage(usage) => {
                self.turn_usage.add_from(&event.origin, usage);
                if !context.replay {
                    self.usage_total.add_from(&event.origin, usage);
                }
                false
            }
            Family::Tool(ToolEvent::Started(start)) => {
                self.command_outputs.began_foreign(&start.call, relayed.0.contains(TERMINAL_INFO));
                true
            }
            Family::Tool(ToolEvent::Changed(change)) => {
                self.shows(event, change);
                true
            }
            Family::Tool(ToolEvent::Ended(end)) => {
                self.command_outputs.forget(&end.call);
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

    /// Later output is appended to what the agent's update shows.
    pub(super) fn shows(&mut self, event: &Event, change: &ToolChange) {
        let Some(content) = &change.content else { return };
        let mut tail = OutputTail::of_agent(event.origin.task().cloned());
        for piece in content {
            if let ToolContent::Block(block) = piece {
                tail.push(&block_text(block));
            }
        }
        self.command_outputs.add_tail(&change.call, tail);
    }

    fn replace_offered(&mut self, settings: &[SettingSpec]) {
        let ours = self.specs.iter().filter(|spec| *spec.id == *APPROVAL).cloned();
        self.specs = settings.iter().cloned().chain(ours).collect();
        for spec in self.specs.iter() {
            if !spec.offers(self.settings.get(&spec.id)) {
                self.settings.set(Arc::clone(&spec.id), Arc::clone(&spec.default));
            }
        }
    }

    /// The response to `session/load` has the current options, so a replay does not repeat them.
    pub(super) fn offers(&mut self, settings: &[SettingSpec], context: EncodeContext, out: &mut Vec<u8>) {
        if !context.replay {
            self.replace_offered(settings);
            self.write_options(out);
        }
    }
}
