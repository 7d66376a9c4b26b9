//! `read`: a text file, whole or some of its lines.

use std::sync::Arc;

use engine::{BoxFuture, Location, Risk, ToolClass, ToolKind};
use sandbox::Unfit;
use serde::Deserialize;
use serde_json::json;

use super::{Intent, Job, Outcome, Tool, Work, arguments, as_text, file_work};
use crate::host;

/// What one call gives the model at most.
const TEXT_BYTES_MAX: usize = 256 << 10;

pub(super) const NAME: &str = "read";

pub(super) fn tool() -> Tool {
    let schema = json!({
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "the file, absolute or relative to the working folder"},
            "start_line": {"type": "integer", "minimum": 1, "description": "first line, counted from 1"},
            "line_count": {"type": "integer", "minimum": 1, "description": "how many lines"}
        },
        "required": ["path"],
        "additionalProperties": false
    });
    Tool::new(
        NAME,
        "Reads a text file, whole or from a line on. At most 256 KiB at once.",
        ToolKind::Read,
        ToolClass::Read,
        schema,
        intend,
    )
}

#[derive(Deserialize)]
struct Arguments {
    path: String,
    start_line: Option<u32>,
    line_count: Option<u32>,
}

fn intend(text: &str) -> Result<Intent, String> {
    let read: Arguments = arguments(text)?;
    Ok(Intent {
        title: format!("Read {}", read.path),
        path: Some(read.path.clone()),
        line: read.start_line,
        subject: None,
        risk: Risk::Low,
        reason: "reads a file",
        work: Box::new(read),
    })
}

impl Work for Arguments {
    fn run(self: Box<Self>, job: Arc<Job>) -> BoxFuture<'static, Outcome> {
        file_work(move || {
            let (spot, path) = (job.spot()?, job.spot()?.real());
            let missing = || format!("it cannot be read: {}", Unfit::Missing);
            let found = host::look(&job, spot)?;
            let bytes = found.bytes.ok_or_else(missing)?;
            job.session.seen.remember(path, &bytes);
            let text = excerpt(&as_text(bytes)?, self.start_line, self.line_count);
            let location = Location { path: path.to_owned(), line: self.start_line };
            let text = found.note.map_or(text.clone(), |note| format!("{note}\n{text}"));
            Ok(Outcome { locations: vec![location], ..Outcome::text(text) })
        })
    }
}

/// The lines that were asked for, and a marker wherever the file goes on.
fn excerpt(text: &str, start_line: Option<u32>, line_count: Option<u32>) -> String {
    let first = start_line.map_or(0, |line| line.saturating_sub(1) as usize);
    let count = line_count.map_or(usize::MAX, |count| count as usize);
    let total = text.lines().count();
    let mut excerpt = String::new();
    let mut taken = 0;
    for line in text.split_inclusive('\n').skip(first).take(count) {
        if excerpt.len() + line.len() > TEXT_BYTES_MAX {
            if taken == 0 {
                excerpt.push_str(&line[..line.floor_char_boundary(TEXT_BYTES_MAX)]);
                excerpt.push_str("\n[the line goes on]");
                taken = 1;
            }
            break;
        }
        excerpt.push_str(line);
        taken += 1;
    }
    if first + taken < total || (first > 0 && taken == 0) {
        if !excerpt.is_empty() && !excerpt.ends_with('\n') {
            excerpt.push('\n');
        }
        excerpt.push_str(&format!("[lines {} to {} of {total}]\n", first + 1, first + taken));
    }
    excerpt
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_excerpt_says_where_it_ends() {
        let text = "a\nb\nc\nd\n";
        assert_eq!(excerpt(text, None, None), text);
        assert_eq!(excerpt(text, Some(2), Some(2)), "b\nc\n[lines 2 to 3 of 4]\n");
        assert_eq!(excerpt(text, Some(3), None), "c\nd\n");
        assert_eq!(excerpt(text, Some(9), None), "[lines 9 to 8 of 4]\n");
        assert_eq!(excerpt("", None, None), "");
    }

    #[test]
    fn a_long_file_is_cut_at_a_line() {
        let text = format!("{}\n", "x".repeat(999)).repeat(300);
        let cut = excerpt(&text, None, None);
        assert!(cut.len() < TEXT_BYTES_MAX + 100);
        assert!(cut.ends_with("x\n[lines 1 to 262 of 300]\n"), "{}", &cut[cut.len() - 50..]);
    }
}
