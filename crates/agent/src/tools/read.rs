//! `read`: a text file, whole or some of its lines, or an image.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use engine::{BoxFuture, Location, Risk};
use sandbox::UnusableReason;
use serde::Deserialize;
use serde_json::json;

use super::{
    Intent, ToolDefinition, ToolFailure, ToolJob, ToolOutcome, ToolWork, arguments, as_text, file_work,
};
use crate::editor_files;
use crate::model::Image;

/// The maximum text that one call returns.
const TEXT_BYTES_MAX: usize = 256 << 10;
/// The strictest provider accepts 5 MB of base64.
const IMAGE_BYTES_MAX: usize = 3 << 20;

pub(super) const NAME: &str = "read";

pub(super) fn tool() -> ToolDefinition {
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
    ToolDefinition::reads(
        NAME,
        "Reads a text file, whole or from a line on, at most 256 KiB at once; or an image (png, jpeg, gif, webp).",
        schema,
        parse_call,
    )
}

#[derive(Deserialize)]
struct Arguments {
    path: String,
    start_line: Option<u32>,
    line_count: Option<u32>,
}

fn parse_call(text: &str) -> Result<Intent, String> {
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

impl ToolWork for Arguments {
    fn run(self: Box<Self>, job: Arc<ToolJob>) -> BoxFuture<'static, ToolOutcome> {
        file_work(move || {
            let (spot, path) = (job.spot()?, job.spot()?.real());
            let missing = || format!("it cannot be read: {}", UnusableReason::Missing);
            let found = editor_files::read(&job, spot)?;
            let bytes = found.bytes.ok_or_else(missing)?;
            job.session.read_versions.remember(path, &bytes);
            let location = Location { path: path.to_owned(), line: self.start_line };
            let outcome = match image_type(&bytes) {
                Some(mime) => image(mime, &bytes, &job.workspace.shown(path))?,
                None => {
                    let text = excerpt(&text(bytes)?, self.start_line, self.line_count);
                    ToolOutcome::text(found.note.map_or(text.clone(), |note| format!("{note}\n{text}")))
                }
            };
            Ok(ToolOutcome { locations: vec![location], ..outcome })
        })
    }
}

fn text(bytes: Vec<u8>) -> Result<String, ToolFailure> {
    let size = bytes.len();
    as_text(bytes).map_err(|failure| match failure {
        ToolFailure::Failed(reason) => format!(
            "{reason}, but {size} bytes of something else; a command may know how to read it, such as file or xxd"
        )
        .into(),
        blocked @ ToolFailure::Blocked { .. } => blocked,
    })
}

/// The image type of the bytes, from their first bytes.
fn image_type(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some("image/gif"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some("image/webp"),
        _ => None,
    }
}

fn image(mime: &'static str, bytes: &[u8], shown: &str) -> Result<ToolOutcome, ToolFailure> {
    if bytes.len() > IMAGE_BYTES_MAX {
        let (size, most) = (bytes.len() >> 10, IMAGE_BYTES_MAX >> 10);
        return Err(format!(
            "the image has {size} KiB, and a model takes {most} at most; make it smaller first"
        )
        .into());
    }
    let image = Image { mime: mime.into(), data: STANDARD.encode(bytes).into() };
    Ok(ToolOutcome {
        images: vec![image],
        ..ToolOutcome::text(format!("{shown}: {mime}, {} bytes", bytes.len()))
    })
}

/// The requested lines, with a marker that says how to read on where the file continues.
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
                excerpt.push_str("\n[the line continues]");
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
        let next = first + taken + 1;
        let go_on = if taken > 0 && next <= total {
            format!("; continue with start_line {next}")
        } else {
            String::new()
        };
        excerpt.push_str(&format!("[lines {} to {} of {total}{go_on}]\n", first + 1, first + taken));
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
        assert_eq!(
            excerpt(text, Some(2), Some(2)),
            "b\nc\n[lines 2 to 3 of 4; continue with start_line 4]\n"
        );
        assert_eq!(excerpt(text, Some(3), None), "c\nd\n");
        assert_eq!(excerpt(text, Some(9), None), "[lines 9 to 8 of 4]\n");
        assert_eq!(excerpt("", None, None), "");
    }

    #[test]
    fn a_long_file_is_cut_at_a_line() {
        let text = format!("{}\n", "x".repeat(999)).repeat(300);
        let cut = excerpt(&text, None, None);
        assert!(cut.len() < TEXT_BYTES_MAX + 100);
        assert!(
            cut.ends_with("x\n[lines 1 to 262 of 300; continue with start_line 263]\n"),
            "{}",
            &cut[cut.len() - 80..]
        );
    }

    #[test]
    fn an_image_is_known_by_how_it_begins() {
        for (bytes, expected) in [
            (&b"\x89PNG\r\n\x1a\n..."[..], Some("image/png")),
            (b"\xff\xd8\xff\xe0", Some("image/jpeg")),
            (b"GIF89a", Some("image/gif")),
            (b"RIFF1234WEBPVP8 ", Some("image/webp")),
            (b"RIFF1234WAVE", None),
            (b"PNG", None),
            (b"", None),
        ] {
            assert_eq!(image_type(bytes), expected, "{bytes:?}");
        }
        assert!(image("image/png", &vec![0; IMAGE_BYTES_MAX + 1], "x").is_err());
        let refused = text(b"\x7fELF\0".to_vec()).unwrap_err();
        assert!(
            matches!(refused, ToolFailure::Failed(reason) if reason.starts_with("it is not a text file, but 5 bytes"))
        );
    }
}
