//! The folders that a session works in and has worked in: it may go back to an earlier one.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Session;

/// The first ones are kept; the folder that the session was opened in is the first.
const FOLDERS_MAX: usize = 64;

impl Session {
    pub fn folders(&self) -> &Arc<Vec<PathBuf>> {
        &self.folders
    }

    pub(super) fn remember_folders(&mut self, from: Option<&Path>, cwd: &Path) {
        for folder in from.into_iter().chain([cwd]) {
            if self.folders.len() < FOLDERS_MAX && !self.folders.iter().any(|known| known == folder) {
                Arc::make_mut(&mut self.folders).push(folder.to_owned());
            }
        }
    }
}
