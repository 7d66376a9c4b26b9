//! The hunks of a changed file, each of which a person can keep or revert.
//!
//! A hunk's id is computed from its text and the lines around it, not from its position, so it stays the same
//! when another hunk is kept or reverted. Hunks of a file with identical text cannot be distinguished by
//! that; their ids also depend on their number and on both texts of the file, so they are valid only until
//! anything in the file changes. An id that is not found is refused, and never mistaken for another one.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::ops::Range;
use std::sync::Arc;

use engine::ChangedHunk;
use engine::diff::{self, DiffLine, compare, counts, ranges};
use sha2::{Digest, Sha256};

/// Bytes of a digest that make an id.
const ID_BYTES: usize = 8;

/// The comparison of two texts of a file.
pub(super) struct FileComparison<'a> {
    /// With their line endings.
    lines: Vec<DiffLine<'a>>,
    hunks: Vec<IdentifiedHunk>,
}

struct IdentifiedHunk {
    id: String,
    lines: Range<usize>,
}

impl<'a> FileComparison<'a> {
    pub(super) fn new(path: &str, before: &'a str, after: &'a str) -> Self {
        let old: Vec<_> = before.split_inclusive('\n').collect();
        let new: Vec<_> = after.split_inclusive('\n').collect();
        let lines = compare(&old, &new);
        let ranges = ranges(&lines);
        let said: Vec<[u8; 32]> =
            ranges.iter().map(|range| content_digest(path, &lines[range.clone()])).collect();
        let mut alike: HashMap<[u8; 32], u64> = HashMap::new();
        for said in &said {
            *alike.entry(*said).or_default() += 1;
        }
        let hunk = |(number, (lines, said)): (u64, (Range<usize>, [u8; 32]))| {
            let alone = alike.get(&said).is_none_or(|count| *count < 2);
            let id = if alone { id_of(&said) } else { id_of(&position_digest(said, number, before, after)) };
            IdentifiedHunk { id, lines }
        };
        let hunks = (0..).zip(ranges.into_iter().zip(said)).map(hunk).collect();
        Self { lines, hunks }
    }

    pub(super) fn shown(&self) -> Vec<ChangedHunk> {
        let shown = |hunk: &IdentifiedHunk| {
            let diff::DiffHunk { old, new, lines } = diff::DiffHunk::of(&self.lines, hunk.lines.clone());
            let lines = lines.into_iter().map(Arc::from).collect();
            ChangedHunk { id: hunk.id.as_str().into(), old, new, lines }
        };
        self.hunks.iter().map(shown).collect()
    }

    /// The former text with only this hunk changed.
    pub(super) fn with_only_hunk(&self, id: &str) -> Option<String> {
        let hunk = self.find(id)?;
        Some(self.text(|at| hunk.contains(&at)))
    }

    /// The latter text without this hunk, and the line where it is the former again.
    pub(super) fn without_hunk(&self, id: &str) -> Option<(String, usize)> {
        let hunk = self.find(id)?;
        let (_, before) = counts(&self.lines[..hunk.start]);
        let same =
            self.lines[hunk.clone()].iter().take_while(|line| matches!(line, DiffLine::Same(_))).count();
        Some((self.text(|at| !hunk.contains(&at)), before + same + 1))
    }

    fn find(&self, id: &str) -> Option<Range<usize>> {
        self.hunks.iter().find(|hunk| hunk.id == id).map(|hunk| hunk.lines.clone())
    }

    /// The text that has the changes where this says so.
    fn text(&self, changed: impl Fn(usize) -> bool) -> String {
        let piece = |(at, line): (usize, &DiffLine<'a>)| match line {
            DiffLine::Same(text) => Some(*text),
            DiffLine::Came(text) => changed(at).then_some(*text),
            DiffLine::Gone(text) => (!changed(at)).then_some(*text),
            DiffLine::Skipped(_) => None,
        };
        self.lines.iter().enumerate().filter_map(piece).collect()
    }
}

/// A digest of a hunk's text. Texts contain no NUL byte, so lines can be separated by one.
fn content_digest(path: &str, lines: &[DiffLine<'_>]) -> [u8; 32] {
    let mut digest = Sha256::new();
    digest.update(Sha256::digest(path));
    for line in lines {
        digest.update(line.text());
        digest.update([0]);
    }
    digest.finalize().into()
}

/// A digest of a hunk's text and its exact position.
fn position_digest(said: [u8; 32], number: u64, before: &str, after: &str) -> [u8; 32] {
    let mut digest = Sha256::new();
    digest.update(said);
    digest.update(number.to_be_bytes());
    digest.update(Sha256::digest(before));
    digest.update(Sha256::digest(after));
    digest.finalize().into()
}

fn id_of(digest: &[u8; 32]) -> String {
    digest.iter().take(ID_BYTES).fold(String::new(), |mut hex, byte| {
        write!(hex, "{byte:02x}").ok();
        hex
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ids(before: &str, after: &str) -> Vec<String> {
        FileComparison::new("/f", before, after).hunks.into_iter().map(|hunk| hunk.id).collect()
    }

    fn numbered(count: usize) -> Vec<String> {
        (0..count).map(|n| format!("line {n}\n")).collect()
    }

    #[test]
    fn a_hunk_has_its_name_from_what_it_says() {
        let before = numbered(40);
        let mut after = before.clone();
        for at in [5, 20, 35] {
            after[at] = format!("changed {at}\n");
        }
        let (before, after) = (before.concat(), after.concat());
        let first = ids(&before, &after);
        assert_eq!(first.len(), 3);
        let compared = FileComparison::new("/f", &before, &after);
        // The others keep their names, whatever becomes of one.
        let kept = compared.with_only_hunk(&first[0]).unwrap();
        assert_eq!(ids(&kept, &after), first[1..]);
        let (taken, line) = compared.without_hunk(&first[1]).unwrap();
        assert_eq!((ids(&before, &taken), line), (vec![first[0].clone(), first[2].clone()], 21));
        // Longer at its beginning, the file has them elsewhere.
        assert_eq!(ids(&format!("0\n{before}"), &format!("0\n{after}")), first);
        // Another content, another file: another name.
        assert_ne!(ids(&before, &after.replace("changed 5", "changed five"))[0], first[0]);
        assert_ne!(FileComparison::new("/g", &before, &after).hunks[0].id, first[0]);
        assert!(compared.with_only_hunk("").is_none() && compared.without_hunk(&first[0][..15]).is_none());
    }

    #[test]
    fn hunks_that_are_all_alike_are_never_taken_for_each_other() {
        let block = "a\nb\nc\nOLD\nd\ne\nf\ng\n";
        let before = block.repeat(3);
        let after = before.replace("OLD", "NEW");
        let all = ids(&before, &after);
        assert_eq!(all.iter().collect::<std::collections::HashSet<_>>().len(), 3);
        let kept = FileComparison::new("/f", &before, &after).with_only_hunk(&all[0]).unwrap();
        assert!(kept.starts_with("a\nb\nc\nNEW") && kept.matches("NEW").count() == 1);
        let left = ids(&kept, &after);
        assert!(left.len() == 2 && left.iter().all(|id| !all.contains(id)), "{all:?} {left:?}");
    }

    #[test]
    fn lines_are_shown_as_a_diff_has_them() {
        let compared = FileComparison::new("/f", "1\r\n2\n3\n4\n5\n6", "1\r\n2\n3\n4\n5\n6\n7\n");
        let shown = compared.shown();
        let lines: Vec<&str> = shown[0].lines.iter().map(AsRef::as_ref).collect();
        assert_eq!((shown[0].old, shown[0].new), (3, 3));
        assert_eq!(lines, [" 3", " 4", " 5", "-6", "+6", "+7"]);
        assert_eq!(FileComparison::new("/f", "", "x").shown()[0].lines.len(), 1);
        assert!(FileComparison::new("/f", "x\n", "x\n").shown().is_empty());
    }

    fn any_text() -> impl Strategy<Value = String> {
        let line = proptest::sample::select(vec!["a\n", "b\n", "c\n", "\n", "d\r\n", "é\u{2028}\n"]);
        let last = proptest::sample::select(vec!["", "end", "a"]);
        (proptest::collection::vec(line, 0..60), last).prop_map(|(lines, last)| lines.concat() + last)
    }

    /// What `patch` does with one hunk of a diff: the lines that it has before become those that it has after.
    fn patched(text: &str, from: u32, hunk: &ChangedHunk, [gone, came]: [char; 2], other: &str) -> String {
        let lines: Vec<&str> = text.split_inclusive('\n').collect();
        let others: Vec<&str> = other.split_inclusive('\n').collect();
        let count = |without: char| hunk.lines.iter().filter(|line| !line.starts_with(without)).count();
        let at = from as usize - 1;
        let there = (if gone == '-' { hunk.new } else { hunk.old }) as usize - 1;
        let middle = &others[there..there + count(gone)];
        [&lines[..at], middle, &lines[at + count(came)..]].concat().concat()
    }

    proptest! {
        #[test]
        fn hunks_go_one_by_one_in_any_order(
            before in any_text(),
            after in any_text(),
            choices in proptest::collection::vec((any::<bool>(), any::<proptest::sample::Index>()), 80),
        ) {
            let (mut base, mut file) = (before, after);
            let hunks = FileComparison::new("/f", &base, &file).shown().len();
            for (keep, which) in choices {
                let compared = FileComparison::new("/f", &base, &file);
                let shown = compared.shown();
                let Some(hunk) = (!shown.is_empty()).then(|| which.get(&shown)) else { break };
                if keep {
                    let kept = compared.with_only_hunk(&hunk.id).unwrap();
                    prop_assert_eq!(&kept, &patched(&base, hunk.old, hunk, ['-', '+'], &file));
                    base = kept;
                } else {
                    let (taken, _) = compared.without_hunk(&hunk.id).unwrap();
                    prop_assert_eq!(&taken, &patched(&file, hunk.new, hunk, ['+', '-'], &base));
                    file = taken;
                }
            }
            prop_assert!(base == file, "{hunks} hunks at first");
        }

        #[test]
        fn all_taken_back_is_the_base_and_all_kept_is_the_file(before in any_text(), after in any_text()) {
            let (mut base, mut file) = (before.clone(), after.clone());
            while let Some(hunk) = FileComparison::new("/f", &before, &file).shown().first() {
                file = FileComparison::new("/f", &before, &file).without_hunk(&hunk.id).unwrap().0;
            }
            prop_assert_eq!(&file, &before);
            while let Some(hunk) = FileComparison::new("/f", &base, &after).shown().last() {
                base = FileComparison::new("/f", &base, &after).with_only_hunk(&hunk.id).unwrap();
            }
            prop_assert_eq!(base, after);
        }
    }
}
