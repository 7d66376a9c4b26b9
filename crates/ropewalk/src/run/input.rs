//! The content of the prompt: its text and the attached files.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use engine::Content;

use crate::cli::RunOptions;
use crate::cli_error::CliError;
use crate::output;

/// The longest prompt that is accepted.
const PROMPT_BYTES_MAX: u64 = 4 << 20;
/// Larger files cause a warning.
const FILE_BYTES_USUAL: usize = 100 * 1024;
/// The size of all files together; the rest is cut off.
const FILES_BYTES_MAX: usize = 500 * 1024;
/// As base64, this is the largest image that the agent accepts.
const IMAGE_BYTES_MAX: u64 = 15 << 20;

pub fn content(options: &RunOptions) -> Result<Vec<Content>, CliError> {
    let uses = usize::from(options.prompt == "-") + options.file.iter().filter(|file| is_stdin(file)).count();
    if uses > 1 {
        return Err(
            CliError::usage("standard input can be used only once").fix("pass the prompt as an argument")
        );
    }
    let prompt = if options.prompt == "-" { read_prompt()? } else { options.prompt.clone() };
    if prompt.trim().is_empty() {
        return Err(CliError::usage("the prompt is empty").fix("ropewalk run \"fix the tests\""));
    }
    let mut content = vec![Content::text(prompt)];
    let mut left = FILES_BYTES_MAX;
    for path in &options.file {
        content.push(attach(path, &mut left)?);
    }
    for path in &options.image {
        content.push(picture(path)?);
    }
    Ok(content)
}

fn read_prompt() -> Result<String, CliError> {
    let mut text = String::new();
    let read = io::stdin().lock().take(PROMPT_BYTES_MAX + 1).read_to_string(&mut text);
    read.map_err(|error| CliError::usage("could not read the prompt from standard input").because(error))?;
    if text.len() as u64 > PROMPT_BYTES_MAX {
        return Err(CliError::usage(format!("the prompt is longer than {} MB", PROMPT_BYTES_MAX >> 20))
            .fix("attach it as a file with --file"));
    }
    Ok(text)
}

fn attach(path: &Path, left: &mut usize) -> Result<Content, CliError> {
    let shown = if is_stdin(path) { "standard input".into() } else { path.display().to_string() };
    let unreadable = |error: io::Error| CliError::usage(format!("could not read {shown}")).because(error);
    let bytes = read_some(path).map_err(unreadable)?;
    let text = text_of(&bytes.start).ok_or_else(|| {
        CliError::usage(format!("{shown} is not text")).because("only UTF-8 text can be attached")
    })?;
    if bytes.total > FILE_BYTES_USUAL as u64 {
        warn(&format!(
            "{shown} is large ({} KB) and will fill much of the model's context",
            bytes.total / 1024
        ));
    }
    let (kept, cut) = fit(text, bytes.total, *left);
    *left -= kept.len();
    if cut > 0 {
        warn(&format!("{shown} was cut: the limit for all files together is {} KB", FILES_BYTES_MAX / 1024));
    }
    let text = if cut > 0 {
        format!("{kept}\n[cut here: {cut} of {} bytes are left out]\n", bytes.total)
    } else {
        kept.to_owned()
    };
    Ok(Content::Resource { uri: address(path).into(), mime: None, text: text.into() })
}

fn picture(path: &Path) -> Result<Content, CliError> {
    let shown = path.display();
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(IMAGE_BYTES_MAX + 1).read_to_end(&mut bytes));
    read.map_err(|error| CliError::usage(format!("could not read {shown}")).because(error))?;
    if bytes.len() as u64 > IMAGE_BYTES_MAX {
        return Err(CliError::usage(format!("{shown} is larger than {} MiB", IMAGE_BYTES_MAX >> 20))
            .fix("attach a smaller copy"));
    }
    let mime = image_type(&bytes).ok_or_else(|| {
        CliError::usage(format!("{shown} is not a supported image"))
            .because("only jpeg, png, gif and webp are supported")
    })?;
    let (data, uri) = (STANDARD.encode(&bytes), address(path));
    Ok(Content::Image { mime: mime.into(), data: data.into(), uri: Some(uri.into()) })
}

/// The type by the first bytes: file names can be wrong.
fn image_type(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0x89, b'P', b'N', b'G', ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', ..] => Some("image/gif"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some("image/webp"),
        _ => None,
    }
}

/// As much of the text as fits, and how many bytes of the whole are left out.
fn fit(text: &str, total: u64, room: usize) -> (&str, u64) {
    let mut end = text.len().min(room);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    (&text[..end], total.saturating_sub(end as u64))
}

struct FileStart {
    /// As much as could be used at most.
    start: Vec<u8>,
    total: u64,
}

fn read_some(path: &Path) -> io::Result<FileStart> {
    let mut start = Vec::new();
    let limit = FILES_BYTES_MAX as u64 + 4;
    let rest = if is_stdin(path) {
        let mut input = io::stdin().lock();
        input.by_ref().take(limit).read_to_end(&mut start)?;
        io::copy(&mut input, &mut io::sink())?
    } else {
        let file = File::open(path)?;
        let length = file.metadata()?.len();
        file.take(limit).read_to_end(&mut start)?;
        length.saturating_sub(start.len() as u64)
    };
    Ok(FileStart { total: start.len() as u64 + rest, start })
}

/// The text, even if it was cut within its last character.
fn text_of(bytes: &[u8]) -> Option<&str> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Some(text),
        Err(error) if error.error_len().is_none() && bytes.len() > FILES_BYTES_MAX => {
            std::str::from_utf8(&bytes[..error.valid_up_to()]).ok()
        }
        Err(_) => None,
    }
}

fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}

fn address(path: &Path) -> String {
    if is_stdin(path) {
        return "stdin:".into();
    }
    let whole = path.canonicalize().unwrap_or_else(|_| PathBuf::from(path));
    let mut address = "file://".to_owned();
    for byte in whole.to_string_lossy().bytes() {
        match byte {
            b'/' | b'-' | b'_' | b'.' | b'~' => address.push(char::from(byte)),
            byte if byte.is_ascii_alphanumeric() => address.push(char::from(byte)),
            byte => address.push_str(&format!("%{byte:02X}")),
        }
    }
    address
}

fn warn(text: &str) {
    output::say(&format!("{} {}", output::stderr_paint().warn("warning:"), output::one_line(text)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_between_characters() {
        assert_eq!(fit("aüb", 4, 10), ("aüb", 0));
        assert_eq!(fit("aüb", 4, 2), ("a", 3));
        assert_eq!(fit("aüb", 100, 3), ("aü", 97));
        assert_eq!(fit("aüb", 4, 0), ("", 4));
    }

    #[test]
    fn images_are_known_by_their_first_bytes() {
        for (bytes, mime) in [
            (&b"\x89PNG\r\n"[..], Some("image/png")),
            (b"\xff\xd8\xff\xe0", Some("image/jpeg")),
            (b"GIF89a", Some("image/gif")),
            (b"RIFF\0\0\0\0WEBPVP8", Some("image/webp")),
            (b"RIFF\0\0\0\0WAVE", None),
            (b"<svg>", None),
            (b"", None),
        ] {
            assert_eq!(image_type(bytes), mime);
        }
    }

    #[test]
    fn addresses_are_escaped() {
        assert_eq!(address(Path::new("/no such/ü%.rs")), "file:///no%20such/%C3%BC%25.rs");
        assert_eq!(address(Path::new("-")), "stdin:");
    }
}
