//! What people and agents say to each other: blocks of a prompt, results of a tool.
//!
//! Big pieces are `Arc<str>`: an event is shared by every reader, never copied per reader.

use std::path::PathBuf;
use std::sync::Arc;

/// Text that only its author understands, usually JSON. It is stored and passed on unchanged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opaque(pub Arc<str>);

/// One block of a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    Text(Arc<str>),
    /// `data` is base64, exactly as it arrived.
    Image {
        mime: Arc<str>,
        data: Arc<str>,
        uri: Option<Arc<str>>,
    },
    /// `data` is base64.
    Audio {
        mime: Arc<str>,
        data: Arc<str>,
    },
    /// Something the agent may look at, by address only.
    Link(ResourceLink),
    /// Something the client already read for the agent.
    Resource {
        uri: Arc<str>,
        mime: Option<Arc<str>>,
        text: Arc<str>,
    },
    /// `data` is base64.
    Binary {
        uri: Arc<str>,
        mime: Option<Arc<str>>,
        data: Arc<str>,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceLink {
    pub uri: Arc<str>,
    pub name: Arc<str>,
    pub mime: Option<Arc<str>>,
    pub title: Option<Arc<str>>,
    pub description: Option<Arc<str>>,
    pub size_bytes: Option<u64>,
}

impl ResourceLink {
    /// A link with nothing but an address.
    pub fn new(uri: impl Into<Arc<str>>, name: &str) -> Self {
        let (uri, name) = (uri.into(), name.into());
        Self { uri, name, mime: None, title: None, description: None, size_bytes: None }
    }
}

impl Content {
    pub fn text(text: impl Into<Arc<str>>) -> Self {
        Self::Text(text.into())
    }

    /// Roughly how many bytes of memory this block holds.
    pub fn weight(&self) -> usize {
        let big = match self {
            Self::Text(text) => text.len(),
            Self::Image { data, .. } | Self::Audio { data, .. } | Self::Binary { data, .. } => data.len(),
            Self::Link(link) => link.uri.len(),
            Self::Resource { text, .. } => text.len(),
        };
        big + 96
    }
}

/// A file as it was and as it is. `before` is `None` for a new file, `after` for a removed one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileChange {
    pub path: PathBuf,
    pub before: Option<Arc<str>>,
    pub after: Option<Arc<str>>,
}

impl FileChange {
    pub fn weight(&self) -> usize {
        self.before.as_ref().map_or(0, |t| t.len()) + self.after.as_ref().map_or(0, |t| t.len()) + 128
    }
}

/// One piece of what a tool call shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolContent {
    Block(Content),
    Diff(FileChange),
}

impl ToolContent {
    pub fn weight(&self) -> usize {
        match self {
            Self::Block(content) => content.weight(),
            Self::Diff(change) => change.weight(),
        }
    }
}

/// A file and line that a tool call is about; editors follow it. `line` counts from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    pub path: PathBuf,
    pub line: Option<u32>,
}

/// The kind of a tool call for display. It decides the icon, not the permission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolKind {
    Read,
    Edit,
    Delete,
    Move,
    Search,
    Execute,
    Think,
    Fetch,
    SwitchMode,
    Other,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputStream {
    Stdout,
    Stderr,
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exit {
    pub code: Option<i32>,
    pub signal: Option<Arc<str>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanEntry {
    pub content: Arc<str>,
    pub priority: Priority,
    pub status: StepStatus,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Priority {
    High,
    Medium,
    Low,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepStatus {
    Pending,
    InProgress,
    Completed,
}

/// A slash command that the agent understands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandSpec {
    pub name: Arc<str>,
    pub description: Arc<str>,
    /// Shown to the person as the command's argument, if it takes one.
    pub hint: Option<Arc<str>>,
}
