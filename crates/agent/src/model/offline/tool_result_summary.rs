//! What the offline model says about tool results: one sentence each, and the facts of a review.

use std::collections::HashMap;
use std::fmt::Write;

use super::request_parser::Request;
use crate::model::{Message, ToolCall};
use crate::summary_without_model::cut;

const QUOTE_CHARS_MAX: usize = 120;
const LONG_LINE_CHARS: usize = 120;
const LINES_NAMED_MAX: usize = 10;

/// A sentence per result since the prompt, plans left out.
pub(super) fn sentences(requests: &[Request], after: &[Message]) -> Vec<String> {
    let mut calls: HashMap<&str, &ToolCall> = HashMap::new();
    let mut sentences = Vec::new();
    for message in after {
        match message {
            Message::Assistant { calls: made, .. } => {
                calls.extend(made.iter().map(|call| (call.id.as_ref(), call)))
            }
            Message::ToolResult { call, tool, text, failed, .. } if tool.as_ref() != "update_plan" => {
                let subject = calls.get(call.as_ref()).map(|call| subject(call)).unwrap_or_default();
                sentences.push(sentence(requests, tool, &subject, text, *failed));
            }
            Message::ToolResult { .. } | Message::Summary(_) | Message::User { .. } => {}
        }
    }
    sentences
}

/// What a call was about: its file, its command, its text.
fn subject(call: &ToolCall) -> String {
    let arguments: serde_json::Value = serde_json::from_str(&call.arguments).unwrap_or_default();
    let named = ["path", "command", "text"].iter().find_map(|key| arguments.get(*key)?.as_str());
    cut(named.unwrap_or("."), QUOTE_CHARS_MAX)
}

fn sentence(requests: &[Request], tool: &str, subject: &str, text: &str, failed: bool) -> String {
    let reviewed = |request: &Request| matches!(request, Request::Review(Some(path)) if path == subject);
    match tool {
        "shell" => shell_sentence(subject, text),
        _ if failed => {
            format!("`{tool} {subject}` did not work: {}.", cut(text.trim(), QUOTE_CHARS_MAX * 2))
        }
        "read" if requests.iter().any(reviewed) => review(subject, text),
        "read" => {
            format!("I read {subject}: {}; it begins with {}.", count(text, "line"), quoted_first(text))
        }
        "list" => {
            let names: Vec<&str> = text.lines().take(LINES_NAMED_MAX).collect();
            format!("{subject} has {}: {}.", count(text, "entry"), names.join(", "))
        }
        "search" if text.starts_with("no hits") => format!("I found no {subject:?}."),
        "search" => {
            format!("I found {subject:?} in {}; the first is {}.", count(text, "place"), quoted_first(text))
        }
        _ => format!("I {}.", text.trim()),
    }
}

fn shell_sentence(command: &str, text: &str) -> String {
    let (output, ending) = text.trim_end().rsplit_once('\n').unwrap_or(("", text.trim_end()));
    let ending = ending.trim_matches(['[', ']']);
    match output.trim_end().lines().next_back() {
        Some(last) => {
            format!("`{command}`: {ending}; its last line is `{}`.", cut(last, QUOTE_CHARS_MAX))
        }
        None => format!("`{command}`: {ending}."),
    }
}

fn count(text: &str, what: &str) -> String {
    match (text.lines().count(), what) {
        (1, _) => format!("1 {what}"),
        (count, "entry") => format!("{count} entries"),
        (count, _) => format!("{count} {what}s"),
    }
}

fn quoted_first(text: &str) -> String {
    text.lines()
        .next()
        .map_or_else(|| "nothing".into(), |line| format!("`{}`", cut(line.trim(), QUOTE_CHARS_MAX)))
}

/// Facts about a file that need no judgement.
fn review(path: &str, text: &str) -> String {
    let lines_where = |what: &dyn Fn(&str) -> bool| -> Vec<usize> {
        (1..).zip(text.lines()).filter(|(_, line)| what(line)).map(|(number, _)| number).collect()
    };
    let long = lines_where(&|line| line.chars().count() > LONG_LINE_CHARS);
    let markers = lines_where(&|line| ["TODO", "FIXME", "XXX"].iter().any(|word| line.contains(word)));
    let blanks = lines_where(&|line| line.ends_with([' ', '\t']));
    let mut review = format!("Review of {path}: {}.", count(text, "line"));
    for (what, lines) in [
        ("longer than 120 characters", long),
        ("with TODO, FIXME or XXX", markers),
        ("ending in blanks", blanks),
    ] {
        let named: Vec<_> = lines.iter().take(LINES_NAMED_MAX).map(usize::to_string).collect();
        match lines.len() {
            0 => write!(review, "\n- no lines {what}").ok(),
            total => write!(review, "\n- {total} lines {what}: {}", named.join(", ")).ok(),
        };
    }
    review.push_str("\nThe offline model sees such facts only; a real model judges the code.");
    review
}
