//! Compares two journals of the same prompt, step by step.
//!
//! Ids that agents make up are compared by where they first appeared and not by their text. Times are not
//! compared. Everything else must be equal.

use std::collections::HashMap;

use serde_json::Value;

use super::Step;

/// Members that hold made-up ids.
const NAMES: [&str; 6] =
    ["sessionId", "toolCallId", "terminalId", "messageId", "requestId", "parentToolUseId"];
/// How much of a value is shown.
const SHOWN_CHARS_MAX: usize = 60;
/// Texts that are equal for longer than this are shown from shortly before their first difference.
const SAME_BYTES_MAX: usize = 40;
const BEFORE_BYTES: usize = 10;

/// The ids that appeared in both journals so far.
#[derive(Default)]
pub struct JournalComparison {
    here: NameNumbers,
    there: NameNumbers,
}

/// The ids of each kind, numbered in order of appearance.
#[derive(Default)]
struct NameNumbers(HashMap<String, HashMap<String, usize>>);

impl NameNumbers {
    fn number(&mut self, member: &str, name: &str) -> usize {
        let known = self.0.entry(member.to_owned()).or_default();
        let next = known.len() + 1;
        *known.entry(name.to_owned()).or_insert(next)
    }
}

impl JournalComparison {
    /// The difference between two steps, if there is one.
    pub fn differ(&mut self, here: &Step, there: &Step) -> Option<String> {
        if here.process != there.process {
            let (here, there) = (here.process, there.process);
            return Some(format!("process {here} of the agent sent it here, and process {there} there"));
        }
        let method = |step: &Step| step.answers.as_ref().map(|asked| asked.method.clone());
        if method(here) != method(there) {
            let told = |step| method(step).map_or("no request".into(), |method| format!("{method:?}"));
            return Some(format!("it answers {} here and {} there", told(here), told(there)));
        }
        let (Some(ours), Some(theirs)) = (&here.frame, &there.frame) else {
            let same = here.frame == there.frame && here.sha256 == there.sha256;
            return (!same).then(|| "it differs, and is too long or not text, so it cannot be shown".into());
        };
        match (serde_json::from_str(ours), serde_json::from_str(theirs)) {
            (Ok(ours), Ok(theirs)) => self.values("", &ours, &theirs),
            _ if ours == theirs => None,
            _ => Some(format!("it is {} here and {} there", preview(ours), preview(theirs))),
        }
    }

    fn values(&mut self, path: &str, here: &Value, there: &Value) -> Option<String> {
        match (here, there) {
            (Value::Object(ours), Value::Object(theirs)) => {
                let more = theirs.keys().filter(|name| !ours.contains_key(*name));
                ours.keys().chain(more).find_map(|name| {
                    let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                    match (ours.get(name), theirs.get(name)) {
                        (Some(ours), Some(theirs)) => self.members(&path, name, ours, theirs),
                        (Some(ours), None) => Some(format!("{path} is {} here and not there", preview(ours))),
                        (None, theirs) => {
                            theirs.map(|theirs| format!("{path} is not here, and {} there", preview(theirs)))
                        }
                    }
                })
            }
            (Value::Array(ours), Value::Array(theirs)) => {
                if ours.len() != theirs.len() {
                    let (ours, theirs) = (ours.len(), theirs.len());
                    return Some(format!("{path} has {ours} entries here and {theirs} there"));
                }
                let mut pairs = ours.iter().zip(theirs).enumerate();
                pairs.find_map(|(at, (ours, theirs))| self.values(&format!("{path}[{at}]"), ours, theirs))
            }
            _ if here == there || (is_time(here) && is_time(there)) => None,
            (Value::String(ours), Value::String(theirs)) => {
                let from = parting(ours, theirs);
                let (ours, theirs) = (preview(&ours[from..]), preview(&theirs[from..]));
                let place = if from == 0 { String::new() } else { format!(", from byte {from} on,") };
                Some(format!("{path}{place} is {ours} here and {theirs} there"))
            }
            _ => Some(format!("{path} is {} here and {} there", preview(here), preview(there))),
        }
    }

    fn members(&mut self, path: &str, name: &str, here: &Value, there: &Value) -> Option<String> {
        // At the top level, `id` is a JSON-RPC id: ours is a number, the agent's is made up.
        let made_up = NAMES.contains(&name) || path == "id";
        match (here, there) {
            (Value::String(ours), Value::String(theirs)) if made_up => {
                let (ours, theirs) = (self.here.number(name, ours), self.there.number(name, theirs));
                let differ = ours != theirs;
                differ.then(|| format!("{path} is number {ours} of its kind here and {theirs} there"))
            }
            _ => self.values(path, here, there),
        }
    }
}

/// The byte from which two texts are shown.
fn parting(here: &str, there: &str) -> usize {
    let same = here.bytes().zip(there.bytes()).take_while(|(ours, theirs)| ours == theirs).count();
    // The texts are equal up to there, so a character boundary in one is a boundary in the other.
    if same > SAME_BYTES_MAX { here.floor_char_boundary(same - BEFORE_BYTES) } else { 0 }
}

/// A time such as `2025-04-01T12:00:00Z`.
fn is_time(value: &Value) -> bool {
    let Some(text) = value.as_str().map(str::as_bytes) else { return false };
    let marks = [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')];
    text.len() >= 20
        && text[..4].iter().all(u8::is_ascii_digit)
        && marks.iter().all(|(at, mark)| text[*at] == *mark)
}

fn preview(value: &(impl serde::Serialize + ?Sized)) -> String {
    let text = serde_json::to_string(value).unwrap_or_default();
    match text.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
