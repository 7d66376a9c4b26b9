//! Makes records of runs comparable, by replacing what differs in every run.
//!
//! Ids are replaced by the order of their first appearance, folders and addresses by marks, times and random
//! numbers by a word. What is left differs only if the agent or the server behaved differently.

use std::collections::HashMap;

use serde_json::Value;

use super::client::{Entry, Side};
use super::compare::Rules;

/// One frame with a name for its kind, such as `update tool_call` or `result of session/new`.
#[derive(Debug, Clone, PartialEq)]
pub struct NormalizedFrame {
    pub step: String,
    pub kind: String,
    pub frame: Value,
}

/// What the server names itself, which an agent alone has nothing of.
const OWN: &str = "ropewalk-ask-";

/// What stands for the places of one run: the text there, and the mark that replaces it.
pub type Marks = Vec<(String, &'static str)>;

pub fn normalize(record: &[Entry], marks: &Marks, rules: &Rules) -> Vec<NormalizedFrame> {
    let mut names = IdNumbers::default();
    let mut asked: HashMap<(bool, String), String> = HashMap::new();
    let mut all = Vec::new();
    for entry in record.iter().filter(|entry| !rules.apart(&entry.step)) {
        let mut frame = entry.frame.clone();
        let kind = kind(&frame, entry.from, &mut asked);
        if let Some(frame) = frame.as_object_mut() {
            frame.remove("id");
            frame.remove("jsonrpc");
        }
        names.clean(&mut frame, None, marks, rules);
        rules.ignored(&kind, &mut frame);
        all.push(NormalizedFrame { step: entry.step.clone(), kind, frame });
    }
    all
}

/// What a frame is. Requests are remembered, so that their answers can be named after them.
fn kind(frame: &Value, from: Side, asked: &mut HashMap<(bool, String), String>) -> String {
    let id = frame["id"].to_string();
    let client = from == Side::Client;
    match (frame["method"].as_str(), frame["id"].is_null()) {
        (Some("session/update"), true) => {
            format!("update {}", frame["params"]["update"]["sessionUpdate"].as_str().unwrap_or("?"))
        }
        (Some(method), true) => format!("{} {method}", if client { "client tells" } else { "agent tells" }),
        (Some(method), false) => {
            asked.insert((client, id), method.to_owned());
            format!("{} {method}", if client { "client asks" } else { "agent asks" })
        }
        (None, false) => {
            let method = asked.remove(&(!client, id)).unwrap_or_else(|| "?".to_owned());
            let what = if frame["error"].is_null() { "result" } else { "error" };
            format!("{what} of {method}")
        }
        (None, true) => "no frame".to_owned(),
    }
}

/// Ids, numbered as they appear. One id may stand in several fields.
#[derive(Default)]
struct IdNumbers {
    known: HashMap<String, usize>,
}

impl IdNumbers {
    fn clean(&mut self, value: &mut Value, field: Option<&str>, marks: &Marks, rules: &Rules) {
        match value {
            Value::String(text) => {
                let named = field.is_some_and(|field| rules.same_name(field));
                *text = if named {
                    self.numbered(text)
                } else {
                    self.known_inside(&rules.unnumbered(&plain(text, marks)))
                };
            }
            Value::Array(values) => values.iter_mut().for_each(|value| self.clean(value, None, marks, rules)),
            Value::Object(values) => {
                values.iter_mut().for_each(|(name, value)| self.clean(value, Some(name), marks, rules));
            }
            Value::Number(number) if number.as_f64().is_some_and(is_time) => *value = "TIME".into(),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn numbered(&mut self, id: &str) -> String {
        if id.starts_with(OWN) {
            return OWN.to_owned();
        }
        let next = self.known.len() + 1;
        format!("ID {}", self.known.entry(id.to_owned()).or_insert(next))
    }

    /// Known ids also stand inside of other texts: a path, a raw answer. Short ones could be anything.
    fn known_inside(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (id, number) in self.known.iter().filter(|(id, _)| id.len() >= 8) {
            if text.contains(id.as_str()) {
                text = text.replace(id.as_str(), &format!("ID {number}"));
            }
        }
        text
    }
}

/// A text without folders, addresses, times and random numbers.
fn plain(text: &str, marks: &Marks) -> String {
    let mut text = text.to_owned();
    for (from, mark) in marks {
        text = text.replace(from.as_str(), mark);
    }
    without(&without(&text, UUID, "UUID"), TIME, "TIME")
}

/// Seconds or milliseconds since 1970 that are within the years 2025 to 2065.
fn is_time(number: f64) -> bool {
    let years = 1_735_689_600.0..3_000_000_000.0;
    years.contains(&number) || years.contains(&(number / 1000.0))
}

/// Shapes: `x` is a hexadecimal digit, `9` a digit, all else itself.
const UUID: &str = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";
const TIME: &str = "9999-99-99T99:99:99";

fn without(text: &str, shape: &str, mark: &str) -> String {
    let fits = |window: &[u8]| {
        window.iter().zip(shape.bytes()).all(|(byte, shape)| match shape {
            b'x' => byte.is_ascii_hexdigit(),
            b'9' => byte.is_ascii_digit(),
            other => *byte == other,
        })
    };
    let (bytes, mut at, mut rest) = (text.as_bytes(), 0, 0);
    let mut out = String::new();
    while at + shape.len() <= bytes.len() {
        if text.is_char_boundary(at) && fits(&bytes[at..at + shape.len()]) {
            out.push_str(&text[rest..at]);
            out.push_str(mark);
            at += shape.len();
            // Parts of a second, and the zone.
            if mark == "TIME" {
                at += bytes[at..].iter().take_while(|byte| b".0123456789+:Z".contains(byte)).count();
            }
            rest = at;
        } else {
            at += 1;
        }
    }
    out.push_str(&text[rest..]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_random_ids_and_places_are_replaced_and_nothing_else_is() {
        let marks = vec![("/tmp/one/project".to_owned(), "PROJECT")];
        let text =
            "é /tmp/one/project/a at 2026-11-16T18:00:00.123Z by 01a1e5c0-ce62-72a2-8478-edaaa4e40d7e, 3-4";
        assert_eq!(plain(text, &marks), "é PROJECT/a at TIME by UUID, 3-4");
    }
}
