//! `/revert` and `/keep`: the session's changes are reverted or accepted, by hunk or by file. Without a path
//! they list the changes.
//!
//! A path with blanks is put in quotes: `/revert "a b.rs"`. In quotes, `\"` and `\\` are a quote and a
//! backslash.

use std::fmt::Write as _;
use std::sync::Arc;

use engine::{Body, ChangedFile, SessionGone, TurnContext};

use super::undo::NOTHING;
use crate::tools;
use crate::undo::{RevertedChange, UndoHistory};
use crate::workspace::Workspace;

/// Files, and hunks of each, that are listed in an answer.
const FILES_NAMED_MAX: usize = 20;
const HUNKS_NAMED_MAX: usize = 10;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReviewCommand {
    pub(crate) act: ReviewAction,
    /// The file, and optionally the hunk.
    what: Result<Option<(String, Option<String>)>, &'static str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReviewAction {
    Keep,
    TakeBack,
}

impl ReviewCommand {
    pub(super) fn new(act: ReviewAction, argument: Option<&str>) -> Self {
        Self { act, what: argument.map(read).transpose() }
    }
}

fn read(argument: &str) -> Result<(String, Option<String>), &'static str> {
    let (path, rest) = match argument.strip_prefix('"') {
        Some(quoted) => unquoted(quoted).ok_or("the quote is not closed")?,
        None => {
            let (path, rest) = argument.split_once(char::is_whitespace).unwrap_or((argument, ""));
            (path.to_owned(), rest)
        }
    };
    let mut words = rest.split_whitespace();
    match (words.next().map(str::to_owned), words.next()) {
        _ if path.is_empty() => Err("the path is empty"),
        _ if path.contains('\0') => Err("no file has such a name"),
        (hunk, None) => Ok((path, hunk)),
        (_, Some(_)) => Err("write the path and at most one hunk; put a path with spaces in quotes"),
    }
}

/// The text up to the closing quote, and the text after it.
fn unquoted(text: &str) -> Option<(String, &str)> {
    let (mut path, mut chars) = (String::new(), text.char_indices().peekable());
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((path, &text[at + 1..])),
            '\\' => {
                let escaped = chars.next_if(|(_, next)| matches!(next, '"' | '\\'));
                path.push(escaped.map_or('\\', |(_, next)| next));
            }
            c => path.push(c),
        }
    }
    None
}

/// Executes the command, and logs the changes.
pub(crate) async fn answer(
    command: ReviewCommand,
    undo: &Arc<UndoHistory>,
    workspace: &Workspace,
    context: &TurnContext,
) -> Result<String, SessionGone> {
    let (undo, at, turn) = (Arc::clone(undo), workspace.clone(), context.turn());
    let act = command.act;
    let done = tools::blocking(move || {
        let files = at.files().map_err(|error| error.to_string())?;
        let Some((path, hunk)) = command.what? else {
            return Ok(ReviewOutcome::Listed(undo.changes(files)?));
        };
        let path = undo.reviewed(files, &at.cwd.join(path))?;
        let shown = at.shown(&path);
        match act {
            ReviewAction::Keep => {
                undo.keep(files, &path, hunk.as_deref()).map(|()| ReviewOutcome::Kept(shown, hunk))
            }
            ReviewAction::TakeBack => {
                let taken = undo.take_back(files, turn, &path, hunk.as_deref())?;
                Ok(ReviewOutcome::TakenBack(shown, taken))
            }
        }
    });
    Ok(match done.await.and_then(|done: Result<ReviewOutcome, String>| done) {
        Err(reason) => format!("{NOTHING}{reason}."),
        Ok(ReviewOutcome::Listed(changes)) => listed(act, &changes, workspace),
        Ok(ReviewOutcome::Kept(path, None)) => format!("Kept: {path}, as it is now."),
        Ok(ReviewOutcome::Kept(path, Some(hunk))) => format!("Kept: hunk {hunk} of {path}."),
        Ok(ReviewOutcome::TakenBack(path, RevertedChange { change, line })) => {
            if let Some(change) = change {
                context.emit(Body::FileEdited { call: None, change }).await?;
            }
            match line {
                Some(line) => format!("Undone: the change of {path} at line {line}."),
                None => format!("Undone: all changes of {path}."),
            }
        }
    })
}

enum ReviewOutcome {
    Listed(Vec<ChangedFile>),
    Kept(String, Option<String>),
    TakenBack(String, RevertedChange),
}

fn listed(act: ReviewAction, changes: &[ChangedFile], workspace: &Workspace) -> String {
    if changes.is_empty() {
        return format!("{NOTHING}this session has no unreviewed changes.");
    }
    let word = if act == ReviewAction::Keep { "keep" } else { "revert" };
    let mut text = format!("{NOTHING}choose one with `/{word} PATH [HUNK]`:\n");
    for changed in changes.iter().take(FILES_NAMED_MAX) {
        let hunk = |hunk: &engine::ChangedHunk| format!("`{}` at line {}", hunk.id, hunk.new);
        let mut hunks: Vec<_> = changed.hunks.iter().take(HUNKS_NAMED_MAX).map(hunk).collect();
        match changed.hunks.len().saturating_sub(hunks.len()) {
            0 if hunks.is_empty() => hunks.push("as a whole".to_owned()),
            0 => {}
            more => hunks.push(format!("{more} more")),
        }
        writeln!(text, "- {}: {}", workspace.shown(&changed.path), hunks.join(", ")).ok();
    }
    let more = changes.len().saturating_sub(FILES_NAMED_MAX);
    if more > 0 {
        writeln!(text, "- and {more} more files").ok();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_read_whatever_its_name_is() {
        let read = |text: &str| read(text).map(|(path, hunk)| (path, hunk.unwrap_or_default()));
        let is = |path: &str, hunk: &str| Ok((path.to_owned(), hunk.to_owned()));
        assert_eq!(read("a.rs"), is("a.rs", ""));
        assert_eq!(read("a.rs  0f"), is("a.rs", "0f"));
        assert_eq!(read(r#""a b.rs" 0f"#), is("a b.rs", "0f"));
        assert_eq!(read(r#""a\b\\c\"d e""#), is(r#"a\b\c"d e"#, ""));
        assert_eq!(read("\"a\nb\""), is("a\nb", ""));
        for bad in ["\"a", "\"\"", "a b c", "a\0b", r#""a\""#] {
            assert!(read(bad).is_err(), "{bad:?}");
        }
        for path in ["/a b", r#"/a"b\"#, "/é\n\\\\", "/ "] {
            for hunk in [None, Some("0f")] {
                let prompt = engine::revert_prompt(path.as_ref(), hunk);
                assert_eq!(
                    read(prompt.strip_prefix("/revert ").unwrap()),
                    is(path, hunk.unwrap_or_default())
                );
            }
        }
    }
}
