//! Compares a call's content with the content before it, of which only hashes are kept.

use std::collections::hash_map::DefaultHasher;
use std::hash::Hasher;
use std::sync::Arc;

use engine::ToolContent;
use serde_json::value::RawValue;

use super::content::{ContentPiece, PIECES_MAX};
use super::raw_json::{self, Fields, digest};

const TERMINALS_MAX: usize = 16;

/// Hashes of a call's content as it was last shown.
#[derive(Default)]
pub(super) struct ContentHashes(Vec<PieceHash>);

#[derive(Clone, Copy, PartialEq, Eq)]
struct PieceHash {
    text: bool,
    bytes: usize,
    hash: u64,
}

/// How the content changed.
#[derive(Default)]
pub(super) enum ContentChange {
    #[default]
    Same,
    /// The last text grew by this much at its end.
    Grown(String),
    Other,
}

impl ContentChange {
    /// The complete content, if it changed.
    pub(super) fn whole(&self, fields: &Fields<'_>) -> Option<Vec<ToolContent>> {
        match self {
            Self::Same => None,
            Self::Grown(_) | Self::Other => Some(content(fields)),
        }
    }
}

impl ContentHashes {
    pub(super) fn compare(&mut self, mut pieces: Vec<ContentPiece>) -> ContentChange {
        pieces.retain(|piece| !matches!(piece, ContentPiece::Text(text) if text.is_empty()));
        let hashes: Vec<_> = pieces.iter().map(PieceHash::of).collect();
        let change = if hashes == self.0 {
            ContentChange::Same
        } else {
            self.growth(&pieces, &hashes).map_or(ContentChange::Other, ContentChange::Grown)
        };
        self.0 = hashes;
        change
    }

    /// What was appended to the last text, if nothing else changed. A new last text counts as grown, too.
    fn growth(&self, pieces: &[ContentPiece], hashes: &[PieceHash]) -> Option<String> {
        let at = hashes.iter().rposition(|hash| hash.text)?;
        let appended = at == self.0.len();
        let others_same = hashes.iter().zip(&self.0).enumerate().all(|(n, (new, old))| n == at || new == old);
        if !others_same || hashes.len() != self.0.len() + usize::from(appended) {
            return None;
        }
        match (pieces.get(at)?, self.0.get(at)) {
            (ContentPiece::Text(text), Some(old)) => old.growth(text),
            (ContentPiece::Text(text), None) => Some(open_text(text).to_owned()),
            (ContentPiece::Other { .. } | ContentPiece::Terminal { .. }, _) => None,
        }
    }
}

impl PieceHash {
    fn of(piece: &ContentPiece) -> Self {
        match piece {
            ContentPiece::Text(text) => {
                let text = open_text(text);
                Self { text: true, bytes: text.len(), hash: digest(text.as_bytes()) }
            }
            ContentPiece::Other { bytes, hash, .. } => Self { text: false, bytes: *bytes, hash: *hash },
            ContentPiece::Terminal { id, hash } => Self { text: false, bytes: id.len(), hash: *hash },
        }
    }

    /// What was appended to the hashed text, if the new text begins with it.
    fn growth(self, text: &str) -> Option<String> {
        let text = open_text(text);
        let (old, new) = text.split_at_checked(self.bytes).filter(|_| self.text)?;
        let mut hasher = DefaultHasher::new();
        hasher.write(old.as_bytes());
        (hasher.finish() == self.hash && !new.is_empty()).then(|| new.to_owned())
    }
}

/// Text that agents wrap in a Markdown code fence grows before the closing fence.
fn open_text(text: &str) -> &str {
    if !text.starts_with("```") {
        return text;
    }
    let inner = text.trim_end_matches('\n');
    inner.strip_suffix("\n```").unwrap_or(text)
}

pub(super) fn pieces(raw: &RawValue) -> Vec<ContentPiece> {
    raw_json::list(raw, PIECES_MAX).unwrap_or_default().into_iter().map(ContentPiece::of).collect()
}

/// The content of a call, as far as we can represent it.
pub(super) fn content(fields: &Fields<'_>) -> Vec<ToolContent> {
    fields
        .get("content")
        .map(pieces)
        .unwrap_or_default()
        .iter()
        .filter_map(ContentPiece::to_content)
        .collect()
}

pub(super) fn terminals(pieces: &[ContentPiece]) -> Vec<Arc<str>> {
    let name = |piece: &ContentPiece| {
        if let ContentPiece::Terminal { id, .. } = piece { Some(Arc::clone(id)) } else { None }
    };
    pieces.iter().filter_map(name).take(TERMINALS_MAX).collect()
}
