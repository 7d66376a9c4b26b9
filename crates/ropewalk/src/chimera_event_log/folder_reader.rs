//! Reads the files of one session's folder safely: no link is followed, only regular files are read, and every read has a
//! size limit.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, open, openat};
use serde_json::Value;
use wire::chimera_archive::{self, EventFile};

/// The largest event file. Tool output is cut long before.
pub const EVENT_BYTES_MAX: u64 = 64 << 20;
/// The largest summary.
const SUMMARY_BYTES_MAX: u64 = 1 << 20;
/// Maximum number of events in a folder: what six digits can number.
const EVENTS_MAX: usize = 1_000_000;

/// The folder of one session.
pub struct SessionFolder {
    path: PathBuf,
    handle: OwnedFd,
}

impl SessionFolder {
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(Self { path: path.to_owned(), handle: open(path, flags, Mode::empty())? })
    }

    /// The summary; `None` if there is none.
    pub fn summary(&self) -> io::Result<Option<Value>> {
        let text = match self.text(chimera_archive::SUMMARY, SUMMARY_BYTES_MAX) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            text => text?,
        };
        let summary: Value = serde_json::from_str(&text).map_err(io::Error::other)?;
        if summary.is_object() { Ok(Some(summary)) } else { Err(io::Error::other("it is not a JSON object")) }
    }

    /// The event files, in order.
    pub fn events(&self) -> io::Result<Vec<(u64, String)>> {
        let mut events = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let name = entry?.file_name();
            let Some(name) = name.to_str() else { continue };
            if let Some(index) = chimera_archive::event_file_index(name) {
                events.push((index, name.to_owned()));
            }
            if events.len() > EVENTS_MAX {
                return Err(io::Error::other(format!("it has more than {EVENTS_MAX} events")));
            }
        }
        events.sort();
        Ok(events)
    }

    pub fn has_events(&self) -> io::Result<bool> {
        let is_event =
            |entry: fs::DirEntry| entry.file_name().to_str().and_then(chimera_archive::event_file_index);
        let mut entries = fs::read_dir(&self.path)?;
        Ok(entries.any(|entry| entry.ok().and_then(is_event).is_some()))
    }

    /// Reads one event file. If that fails, the content is the error.
    pub fn event(&self, index: u64, name: String) -> EventFile {
        let content = self.text(&name, EVENT_BYTES_MAX).map_err(|error| error.to_string());
        EventFile { name, index, content }
    }

    pub fn text(&self, name: &str, bytes_max: u64) -> io::Result<String> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = match openat(&self.handle, name, flags, Mode::empty()) {
            Err(rustix::io::Errno::LOOP) => {
                return Err(io::Error::other("it is a link, and links are not followed"));
            }
            file => File::from(file?),
        };
        if !file.metadata()?.is_file() {
            return Err(io::Error::other("it is not a regular file"));
        }
        let mut text = String::new();
        file.take(bytes_max + 1).read_to_string(&mut text)?;
        if text.len() as u64 > bytes_max {
            return Err(io::Error::other(format!("it is larger than {} MiB", bytes_max >> 20)));
        }
        Ok(text)
    }
}
