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
    /// Not used at all, and why.
    Unusable(String),
    Here {
        text: String,
        /// Others than its owner may write it.
        loose: bool,
    },
}

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
    /// Nothing if there is no file.
    pub(super) fn of(path: &Path) -> Option<Self> {
        std::fs::metadata(path).ok().as_ref().map(Self::new)
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
pub(super) fn read(path: &Path) -> (Option<Stamp>, Text) {
    // A pipe under this name must not hold anybody up.
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or(0);
    let opened = File::options().read(true).custom_flags(flags).open(path);
    let (file, metadata) = match opened.and_then(|file| file.metadata().map(|metadata| (file, metadata))) {
        Ok(opened) => opened,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return (None, Text::Missing);
        }
        Err(error) => return (Stamp::of(path), Text::Unusable(format!("it cannot be read: {error}"))),
    };
    (Some(Stamp::new(&metadata)), content(file, &metadata))
}

fn content(file: File, metadata: &Metadata) -> Text {
    if !metadata.is_file() {
        return Text::Unusable("it is not a regular file".into());
    }
    let mut bytes = Vec::new();
    if let Err(error) = file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes) {
        return Text::Unusable(format!("it cannot be read: {error}"));
    }
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Text::Unusable("it is larger than 1 MiB".into());
    }
    match String::from_utf8(bytes) {
        Ok(text) => Text::Here { text, loose: metadata.mode() & 0o022 != 0 },
        Err(_) => Text::Unusable("it is not text in UTF-8".into()),
    }
}

/// The line that a byte stands on, from 1.
pub(super) fn line_of(text: &str, byte: usize) -> usize {
    text.as_bytes().iter().take(byte).filter(|byte| **byte == b'\n').count() + 1
}
