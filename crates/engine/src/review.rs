//! The file changes of a session that nobody has reviewed yet.
//!
//! The backend keeps them, because the log contains no secrets and cannot restore bytes. Keeping
//! a change moves the base that later changes are compared with. Reverting one is a turn of its
//! own (`/revert PATH [HUNK]`), so it waits for the running turn, is recorded in the log, and the agent
//! learns of it.

mod redacted_review;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::backend::BoxFuture;

pub(crate) use redacted_review::without_secrets;

/// A file that differs from what it was when it was last reviewed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangedFile {
    pub path: PathBuf,
    /// The content before: `None` if the file did not exist, empty if it is opaque. Secrets are removed from
    /// both texts before anybody sees them.
    pub before: Option<Arc<str>>,
    pub after: Option<Arc<str>>,
    /// Not text, or too large: it can only be kept or reverted as a whole.
    pub opaque: bool,
    /// In order. A hunk of another content has another name; so have hunks that are all alike, as soon as
    /// anything in their file is different. Keeping or taking back one leaves the names of the others.
    pub hunks: Vec<ChangedHunk>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangedHunk {
    pub id: Arc<str>,
    /// The number of its first line, before and after; counted from 1.
    pub old: u32,
    pub new: u32,
    /// Each with ` `, `-` or `+` before it, without its line feed.
    pub lines: Vec<Arc<str>>,
}

/// The review of one session.
pub trait Review: Send + Sync + 'static {
    fn changes(&self) -> BoxFuture<'_, Result<Vec<ChangedFile>, String>>;

    /// A hunk, or all of a file, is as it should be. The error says what to do.
    fn keep(&self, path: PathBuf, hunk: Option<Arc<str>>) -> BoxFuture<'_, Result<(), String>>;
}

/// The prompt that takes back a hunk, or all of a file, whatever the file's name is.
pub fn revert_prompt(path: &Path, hunk: Option<&str>) -> String {
    let path = path.to_string_lossy().replace('\\', "\\\\").replace('"', "\\\"");
    let hunk = hunk.map(|hunk| format!(" {hunk}")).unwrap_or_default();
    format!("/revert \"{path}\"{hunk}")
}
