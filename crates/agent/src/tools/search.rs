//! `search`: text or a regular expression in the files of a folder, leaving out what git ignores.

use std::fmt::Write as _;
use std::io::Read as _;
use std::sync::Arc;

use engine::{BoxFuture, Location, Risk, ToolClass, ToolKind};
use guard::{Want, assess_path};
use regex::bytes::{Regex, RegexBuilder};
use sandbox::{Files, Spot};
use serde::Deserialize;
use serde_json::json;

use super::{Intent, Job, Outcome, Tool, Work, arguments, file_work};
use crate::summary::cut;
use crate::walk::Walk;

const HITS_MAX: usize = 1000;
const LINE_CHARS_MAX: usize = 300;
/// A larger file is generated or data.
const FILE_BYTES_MAX: u64 = 8 << 20;
/// Places that an editor is told of.
const LOCATIONS_MAX: usize = 20;
/// What a compiled pattern may cost.
const PATTERN_BYTES_MAX: usize = 1 << 20;

pub(super) const NAME: &str = "search";

pub(super) fn tool() -> Tool {
    let schema = json!({
        "type": "object",
        "properties": {
            "text": {"type": "string", "description": "what to look for"},
            "regex": {"type": "boolean", "description": "the text is a regular expression"},
            "path": {"type": "string", "description": "a folder or file; the working folder if left out"}
        },
        "required": ["text"],
        "additionalProperties": false
    });
    Tool::new(
        NAME,
        "Finds text in the files of a folder, leaving out what git ignores. At most 1000 hits.",
        ToolKind::Search,
        ToolClass::Read,
        schema,
        intend,
    )
}

#[derive(Deserialize)]
struct Arguments {
    text: String,
    #[serde(default)]
    regex: bool,
    path: Option<String>,
}

fn intend(text: &str) -> Result<Intent, String> {
    let search: Arguments = arguments(text)?;
    if search.text.is_empty() {
        return Err("there is nothing to look for".into());
    }
    let pattern = if search.regex { search.text.clone() } else { regex::escape(&search.text) };
    // A whole file is tried first and then its lines, so `^` and `$` must mean lines in both.
    let pattern = RegexBuilder::new(&pattern)
        .multi_line(true)
        .crlf(true)
        .size_limit(PATTERN_BYTES_MAX)
        .build()
        .map_err(|error| format!("the regular expression cannot be used: {error}"))?;
    let path = search.path.unwrap_or_else(|| ".".into());
    Ok(Intent {
        title: format!("Search {:?} in {path}", search.text),
        path: Some(path),
        line: None,
        subject: None,
        risk: Risk::Low,
        reason: "searches files",
        work: Box::new(Search { pattern }),
    })
}

struct Search {
    pattern: Regex,
}

#[derive(Default)]
struct Hits {
    text: String,
    count: usize,
    locations: Vec<Location>,
    left_out: usize,
}

impl Work for Search {
    fn run(self: Box<Self>, job: Arc<Job>) -> BoxFuture<'static, Outcome> {
        file_work(move || {
            let mut hits = Hits::default();
            let files = job.files()?;
            for spot in Walk::new(files, job.spot()?) {
                if job.context.cancel.is_cancelled() {
                    return Err("the turn was cancelled".into());
                }
                if holds_secrets(&spot) && spot.real() != job.spot()?.real() {
                    hits.left_out += 1;
                } else if let Some(bytes) = read(files, &spot) {
                    search_bytes(&bytes, &spot, &self.pattern, &job, &mut hits);
                }
                if hits.count >= HITS_MAX {
                    hits.text.push_str("[there may be more; look for something narrower]\n");
                    break;
                }
            }
            if hits.left_out > 0 {
                let files = if hits.left_out == 1 { "file" } else { "files" };
                writeln!(
                    hits.text,
                    "[{} {files} that may hold secrets left out; name it to search it]",
                    hits.left_out
                )
                .ok();
            }
            if hits.count == 0 {
                hits.text.push_str("no hits\n");
            }
            Ok(Outcome { locations: hits.locations, ..Outcome::text(hits.text) })
        })
    }
}

/// What is asked for when it is read by name is not read in passing.
fn holds_secrets(spot: &Spot) -> bool {
    assess_path(Want::Read, spot.real()).is_some_and(|assessment| assessment.risk >= Risk::High)
}

/// A file that cannot be read, or is no text, holds nothing that can be found.
fn read(files: &Files, spot: &Spot) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    files.open_file(spot).ok()?.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).ok()?;
    let text = bytes.len() as u64 <= FILE_BYTES_MAX && bytes.iter().take(8192).all(|byte| *byte != 0);
    text.then_some(bytes)
}

fn search_bytes(bytes: &[u8], spot: &Spot, pattern: &Regex, job: &Job, hits: &mut Hits) {
    if !pattern.is_match(bytes) {
        return;
    }
    let path = spot.real();
    let shown = job.place.shown(path);
    for (number, line) in (1u32..).zip(bytes.split(|byte| *byte == b'\n')) {
        if hits.count >= HITS_MAX {
            return;
        }
        if pattern.is_match(line) {
            let line = String::from_utf8_lossy(line);
            writeln!(hits.text, "{shown}:{number}: {}", cut(line.trim_end(), LINE_CHARS_MAX)).ok();
            hits.count += 1;
            if hits.locations.len() < LOCATIONS_MAX {
                hits.locations.push(Location { path: path.to_owned(), line: Some(number) });
            }
        }
    }
}
