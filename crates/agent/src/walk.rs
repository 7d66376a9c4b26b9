//! The files below a folder that git does not ignore, walked through the session's handles.
//!
//! Ignore files are part of the workspace, so they are trusted as little: they are only read if they
//! are regular files of a sensible size, and links are not followed, neither to them nor anywhere
//! else.

use std::ffi::OsStr;
use std::io::Read as _;
use std::path::Path;
use std::rc::Rc;
use std::vec::IntoIter;

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use sandbox::{Files, Kind, Mode, Policy, Spot, Want};

/// More than people write by hand.
const RULES_BYTES_MAX: u64 = 1 << 20;
/// Later ones outweigh earlier ones, the last is for searches only.
const RULES: [&str; 3] = [".git/info/exclude", ".gitignore", ".ignore"];

/// All files below a folder in the order of their names, or the file itself.
pub(crate) struct Walk<'a> {
    files: &'a Files,
    /// A file that the walk starts and ends with.
    only: Option<Spot>,
    levels: Vec<Level>,
    /// What the person ignores in every repository.
    everywhere: Gitignore,
}

struct Level {
    rules: Rc<Rules>,
    ahead: IntoIter<(Spot, Kind)>,
}

/// What a folder says is to be ignored, and the folders above it.
struct Rules {
    own: Gitignore,
    /// A repository begins here: what is above it has no say.
    repository: bool,
    above: Option<Rc<Rules>>,
}

impl<'a> Walk<'a> {
    pub(crate) fn new(files: &'a Files, start: &Spot) -> Self {
        let mut walk = Self { files, only: None, levels: Vec::new(), everywhere: Gitignore::global().0 };
        match start.kind() {
            Some(Kind::File) => walk.only = Some(start.clone()),
            Some(Kind::Folder) => walk.enter(start, rules_above(start.real())),
            Some(Kind::Link | Kind::Other) | None => {}
        }
        walk
    }

    /// A folder that cannot be listed holds nothing that can be found.
    fn enter(&mut self, folder: &Spot, above: Option<Rc<Rules>>) {
        let mut entries = self.files.entries(folder).unwrap_or_default();
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        let rules = Rules::of(self.files, folder, above);
        let inside = entries.into_iter().filter(|entry| entry.name != ".git");
        let ahead: Vec<_> =
            inside.filter_map(|entry| folder.child(&entry.name).map(|spot| (spot, entry.kind))).collect();
        self.levels.push(Level { rules: Rc::new(rules), ahead: ahead.into_iter() });
    }

    fn is_ignored(&self, rules: &Rc<Rules>, path: &Path, folder: bool) -> bool {
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

impl Iterator for Walk<'_> {
    type Item = Spot;

    fn next(&mut self) -> Option<Spot> {
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
            if self.is_ignored(&rules, spot.real(), kind == Kind::Folder) {
                continue;
            }
            match kind {
                Kind::File => return Some(spot),
                Kind::Folder => self.enter(&spot, Some(rules)),
                Kind::Link | Kind::Other => {}
            }
        }
    }
}

impl Rules {
    fn of(files: &Files, folder: &Spot, above: Option<Rc<Self>>) -> Self {
        let mut builder = GitignoreBuilder::new(folder.real());
        for name in RULES {
            for line in read_rules(files, folder, name).lines() {
                // A line that makes no sense ignores nothing.
                builder.add_line(None, line).ok();
            }
        }
        let repository = folder.child(OsStr::new(".git")).is_some_and(|git| git.kind().is_some());
        Self { own: builder.build().unwrap_or_else(|_| Gitignore::empty()), repository, above }
    }
}

fn read_rules(files: &Files, folder: &Spot, name: &str) -> String {
    let spot = Path::new(name).iter().try_fold(folder.clone(), |spot, name| spot.child(name));
    let file = spot.and_then(|spot| files.open_file(&spot).ok());
    let mut bytes = Vec::new();
    if let Some(file) = file {
        file.take(RULES_BYTES_MAX).read_to_end(&mut bytes).ok();
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The rules of the folders around the first one, up to where the repository begins. Most of them are
/// outside the roots. They are only obeyed, never shown, so this is no way for a tool to read.
fn rules_above(start: &Path) -> Option<Rc<Rules>> {
    let policy = Policy { mode: Mode::Off, ..Policy::default() };
    let everything = Files::open(policy).ok()?;
    let is_repository =
        |path: &Path| everything.find(&path.join(".git"), Want::Read).is_ok_and(|git| git.kind().is_some());
    if is_repository(start) {
        return None;
    }
    let mut around = Vec::new();
    for path in start.ancestors().skip(1) {
        around.push(everything.find(path, Want::Read).ok()?);
        if is_repository(path) {
            break;
        }
    }
    let outermost_first = around.iter().rev();
    outermost_first.fold(None, |above, folder| Some(Rc::new(Rules::of(&everything, folder, above))))
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
        let start = files.find(&base.join(start), Want::Read).unwrap();
        let found = Walk::new(&files, &start).map(|spot| spot.real().strip_prefix(&base).unwrap().to_owned());
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
