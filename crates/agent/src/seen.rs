//! What the agent last saw in each file, so that it never overwrites what somebody else changed.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Files remembered per session. Beyond this the oldest knowledge is worth less than the memory.
const FILES_MAX: usize = 10_000;

#[derive(Default)]
pub(crate) struct Seen {
    files: Mutex<HashMap<PathBuf, u64>>,
}

impl Seen {
    pub(crate) fn remember(&self, path: &Path, bytes: &[u8]) {
        let mut files = self.lock();
        if files.len() >= FILES_MAX {
            files.clear();
        }
        files.insert(path.to_owned(), digest(bytes));
    }

    /// Whether the file was seen with other contents than these.
    pub(crate) fn differs(&self, path: &Path, bytes: &[u8]) -> bool {
        self.lock().get(path).is_some_and(|known| *known != digest(bytes))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<PathBuf, u64>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn digest(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}
