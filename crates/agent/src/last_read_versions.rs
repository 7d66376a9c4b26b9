//! The version of each file that the agent last read, so that it never overwrites somebody else's changes.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Files remembered per session; the oldest are forgotten.
const FILES_MAX: usize = 10_000;

#[derive(Default)]
pub(crate) struct ReadVersions {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    files: HashMap<PathBuf, FileVersion>,
    reads: u64,
}

struct FileVersion {
    digest: u64,
    /// The running number of this read.
    number: u64,
}

impl ReadVersions {
    pub(crate) fn remember(&self, path: &Path, bytes: &[u8]) {
        let mut state = self.lock();
        if state.files.len() >= FILES_MAX {
            state.files.clear();
        }
        state.reads += 1;
        let look = FileVersion { digest: digest(bytes), number: state.reads };
        state.files.insert(path.to_owned(), look);
    }

    /// Whether the file was last read with other contents than these.
    pub(crate) fn differs(&self, path: &Path, bytes: &[u8]) -> bool {
        self.lock().files.get(path).is_some_and(|state| state.digest != digest(bytes))
    }

    /// The files that were read last, latest first.
    pub(crate) fn latest(&self, count: usize) -> Vec<PathBuf> {
        let state = self.lock();
        let mut files: Vec<_> = state.files.iter().map(|(path, look)| (look.number, path)).collect();
        files.sort_by(|a, b| b.cmp(a));
        files.into_iter().take(count).map(|(_, path)| path.clone()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn digest(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}
