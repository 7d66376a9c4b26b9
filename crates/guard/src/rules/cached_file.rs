//! A parsed file, cached until the file changes.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::rule_file_text::{self, FileStamp, FileText};

/// How often a file is checked for changes. A check costs a microsecond, but more on some disks.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

pub(super) struct CachedFile<T> {
    pub(super) path: PathBuf,
    read: fn(&Path, FileText) -> T,
    value: Arc<T>,
    stamp: Option<FileStamp>,
    checked_at: Option<Instant>,
    is_read: bool,
}

impl<T: Default> CachedFile<T> {
    pub(super) fn new(path: PathBuf, read: fn(&Path, FileText) -> T) -> Self {
        Self { path, read, value: Arc::default(), stamp: None, checked_at: None, is_read: false }
    }

    pub(super) fn value(&self) -> &Arc<T> {
        &self.value
    }

    pub(super) fn expire(&mut self) {
        self.checked_at = None;
    }

    /// Reads the file if it changed, and returns whether it did.
    pub(super) fn refresh(&mut self, warnings: fn(&T) -> &Vec<String>) -> bool {
        if self.checked_at.is_some_and(|checked_at| checked_at.elapsed() < CHECK_INTERVAL)
            || self.path.as_os_str().is_empty()
        {
            return false;
        }
        self.checked_at = Some(Instant::now());
        if self.is_read && FileStamp::is_current(self.stamp, &self.path) {
            return false;
        }
        let (stamp, text) = rule_file_text::read(&self.path);
        // A file that could not be read may be readable the next time without having changed.
        self.is_read = !matches!(text, FileText::Unusable { .. });
        self.stamp = stamp;
        let value = Arc::new((self.read)(&self.path, text));
        for warning in warnings(&value).iter().filter(|warning| !warnings(&self.value).contains(warning)) {
            tracing::warn!(warning, "a rule is not applied as written");
        }
        self.value = value;
        true
    }
}
