//! Reading a file of rules without being held up by it, and noticing that it changed.

use std::fs::{File, Metadata};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;

/// Nobody writes so many rules; a larger file is a mistake or an attack.
pub(super) const FILE_BYTES_MAX: u64 = 1 << 20;

/// What is there to be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Text {
    Missing,
    /// There is a file without a single byte. Nothing here writes one: it may have lost rules that deny.
    Empty,
    /// There may be rules, and they cannot be read.
    Unusable {
        reason: String,
        /// What was read of it, perhaps with characters that stand for bytes which are no text.
        part: String,
    },
    Here {
        text: String,
        /// Others than its owner may write it.
        loose: bool,
    },
}

/// What is wrong with a file that this program writes and that is empty.
pub(super) const EMPTY: &str = "it is empty (0 bytes), so what it held may be lost; bring it back from a backup, or remove \
                                the file if it held nothing";

/// Differs whenever a file may have changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    device: u64,
    inode: u64,
    bytes: u64,
    mode: u32,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    /// Whether the file is certainly the one with this stamp, or certainly still absent without one.
    pub(super) fn is_current(stamp: Option<Self>, path: &Path) -> bool {
        match std::fs::metadata(path) {
            Ok(metadata) => stamp == Some(Self::new(&metadata)),
            Err(error) => stamp.is_none() && error.kind() == ErrorKind::NotFound,
        }
    }

    fn new(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            bytes: metadata.len(),
            mode: metadata.mode(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

/// The file and the stamp of what was read, which may be older than the file is by now.
///
/// Only a file that does not exist is missing. One that exists and cannot be opened, for want of
/// descriptors or rights or because a link leads nowhere, may hold rules that deny.
pub(super) fn read(path: &Path) -> (Option<Stamp>, Text) {
    // A pipe under this name must not hold anybody up.
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or(0);
    let opened = File::options().read(true).custom_flags(flags).open(path);
    let (file, metadata) = match opened.and_then(|file| file.metadata().map(|metadata| (file, metadata))) {
        Ok(opened) => opened,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let is_link = std::fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_symlink());
            let text =
                if is_link { unusable("it is a link to a file that does not exist") } else { Text::Missing };
            return (None, text);
        }
        Err(error) => return (None, unusable(format!("it cannot be read: {error}"))),
    };
    (Some(Stamp::new(&metadata)), content(file, &metadata))
}

fn unusable(reason: impl Into<String>) -> Text {
    Text::Unusable { reason: reason.into(), part: String::new() }
}

fn content(file: File, metadata: &Metadata) -> Text {
    if !metadata.is_file() {
        return unusable("it is not a regular file");
    }
    let mut bytes = Vec::new();
    if let Err(error) = file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes) {
        return unusable(format!("it cannot be read: {error}"));
    }
    if bytes.is_empty() {
        return Text::Empty;
    }
    let too_large = bytes.len() as u64 > FILE_BYTES_MAX;
    match String::from_utf8(bytes) {
        Ok(part) if too_large => Text::Unusable { reason: "it is larger than 1 MiB".into(), part },
        Ok(text) => Text::Here { text, loose: metadata.mode() & 0o022 != 0 },
        Err(error) => Text::Unusable {
            reason: if too_large { "it is larger than 1 MiB" } else { "it is not text in UTF-8" }.into(),
            part: String::from_utf8_lossy(error.as_bytes()).into_owned(),
        },
    }
}

/// The line that a byte stands on, from 1.
pub(super) fn line_of(text: &str, byte: usize) -> usize {
    text.as_bytes().iter().take(byte).filter(|byte| **byte == b'\n').count() + 1
}
