//! The summary of a conversation that is made without a model: its requests, its files, and the last answer.

use std::fmt::Write;
use std::sync::Arc;

use crate::model::Message;

const REQUEST_CHARS_MAX: usize = 300;
const REQUESTS_MAX: usize = 50;
const FILES_MAX: usize = 100;
const ANSWER_CHARS_MAX: usize = 4_000;
/// An earlier summary keeps this much, so that summaries of summaries do not grow without end.
const EARLIER_CHARS_MAX: usize = 8_000;

/// The requests, the files and the last answer; `None` when there is nothing to sum up.
pub(crate) fn without_model(messages: &[Message]) -> Option<String> {
    let mut requests = Vec::new();
    let mut files: Vec<String> = Vec::new();
    let mut earlier: Option<&Arc<str>> = None;
    let mut answer: Option<&Arc<str>> = None;
    for message in messages {
        match message {
            Message::Summary(text) => earlier = Some(text),
            Message::User { text, .. } => requests.push(cut(&one_line(text), REQUEST_CHARS_MAX)),
            Message::Assistant { text, calls, .. } => {
                if !text.trim().is_empty() {
                    answer = Some(text);
                }
                for call in calls {
                    files.extend(path_of(&call.arguments).map(|path| format!("{} ({})", path, call.name)));
                }
            }
            Message::ToolResult { .. } => {}
        }
    }
    if requests.is_empty() && earlier.is_none() {
        return None;
    }
    let mut seen = std::collections::BTreeSet::new();
    files.retain(|file| seen.insert(file.clone()));
    let mut summary = String::new();
    if let Some(text) = earlier {
        writeln!(summary, "Earlier:\n{}\n", cut(text, EARLIER_CHARS_MAX)).ok();
    }
    section(&mut summary, "The user asked", &requests, REQUESTS_MAX);
    section(&mut summary, "Files touched", &files, FILES_MAX);
    if let Some(text) = answer {
        writeln!(summary, "The last answer:\n{}", cut(text.trim(), ANSWER_CHARS_MAX)).ok();
    }
    Some(summary)
}

/// The newest lines of a section; older ones are only counted.
fn section(summary: &mut String, title: &str, lines: &[String], lines_max: usize) {
    if lines.is_empty() {
        return;
    }
    let left_out = lines.len().saturating_sub(lines_max);
    writeln!(summary, "{title}:").ok();
    if left_out > 0 {
        writeln!(summary, "- ({left_out} earlier ones left out)").ok();
    }
    for line in &lines[left_out..] {
        writeln!(summary, "- {line}").ok();
    }
    summary.push('\n');
}

fn path_of(arguments: &str) -> Option<String> {
    let value: serde_json::Value = serde_json::from_str(arguments).ok()?;
    value.get("path")?.as_str().map(str::to_owned)
}

pub(crate) fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// At most this many characters, with a mark where something is missing.
pub(crate) fn cut(text: &str, chars_max: usize) -> String {
    match text.char_indices().nth(chars_max) {
        None => text.to_owned(),
        Some(_) => {
            let head: String = text.chars().take(chars_max.saturating_sub(1)).collect();
            format!("{head}…")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_has_the_requests_the_files_and_the_last_answer() {
        let call = |name: &str| crate::model::ToolCall {
            id: "1".into(),
            name: name.into(),
            arguments: r#"{"path":"src/a.rs"}"#.into(),
        };
        let messages = [
            Message::User { text: "look at a".into(), images: vec![] },
            Message::Assistant {
                text: "first".into(),
                calls: vec![call("read"), call("read"), call("edit")],
                native: None,
            },
            Message::User { text: "and b".into(), images: vec![] },
            Message::Assistant { text: "done".into(), calls: vec![], native: None },
        ];
        let summary = without_model(&messages).unwrap();
        expect_test::expect![[r#"
            The user asked:
            - look at a
            - and b

            Files touched:
            - src/a.rs (read)
            - src/a.rs (edit)

            The last answer:
            done
        "#]]
        .assert_eq(&summary);
        assert!(
            without_model(&[Message::Summary(summary.into())])
                .unwrap()
                .starts_with("Earlier:\nThe user asked:")
        );
        assert_eq!(without_model(&[]), None);
    }
}
