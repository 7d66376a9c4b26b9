//! `edit`: one place of a file, named by the text that stands there.
//!
//! The text must be found exactly and only once. Failing that, whole lines are compared without the
//! blanks at their ends. Anything more lenient has destroyed files for others, so there is nothing
//! more lenient: the model is told what is wrong and tries again.

use std::ops::Range;
use std::sync::Arc;

use engine::{BoxFuture, FileChange, Risk, ToolClass, ToolContent, ToolKind};
use serde::Deserialize;
use serde_json::json;

use super::write::{current, put_in_place, refuse_marks};
use super::{Failure, Intent, Job, Outcome, Tool, Work, arguments, file_work};

pub(super) const NAME: &str = "edit";

pub(super) fn tool() -> Tool {
    let schema = json!({
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "the file, absolute or relative to the working folder"},
            "old": {"type": "string", "description": "the text to replace, with enough around it to be unique"},
            "new": {"type": "string", "description": "what shall stand there instead"}
        },
        "required": ["path", "old", "new"],
        "additionalProperties": false
    });
    Tool::new(
        NAME,
        "Replaces one place of a file. The old text must stand there exactly once.",
        ToolKind::Edit,
        ToolClass::Edit,
        schema,
        intend,
    )
}

#[derive(Deserialize)]
struct Arguments {
    path: String,
    old: String,
    new: String,
}

fn intend(text: &str) -> Result<Intent, String> {
    let edit: Arguments = arguments(text)?;
    Ok(Intent {
        title: format!("Edit {}", edit.path),
        path: Some(edit.path),
        line: None,
        subject: None,
        risk: Risk::Medium,
        reason: "edits a file",
        work: Box::new(Edit { old: edit.old, new: edit.new, ready: None }),
    })
}

struct Edit {
    old: String,
    new: String,
    ready: Option<(FileChange, u32)>,
}

impl Work for Edit {
    fn prepare(&mut self, job: &Job) -> Result<Vec<ToolContent>, Failure> {
        let path = job.spot()?.real();
        let before = current(job)?.ok_or("the file does not exist; write it instead")?;
        refuse_marks(&self.new, Some(&before))?;
        let (after, line) = replaced(&before, &self.old, &self.new)?;
        let change =
            FileChange { path: path.to_owned(), before: Some(before.into()), after: Some(after.into()) };
        self.ready = Some((change.clone(), line));
        Ok(vec![ToolContent::Diff(change)])
    }

    fn run(self: Box<Self>, job: Arc<Job>) -> BoxFuture<'static, Outcome> {
        file_work(move || {
            let (change, line) = self.ready.ok_or("the edit was not prepared")?;
            let told = format!("edited {} at line {line}", job.place.shown(&change.path));
            put_in_place(&job, change, told, Some(line))
        })
    }
}

/// The text with one place replaced, and the line it is on.
fn replaced(text: &str, old: &str, new: &str) -> Result<(String, u32), String> {
    if old.is_empty() {
        return Err("the old text is empty; write the file instead".into());
    }
    if old == new {
        return Err("the old and the new text are the same".into());
    }
    let crlf = text.contains("\r\n");
    let (old, new) = if crlf { (with_crlf(old), with_crlf(new)) } else { (old.to_owned(), new.to_owned()) };
    let place = find_exact(text, &old)?.map_or_else(|| find_lines(text, &old), |place| Ok(Some(place)))?;
    let Some(place) = place else {
        return Err(format!("the old text is not in the file{}", nearest(text, &old)));
    };
    let line = text[..place.start].matches('\n').count() + 1;
    let after = format!("{}{new}{}", &text[..place.start], &text[place.end..]);
    Ok((after, u32::try_from(line).unwrap_or(u32::MAX)))
}

fn with_crlf(text: &str) -> String {
    text.replace("\r\n", "\n").replace('\n', "\r\n")
}

fn find_exact(text: &str, old: &str) -> Result<Option<Range<usize>>, String> {
    let mut places = text.match_indices(old);
    let Some((start, _)) = places.next() else { return Ok(None) };
    // Occurrences may overlap, so the next one is looked for just after the first begins.
    let step = old.chars().next().map_or(1, char::len_utf8);
    if text[start + step..].contains(old) {
        return Err("the old text is in the file more than once; take more of what is around it".into());
    }
    Ok(Some(start..start + old.len()))
}

/// The whole lines that equal the old text's lines but for blanks at their ends, if there is one place.
fn find_lines(text: &str, old: &str) -> Result<Option<Range<usize>>, String> {
    let to_line_end = old.ends_with('\n');
    let wanted: Vec<&str> = old.lines().map(str::trim_end).collect();
    if wanted.iter().all(|line| line.is_empty()) {
        return Ok(None);
    }
    let lines: Vec<(usize, &str)> = text
        .split_inclusive('\n')
        .scan(0, |at, line| {
            let start = *at;
            *at += line.len();
            Some((start, line))
        })
        .collect();
    let mut found = lines
        .windows(wanted.len())
        .filter(|window| window.iter().zip(&wanted).all(|((_, line), wanted)| line.trim_end() == *wanted));
    let Some(window) = found.next() else { return Ok(None) };
    if found.next().is_some() {
        return Err(
            "the old text fits more than one place of the file; take more of what is around it".into()
        );
    }
    let (Some((start, _)), Some((last, line))) = (window.first(), window.last()) else { return Ok(None) };
    let kept = if to_line_end { line.len() } else { line.trim_end_matches(['\n', '\r']).len() };
    Ok(Some(*start..last + kept))
}

/// A hint for the model: where the first line of the old text can be found.
fn nearest(text: &str, old: &str) -> String {
    let first = old.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    let at = text.lines().position(|line| !first.is_empty() && line.trim() == first);
    at.map_or_else(String::new, |line| format!("; its first line is on line {}, read from there", line + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, old: &str, new: &str, expected: Result<(&str, u32), &str>) {
        let outcome = replaced(text, old, new);
        let outcome = outcome.as_ref().map(|(text, line)| (text.as_str(), *line)).map_err(String::as_str);
        assert_eq!(outcome, expected, "{text:?} {old:?} {new:?}");
    }

    #[test]
    fn the_exact_and_unique_text_is_replaced() {
        check("a\nb\nc\n", "b", "x", Ok(("a\nx\nc\n", 2)));
        check("\u{feff}a\n", "a", "b", Ok(("\u{feff}b\n", 1)));
        check("a\r\nb\r\n", "a\nb", "x\ny", Ok(("x\r\ny\r\n", 1)));
    }

    #[test]
    fn blanks_at_line_ends_do_not_matter() {
        check("if x {  \n\ty();\t\n}\n", "if x {\n\ty();\n}", "z", Ok(("z\n", 1)));
        check("a  \nb\n", "a\nb\n", "c\n", Ok(("c\n", 1)));
        check("a \r\nb\r\n", "a\nb\n", "c\n", Ok(("c\r\n", 1)));
    }

    #[test]
    fn what_is_not_there_once_is_refused() {
        let twice = "the old text is in the file more than once; take more of what is around it";
        check("a a", "a", "b", Err(twice));
        check("aaa", "aa", "b", Err(twice));
        check(
            "a \nb\na  \nb\n",
            "a\nb",
            "c",
            Err("the old text fits more than one place of the file; take more of what is around it"),
        );
        check("abc", "x", "y", Err("the old text is not in the file"));
        check(
            "a\nb",
            "b\nz",
            "y",
            Err("the old text is not in the file; its first line is on line 2, read from there"),
        );
        check("abc", "", "y", Err("the old text is empty; write the file instead"));
        check("abc", "a", "a", Err("the old and the new text are the same"));
        check("a\n\nb", "  \n", "y", Err("the old text is not in the file"));
    }
}
