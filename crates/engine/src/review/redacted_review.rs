//! A review without secrets, as it leaves the backend.
//!
//! A secret may span lines, and its replacement may have fewer lines. So each text is redacted as a whole,
//! and a line of a hunk is shown unchanged only if redaction left it unchanged.

use std::path::PathBuf;
use std::sync::Arc;

use super::{ChangedFile, ChangedHunk, Review};
use crate::backend::BoxFuture;
use crate::diff::{DiffLine, compare};
use crate::redactor_trait::Redactor;

/// Replaces a line of a secret that spans several lines.
const HIDDEN: &str = "[REDACTED]";

/// The review as people may see it. A file whose name contains a secret can be seen, but not kept.
pub(crate) fn without_secrets(
    review: Option<Arc<dyn Review>>,
    redactor: Option<&Arc<dyn Redactor>>,
) -> Option<Arc<dyn Review>> {
    match (review, redactor) {
        (Some(inner), Some(redactor)) => {
            Some(Arc::new(RedactedReview { inner, redactor: Arc::clone(redactor) }))
        }
        (review, _) => review,
    }
}

struct RedactedReview {
    inner: Arc<dyn Review>,
    redactor: Arc<dyn Redactor>,
}

impl Review for RedactedReview {
    fn changes(&self) -> BoxFuture<'_, Result<Vec<ChangedFile>, String>> {
        Box::pin(async move {
            let changes = self.inner.changes().await?;
            Ok(changes.into_iter().map(|changed| clean(self.redactor.as_ref(), changed)).collect())
        })
    }

    fn keep(&self, path: PathBuf, hunk: Option<Arc<str>>) -> BoxFuture<'_, Result<(), String>> {
        self.inner.keep(path, hunk)
    }
}

fn clean(redactor: &dyn Redactor, changed: ChangedFile) -> ChangedFile {
    let before = RedactedText::of(redactor, changed.before);
    let after = RedactedText::of(redactor, changed.after);
    let path = redactor.redact(&changed.path.to_string_lossy()).map_or(changed.path, PathBuf::from);
    let hunks = changed.hunks.into_iter().map(|hunk| clean_hunk(hunk, &before, &after)).collect();
    ChangedFile { path, before: before.text, after: after.text, hunks, ..changed }
}

fn clean_hunk(hunk: ChangedHunk, before: &RedactedText, after: &RedactedText) -> ChangedHunk {
    let (mut old, mut new) = (hunk.old, hunk.new);
    let mut lines = Vec::with_capacity(hunk.lines.len());
    for line in hunk.lines {
        let (in_old, in_new) = (!line.starts_with('+'), !line.starts_with('-'));
        let hidden = in_new.then(|| after.instead(new)).flatten();
        let hidden = hidden.or_else(|| in_old.then(|| before.instead(old)).flatten());
        lines.push(hidden.map_or(Arc::clone(&line), |text| format!("{}{text}", &line[..1]).into()));
        old += u32::from(in_old);
        new += u32::from(in_new);
    }
    ChangedHunk { lines, ..hunk }
}

/// A text without its secrets.
struct RedactedText {
    text: Option<Arc<str>>,
    /// The replacement of each line, if it is not shown. Empty if all lines are shown.
    instead: Vec<Option<Arc<str>>>,
}

impl RedactedText {
    fn of(redactor: &dyn Redactor, text: Option<Arc<str>>) -> Self {
        let Some((was, clean)) = text.as_deref().and_then(|text| Some((text, redactor.redact(text)?))) else {
            return Self { text, instead: Vec::new() };
        };
        let (old, new): (Vec<_>, Vec<_>) = (was.split('\n').collect(), clean.split('\n').collect());
        let mut instead = Vec::with_capacity(old.len());
        for block in compare(&old, &new).chunk_by(|a, b| is_same(a) == is_same(b)) {
            let gone = block.iter().filter(|line| !matches!(line, DiffLine::Came(_))).count();
            let came: Vec<_> = block
                .iter()
                .filter_map(|line| if let DiffLine::Came(text) = line { Some(*text) } else { None })
                .collect();
            if block.first().is_some_and(is_same) {
                instead.extend(std::iter::repeat_n(None, gone));
            } else if came.len() == gone {
                instead.extend(came.into_iter().map(|text| Some(text.into())));
            } else {
                instead.extend(std::iter::repeat_n(Some(Arc::from(HIDDEN)), gone));
            }
        }
        Self { text: Some(clean.into()), instead }
    }

    /// The replacement of a line, by its number.
    fn instead(&self, number: u32) -> Option<Arc<str>> {
        let at = usize::try_from(number).unwrap_or(usize::MAX).saturating_sub(1);
        self.instead.get(at).cloned().flatten()
    }
}

fn is_same(line: &DiffLine<'_>) -> bool {
    matches!(line, DiffLine::Same(_))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redactor_trait::StreamRedactor;

    /// `<` and `>` stand around secrets.
    struct Brackets;

    impl Redactor for Brackets {
        fn redact(&self, text: &str) -> Option<String> {
            let (mut out, mut inside) = (String::new(), false);
            for c in text.chars() {
                match c {
                    '<' => inside = true,
                    '>' => {
                        inside = false;
                        out.push('#');
                    }
                    c if !inside => out.push(c),
                    _ => {}
                }
            }
            text.contains('<').then_some(out)
        }

        fn redact_json(&self, json: &str) -> Option<String> {
            self.redact(json)
        }

        fn is_in_base64(&self, _: &str) -> bool {
            false
        }

        fn stream(&self) -> Box<dyn StreamRedactor> {
            unreachable!("a review has no text in pieces")
        }
    }

    fn shown(before: &str, after: &str, old: u32, lines: &[&str]) -> Vec<String> {
        let hunk = ChangedHunk {
            id: "h".into(),
            old,
            new: old,
            lines: lines.iter().map(|line| Arc::from(*line)).collect(),
        };
        let text = |text: &str| Some(Arc::from(text));
        let changed = ChangedFile {
            path: "/<p>".into(),
            before: text(before),
            after: text(after),
            opaque: false,
            hunks: vec![hunk],
        };
        let clean = clean(&Brackets, changed);
        assert_eq!(clean.path, PathBuf::from("/#"));
        assert!(!clean.before.unwrap().contains('<') && !clean.after.unwrap().contains('<'));
        clean.hunks[0].lines.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn secrets_are_taken_out_of_lines_on_either_side() {
        let lines = shown(
            "a\nkey <one>\nb\nc <x>\n",
            "a\nkey <two>\nb\nc <x>\n",
            1,
            &[" a", "-key <one>", "+key <two>", " b", " c <x>"],
        );
        assert_eq!(lines, [" a", "-key #", "+key #", " b", " c #"]);
    }

    #[test]
    fn a_secret_that_spans_lines_shows_none_of_them() {
        let lines =
            shown("a\nb <1\n2\n3> c\nd\n", "a\nb <1\n2\n4> c\nd\n", 3, &[" 2", "-3> c", "+4> c", " d"]);
        assert_eq!(lines, [" [REDACTED]", "-[REDACTED]", "+[REDACTED]", " d"]);
    }

    #[test]
    fn a_prompt_to_take_back_survives_any_name() {
        let prompt = super::super::revert_prompt;
        assert_eq!(prompt("/a b\\\".rs".as_ref(), Some("h1")), r#"/revert "/a b\\\".rs" h1"#);
        assert_eq!(prompt("/a".as_ref(), None), r#"/revert "/a""#);
    }
}
