//! `apply_patch`: changes to several files at once, named by the lines around them.
//!
//! What is to be changed is looked for from where the last change of the file was: exactly, or else
//! without the blanks at line ends, or else with plain marks too (see `lines`) and then only if there
//! is one such place. All files are looked at before any is changed; if one cannot be written, those
//! before it are put back.
//!
//! **Invariant:** a line that the patch does not take out stays as it is, to the byte.

mod parse;

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use engine::{BoxFuture, FileChange, Location, Risk, ToolContent};
use sandbox::Spot;
use serde::Deserialize;
use serde_json::json;

use self::parse::{Chunk, Deed, Line};
use super::write::{Put, current_at, put_all, refuse_marks};
use super::{Failure, Intent, Job, Outcome, Tool, Work, arguments, file_work, lines};
use crate::summary::cut;

const TITLE_FILES_MAX: usize = 3;
const SHOWN_CHARS_MAX: usize = 200;

pub(super) const NAME: &str = "apply_patch";

pub(super) fn tool() -> Tool {
    let schema = json!({
        "type": "object",
        "properties": {
            "patch": {"type": "string", "description": "from *** Begin Patch to *** End Patch"}
        },
        "required": ["patch"],
        "additionalProperties": false
    });
    Tool::edits(
        NAME,
        "Changes, adds, deletes and moves several files at once, all or none. For one file, edit is simpler. \
         Lines: *** Begin Patch; then per file *** Update File: PATH (optionally *** Move to: PATH), *** Add File: \
         PATH or *** Delete File: PATH; in an update @@ and a line that comes before, such as a function's head, then \
         lines that begin with a blank (stays), - (goes) or + (comes), with three lines that stay around a change; \
         last *** End Patch.",
        schema,
        intend,
    )
}

#[derive(Deserialize)]
struct Arguments {
    #[serde(alias = "input")]
    patch: String,
}

fn intend(text: &str) -> Result<Intent, String> {
    let arguments: Arguments = arguments(text)?;
    let deeds = parse::parse(&arguments.patch)?;
    let paths: Vec<String> = deeds.iter().flat_map(Deed::paths).map(str::to_owned).collect();
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
        work: Box::new(Patch { deeds, further: further.collect(), ready: Vec::new() }),
    })
}

struct Patch {
    deeds: Vec<Deed>,
    further: Vec<String>,
    ready: Vec<(Put, &'static str)>,
}

impl Work for Patch {
    fn further_paths(&self) -> Vec<String> {
        self.further.clone()
    }

    fn prepare(&mut self, job: &Job) -> Result<Vec<ToolContent>, Failure> {
        let mut spots = std::iter::once(job.spot()?).chain(&job.further);
        let mut known = HashSet::new();
        for deed in &self.deeds {
            let at: Vec<&Spot> = spots.by_ref().take(deed.paths().count()).collect();
            for (spot, path) in at.iter().zip(deed.paths()) {
                if !known.insert(spot.real().to_owned()) {
                    return Err(format!("{path}: the patch names this file twice").into());
                }
            }
            let made = made(job, deed, &at).map_err(|failure| named(failure, deed))?;
            self.ready.extend(made);
        }
        Ok(self.ready.iter().map(|(put, _)| ToolContent::Diff(put.change.clone())).collect())
    }

    fn run(self: Box<Self>, job: Arc<Job>) -> BoxFuture<'static, Outcome> {
        file_work(move || {
            let told: Vec<String> = self
                .ready
                .iter()
                .map(|(put, verb)| format!("{verb} {}", job.place.shown(&put.change.path)))
                .collect();
            let puts: Vec<Put> = self.ready.into_iter().map(|(put, _)| put).collect();
            put_all(&job, &puts)?;
            let locations = puts.iter().filter(|put| put.change.after.is_some());
            let locations =
                locations.map(|put| Location { path: put.change.path.clone(), line: None }).collect();
            let changes = puts.into_iter().map(|put| put.change).collect();
            Ok(Outcome { told: Some(told.join("\n")), changes, locations, ..Outcome::default() })
        })
    }
}

fn named(failure: Failure, deed: &Deed) -> Failure {
    let path = deed.paths().next().unwrap_or_default();
    match failure {
        Failure::Failed(reason) => format!("{path}: {reason}. Nothing was changed").into(),
        blocked @ Failure::Blocked { .. } => blocked,
    }
}

/// What one deed puts where, with a word for it.
fn made(job: &Job, deed: &Deed, at: &[&Spot]) -> Result<Vec<(Put, &'static str)>, Failure> {
    let [spot, to @ ..] = at else { return Err("a path is missing".into()) };
    let before = current_at(job, spot)?;
    let put = |spot: &Spot, before: Option<&str>, after: Option<String>, permissions| Put {
        change: FileChange {
            path: spot.real().to_owned(),
            before: before.map(Into::into),
            after: after.map(Into::into),
        },
        permissions,
    };
    match (deed, before) {
        (Deed::Add { .. }, Some(_)) => Err("the file is already there; update it instead".into()),
        (Deed::Add { text, .. }, None) => {
            refuse_marks(text, None)?;
            Ok(vec![(put(spot, None, Some(text.clone()), None), "added")])
        }
        (Deed::Delete { .. } | Deed::Update { .. }, None) => Err("the file does not exist".into()),
        (Deed::Delete { .. }, Some(before)) => Ok(vec![(put(spot, Some(&before), None, None), "deleted")]),
        (Deed::Update { chunks, .. }, Some(before)) => {
            let after = updated(&before, chunks)?;
            for line in chunks.iter().flat_map(|chunk| &chunk.lines) {
                if let Line::Put(line) = line {
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
                    job.place.shown(to.real())
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
fn updated(before: &str, chunks: &[Chunk]) -> Result<String, String> {
    let all = lines::of(before);
    let mut after: Vec<(&str, &str)> = Vec::new();
    let (mut copied, mut from) = (0, 0);
    for chunk in chunks {
        let run = find(&all, chunk, from)?;
        let ending = ending_at(&all, run.start);
        after.extend(all[copied..run.start].iter().map(|line| (line.text(), line.ending())));
        let mut old = all[run.clone()].iter();
        for line in &chunk.lines {
            match (line, line.old().and_then(|_| old.next())) {
                (Line::Keep(_), Some(kept)) => after.push((kept.text(), kept.ending())),
                (Line::Put(text), _) => after.push((text, ending)),
                (Line::Take(_) | Line::Keep(_), _) => {}
            }
        }
        (copied, from) = (run.end, run.end);
    }
    after.extend(all[copied..].iter().map(|line| (line.text(), line.ending())));
    Ok(joined(&after, before))
}

/// The file goes on ending as it did: with a line's end, or without one.
fn joined(lines: &[(&str, &str)], before: &str) -> String {
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

fn ending_at<'a>(all: &[lines::Line<'a>], at: usize) -> &'a str {
    let around = all.get(at).into_iter().chain(all[..at.min(all.len())].last());
    around.map(lines::Line::ending).find(|ending| !ending.is_empty()).unwrap_or("\n")
}

/// The lines of the file that a chunk is about, at or after a line.
fn find(all: &[lines::Line<'_>], chunk: &Chunk, mut from: usize) -> Result<Range<usize>, String> {
    for context in &chunk.after {
        let run = seek(all, &[context.as_str()], from, false)?
            .ok_or_else(|| missing("the line after @@ is not in the file", from, context))?;
        from = run.end;
    }
    let wanted: Vec<&str> = chunk.lines.iter().filter_map(Line::old).collect();
    if wanted.is_empty() {
        // Nothing but new lines: after the line that was named, or at the end.
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

/// The first run that is exactly so, or else but for blanks at line ends, or else the only one that is
/// so with plain marks.
fn seek(
    all: &[lines::Line<'_>],
    wanted: &[&str],
    from: usize,
    at_end: bool,
) -> Result<Option<Range<usize>>, String> {
    let from = if at_end { all.len().saturating_sub(wanted.len()).max(from) } else { from };
    let first = |same: fn(&str, &str) -> bool| {
        let runs = lines::runs(all, wanted, from, |line, wanted| same(line.text(), wanted));
        runs.map(|runs| runs.into_iter().next())
    };
    if let Some(run) = first(|line, wanted| line == wanted)? {
        return Ok(Some(run));
    }
    if let Some(run) = first(|line, wanted| line.trim_end() == wanted.trim_end())? {
        return Ok(Some(run));
    }
    let compared: Vec<_> = all.iter().map(|line| lines::plain(line.text())).collect();
    let plain: Vec<_> = wanted.iter().map(|line| lines::plain(line)).collect();
    let runs = lines::runs(&compared, &plain, from, |line, wanted| line == wanted)?;
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
