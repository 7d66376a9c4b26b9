//! What an agent shows: blocks of a message, and the content and places of a tool call.

use std::path::PathBuf;
use std::sync::Arc;

use agent_client_protocol_schema::v1 as schema;
use engine::{Content, FileChange, Location, ToolContent, ToolKind};
use serde_json::value::RawValue;

use super::raw::{self, Fields, cut, digest};
use crate::acp::content_block;
use crate::transcript::block_text;

/// Pieces of what one call shows.
pub(super) const PIECES_MAX: usize = 64;
const LOCATIONS_MAX: usize = 64;
const PATH_BYTES_MAX: usize = 4 << 10;
/// One text of what a call shows.
const TEXT_BYTES_MAX: usize = 1 << 20;
/// Pictures and the like are named instead of shown beyond this.
const DATA_BYTES_MAX: usize = 8 << 20;

/// One piece of what a call shows.
pub(super) enum Piece {
    /// A text and nothing besides, which may grow.
    Text(String),
    Other {
        shown: Option<ToolContent>,
        bytes: usize,
        hash: u64,
    },
    /// A terminal, by its name.
    Terminal {
        id: Arc<str>,
        hash: u64,
    },
}

impl Piece {
    pub(super) fn of(raw: &RawValue) -> Self {
        let other = |shown| Self::Other { shown, bytes: raw.get().len(), hash: digest(raw.get().as_bytes()) };
        let Some(fields) = Fields::of(raw) else { return other(None) };
        match fields.text("type").as_deref() {
            Some("content") => {
                let Some(inner) = fields.get("content") else { return other(None) };
                match plain_text(inner).filter(|_| fields.has_only(&["type", "content"])) {
                    Some(text) => Self::Text(text),
                    None => other(block(inner).map(|block| ToolContent::Block(bounded(block)))),
                }
            }
            Some("diff") => other(change(&fields).map(ToolContent::Diff)),
            Some("terminal") => match fields.text("terminalId") {
                Some(id) => Self::Terminal { id: id.into(), hash: digest(raw.get().as_bytes()) },
                None => other(None),
            },
            _ => other(None),
        }
    }

    pub(super) fn shown(&self) -> Option<ToolContent> {
        match self {
            Self::Text(text) if text.is_empty() => None,
            Self::Text(text) => Some(ToolContent::Block(Content::Text(cut(text.clone(), TEXT_BYTES_MAX)))),
            Self::Other { shown, .. } => shown.clone(),
            Self::Terminal { .. } => None,
        }
    }
}

/// The text of a block that is text and says nothing besides.
pub(super) fn plain_text(raw: &RawValue) -> Option<String> {
    let fields = Fields::of(raw)?;
    let plain = fields.text("type").as_deref() == Some("text") && fields.has_only(&["type", "text"]);
    let (text, broken) = raw::text(fields.get("text").filter(|_| plain)?)?;
    (!broken).then_some(text)
}

/// A block, as far as it is one of those that the protocol knows.
pub(super) fn block(raw: &RawValue) -> Option<Content> {
    let fields = Fields::of(raw)?;
    if fields.text("type").as_deref() == Some("text") {
        return fields.text("text").map(Content::text);
    }
    content_block(serde_json::from_str::<schema::ContentBlock>(raw.get()).ok()?)
}

/// A block in words: text, or what it is.
pub(super) fn in_words(raw: &RawValue) -> Option<String> {
    block(raw).map(|block| block_text(&block))
}

fn bounded(block: Content) -> Content {
    if let Content::Text(text) = block {
        return Content::Text(cut(text.to_string(), TEXT_BYTES_MAX));
    }
    if block.weight() > DATA_BYTES_MAX { Content::text(block_text(&block)) } else { block }
}

fn change(fields: &Fields<'_>) -> Option<FileChange> {
    let side = |name| fields.text(name).map(|text| cut(text, TEXT_BYTES_MAX));
    Some(FileChange { path: path(&fields.text("path")?)?, before: side("oldText"), after: side("newText") })
}

pub(super) fn locations(fields: &Fields<'_>) -> Option<Vec<Location>> {
    let read = |raw: &RawValue| {
        let fields = Fields::of(raw)?;
        Some(Location { path: path(&fields.text("path")?)?, line: fields.number("line") })
    };
    Some(fields.list("locations", LOCATIONS_MAX)?.into_iter().filter_map(read).collect())
}

/// A longer path names no file.
pub(super) fn path(text: &str) -> Option<PathBuf> {
    (!text.is_empty() && text.len() <= PATH_BYTES_MAX).then(|| text.into())
}

/// What a tool is called that does not say its name: the word that rules use for its kind.
pub(super) fn tool_word(kind: ToolKind) -> &'static str {
    match kind {
        ToolKind::Read => "read",
        ToolKind::Edit | ToolKind::Delete | ToolKind::Move => "edit",
        ToolKind::Search => "search",
        ToolKind::Execute => "shell",
        ToolKind::Think => "think",
        ToolKind::Fetch => "fetch",
        ToolKind::SwitchMode => "switch_mode",
        ToolKind::Other => "tool",
    }
}
