//! What the agent last saw in each file, so that it never overwrites what somebody else changed.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Files remembered per session. Beyond this the oldest knowledge is worth less than the memory.
const FILES_MAX: usize = 10_000;

#[derive(Default)]
pub(crate) struct Seen {
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    files: HashMap<PathBuf, Look>,
    looks: u64,
}

struct Look {
    digest: u64,
    /// Which of all looks this was.
    number: u64,
}

impl Seen {
    pub(crate) fn remember(&self, path: &Path, bytes: &[u8]) {
        let mut known = self.lock();
        if known.files.len() >= FILES_MAX {
            known.files.clear();
        }
        known.looks += 1;
        let look = Look { digest: digest(bytes), number: known.looks };
        known.files.insert(path.to_owned(), look);
    }

    /// Whether the file was seen with other contents than these.
    pub(crate) fn differs(&self, path: &Path, bytes: &[u8]) -> bool {
        self.lock().files.get(path).is_some_and(|known| known.digest != digest(bytes))
    }

    /// The files that were seen last, latest first.
    pub(crate) fn latest(&self, count: usize) -> Vec<PathBuf> {
        let known = self.lock();
        let mut files: Vec<_> = known.files.iter().map(|(path, look)| (look.number, path)).collect();
        files.sort_by(|a, b| b.cmp(a));
        files.into_iter().take(count).map(|(_, path)| path.clone()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn digest(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}
