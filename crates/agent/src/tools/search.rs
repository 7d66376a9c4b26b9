//! `search`: searches the files of a folder for text or a regular expression, with ripgrep's libraries. Skips
//! what git ignores, and what would be asked about if it were read by name.

mod hits;

use std::io::Read;
use std::sync::Arc;

use engine::{BoxFuture, Risk};
use globset::GlobMatcher;
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder};
use sandbox::{Files, PermittedPath};
use serde::Deserialize;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use self::hits::{FileHits, Hits, SearchOutput};
use super::{
    Intent, ToolDefinition, ToolFailure, ToolJob, ToolOutcome, ToolWork, arguments, file_work, glob,
};
use crate::file_walk::FileWalk;
use crate::search_permission_filter::SearchFilter;

const HITS_MAX: usize = 1000;
const CONTEXT_LINES_MAX: usize = 20;
/// A longer line is not text.
const LINE_BYTES_MAX: usize = 4 << 20;
/// With `multiline` a file is read as a whole.
const WHOLE_BYTES_MAX: usize = 32 << 20;
/// What a compiled pattern may cost.
const PATTERN_BYTES_MAX: usize = 1 << 20;

pub(super) const NAME: &str = "search";

pub(super) fn tool() -> ToolDefinition {
    let schema = json!({
        "type": "object",
        "properties": {
            "text": {"type": "string", "description": "what to look for"},
            "regex": {"type": "boolean", "description": "the text is a regular expression"},
            "path": {"type": "string", "description": "a folder or file; the working folder if left out"},
            "ignore_case": {"type": "boolean", "description": "ignore case"},
            "files": {"type": "string", "description": "only in files that match this pattern, such as *.rs or src/**/*.ts"},
            "context": {"type": "integer", "minimum": 0, "maximum": CONTEXT_LINES_MAX, "description": "lines shown around each hit"},
            "output": {"type": "string", "enum": ["lines", "files", "count"], "description": "the lines (usual), only the files' names, or how many lines per file"},
            "limit": {"type": "integer", "minimum": 1, "maximum": HITS_MAX, "description": "maximum number of hits"},
            "multiline": {"type": "boolean", "description": "a hit may span several lines"}
        },
        "required": ["text"],
        "additionalProperties": false
    });
    ToolDefinition::searches(
        NAME,
        "Finds text in the files of a folder, leaving out what git ignores. At most 1000 hits.",
        schema,
        parse_call,
    )
}

#[derive(Deserialize)]
struct Arguments {
    text: String,
    #[serde(default)]
    regex: bool,
    path: Option<String>,
    #[serde(default)]
    ignore_case: bool,
    files: Option<String>,
    #[serde(default)]
    context: usize,
    #[serde(default)]
    output: SearchOutput,
    limit: Option<usize>,
    #[serde(default)]
    multiline: bool,
}

fn parse_call(text: &str) -> Result<Intent, String> {
    let search: Arguments = arguments(text)?;
    if search.text.is_empty() {
        return Err("there is nothing to look for".into());
    }
    let work = Search {
        matcher: matcher(&search)?,
        files: search.files.as_deref().map(glob::matcher).transpose()?,
        context: search.context.min(CONTEXT_LINES_MAX),
        multiline: search.multiline,
        output: search.output,
        limit: search.limit.unwrap_or(HITS_MAX).clamp(1, HITS_MAX),
    };
    let path = search.path.unwrap_or_else(|| ".".into());
    Ok(Intent {
        title: format!("Search {:?} in {path}", search.text),
        path: Some(path),
        line: None,
        subject: None,
        risk: Risk::Low,
        reason: "searches files",
        work: Box::new(work),
    })
}

fn matcher(search: &Arguments) -> Result<RegexMatcher, String> {
    let mut builder = RegexMatcherBuilder::new();
    builder.multi_line(true).crlf(true).size_limit(PATTERN_BYTES_MAX).case_insensitive(search.ignore_case);
    builder.fixed_strings(!search.regex);
    // Without multiline no hit can span lines, which makes the search faster.
    builder.line_terminator(if search.multiline { None } else { Some(b'\n') });
    builder.build(&search.text).map_err(|error| {
        let over_lines = search.text.contains('\n') || search.text.contains("\\n");
        let advice =
            if over_lines && !search.multiline { "; for a hit over several lines set multiline" } else { "" };
        format!("the regular expression cannot be used: {error}{advice}")
    })
}

struct Search {
    matcher: RegexMatcher,
    files: Option<GlobMatcher>,
    context: usize,
    multiline: bool,
    output: SearchOutput,
    limit: usize,
}

impl ToolWork for Search {
    fn run(self: Box<Self>, job: Arc<ToolJob>) -> BoxFuture<'static, ToolOutcome> {
        file_work(move || {
            let (files, start) = (job.files()?, job.spot()?);
            let mut search_filter = SearchFilter::new(NAME, start.real(), &job);
            let mut hits = Hits::new(self.output, self.limit);
            let mut searcher = self.searcher();
            for spot in FileWalk::new(files, start) {
                if job.context.cancel.is_cancelled() {
                    return Err("the turn was cancelled".into());
                }
                let path = spot.real();
                let below = path.strip_prefix(start.real()).unwrap_or(path);
                let named = path == start.real();
                if !named && self.files.as_ref().is_some_and(|files| !files.is_match(below)) {
                    continue;
                }
                if !named && search_filter.hides(path) {
                    hits.left_out += 1;
                } else {
                    self.search_file(files, &spot, &mut searcher, &job, &mut hits)?;
                }
                if hits.is_full() {
                    break;
                }
            }
            Ok(hits.outcome())
        })
    }
}

impl Search {
    fn searcher(&self) -> Searcher {
        SearcherBuilder::new()
            .binary_detection(BinaryDetection::quit(0))
            .line_number(true)
            .before_context(self.context)
            .after_context(self.context)
            .multi_line(self.multiline)
            .heap_limit(Some(if self.multiline { WHOLE_BYTES_MAX } else { LINE_BYTES_MAX }))
            .build()
    }

    /// A file that cannot be read, or is not text, has no hits.
    fn search_file(
        &self,
        files: &Files,
        spot: &PermittedPath,
        searcher: &mut Searcher,
        job: &ToolJob,
        hits: &mut Hits,
    ) -> Result<(), ToolFailure> {
        let Ok(file) = files.open_file(spot) else { return Ok(()) };
        let cancel = &job.context.cancel;
        let name = job.workspace.shown(spot.real());
        let mut file_hits = FileHits::new(hits, spot.real(), &name);
        // Hits before an overlong line or a read error count all the same.
        searcher.search_reader(&self.matcher, Cancellable { file, cancel }, &mut file_hits).ok();
        file_hits.end();
        if cancel.is_cancelled() {
            return Err("the turn was cancelled".into());
        }
        Ok(())
    }
}

/// A reader that stops when the turn is cancelled.
struct Cancellable<'a> {
    file: std::fs::File,
    cancel: &'a CancellationToken,
}

impl Read for Cancellable<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.cancel.is_cancelled() {
            return Err(std::io::Error::other("cancelled"));
        }
        self.file.read(buffer)
    }
}
