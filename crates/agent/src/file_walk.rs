//! Iterates over the files below a folder that git does not ignore, through the session's folder handles.
//!
//! Ignore files are part of the workspace, so they are trusted as little: they are read only if they are
//! regular files of a sensible size, and links are not followed, neither to them nor anywhere else.

use std::ffi::OsStr;
use std::io::Read as _;
use std::path::Path;
use std::rc::Rc;
use std::vec::IntoIter;

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use sandbox::{EntryKind, Files, Mode, PathAccess, PermittedPath, Policy};

/// More than anybody writes by hand.
const RULES_BYTES_MAX: u64 = 1 << 20;
/// Later ones override earlier ones; the last is for searches only.
const RULES: [&str; 3] = [".git/info/exclude", ".gitignore", ".ignore"];

/// All files below a folder in the order of their names, or the file itself.
pub(crate) struct FileWalk<'a> {
    files: &'a Files,
    /// The only file, if the walk starts at a file.
    only: Option<PermittedPath>,
    levels: Vec<FolderLevel>,
    /// The person's global ignore rules.
    everywhere: Gitignore,
}

struct FolderLevel {
    rules: Rc<IgnoreRules>,
    ahead: IntoIter<(PermittedPath, EntryKind)>,
}

/// The ignore rules of a folder and of the folders above it.
struct IgnoreRules {
    own: Gitignore,
    /// A repository begins here: rules above it do not apply.
    repository: bool,
    above: Option<Rc<IgnoreRules>>,
}

impl<'a> FileWalk<'a> {
    pub(crate) fn new(files: &'a Files, start: &PermittedPath) -> Self {
        let mut walk = Self { files, only: None, levels: Vec::new(), everywhere: Gitignore::global().0 };
        match start.kind() {
            Some(EntryKind::File) => walk.only = Some(start.clone()),
            Some(EntryKind::Folder) => walk.enter(start, rules_above(start.real())),
            Some(EntryKind::Link | EntryKind::Other) | None => {}
        }
        walk
    }

    /// A folder that cannot be listed counts as empty.
    fn enter(&mut self, folder: &PermittedPath, above: Option<Rc<IgnoreRules>>) {
        let mut entries = self.files.entries(folder).unwrap_or_default();
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        let rules = IgnoreRules::of(self.files, folder, above);
        let inside = entries.into_iter().filter(|entry| entry.name != ".git");
        let ahead: Vec<_> =
            inside.filter_map(|entry| folder.child(&entry.name).map(|spot| (spot, entry.kind))).collect();
        self.levels.push(FolderLevel { rules: Rc::new(rules), ahead: ahead.into_iter() });
    }

    fn is_ignored(&self, rules: &Rc<IgnoreRules>, path: &Path, folder: bool) -> bool {
        let mut next = Some(rules);
        while let Some(rules) = next {
            match rules.own.matched(path, folder) {
                Match::Ignore(_) => return true,
                Match::Whitelist(_) => return false,
                Match::None => next = rules.above.as_ref().filter(|_| !rules.repository),
            }
        }
        self.everywhere.matched(path, folder).is_ignore()
    }
}

impl Iterator for FileWalk<'_> {
    type Item = PermittedPath;

    fn next(&mut self) -> Option<PermittedPath> {
        if let Some(only) = self.only.take() {
            return Some(only);
        }
        loop {
            let level = self.levels.last_mut()?;
            let rules = Rc::clone(&level.rules);
            let Some((spot, kind)) = level.ahead.next() else {
                self.levels.pop();
                continue;
            };
            if self.is_ignored(&rules, spot.real(), kind == EntryKind::Folder) {
                continue;
            }
            match kind {
                EntryKind::File => return Some(spot),
                EntryKind::Folder => self.enter(&spot, Some(rules)),
                EntryKind::Link | EntryKind::Other => {}
            }
        }
    }
}

impl IgnoreRules {
    fn of(files: &Files, folder: &PermittedPath, above: Option<Rc<Self>>) -> Self {
        let mut builder = GitignoreBuilder::new(folder.real());
        for name in RULES {
            for line in read_rules(files, folder, name).lines() {
                // A malformed line ignores nothing.
                builder.add_line(None, line).ok();
            }
        }
        let repository = folder.child(OsStr::new(".git")).is_some_and(|git| git.kind().is_some());
        Self { own: builder.build().unwrap_or_else(|_| Gitignore::empty()), repository, above }
    }
}

fn read_rules(files: &Files, folder: &PermittedPath, name: &str) -> String {
    let spot = Path::new(name).iter().try_fold(folder.clone(), |spot, name| spot.child(name));
    let file = spot.and_then(|spot| files.open_file(&spot).ok());
    let mut bytes = Vec::new();
    if let Some(file) = file {
        file.take(RULES_BYTES_MAX).read_to_end(&mut bytes).ok();
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The rules of the folders above the start, up to the root of the repository. Most of them are outside of the
/// workspace. They are only applied, never shown, so a tool cannot use this to read files.
fn rules_above(start: &Path) -> Option<Rc<IgnoreRules>> {
    let policy = Policy { mode: Mode::Off, ..Policy::default() };
    let everything = Files::open(policy).ok()?;
    let is_repository = |path: &Path| {
        everything.find(&path.join(".git"), PathAccess::Read).is_ok_and(|git| git.kind().is_some())
    };
    if is_repository(start) {
        return None;
    }
    let mut around = Vec::new();
    for path in start.ancestors().skip(1) {
        around.push(everything.find(path, PathAccess::Read).ok()?);
        if is_repository(path) {
            break;
        }
    }
    let outermost_first = around.iter().rev();
    outermost_first.fold(None, |above, folder| Some(Rc::new(IgnoreRules::of(&everything, folder, above))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(files: &[(&str, &str)], start: &str, expected: &[&str]) {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        for (path, text) in files {
            let path = base.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        // Ignore files that would never end, or lead out, are left alone.
        let odd = base.join("work/odd");
        std::fs::create_dir_all(&odd).unwrap();
        std::os::unix::fs::symlink("/dev/zero", odd.join(".gitignore")).unwrap();
        std::os::unix::fs::symlink(&base, odd.join("up")).unwrap();
        let policy = Policy {
            mode: Mode::ReadOnly,
            roots: vec![base.join("work")],
            hidden: vec![base.join("work/state")],
            ..Policy::default()
        };
        let files = Files::open(policy).unwrap();
        let start = files.find(&base.join(start), PathAccess::Read).unwrap();
        let found =
            FileWalk::new(&files, &start).map(|spot| spot.real().strip_prefix(&base).unwrap().to_owned());
        let found: Vec<_> = found.map(|path| path.to_str().unwrap().to_owned()).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn what_git_ignores_is_left_out() {
        check(
            &[
                ("work/.gitignore", "target\n*.log\n!keep.log\n/only\n"),
                ("work/.ignore", "vendor/\n"),
                ("work/.git/info/exclude", "private\n"),
                ("work/.git/config", ""),
                ("work/a.log", ""),
                ("work/keep.log", ""),
                ("work/only", ""),
                ("work/private", ""),
                ("work/state/db", ""),
                ("work/sub/.gitignore", "!a.log\n"),
                ("work/sub/a.log", ""),
                ("work/sub/only", ""),
                ("work/sub/target/x", ""),
                ("work/vendor/x", ""),
            ],
            "work",
            &[
                "work/.gitignore",
                "work/.ignore",
                "work/keep.log",
                "work/sub/.gitignore",
                "work/sub/a.log",
                "work/sub/only",
            ],
        );
    }

    #[test]
    fn folders_above_have_their_say_up_to_the_repository() {
        let files = [
            (".gitignore", "*.top\n"),
            ("work/.gitignore", "*.log\n"),
            ("work/in/a.log", ""),
            ("work/in/a.top", ""),
            ("work/in/a.txt", ""),
        ];
        check(&files, "work/in", &["work/in/a.txt"]);
        check(&files, "work/in/a.log", &["work/in/a.log"]);
        let mut with_git = files.to_vec();
        with_git.push(("work/.git/HEAD", ""));
        check(&with_git, "work/in", &["work/in/a.top", "work/in/a.txt"]);
        with_git.push(("work/in/.git", "gitdir: elsewhere"));
        check(&with_git, "work/in", &["work/in/a.log", "work/in/a.top", "work/in/a.txt"]);
    }
}
