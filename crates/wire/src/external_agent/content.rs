//! Content that an agent shows: message blocks, and the content and locations of a tool call.

use std::path::PathBuf;
use std::sync::Arc;

use agent_client_protocol_schema::v1 as schema;
use engine::{Content, FileChange, Location, ToolContent, ToolKind};
use serde_json::value::RawValue;

use super::raw_json::{self, Fields, digest, shortened};
use crate::acp::content_block;
use crate::transcript::block_text;

/// Content pieces of one call.
pub(super) const PIECES_MAX: usize = 64;
const LOCATIONS_MAX: usize = 64;
const PATH_BYTES_MAX: usize = 4 << 10;
/// Limit for one text of a call's content.
const TEXT_BYTES_MAX: usize = 1 << 20;
/// Larger images and other binary data are described instead of shown.
const DATA_BYTES_MAX: usize = 8 << 20;

/// One piece of a call's content.
pub(super) enum ContentPiece {
    /// A plain text without other fields, which may grow.
    Text(String),
    Other {
        shown: Option<ToolContent>,
        bytes: usize,
        hash: u64,
    },
    /// A terminal, by its id.
    Terminal {
        id: Arc<str>,
        hash: u64,
    },
}

impl ContentPiece {
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

    pub(super) fn to_content(&self) -> Option<ToolContent> {
        match self {
            Self::Text(text) if text.is_empty() => None,
            Self::Text(text) => {
                Some(ToolContent::Block(Content::Text(shortened(text.clone(), TEXT_BYTES_MAX))))
            }
            Self::Other { shown, .. } => shown.clone(),
            Self::Terminal { .. } => None,
        }
    }
}

/// The text of a block that has a text and no other fields.
pub(super) fn plain_text(raw: &RawValue) -> Option<String> {
    let fields = Fields::of(raw)?;
    let plain = fields.text("type").as_deref() == Some("text") && fields.has_only(&["type", "text"]);
    let (text, broken) = raw_json::text(fields.get("text").filter(|_| plain)?)?;
    (!broken).then_some(text)
}

/// A content block, if the protocol knows its type.
pub(super) fn block(raw: &RawValue) -> Option<Content> {
    let fields = Fields::of(raw)?;
    if fields.text("type").as_deref() == Some("text") {
        return fields.text("text").map(Content::text);
    }
    content_block(serde_json::from_str::<schema::ContentBlock>(raw.get()).ok()?)
}

/// A block as text: its text, or a description.
pub(super) fn in_words(raw: &RawValue) -> Option<String> {
    block(raw).map(|block| block_text(&block))
}

fn bounded(block: Content) -> Content {
    if let Content::Text(text) = block {
        return Content::Text(shortened(text.to_string(), TEXT_BYTES_MAX));
    }
    if block.weight() > DATA_BYTES_MAX { Content::text(block_text(&block)) } else { block }
}

fn change(fields: &Fields<'_>) -> Option<FileChange> {
    let side = |name| fields.text(name).map(|text| shortened(text, TEXT_BYTES_MAX));
    Some(FileChange { path: path(&fields.text("path")?)?, before: side("oldText"), after: side("newText") })
}

pub(super) fn locations(fields: &Fields<'_>) -> Option<Vec<Location>> {
    let read = |raw: &RawValue| {
        let fields = Fields::of(raw)?;
        Some(Location { path: path(&fields.text("path")?)?, line: fields.number("line") })
    };
    Some(fields.list("locations", LOCATIONS_MAX)?.into_iter().filter_map(read).collect())
}

/// A longer path cannot name a file.
pub(super) fn path(text: &str) -> Option<PathBuf> {
    (!text.is_empty() && text.len() <= PATH_BYTES_MAX).then(|| text.into())
}

/// The name of a tool that does not send one: the word that rules use for its kind.
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
