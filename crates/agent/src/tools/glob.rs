//! `glob`: finds files by name, newest first, without those that git ignores.

use std::sync::Arc;

use engine::{BoxFuture, Risk};
use globset::{GlobBuilder, GlobMatcher};
use sandbox::PermittedPath;
use serde::Deserialize;
use serde_json::json;

use super::{Intent, ToolDefinition, ToolFailure, ToolJob, ToolOutcome, ToolWork, arguments, file_work};
use crate::file_walk::FileWalk;
use crate::search_permission_filter::SearchFilter;

const FILES_MAX: usize = 1000;
/// Longer patterns are not written by hand.
const PATTERN_BYTES_MAX: usize = 1000;

pub(super) const NAME: &str = "glob";

pub(super) fn tool() -> ToolDefinition {
    let schema = json!({
        "type": "object",
        "properties": {
            "pattern": {"type": "string", "description": "such as **/*.rs, src/{a,b}/*.ts or Cargo.toml; without a slash, a file's name anywhere"},
            "path": {"type": "string", "description": "a folder; the working folder if left out"}
        },
        "required": ["pattern"],
        "additionalProperties": false
    });
    ToolDefinition::searches(
        NAME,
        "Finds files by a pattern for their names, newest first, leaving out what git ignores. At most 1000 files.",
        schema,
        parse_call,
    )
}

#[derive(Deserialize)]
struct Arguments {
    pattern: String,
    path: Option<String>,
}

fn parse_call(text: &str) -> Result<Intent, String> {
    let glob: Arguments = arguments(text)?;
    let matcher = matcher(&glob.pattern)?;
    let path = glob.path.unwrap_or_else(|| ".".into());
    Ok(Intent {
        title: format!("Find {} in {path}", glob.pattern),
        path: Some(path),
        line: None,
        subject: None,
        risk: Risk::Low,
        reason: "lists files",
        work: Box::new(Glob { matcher }),
    })
}

/// A pattern as people mean it: `*.rs` matches a name in any folder, `src/*.rs` a path from the start folder.
pub(super) fn matcher(pattern: &str) -> Result<GlobMatcher, String> {
    if pattern.len() > PATTERN_BYTES_MAX {
        return Err(format!("the pattern has more than {PATTERN_BYTES_MAX} characters"));
    }
    let pattern = pattern.trim_start_matches("./").trim_start_matches('/');
    if pattern.is_empty() {
        return Err("the pattern is empty".into());
    }
    let anywhere = if pattern.contains('/') { pattern.to_owned() } else { format!("**/{pattern}") };
    let glob = GlobBuilder::new(&anywhere).literal_separator(true).backslash_escape(true).build();
    glob.map(|glob| glob.compile_matcher()).map_err(|error| format!("the pattern cannot be used: {error}"))
}

struct Glob {
    matcher: GlobMatcher,
}

impl ToolWork for Glob {
    fn run(self: Box<Self>, job: Arc<ToolJob>) -> BoxFuture<'static, ToolOutcome> {
        file_work(move || {
            let start = job.spot()?;
            let mut found = find_files(&job, start, &self.matcher)?;
            found.sort_by(|(a_written, a), (b_written, b)| {
                b_written.cmp(a_written).then_with(|| a.real().cmp(b.real()))
            });
            let more = found.len().saturating_sub(FILES_MAX);
            let shown = found
                .iter()
                .take(FILES_MAX)
                .map(|(_, spot)| format!("{}\n", job.workspace.shown(spot.real())));
            let mut text: String = shown.collect();
            if more > 0 {
                text.push_str(&format!("[{more} older ones left out; take a narrower pattern]\n"));
            }
            if found.is_empty() {
                text.push_str("no files\n");
            }
            Ok(ToolOutcome::plain(text))
        })
    }
}

fn find_files(
    job: &ToolJob,
    start: &PermittedPath,
    matcher: &GlobMatcher,
) -> Result<Vec<(Option<i128>, PermittedPath)>, ToolFailure> {
    let mut search_filter = SearchFilter::new(NAME, start.real(), job);
    let mut found = Vec::new();
    for spot in FileWalk::new(job.files()?, start) {
        if job.context.cancel.is_cancelled() {
            return Err("the turn was cancelled".into());
        }
        let below = spot.real().strip_prefix(start.real()).unwrap_or(spot.real());
        if matcher.is_match(below) && !search_filter.forbids(spot.real()) {
            found.push((spot.modified_ns(), spot));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_a_name_anywhere_or_a_path_from_the_start() {
        for (pattern, path, expected) in [
            ("*.rs", "a.rs", true),
            ("*.rs", "src/deep/a.rs", true),
            ("src/*.rs", "src/a.rs", true),
            ("./src/*.rs", "src/a.rs", true),
            ("src/*.rs", "src/deep/a.rs", false),
            ("src/**/*.rs", "src/deep/a.rs", true),
            ("{a,b}.txt", "x/b.txt", true),
            ("*.rs", "a.rs.bak", false),
            ("[ab].c", "b.c", true),
        ] {
            assert_eq!(matcher(pattern).unwrap().is_match(path), expected, "{pattern} {path}");
        }
        for bad in ["", "/", "[a", "{a", &"x".repeat(1001)] {
            assert!(matcher(bad).is_err(), "{bad}");
        }
    }
}
