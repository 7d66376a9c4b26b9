//! The hits of a search, as the model and the editor get them.

use std::fmt::Write as _;
use std::io;
use std::path::Path;

use engine::Location;
use grep_searcher::{Searcher, Sink, SinkContext, SinkFinish, SinkMatch};
use serde::Deserialize;

use super::super::ToolOutcome;
use crate::summary_without_model::cut;

const LINE_CHARS_MAX: usize = 300;
/// Locations that are reported to the editor.
const LOCATIONS_MAX: usize = 20;
/// The maximum text that one call returns, including context lines.
const TEXT_BYTES_MAX: usize = 256 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum SearchOutput {
    #[default]
    Lines,
    Files,
    Count,
}

pub(super) struct Hits {
    output: SearchOutput,
    limit: usize,
    text: String,
    count: usize,
    locations: Vec<Location>,
    /// Files that were skipped.
    pub(super) left_out: usize,
}

impl Hits {
    pub(super) fn new(output: SearchOutput, limit: usize) -> Self {
        Self { output, limit, text: String::new(), count: 0, locations: Vec::new(), left_out: 0 }
    }

    pub(super) fn is_full(&self) -> bool {
        self.count >= self.limit || self.text.len() >= TEXT_BYTES_MAX
    }

    pub(super) fn outcome(mut self) -> ToolOutcome {
        if self.is_full() {
            self.text.push_str("[there may be more; look for something narrower]\n");
        }
        if self.left_out > 0 {
            let files = if self.left_out == 1 { "file" } else { "files" };
            let left_out = self.left_out;
            writeln!(
                self.text,
                "[{left_out} {files} that may hold secrets or must be asked for left out; name it to search it]"
            )
            .ok();
        }
        if self.count == 0 {
            self.text.push_str("no hits\n");
        }
        ToolOutcome { locations: self.locations, ..ToolOutcome::text(self.text) }
    }

    fn point_at(&mut self, path: &Path, line: Option<u64>) {
        if self.locations.len() < LOCATIONS_MAX {
            let line = line.and_then(|line| u32::try_from(line).ok());
            self.locations.push(Location { path: path.to_owned(), line });
        }
    }
}

/// The hits in one file.
pub(super) struct FileHits<'a> {
    hits: &'a mut Hits,
    path: &'a Path,
    name: &'a str,
    /// The lengths before this file, to remove its hits if it turns out not to be text.
    before: (usize, usize, usize),
    /// Matching lines in this file.
    lines: usize,
    first: Option<u64>,
    binary: bool,
}

impl<'a> FileHits<'a> {
    pub(super) fn new(hits: &'a mut Hits, path: &'a Path, name: &'a str) -> Self {
        let before = (hits.text.len(), hits.count, hits.locations.len());
        Self { hits, path, name, before, lines: 0, first: None, binary: false }
    }

    pub(super) fn end(self) {
        if self.binary {
            let (text, count, locations) = self.before;
            self.hits.text.truncate(text);
            self.hits.count = count;
            self.hits.locations.truncate(locations);
            return;
        }
        if self.lines == 0 {
            return;
        }
        match self.hits.output {
            SearchOutput::Lines => return,
            SearchOutput::Files => writeln!(self.hits.text, "{}", self.name).ok(),
            SearchOutput::Count => writeln!(self.hits.text, "{}: {}", self.name, self.lines).ok(),
        };
        self.hits.count += 1;
        self.hits.point_at(self.path, self.first);
    }

    fn show(&mut self, number: Option<u64>, mark: char, line: &[u8]) {
        let line = String::from_utf8_lossy(line);
        let number = number.unwrap_or_default();
        writeln!(
            self.hits.text,
            "{}{mark}{number}{mark} {}",
            self.name,
            cut(line.trim_end(), LINE_CHARS_MAX)
        )
        .ok();
    }
}

impl Sink for FileHits<'_> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> io::Result<bool> {
        let first = found.line_number();
        self.first = self.first.or(first);
        let mut number = first;
        for line in found.lines() {
            self.lines += 1;
            if self.hits.output == SearchOutput::Lines {
                self.show(number, ':', line);
            }
            number = number.map(|number| number + 1);
        }
        match self.hits.output {
            SearchOutput::Lines => {
                self.hits.count += 1;
                self.hits.point_at(self.path, first);
                Ok(!self.hits.is_full())
            }
            // One hit is enough to name the file.
            SearchOutput::Files => Ok(false),
            SearchOutput::Count => Ok(true),
        }
    }

    fn context(&mut self, _: &Searcher, context: &SinkContext<'_>) -> io::Result<bool> {
        if self.hits.output == SearchOutput::Lines {
            self.show(context.line_number(), '-', context.bytes());
        }
        Ok(self.hits.text.len() < TEXT_BYTES_MAX)
    }

    fn context_break(&mut self, _: &Searcher) -> io::Result<bool> {
        if self.hits.output == SearchOutput::Lines {
            self.hits.text.push_str("--\n");
        }
        Ok(true)
    }

    fn binary_data(&mut self, _: &Searcher, _: u64) -> io::Result<bool> {
        self.binary = true;
        Ok(false)
    }

    fn finish(&mut self, _: &Searcher, _: &SinkFinish) -> io::Result<()> {
        Ok(())
    }
}
