//! What a session has changed in files and nobody has looked at yet.
//!
//! The backend keeps it, because the log has no secrets in it and is no place to restore bytes from. To
//! keep a change moves the base that later changes are compared with; to take one back is a turn of its
//! own (`/revert PATH [HUNK]`), so that it waits for the running one, stands in the log, and the agent
//! learns of it.

mod clean;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::backend::BoxFuture;

pub(crate) use clean::without_secrets;

/// A file that differs from what it was when it was last reviewed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changed {
    pub path: PathBuf,
    /// What it was: nothing if it was not there, empty if it is opaque. Secrets are taken out of both on
    /// the way to whoever looks.
    pub before: Option<Arc<str>>,
    pub after: Option<Arc<str>>,
    /// Not text, or too large: it can be kept and taken back as a whole only.
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
    fn changes(&self) -> BoxFuture<'_, Result<Vec<Changed>, String>>;

    /// A hunk, or all of a file, is as it should be. The error says what to do.
    fn keep(&self, path: PathBuf, hunk: Option<Arc<str>>) -> BoxFuture<'_, Result<(), String>>;
}

/// The prompt that takes back a hunk, or all of a file, whatever the file's name is.
pub fn revert_prompt(path: &Path, hunk: Option<&str>) -> String {
    let path = path.to_string_lossy().replace('\\', "\\\\").replace('"', "\\\"");
    let hunk = hunk.map(|hunk| format!(" {hunk}")).unwrap_or_default();
    format!("/revert \"{path}\"{hunk}")
}
