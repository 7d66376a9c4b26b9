//! `read`: a text file, whole or some of its lines, or an image.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use engine::{BoxFuture, Location, Risk};
use sandbox::Unfit;
use serde::Deserialize;
use serde_json::json;

use super::{Failure, Intent, Job, Outcome, Tool, Work, arguments, as_text, file_work};
use crate::host;
use crate::model::Image;

/// What one call gives the model at most.
const TEXT_BYTES_MAX: usize = 256 << 10;
/// 5 MB in base64 are what the strictest provider takes.
const IMAGE_BYTES_MAX: usize = 3 << 20;

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
    Tool::reads(
        NAME,
        "Reads a text file, whole or from a line on, at most 256 KiB at once; or an image (png, jpeg, gif, webp).",
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
            let location = Location { path: path.to_owned(), line: self.start_line };
            let outcome = match image_type(&bytes) {
                Some(mime) => image(mime, &bytes, &job.place.shown(path))?,
                None => {
                    let text = excerpt(&text(bytes)?, self.start_line, self.line_count);
                    Outcome::text(found.note.map_or(text.clone(), |note| format!("{note}\n{text}")))
                }
            };
            Ok(Outcome { locations: vec![location], ..outcome })
        })
    }
}

fn text(bytes: Vec<u8>) -> Result<String, Failure> {
    let size = bytes.len();
    as_text(bytes).map_err(|failure| match failure {
        Failure::Failed(reason) => format!(
            "{reason}, but {size} bytes of something else; a command may know how to read it, such as file or xxd"
        )
        .into(),
        blocked @ Failure::Blocked { .. } => blocked,
    })
}

/// What kind of image the bytes are, by how they begin.
fn image_type(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some("image/gif"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some("image/webp"),
        _ => None,
    }
}

fn image(mime: &'static str, bytes: &[u8], shown: &str) -> Result<Outcome, Failure> {
    if bytes.len() > IMAGE_BYTES_MAX {
        let (size, most) = (bytes.len() >> 10, IMAGE_BYTES_MAX >> 10);
        return Err(format!(
            "the image has {size} KiB, and a model takes {most} at most; make it smaller first"
        )
        .into());
    }
    let image = Image { mime: mime.into(), data: STANDARD.encode(bytes).into() };
    Ok(Outcome { images: vec![image], ..Outcome::text(format!("{shown}: {mime}, {} bytes", bytes.len())) })
}

/// The lines that were asked for, and wherever the file goes on a marker that says how to.
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
        let next = first + taken + 1;
        let go_on = if taken > 0 && next <= total {
            format!("; go on with start_line {next}")
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
        assert_eq!(excerpt(text, Some(2), Some(2)), "b\nc\n[lines 2 to 3 of 4; go on with start_line 4]\n");
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
            cut.ends_with("x\n[lines 1 to 262 of 300; go on with start_line 263]\n"),
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
            matches!(refused, Failure::Failed(reason) if reason.starts_with("it is not a text file, but 5 bytes"))
        );
    }
}
