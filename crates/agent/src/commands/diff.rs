//! `/diff`: shows the session's changes to files that nobody has reviewed.

use std::fmt::Write;
use std::sync::Arc;

use engine::ChangedFile;

use crate::tools;
use crate::undo::UndoHistory;
use crate::workspace::Workspace;

/// Lines of an answer.
const LINES_MAX: usize = 400;
const LINE_CHARS_MAX: usize = 400;
/// Files that are listed.
const FILES_MAX: usize = 50;

pub(super) async fn answer(path: Option<String>, undo: &Arc<UndoHistory>, workspace: &Workspace) -> String {
    let (undo, at) = (Arc::clone(undo), workspace.clone());
    let changes = tools::blocking(move || {
        let files = at.files().map_err(|error| error.to_string())?;
        undo.changes(files)
    });
    match changes.await.and_then(|changes: Result<Vec<ChangedFile>, String>| changes) {
        Err(reason) => format!("There is nothing to show: {reason}."),
        Ok(changes) => shown(&changes, path.as_deref(), workspace),
    }
}

fn shown(changes: &[ChangedFile], path: Option<&str>, workspace: &Workspace) -> String {
    let path = path.map(|path| path.trim_matches('"'));
    let wanted = |changed: &&ChangedFile| {
        path.is_none_or(|path| {
            changed.path == workspace.cwd.join(path) || workspace.shown(&changed.path) == path
        })
    };
    let wanted: Vec<&ChangedFile> = changes.iter().filter(wanted).collect();
    if wanted.is_empty() {
        return match path {
            Some(path) => format!("This session has no unreviewed changes in {path}."),
            None => "This session has no unreviewed changes.".into(),
        };
    }
    let of_file = |changed: &&ChangedFile| file(changed, &workspace.shown(&changed.path));
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
    text.push_str("Use `/keep` and `/revert` to accept or undo them.");
    text
}

/// A file's changes, as `diff -u` writes them.
fn file(changed: &ChangedFile, name: &str) -> Vec<String> {
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
        lines.extend(hunk.lines.iter().map(|line| crate::summary_without_model::cut(line, LINE_CHARS_MAX)));
    }
    lines
}

/// A code fence that is longer than every run of backticks at the start of a line, also after the diff mark.
fn fence(lines: &[String]) -> String {
    let run = |line: &String| {
        let line = line.trim_start_matches(['+', '-', ' ']);
        line.len() - line.trim_start_matches('`').len()
    };
    "`".repeat(lines.iter().map(run).max().unwrap_or(0).max(2) + 1)
}
