//! Reads a rule file without blocking on it, and detects that it changed.

use std::fs::{File, Metadata};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;

/// Nobody writes that many rules; a larger file is a mistake or an attack.
pub(super) const FILE_BYTES_MAX: u64 = 1 << 20;

/// The result of reading a rule file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FileText {
    Missing,
    /// The file has no bytes. This program never writes such a file, so it may have lost rules that deny.
    Empty,
    /// The file may hold rules, and they cannot be read.
    Unusable {
        reason: String,
        /// The part that was read, perhaps with replacement characters for bytes that are not text.
        part: String,
    },
    Readable {
        text: String,
        /// Users other than its owner may write it.
        others_may_write: bool,
    },
}

/// The message about an empty file that this program would never write empty.
pub(super) const EMPTY: &str = "it is empty (0 bytes), so its content may be lost; restore it from a backup, or remove the file if it was empty before";

/// Identifies one state of a file: it differs whenever the file may have changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileStamp {
    device: u64,
    inode: u64,
    bytes: u64,
    mode: u32,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl FileStamp {
    /// Whether the file certainly still has this stamp, or, without a stamp, certainly still does not exist.
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
pub(super) fn read(path: &Path) -> (Option<FileStamp>, FileText) {
    // Opening must not block if the path is a pipe.
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or(0);
    let opened = File::options().read(true).custom_flags(flags).open(path);
    let (file, metadata) = match opened.and_then(|file| file.metadata().map(|metadata| (file, metadata))) {
        Ok(opened) => opened,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let is_link = std::fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_symlink());
            let text = if is_link {
                unusable("it is a link to a file that does not exist")
            } else {
                FileText::Missing
            };
            return (None, text);
        }
        Err(error) => return (None, unusable(format!("it cannot be read: {error}"))),
    };
    (Some(FileStamp::new(&metadata)), content(file, &metadata))
}

fn unusable(reason: impl Into<String>) -> FileText {
    FileText::Unusable { reason: reason.into(), part: String::new() }
}

fn content(file: File, metadata: &Metadata) -> FileText {
    if !metadata.is_file() {
        return unusable("it is not a regular file");
    }
    let mut bytes = Vec::new();
    if let Err(error) = file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes) {
        return unusable(format!("it cannot be read: {error}"));
    }
    if bytes.is_empty() {
        return FileText::Empty;
    }
    let too_large = bytes.len() as u64 > FILE_BYTES_MAX;
    match String::from_utf8(bytes) {
        Ok(part) if too_large => FileText::Unusable { reason: "it is larger than 1 MiB".into(), part },
        Ok(text) => FileText::Readable { text, others_may_write: metadata.mode() & 0o022 != 0 },
        Err(error) => FileText::Unusable {
            reason: if too_large { "it is larger than 1 MiB" } else { "it is not text in UTF-8" }.into(),
            part: String::from_utf8_lossy(error.as_bytes()).into_owned(),
        },
    }
}

/// The line that a byte stands on, from 1.
pub(super) fn line_of(text: &str, byte: usize) -> usize {
    text.as_bytes().iter().take(byte).filter(|byte| **byte == b'\n').count() + 1
}
