//! A file's content, kept until the file is another one.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::text::{self, Stamp, Text};

/// How old the knowledge about a file may be. Looking costs a microsecond, but on some disks more.
const LOOK_EVERY: Duration = Duration::from_secs(1);

pub(super) struct Kept<T> {
    pub(super) path: PathBuf,
    read: fn(&Path, Text) -> T,
    value: Arc<T>,
    stamp: Option<Stamp>,
    looked: Option<Instant>,
    is_read: bool,
}

impl<T: Default> Kept<T> {
    pub(super) fn new(path: PathBuf, read: fn(&Path, Text) -> T) -> Self {
        Self { path, read, value: Arc::default(), stamp: None, looked: None, is_read: false }
    }

    pub(super) fn value(&self) -> &Arc<T> {
        &self.value
    }

    pub(super) fn look_again(&mut self) {
        self.looked = None;
    }

    /// Reads the file if it is another one than before, and says so.
    pub(super) fn refresh(&mut self, warnings: fn(&T) -> &Vec<String>) -> bool {
        if self.looked.is_some_and(|looked| looked.elapsed() < LOOK_EVERY) || self.path.as_os_str().is_empty()
        {
            return false;
        }
        self.looked = Some(Instant::now());
        if self.is_read && Stamp::is_current(self.stamp, &self.path) {
            return false;
        }
        let (stamp, text) = text::read(&self.path);
        // What could not be read may be readable the next time, without a change of the file.
        self.is_read = !matches!(text, Text::Unusable { .. });
        self.stamp = stamp;
        let value = Arc::new((self.read)(&self.path, text));
        for warning in warnings(&value).iter().filter(|warning| !warnings(&self.value).contains(warning)) {
            tracing::warn!(warning, "a rule does not count as it is written");
        }
        self.value = value;
        true
    }
}
