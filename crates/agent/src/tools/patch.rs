//! `apply_patch`: changes to several files at once, identified by the lines around them.
//!
//! The lines to change are searched from the position of the file's last change: exactly, else ignoring
//! blanks at line ends, else also ignoring typographic variants (see `line_matching`), but then only if there is
//! exactly one such place. All files are checked before any is changed. If one cannot be written, those
//! before it are restored.
//!
//! **Invariant:** a line that the patch does not remove stays as it is, to the byte.

mod parse;

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use engine::{BoxFuture, FileChange, Location, Risk, ToolContent};
use sandbox::PermittedPath;
use serde::Deserialize;
use serde_json::json;

use self::parse::{Chunk, ChunkLine, FilePatch};
use super::write::{PreparedChange, apply_all, current_at, refuse_marks};
use super::{
    Intent, ToolDefinition, ToolFailure, ToolJob, ToolOutcome, ToolWork, arguments, file_work, line_matching,
};
use crate::summary_without_model::cut;

const TITLE_FILES_MAX: usize = 3;
const SHOWN_CHARS_MAX: usize = 200;

pub(super) const NAME: &str = "apply_patch";

pub(super) fn tool() -> ToolDefinition {
    let schema = json!({
        "type": "object",
        "properties": {
            "patch": {"type": "string", "description": "from *** Begin Patch to *** End Patch"}
        },
        "required": ["patch"],
        "additionalProperties": false
    });
    ToolDefinition::edits(
        NAME,
        "Changes, adds, deletes and moves several files at once, all or none. For one file, edit is simpler. \
         Lines: *** Begin Patch; then per file *** Update File: PATH (optionally *** Move to: PATH), *** Add File: \
         PATH or *** Delete File: PATH; in an update @@ and a line that comes before, such as a function's head, then \
         lines that begin with a blank (stays), - (goes) or + (comes), with three lines that stay around a change; \
         last *** End Patch.",
        schema,
        parse_call,
    )
}

#[derive(Deserialize)]
struct Arguments {
    #[serde(alias = "input")]
    patch: String,
}

fn parse_call(text: &str) -> Result<Intent, String> {
    let arguments: Arguments = arguments(text)?;
    let file_patches = parse::parse(&arguments.patch)?;
    let paths: Vec<String> = file_patches.iter().flat_map(FilePatch::paths).map(str::to_owned).collect();
    let more = paths.len().saturating_sub(TITLE_FILES_MAX);
    let named = paths[..paths.len().min(TITLE_FILES_MAX)].join(", ");
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let mut further = paths.into_iter();
    Ok(Intent {
        title: format!("Patch {named}{more}"),
        path: further.next(),
        line: None,
        subject: None,
        risk: Risk::Medium,
        reason: "changes files",
        work: Box::new(Patch { file_patches, further: further.collect(), ready: Vec::new() }),
    })
}

struct Patch {
    file_patches: Vec<FilePatch>,
    further: Vec<String>,
    ready: Vec<(PreparedChange, &'static str)>,
}

impl ToolWork for Patch {
    fn further_paths(&self) -> Vec<String> {
        self.further.clone()
    }

    fn prepare(&mut self, job: &ToolJob) -> Result<Vec<ToolContent>, ToolFailure> {
        let mut spots = std::iter::once(job.spot()?).chain(&job.further);
        let mut known = HashSet::new();
        for file_patch in &self.file_patches {
            let at: Vec<&PermittedPath> = spots.by_ref().take(file_patch.paths().count()).collect();
            for (spot, path) in at.iter().zip(file_patch.paths()) {
                if !known.insert(spot.real().to_owned()) {
                    return Err(format!("{path}: the patch names this file twice").into());
                }
            }
            let made =
                prepared_changes(job, file_patch, &at).map_err(|failure| named(failure, file_patch))?;
            self.ready.extend(made);
        }
        Ok(self.ready.iter().map(|(put, _)| ToolContent::Diff(put.change.clone())).collect())
    }

    fn run(self: Box<Self>, job: Arc<ToolJob>) -> BoxFuture<'static, ToolOutcome> {
        file_work(move || {
            let model_text: Vec<String> = self
                .ready
                .iter()
                .map(|(put, verb)| format!("{verb} {}", job.workspace.shown(&put.change.path)))
                .collect();
            let puts: Vec<PreparedChange> = self.ready.into_iter().map(|(put, _)| put).collect();
            apply_all(&job, &puts)?;
            let locations = puts.iter().filter(|put| put.change.after.is_some());
            let locations =
                locations.map(|put| Location { path: put.change.path.clone(), line: None }).collect();
            let changes = puts.into_iter().map(|put| put.change).collect();
            Ok(ToolOutcome {
                model_text: Some(model_text.join("\n")),
                changes,
                locations,
                ..ToolOutcome::default()
            })
        })
    }
}

fn named(failure: ToolFailure, file_patch: &FilePatch) -> ToolFailure {
    let path = file_patch.paths().next().unwrap_or_default();
    match failure {
        ToolFailure::Failed(reason) => format!("{path}: {reason}. Nothing was changed").into(),
        blocked @ ToolFailure::Blocked { .. } => blocked,
    }
}

/// The changes of one file patch, each with a verb for the report.
fn prepared_changes(
    job: &ToolJob,
    file_patch: &FilePatch,
    at: &[&PermittedPath],
) -> Result<Vec<(PreparedChange, &'static str)>, ToolFailure> {
    let [spot, to @ ..] = at else { return Err("a path is missing".into()) };
    let before = current_at(job, spot)?;
    let put =
        |spot: &PermittedPath, before: Option<&str>, after: Option<String>, permissions| PreparedChange {
            change: FileChange {
                path: spot.real().to_owned(),
                before: before.map(Into::into),
                after: after.map(Into::into),
            },
            permissions,
        };
    match (file_patch, before) {
        (FilePatch::Add { .. }, Some(_)) => Err("the file is already there; update it instead".into()),
        (FilePatch::Add { text, .. }, None) => {
            refuse_marks(text, None)?;
            Ok(vec![(put(spot, None, Some(text.clone()), None), "added")])
        }
        (FilePatch::Delete { .. } | FilePatch::Update { .. }, None) => Err("the file does not exist".into()),
        (FilePatch::Delete { .. }, Some(before)) => {
            Ok(vec![(put(spot, Some(&before), None, None), "deleted")])
        }
        (FilePatch::Update { chunks, .. }, Some(before)) => {
            let after = apply_chunks(&before, chunks)?;
            for line in chunks.iter().flat_map(|chunk| &chunk.lines) {
                if let ChunkLine::Add(line) = line {
                    refuse_marks(line, Some(&before))?;
                }
            }
            let Some(to) = to.first() else {
                if after == before {
                    return Err("the patch leaves the file as it is".into());
                }
                return Ok(vec![(put(spot, Some(&before), Some(after), None), "updated")]);
            };
            if to.kind().is_some() {
                return Err(format!(
                    "{} is already there; nothing can be moved to it",
                    job.workspace.shown(to.real())
                )
                .into());
            }
            let permissions = spot.permissions();
            Ok(vec![
                (put(to, None, Some(after), permissions), "moved to"),
                (put(spot, Some(&before), None, None), "removed"),
            ])
        }
    }
}

/// The text after all chunks.
fn apply_chunks(before: &str, chunks: &[Chunk]) -> Result<String, String> {
    let all = line_matching::of(before);
    let mut after: Vec<(&str, &str)> = Vec::new();
    let (mut copied, mut from) = (0, 0);
    for chunk in chunks {
        let run = find(&all, chunk, from)?;
        let ending = ending_at(&all, run.start);
        after.extend(all[copied..run.start].iter().map(|line| (line.text(), line.ending())));
        let mut old = all[run.clone()].iter();
        for line in &chunk.lines {
            match (line, line.old().and_then(|_| old.next())) {
                (ChunkLine::Keep(_), Some(kept)) => after.push((kept.text(), kept.ending())),
                (ChunkLine::Add(text), _) => after.push((text, ending)),
                (ChunkLine::Remove(_) | ChunkLine::Keep(_), _) => {}
            }
        }
        (copied, from) = (run.end, run.end);
    }
    after.extend(all[copied..].iter().map(|line| (line.text(), line.ending())));
    Ok(join_lines(&after, before))
}

/// Joins the lines; a final line ending is kept or missing as before.
fn join_lines(lines: &[(&str, &str)], before: &str) -> String {
    let ends = before.is_empty() || before.ends_with('\n');
    let usual = lines.iter().map(|(_, ending)| *ending).find(|ending| !ending.is_empty()).unwrap_or("\n");
    let mut text = String::new();
    for (at, (line, ending)) in lines.iter().enumerate() {
        text.push_str(line);
        let last = at + 1 == lines.len();
        if !last || ends {
            text.push_str(if ending.is_empty() { usual } else { ending });
        }
    }
    text
}

fn ending_at<'a>(all: &[line_matching::TextLine<'a>], at: usize) -> &'a str {
    let around = all.get(at).into_iter().chain(all[..at.min(all.len())].last());
    around.map(line_matching::TextLine::ending).find(|ending| !ending.is_empty()).unwrap_or("\n")
}

/// Finds the lines that a chunk refers to, at or after a line.
fn find(all: &[line_matching::TextLine<'_>], chunk: &Chunk, mut from: usize) -> Result<Range<usize>, String> {
    for context in &chunk.after {
        let run = seek(all, &[context.as_str()], from, false)?
            .ok_or_else(|| missing("the line after @@ is not in the file", from, context))?;
        from = run.end;
    }
    let wanted: Vec<&str> = chunk.lines.iter().filter_map(ChunkLine::old).collect();
    if wanted.is_empty() {
        // Only new lines: after the named line, or at the end.
        let at = if chunk.after.is_empty() || chunk.at_end { all.len() } else { from };
        return Ok(at..at);
    }
    seek(all, &wanted, from, chunk.at_end)?.ok_or_else(|| {
        missing("these lines are not in the file as the patch has them", from, &wanted.join("\n"))
    })
}

fn missing(what: &str, from: usize, wanted: &str) -> String {
    let behind = if from > 0 { format!(" after line {from}") } else { String::new() };
    format!("{what}{behind}; read it again:\n{}", cut(wanted, SHOWN_CHARS_MAX))
}

/// The first exact match, else the first one ignoring trailing blanks, else the only one ignoring typographic
/// variants.
fn seek(
    all: &[line_matching::TextLine<'_>],
    wanted: &[&str],
    from: usize,
    at_end: bool,
) -> Result<Option<Range<usize>>, String> {
    let from = if at_end { all.len().saturating_sub(wanted.len()).max(from) } else { from };
    let first = |same: fn(&str, &str) -> bool| {
        let runs = line_matching::runs(all, wanted, from, |line, wanted| same(line.text(), wanted));
        runs.map(|runs| runs.into_iter().next())
    };
    if let Some(run) = first(|line, wanted| line == wanted)? {
        return Ok(Some(run));
    }
    if let Some(run) = first(|line, wanted| line.trim_end() == wanted.trim_end())? {
        return Ok(Some(run));
    }
    let compared: Vec<_> = all.iter().map(|line| line_matching::plain(line.text())).collect();
    let plain: Vec<_> = wanted.iter().map(|line| line_matching::plain(line)).collect();
    let runs = line_matching::runs(&compared, &plain, from, |line, wanted| line == wanted)?;
    match runs.as_slice() {
        [] => Ok(None),
        [only] => Ok(Some(only.clone())),
        several => Err(format!(
            "these lines fit {} places of the file; take more of what is around them",
            several.len()
        )),
    }
}

#[cfg(test)]
mod tests;
