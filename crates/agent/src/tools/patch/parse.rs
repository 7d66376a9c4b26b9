//! Parses a patch as models write it.
//!
//! The format is the one of Codex, which models were trained on:
//!
//! ```text
//! *** Begin Patch
//! *** Update File: src/a.rs
//! *** Move to: src/b.rs
//! @@ fn main() {
//!      let a = 1;
//! -    let b = 2;
//! +    let b = 3;
//! *** Add File: new.txt
//! +hello
//! *** Delete File: old.txt
//! *** End Patch
//! ```

/// Files of one patch.
const FILES_MAX: usize = 200;
const BEGIN: &str = "*** Begin Patch";
const END: &str = "*** End Patch";
const END_OF_FILE: &str = "*** End of File";

/// The patch of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FilePatch {
    Add { path: String, text: String },
    Delete { path: String },
    Update { path: String, moved: Option<String>, chunks: Vec<Chunk> },
}

impl FilePatch {
    /// The path of the file, and its new path.
    pub(super) fn paths(&self) -> impl Iterator<Item = &str> {
        let (path, moved) = match self {
            Self::Add { path, .. } | Self::Delete { path } => (path, None),
            Self::Update { path, moved, .. } => (path, moved.as_ref()),
        };
        std::iter::once(path.as_str()).chain(moved.map(String::as_str))
    }
}

/// Consecutive lines of a file, some of which are changed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Chunk {
    /// Context lines (`@@`) that come somewhere before, in this order.
    pub(super) after: Vec<String>,
    pub(super) lines: Vec<ChunkLine>,
    /// They are the last lines of the file.
    pub(super) at_end: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ChunkLine {
    Keep(String),
    Remove(String),
    Add(String),
}

impl ChunkLine {
    /// The line in the old file, if it is there.
    pub(super) fn old(&self) -> Option<&str> {
        match self {
            Self::Keep(line) | Self::Remove(line) => Some(line),
            Self::Add(_) => None,
        }
    }
}

pub(super) fn parse(patch: &str) -> Result<Vec<FilePatch>, String> {
    let mut lines = (1..).zip(unwrapped(patch).lines()).peekable();
    match lines.next() {
        Some((_, line)) if line.trim() == BEGIN => {}
        _ => return Err(format!("the patch must begin with the line {BEGIN:?}")),
    }
    let mut file_patches = Vec::new();
    let mut ended = false;
    while let Some((number, line)) = lines.next() {
        let line = line.trim_end();
        if ended {
            if line.is_empty() {
                continue;
            }
            return Err(format!("line {number} of the patch comes after {END:?}"));
        }
        let path = |path: &str| named(path, number);
        if line == END {
            ended = true;
        } else if let Some(rest) = line.strip_prefix("*** Add File: ") {
            let mut text = String::new();
            while let Some((_, line)) = lines.next_if(|(_, line)| line.starts_with('+')) {
                text.push_str(&line[1..]);
                text.push('\n');
            }
            file_patches.push(FilePatch::Add { path: path(rest)?, text });
        } else if let Some(rest) = line.strip_prefix("*** Delete File: ") {
            file_patches.push(FilePatch::Delete { path: path(rest)? });
        } else if let Some(rest) = line.strip_prefix("*** Update File: ") {
            let moved = lines.next_if(|(_, line)| line.starts_with("*** Move to: "));
            let moved =
                moved.map(|(number, line)| named(&line["*** Move to: ".len()..], number)).transpose()?;
            let mut body = Vec::new();
            while let Some(line) = lines.next_if(|(_, line)| is_body(line)) {
                body.push(line);
            }
            file_patches.push(FilePatch::Update { path: path(rest)?, moved, chunks: chunks(&body)? });
        } else if !line.is_empty() {
            return Err(format!(
                "line {number} of the patch is not understood: {line:?}. A file begins with {:?}, {:?} or {:?}, \
                 a line of it with a blank, + or -",
                "*** Add File: ", "*** Update File: ", "*** Delete File: "
            ));
        }
        if file_patches.len() > FILES_MAX {
            return Err(format!("the patch has more than {FILES_MAX} files; split it"));
        }
    }
    match (ended, file_patches.is_empty()) {
        (false, _) => Err(format!("the patch must end with the line {END:?}; it may have been cut")),
        (true, true) => Err("the patch names no file".into()),
        (true, false) => Ok(file_patches),
    }
}

/// Some models wrap the patch in a shell heredoc.
fn unwrapped(patch: &str) -> &str {
    let patch = patch.trim();
    let Some((first, rest)) = patch.split_once('\n') else { return patch };
    let marker = first.split_once("<<").map(|(_, marker)| marker.trim().trim_matches(['\'', '"']));
    match marker {
        Some(marker) if !marker.is_empty() => rest.strip_suffix(marker).map_or(patch, str::trim),
        _ => patch,
    }
}

fn named(path: &str, number: usize) -> Result<String, String> {
    let path = path.trim();
    if path.is_empty() {
        Err(format!("line {number} of the patch names no file"))
    } else {
        Ok(path.to_owned())
    }
}

fn is_body(line: &str) -> bool {
    line.trim_end() == END_OF_FILE
        || line.trim().is_empty()
        || line.starts_with([' ', '+', '-'])
        || line.starts_with("@@")
}

fn chunks(body: &[(usize, &str)]) -> Result<Vec<Chunk>, String> {
    let mut chunks: Vec<Chunk> = Vec::new();
    let mut open = false;
    for (number, line) in body {
        if let Some(context) = line.strip_prefix("@@") {
            // Several in a row go from the outer to the inner context: a class, then its method.
            if !(open && chunks.last().is_some_and(|chunk| chunk.lines.is_empty())) {
                chunks.push(Chunk::default());
                open = true;
            }
            let context = context.strip_prefix(' ').unwrap_or(context).trim_end();
            if let Some(chunk) = chunks.last_mut().filter(|_| !context.is_empty()) {
                chunk.after.push(context.to_owned());
            }
            continue;
        }
        if !open {
            // Blank lines between files are ignored; a first chunk needs no mark.
            if line.trim().is_empty() {
                continue;
            }
            chunks.push(Chunk::default());
            open = true;
        }
        let Some(chunk) = chunks.last_mut() else { continue };
        if line.trim_end() == END_OF_FILE {
            chunk.at_end = true;
            open = false;
        } else if let Some(text) = line.strip_prefix('+') {
            chunk.lines.push(ChunkLine::Add(text.to_owned()));
        } else if let Some(text) = line.strip_prefix('-') {
            chunk.lines.push(ChunkLine::Remove(text.to_owned()));
        } else if line.is_empty() || line.starts_with(' ') {
            chunk.lines.push(ChunkLine::Keep(line.get(1..).unwrap_or_default().to_owned()));
        } else {
            return Err(format!("line {number} of the patch does not begin with a blank, + or -"));
        }
    }
    trim_blank_end(&mut chunks);
    if let Some(empty) = chunks.iter().find(|chunk| chunk.lines.is_empty()) {
        return Err(format!("the patch has a part without lines, after {:?}", empty.after.join(" ")));
    }
    Ok(chunks)
}

/// Removes empty lines before the next file's mark: they are formatting, not lines of the file.
fn trim_blank_end(chunks: &mut [Chunk]) {
    for chunk in chunks {
        let blank = |line: &ChunkLine| matches!(line, ChunkLine::Keep(text) if text.is_empty());
        while chunk.lines.len() > 1 && chunk.lines.last().is_some_and(blank) {
            chunk.lines.pop();
        }
    }
}
