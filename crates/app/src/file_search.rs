//! Finds files of a session's folder by a few letters of their names.
//!
//! The directory walk of `ignore` is used as it is: only names are shown, no file is read but those that say what
//! to ignore, and links are not followed.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ignore::WalkBuilder;
use tokio::time::Instant;
use wire::native::FileMatch;

/// Files that are shown.
const FOUND_MAX: usize = 50;
/// Names that are compared; files beyond them in a huge folder are not found.
const LOOKED_MAX: usize = 50_000;
/// How long it may take: somebody is typing.
const TIME_MAX: Duration = Duration::from_secs(1);

/// Reads the disk: called off the async threads.
pub(super) fn find(folder: &Path, text: &str) -> Vec<FileMatch> {
    let wanted: Vec<char> = text.to_lowercase().chars().filter(|c| !c.is_whitespace()).collect();
    let deadline = Instant::now() + TIME_MAX;
    let walk = WalkBuilder::new(folder).follow_links(false).parents(false).require_git(false).build();
    let files = walk
        .take_while(|_| Instant::now() < deadline)
        .take(LOOKED_MAX)
        .filter_map(Result::ok)
        .filter(|entry| entry.file_type().is_some_and(|kind| kind.is_file()));
    let mut found: Vec<(usize, PathBuf)> = Vec::new();
    for entry in files {
        let Ok(path) = entry.path().strip_prefix(folder) else { continue };
        if let Some(distance) = distance(path, &wanted) {
            found.push((distance, path.to_owned()));
        }
    }
    found.sort();
    found.truncate(FOUND_MAX);
    found.into_iter().map(|(_, path)| FileMatch { path: path.display().to_string() }).collect()
}

/// The distance between a path and the typed letters; `None` if the path does not have all of them in order. Letters that
/// stand together, in the file's own name and in a short path are nearest.
fn distance(path: &Path, wanted: &[char]) -> Option<usize> {
    let text = path.to_string_lossy().to_lowercase();
    let letters: String = wanted.iter().collect();
    let name = path.file_name().map(|name| name.to_string_lossy().to_lowercase()).unwrap_or_default();
    let length = text.len();
    if name.starts_with(&letters) {
        return Some(length);
    }
    if name.contains(&letters) {
        return Some(1_000 + length);
    }
    if text.contains(&letters) {
        return Some(2_000 + length);
    }
    let mut ahead = text.chars();
    wanted.iter().all(|letter| ahead.any(|c| c == *letter)).then_some(10_000 + length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_come_first_and_ignored_ones_never() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        for name in ["src/main.rs", "src/domain.rs", "docs/main/notes.md", "target/main.rs", "m/a/i/n.rs"] {
            std::fs::create_dir_all(path.join(name).parent().unwrap()).unwrap();
            std::fs::write(path.join(name), "").unwrap();
        }
        std::fs::write(path.join(".gitignore"), "target\n").unwrap();
        let found = |text: &str| find(path, text).into_iter().map(|file| file.path).collect::<Vec<_>>();
        assert_eq!(found("Main"), ["src/main.rs", "src/domain.rs", "docs/main/notes.md", "m/a/i/n.rs"]);
        assert_eq!(found("zzz"), Vec::<String>::new());
        assert_eq!(found("").len(), 4);
    }

    #[test]
    fn no_more_are_shown_than_fit() {
        let folder = tempfile::tempdir().unwrap();
        for number in 0..=FOUND_MAX {
            std::fs::write(folder.path().join(format!("file{number}")), "").unwrap();
        }
        assert_eq!(find(folder.path(), "file").len(), FOUND_MAX);
    }
}
