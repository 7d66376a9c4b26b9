//! What a call shows, compared with what it showed before, of which only hashes are kept.

use std::collections::hash_map::DefaultHasher;
use std::hash::Hasher;
use std::sync::Arc;

use engine::ToolContent;
use serde_json::value::RawValue;

use super::content::{PIECES_MAX, Piece};
use super::raw::{self, Fields, digest};

const TERMINALS_MAX: usize = 16;

/// The content of a call as it was last shown.
#[derive(Default)]
pub(super) struct Shown(Vec<Mark>);

#[derive(Clone, Copy, PartialEq, Eq)]
struct Mark {
    text: bool,
    bytes: usize,
    hash: u64,
}

/// What became of the content.
#[derive(Default)]
pub(super) enum Change {
    #[default]
    Same,
    /// The last text has this more at its end.
    Grown(String),
    Other,
}

impl Change {
    /// All that is shown from now on, if that is not what was shown before.
    pub(super) fn whole(&self, fields: &Fields<'_>) -> Option<Vec<ToolContent>> {
        match self {
            Self::Same => None,
            Self::Grown(_) | Self::Other => Some(content(fields)),
        }
    }
}

impl Shown {
    pub(super) fn compare(&mut self, mut pieces: Vec<Piece>) -> Change {
        pieces.retain(|piece| !matches!(piece, Piece::Text(text) if text.is_empty()));
        let marks: Vec<_> = pieces.iter().map(Mark::of).collect();
        let change = if marks == self.0 {
            Change::Same
        } else {
            self.growth(&pieces, &marks).map_or(Change::Other, Change::Grown)
        };
        self.0 = marks;
        change
    }

    /// What the last text has more, if nothing else is different. One that was not there has grown too.
    fn growth(&self, pieces: &[Piece], marks: &[Mark]) -> Option<String> {
        let at = marks.iter().rposition(|mark| mark.text)?;
        let appended = at == self.0.len();
        let others_same = marks.iter().zip(&self.0).enumerate().all(|(n, (new, old))| n == at || new == old);
        if !others_same || marks.len() != self.0.len() + usize::from(appended) {
            return None;
        }
        match (pieces.get(at)?, self.0.get(at)) {
            (Piece::Text(text), Some(old)) => old.growth(text),
            (Piece::Text(text), None) => Some(open_text(text).to_owned()),
            (Piece::Other { .. } | Piece::Terminal { .. }, _) => None,
        }
    }
}

impl Mark {
    fn of(piece: &Piece) -> Self {
        match piece {
            Piece::Text(text) => {
                let text = open_text(text);
                Self { text: true, bytes: text.len(), hash: digest(text.as_bytes()) }
            }
            Piece::Other { bytes, hash, .. } => Self { text: false, bytes: *bytes, hash: *hash },
            Piece::Terminal { id, hash } => Self { text: false, bytes: id.len(), hash: *hash },
        }
    }

    /// What a text has more than the one that this marks, if it begins with that one.
    fn growth(self, text: &str) -> Option<String> {
        let text = open_text(text);
        let (old, new) = text.split_at_checked(self.bytes).filter(|_| self.text)?;
        let mut hasher = DefaultHasher::new();
        hasher.write(old.as_bytes());
        (hasher.finish() == self.hash && !new.is_empty()).then(|| new.to_owned())
    }
}

/// A text that agents put into a fence of Markdown grows before the fence's end.
fn open_text(text: &str) -> &str {
    if !text.starts_with("```") {
        return text;
    }
    let inner = text.trim_end_matches('\n');
    inner.strip_suffix("\n```").unwrap_or(text)
}

pub(super) fn pieces(raw: &RawValue) -> Vec<Piece> {
    raw::list(raw, PIECES_MAX).unwrap_or_default().into_iter().map(Piece::of).collect()
}

/// What a call shows, as far as it can be shown.
pub(super) fn content(fields: &Fields<'_>) -> Vec<ToolContent> {
    fields.get("content").map(pieces).unwrap_or_default().iter().filter_map(Piece::shown).collect()
}

pub(super) fn terminals(pieces: &[Piece]) -> Vec<Arc<str>> {
    let name =
        |piece: &Piece| if let Piece::Terminal { id, .. } = piece { Some(Arc::clone(id)) } else { None };
    pieces.iter().filter_map(name).take(TERMINALS_MAX).collect()
}
