//! The hunks of a changed file: what a person keeps or takes back of it.
//!
//! A hunk's id is made from what it says, with the lines around it, and not from where it stands: so it
//! stays the same when another hunk is kept or taken back. Hunks of a file that say the same cannot be told
//! apart by that; their ids are made from their number and both texts too, so they hold only until anything
//! in the file is different. An id that is not found is refused, and never taken for another.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::ops::Range;
use std::sync::Arc;

use engine::ChangedHunk;
use engine::diff::{self, Line, compare, counts, ranges};
use sha2::{Digest, Sha256};

/// Bytes of a digest that make an id.
const ID_BYTES: usize = 8;

/// Two texts of a file, compared.
pub(super) struct Compared<'a> {
    /// With their ends.
    lines: Vec<Line<'a>>,
    hunks: Vec<Hunk>,
}

struct Hunk {
    id: String,
    lines: Range<usize>,
}

impl<'a> Compared<'a> {
    pub(super) fn new(path: &str, before: &'a str, after: &'a str) -> Self {
        let old: Vec<_> = before.split_inclusive('\n').collect();
        let new: Vec<_> = after.split_inclusive('\n').collect();
        let lines = compare(&old, &new);
        let ranges = ranges(&lines);
        let said: Vec<[u8; 32]> = ranges.iter().map(|range| said(path, &lines[range.clone()])).collect();
        let mut alike: HashMap<[u8; 32], u64> = HashMap::new();
        for said in &said {
            *alike.entry(*said).or_default() += 1;
        }
        let hunk = |(number, (lines, said)): (u64, (Range<usize>, [u8; 32]))| {
            let alone = alike.get(&said).is_none_or(|count| *count < 2);
            let id = if alone { short(&said) } else { short(&placed(said, number, before, after)) };
            Hunk { id, lines }
        };
        let hunks = (0..).zip(ranges.into_iter().zip(said)).map(hunk).collect();
        Self { lines, hunks }
    }

    pub(super) fn shown(&self) -> Vec<ChangedHunk> {
        let shown = |hunk: &Hunk| {
            let diff::Hunk { old, new, lines } = diff::Hunk::of(&self.lines, hunk.lines.clone());
            let lines = lines.into_iter().map(Arc::from).collect();
            ChangedHunk { id: hunk.id.as_str().into(), old, new, lines }
        };
        self.hunks.iter().map(shown).collect()
    }

    /// The former text with only this hunk changed.
    pub(super) fn kept(&self, id: &str) -> Option<String> {
        let hunk = self.find(id)?;
        Some(self.text(|at| hunk.contains(&at)))
    }

    /// The latter text without this hunk, and the line where it is the former again.
    pub(super) fn taken_back(&self, id: &str) -> Option<(String, usize)> {
        let hunk = self.find(id)?;
        let (_, before) = counts(&self.lines[..hunk.start]);
        let same = self.lines[hunk.clone()].iter().take_while(|line| matches!(line, Line::Same(_))).count();
        Some((self.text(|at| !hunk.contains(&at)), before + same + 1))
    }

    fn find(&self, id: &str) -> Option<Range<usize>> {
        self.hunks.iter().find(|hunk| hunk.id == id).map(|hunk| hunk.lines.clone())
    }

    /// The text that has the changes where this says so.
    fn text(&self, changed: impl Fn(usize) -> bool) -> String {
        let piece = |(at, line): (usize, &Line<'a>)| match line {
            Line::Same(text) => Some(*text),
            Line::Came(text) => changed(at).then_some(*text),
            Line::Gone(text) => (!changed(at)).then_some(*text),
            Line::Skipped(_) => None,
        };
        self.lines.iter().enumerate().filter_map(piece).collect()
    }
}

/// What a hunk says. No text has a zero in it, so no line can pass for two.
fn said(path: &str, lines: &[Line<'_>]) -> [u8; 32] {
    let mut digest = Sha256::new();
    digest.update(Sha256::digest(path));
    for line in lines {
        digest.update(line.text());
        digest.update([0]);
    }
    digest.finalize().into()
}

/// What it says, and everything that is to be known of its place.
fn placed(said: [u8; 32], number: u64, before: &str, after: &str) -> [u8; 32] {
    let mut digest = Sha256::new();
    digest.update(said);
    digest.update(number.to_be_bytes());
    digest.update(Sha256::digest(before));
    digest.update(Sha256::digest(after));
    digest.finalize().into()
}

fn short(digest: &[u8; 32]) -> String {
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
        Compared::new("/f", before, after).hunks.into_iter().map(|hunk| hunk.id).collect()
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
        let compared = Compared::new("/f", &before, &after);
        // The others keep their names, whatever becomes of one.
        let kept = compared.kept(&first[0]).unwrap();
        assert_eq!(ids(&kept, &after), first[1..]);
        let (taken, line) = compared.taken_back(&first[1]).unwrap();
        assert_eq!((ids(&before, &taken), line), (vec![first[0].clone(), first[2].clone()], 21));
        // Longer at its beginning, the file has them elsewhere.
        assert_eq!(ids(&format!("0\n{before}"), &format!("0\n{after}")), first);
        // Another content, another file: another name.
        assert_ne!(ids(&before, &after.replace("changed 5", "changed five"))[0], first[0]);
        assert_ne!(Compared::new("/g", &before, &after).hunks[0].id, first[0]);
        assert!(compared.kept("").is_none() && compared.taken_back(&first[0][..15]).is_none());
    }

    #[test]
    fn hunks_that_are_all_alike_are_never_taken_for_each_other() {
        let block = "a\nb\nc\nOLD\nd\ne\nf\ng\n";
        let before = block.repeat(3);
        let after = before.replace("OLD", "NEW");
        let all = ids(&before, &after);
        assert_eq!(all.iter().collect::<std::collections::HashSet<_>>().len(), 3);
        let kept = Compared::new("/f", &before, &after).kept(&all[0]).unwrap();
        assert!(kept.starts_with("a\nb\nc\nNEW") && kept.matches("NEW").count() == 1);
        let left = ids(&kept, &after);
        assert!(left.len() == 2 && left.iter().all(|id| !all.contains(id)), "{all:?} {left:?}");
    }

    #[test]
    fn lines_are_shown_as_a_diff_has_them() {
        let compared = Compared::new("/f", "1\r\n2\n3\n4\n5\n6", "1\r\n2\n3\n4\n5\n6\n7\n");
        let shown = compared.shown();
        let lines: Vec<&str> = shown[0].lines.iter().map(AsRef::as_ref).collect();
        assert_eq!((shown[0].old, shown[0].new), (3, 3));
        assert_eq!(lines, [" 3", " 4", " 5", "-6", "+6", "+7"]);
        assert_eq!(Compared::new("/f", "", "x").shown()[0].lines.len(), 1);
        assert!(Compared::new("/f", "x\n", "x\n").shown().is_empty());
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
            let hunks = Compared::new("/f", &base, &file).shown().len();
            for (keep, which) in choices {
                let compared = Compared::new("/f", &base, &file);
                let shown = compared.shown();
                let Some(hunk) = (!shown.is_empty()).then(|| which.get(&shown)) else { break };
                if keep {
                    let kept = compared.kept(&hunk.id).unwrap();
                    prop_assert_eq!(&kept, &patched(&base, hunk.old, hunk, ['-', '+'], &file));
                    base = kept;
                } else {
                    let (taken, _) = compared.taken_back(&hunk.id).unwrap();
                    prop_assert_eq!(&taken, &patched(&file, hunk.new, hunk, ['+', '-'], &base));
                    file = taken;
                }
            }
            prop_assert!(base == file, "{hunks} hunks at first");
        }

        #[test]
        fn all_taken_back_is_the_base_and_all_kept_is_the_file(before in any_text(), after in any_text()) {
            let (mut base, mut file) = (before.clone(), after.clone());
            while let Some(hunk) = Compared::new("/f", &before, &file).shown().first() {
                file = Compared::new("/f", &before, &file).taken_back(&hunk.id).unwrap().0;
            }
            prop_assert_eq!(&file, &before);
            while let Some(hunk) = Compared::new("/f", &base, &after).shown().last() {
                base = Compared::new("/f", &base, &after).kept(&hunk.id).unwrap();
            }
            prop_assert_eq!(base, after);
        }
    }
}
