//! `/diff`: what the session changed in files and nobody has reviewed, to read.

use std::fmt::Write;
use std::sync::Arc;

use engine::Changed;

use crate::place::Place;
use crate::tools;
use crate::undo::Undo;

/// Lines that an answer has.
const LINES_MAX: usize = 400;
const LINE_CHARS_MAX: usize = 400;
/// Files that are named.
const FILES_MAX: usize = 50;

pub(super) async fn answer(path: Option<String>, undo: &Arc<Undo>, place: &Place) -> String {
    let (undo, at) = (Arc::clone(undo), place.clone());
    let changes = tools::blocking(move || {
        let files = at.files().map_err(|error| error.to_string())?;
        undo.changes(files)
    });
    match changes.await.and_then(|changes: Result<Vec<Changed>, String>| changes) {
        Err(reason) => format!("There is nothing to show: {reason}."),
        Ok(changes) => shown(&changes, path.as_deref(), place),
    }
}

fn shown(changes: &[Changed], path: Option<&str>, place: &Place) -> String {
    let path = path.map(|path| path.trim_matches('"'));
    let wanted = |changed: &&Changed| {
        path.is_none_or(|path| changed.path == place.cwd.join(path) || place.shown(&changed.path) == path)
    };
    let wanted: Vec<&Changed> = changes.iter().filter(wanted).collect();
    if wanted.is_empty() {
        return match path {
            Some(path) => format!("This session has no unreviewed change of {path}."),
            None => "There are no changes of this session that wait for a review.".into(),
        };
    }
    let of_file = |changed: &&Changed| file(changed, &place.shown(&changed.path));
    let mut lines: Vec<String> = wanted.iter().take(FILES_MAX).flat_map(of_file).collect();
    let more = lines.len().saturating_sub(LINES_MAX);
    if more > 0 {
        lines.truncate(LINES_MAX);
        lines.push(format!("[{more} more lines; `/diff PATH` shows one file]"));
    }
    let fence = fence(&lines);
    let mut text = format!("{fence}diff\n{}\n{fence}\n", lines.join("\n"));
    if wanted.len() > FILES_MAX {
        writeln!(text, "{} more files changed.", wanted.len() - FILES_MAX).ok();
    }
    text.push_str("`/keep` and `/revert` say what stays.");
    text
}

/// A file's changes, as `diff -u` writes them.
fn file(changed: &Changed, name: &str) -> Vec<String> {
    let side = |there: bool, mark: &str| if there { format!("{mark}/{name}") } else { "/dev/null".into() };
    let mut lines = vec![
        format!("--- {}", side(changed.before.is_some(), "a")),
        format!("+++ {}", side(changed.after.is_some(), "b")),
    ];
    if changed.opaque {
        lines.push("[not text, or too large to compare]".into());
    }
    for hunk in &changed.hunks {
        let count = |without: char| hunk.lines.iter().filter(|line| !line.starts_with(without)).count();
        lines.push(format!("@@ -{},{} +{},{} @@ {}", hunk.old, count('+'), hunk.new, count('-'), hunk.id));
        lines.extend(hunk.lines.iter().map(|line| crate::summary::cut(line, LINE_CHARS_MAX)));
    }
    lines
}

/// Longer than every run of backticks that a line begins with, also after its mark.
fn fence(lines: &[String]) -> String {
    let run = |line: &String| {
        let line = line.trim_start_matches(['+', '-', ' ']);
        line.len() - line.trim_start_matches('`').len()
    };
    "`".repeat(lines.iter().map(run).max().unwrap_or(0).max(2) + 1)
}
