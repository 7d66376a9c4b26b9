//! `edit`: replaces parts of a file, each identified by its current text.
//!
//! The text must match exactly, and only once. Otherwise whole lines are compared, ignoring blanks at their
//! ends and typographic variants of characters (see `line_matching`). Nothing more lenient is tried: the model is
//! told what is wrong and tries again. Several edits in one call are applied one after the other, all or
//! none.
//!
//! **Invariant:** nothing outside of the matched places changes, not even a line ending.

use std::ops::Range;
use std::sync::Arc;

use engine::{BoxFuture, FileChange, Risk, ToolContent};
use serde::Deserialize;
use serde_json::json;

use super::write::{apply_change, current, refuse_marks};
use super::{
    Intent, ToolDefinition, ToolFailure, ToolJob, ToolOutcome, ToolWork, arguments, file_work, line_matching,
};
use crate::summary_without_model::cut;

const EDITS_MAX: usize = 100;
/// How much of the file an error shows.
const SHOWN_LINES_MAX: usize = 6;
const SHOWN_CHARS_MAX: usize = 200;
/// Places that an error names.
const PLACES_NAMED_MAX: usize = 5;

pub(super) const NAME: &str = "edit";

pub(super) fn tool() -> ToolDefinition {
    let old =
        json!({"type": "string", "description": "the text to replace, with enough around it to be unique"});
    let new = json!({"type": "string", "description": "the text to put there instead"});
    let all = json!({"type": "boolean", "description": "replace every place where the old text stands"});
    let schema = json!({
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "the file, absolute or relative to the working folder"},
            "old": old,
            "new": new,
            "replace_all": all,
            "edits": {
                "type": "array",
                "description": "several edits instead of one, done in this order, all or none",
                "items": {
                    "type": "object",
                    "properties": {"old": old, "new": new, "replace_all": all},
                    "required": ["old", "new"],
                    "additionalProperties": false
                }
            }
        },
        "required": ["path"],
        "additionalProperties": false
    });
    ToolDefinition::edits(
        NAME,
        "Replaces text in a file: old by new, or several such edits at once. The old text must stand there \
         exactly once, unless replace_all is set. Read the file first and copy the old text from it.",
        schema,
        parse_call,
    )
}

#[derive(Deserialize)]
struct Arguments {
    path: String,
    old: Option<String>,
    new: Option<String>,
    #[serde(default)]
    replace_all: bool,
    #[serde(default)]
    edits: Vec<Replacement>,
}

#[derive(Debug, Clone, Deserialize)]
struct Replacement {
    old: String,
    new: String,
    #[serde(default)]
    replace_all: bool,
}

fn parse_call(text: &str) -> Result<Intent, String> {
    let edit: Arguments = arguments(text)?;
    let mut edits = edit.edits;
    match (edit.old, edit.new) {
        (Some(old), Some(new)) => {
            edits.insert(0, Replacement { old, new, replace_all: edit.replace_all });
        }
        (None, None) if !edits.is_empty() => {}
        (_, _) => return Err("say what to replace: old and new, or a list of edits".into()),
    }
    if edits.len() > EDITS_MAX {
        return Err(format!("more than {EDITS_MAX} edits at once; write the file instead"));
    }
    Ok(Intent {
        title: format!("Edit {}", edit.path),
        path: Some(edit.path),
        line: None,
        subject: None,
        risk: Risk::Medium,
        reason: "edits a file",
        work: Box::new(Edit { edits, ready: None }),
    })
}

struct Edit {
    edits: Vec<Replacement>,
    ready: Option<(FileChange, String, u32)>,
}

impl ToolWork for Edit {
    fn prepare(&mut self, job: &ToolJob) -> Result<Vec<ToolContent>, ToolFailure> {
        let path = job.spot()?.real();
        let before = current(job)?.ok_or("the file does not exist; write it instead")?;
        for edit in &self.edits {
            refuse_marks(&edit.new, Some(&before))?;
        }
        let (after, spans) = apply_edits(&before, &self.edits)?;
        let shown = job.workspace.shown(path);
        let model_text = match self.edits.len() {
            1 => result_text(&shown, &after, &spans),
            count => format!("made {count} edits in {shown}"),
        };
        let same = before.bytes().zip(after.bytes()).take_while(|(before, after)| before == after).count();
        let line = line_at(&after, same);
        let change =
            FileChange { path: path.to_owned(), before: Some(before.into()), after: Some(after.into()) };
        self.ready = Some((change.clone(), model_text, line));
        Ok(vec![ToolContent::Diff(change)])
    }

    fn run(self: Box<Self>, job: Arc<ToolJob>) -> BoxFuture<'static, ToolOutcome> {
        file_work(move || {
            let (change, model_text, line) = self.ready.ok_or("could not prepare the edit")?;
            apply_change(&job, change, model_text, Some(line))
        })
    }
}

fn result_text(shown: &str, after: &str, spans: &[Range<usize>]) -> String {
    let lines: Vec<String> =
        spans.iter().take(PLACES_NAMED_MAX).map(|span| line_at(after, span.start).to_string()).collect();
    match (lines.as_slice(), spans.len().saturating_sub(lines.len())) {
        ([only], 0) => format!("edited {shown} at line {only}"),
        (several, 0) => format!("edited {shown} at lines {}", several.join(", ")),
        (several, more) => format!("edited {shown} at lines {} and {more} more", several.join(", ")),
    }
}

fn line_at(text: &str, at: usize) -> u32 {
    let before = text.as_bytes().get(..at).unwrap_or(text.as_bytes());
    u32::try_from(before.iter().filter(|byte| **byte == b'\n').count() + 1).unwrap_or(u32::MAX)
}

/// The text after all edits, and the spans of the last edit in it.
fn apply_edits(before: &str, edits: &[Replacement]) -> Result<(String, Vec<Range<usize>>), String> {
    let mut text = before.to_owned();
    let mut spans: Vec<Range<usize>> = Vec::new();
    for (number, edit) in (1..).zip(edits) {
        let outcome = apply_edit(&text, edit);
        let (after, put) = outcome.map_err(|reason| match edits.len() {
            1 => reason,
            count => format!("edit {number} of {count}: {reason}. Nothing was changed"),
        })?;
        spans = put;
        text = after;
    }
    if text == before {
        return Err("the edits leave the file as it is".into());
    }
    Ok((text, spans))
}

/// The text after one edit, and the spans of the new text.
fn apply_edit(text: &str, edit: &Replacement) -> Result<(String, Vec<Range<usize>>), String> {
    if edit.old.is_empty() {
        return Err("the old text is empty; write the file instead".into());
    }
    if edit.old == edit.new {
        return Err("the old and the new text are the same".into());
    }
    let mut places = exact_places(text, &edit.old);
    if places.is_empty() {
        places = line_places(text, &edit.old)?;
    }
    match places.len() {
        0 => return Err(format!("the old text is not in the file{}", nearest(text, &edit.old))),
        1 => {}
        _ if edit.replace_all => places = non_overlapping(places),
        count => return Err(ambiguous(text, &places, count)),
    }
    let mut after = String::with_capacity(text.len() + edit.new.len());
    let (mut copied, mut spans) = (0, Vec::new());
    for place in places {
        after.push_str(&text[copied..place.start]);
        let start = after.len();
        after.push_str(&with_endings_of(text, &place, &edit.new));
        spans.push(start..after.len());
        copied = place.end;
    }
    after.push_str(&text[copied..]);
    Ok((after, spans))
}

/// Exact matches of the old text, in order. Line endings may be those of the file.
fn exact_places(text: &str, old: &str) -> Vec<Range<usize>> {
    let mut places = occurrences(text, old);
    let windows = with_crlf(old);
    if windows != old {
        // A match must not start in the middle of a line ending.
        places.retain(|place| !(old.starts_with('\n') && text[..place.start].ends_with('\r')));
        places.extend(occurrences(text, &windows));
        places.sort_by_key(|place| place.start);
    }
    places
}

/// All occurrences, including overlapping ones, which count as ambiguous.
fn occurrences(text: &str, old: &str) -> Vec<Range<usize>> {
    let step = old.chars().next().map_or(1, char::len_utf8);
    let (mut places, mut from) = (Vec::new(), 0);
    while let Some(at) = text.get(from..).and_then(|rest| rest.find(old)) {
        places.push(from + at..from + at + old.len());
        from += at + step;
    }
    places
}

/// Runs of whole lines that equal the old text, ignoring trailing blanks and typographic variants.
fn line_places(text: &str, old: &str) -> Result<Vec<Range<usize>>, String> {
    let wanted: Vec<_> = old.lines().map(line_matching::plain).collect();
    if wanted.iter().all(|line| line.is_empty()) {
        return Ok(Vec::new());
    }
    let all = line_matching::of(text);
    let compared: Vec<_> = all.iter().map(|line| line_matching::plain(line.text())).collect();
    let runs = line_matching::runs(&compared, &wanted, 0, |line, wanted| line == wanted)?;
    let place = |run: Range<usize>| {
        let last = all[run.end - 1];
        let end = if old.ends_with('\n') { last.end() } else { last.start + last.text().len() };
        all[run.start].start..end
    };
    Ok(runs.into_iter().map(place).collect())
}

/// The places that do not overlap with an earlier one.
fn non_overlapping(places: Vec<Range<usize>>) -> Vec<Range<usize>> {
    let mut end = 0;
    let free = |place: &Range<usize>| {
        let free = place.start >= end;
        end = if free { place.end } else { end };
        free
    };
    places.into_iter().filter(free).collect()
}

/// The new text with the line endings of the replaced place.
fn with_endings_of(text: &str, place: &Range<usize>, new: &str) -> String {
    let (span, rest) = (&text[place.clone()], &text[place.end..]);
    let first_end = |text: &str| text.find('\n').map(|at| text[..at].ends_with('\r'));
    let before = || text[..place.start].rfind('\n').map(|at| text[..at].ends_with('\r'));
    let windows = first_end(span).or_else(|| first_end(rest)).or_else(before).unwrap_or(false);
    if windows { with_crlf(new) } else { new.to_owned() }
}

fn with_crlf(text: &str) -> String {
    text.replace("\r\n", "\n").replace('\n', "\r\n")
}

fn ambiguous(text: &str, places: &[Range<usize>], count: usize) -> String {
    let lines: Vec<_> =
        places.iter().take(PLACES_NAMED_MAX).map(|place| line_at(text, place.start).to_string()).collect();
    let more = if count > lines.len() { ", .." } else { "" };
    format!(
        "the old text is in the file {count} times (line {}{more}); take more of what is around it, or set \
         replace_all",
        lines.join(", ")
    )
}

/// A hint for the model: where a line of the old text is found, and the actual text there.
fn nearest(text: &str, old: &str) -> String {
    let all = line_matching::of(text);
    let compared: Vec<_> =
        all.iter().map(|line| line_matching::plain(line.text()).trim_start().to_owned()).collect();
    let at = old.lines().take(SHOWN_LINES_MAX * 2).enumerate().find_map(|(number, line)| {
        let wanted = line_matching::plain(line);
        let wanted = wanted.trim_start();
        // A line with only a bracket occurs everywhere.
        (wanted.len() > 2).then(|| compared.iter().position(|line| line == wanted))?.map(|at| (number, at))
    });
    let Some((number, at)) = at else {
        return "; read the file again and copy the text from it".into();
    };
    let first = at.saturating_sub(number);
    let shown = all.iter().skip(first).take(SHOWN_LINES_MAX);
    let shown: String = shown.map(|line| format!("\n{}", cut(line.text(), SHOWN_CHARS_MAX))).collect();
    format!(
        "; its line {} is on line {}. From line {} on the file has:{shown}",
        number + 1,
        at + 1,
        first + 1
    )
}

#[cfg(test)]
mod tests;
