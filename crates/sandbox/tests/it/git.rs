//! What git runs by a repository's settings, against the real git: whatever it runs must have been found before.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests, which start git")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const FILTER: &str = "[filter \"x\"]\n\tclean = touch \"$RAN\"; cat\n";

struct Space {
    dir: tempfile::TempDir,
}

impl Space {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    fn path(&self, below: &str) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join(below)
    }

    fn git(&self, folder: &str, words: &[&str]) -> bool {
        let mut git = Command::new("git");
        git.args(words)
            .current_dir(self.path(folder))
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin");
        git.env("HOME", self.path(""))
            .env("RAN", self.path("ran"))
            .envs(sandbox::git_read_only_environment());
        git.output().unwrap().status.success()
    }

    /// A repository with a file that changed, so that `git status` has to compare it.
    fn repository(&self, name: &str, options: &[&str]) -> PathBuf {
        fs::create_dir_all(self.path(name)).unwrap();
        assert!(self.git(name, &[&["init", "-q"], options].concat()));
        fs::write(self.path(name).join("f"), "one\n").unwrap();
        assert!(self.git(name, &["add", "f"]));
        let who = ["-c", "user.name=a", "-c", "user.email=a@b"];
        assert!(self.git(name, &[&who[..], &["commit", "-qm", "one"]].concat()));
        fs::write(self.path(name).join("f"), "two\n").unwrap();
        fs::write(self.path(name).join(".git/info/attributes"), "* filter=x\n").unwrap();
        self.path(name)
    }

    /// Whether git runs the program, and whether that was known before.
    fn check(&self, what: &str) {
        let found = sandbox::git_program_setting(&[self.path("top")]);
        fs::remove_file(self.path("ran")).ok();
        assert!(self.git("top", &["status", "--short"]), "{what}");
        assert!(self.path("ran").exists(), "{what}: git runs nothing, so this says nothing");
        assert!(found.is_some(), "{what}");
    }
}

fn append(file: &Path, text: &str) {
    fs::write(file, fs::read_to_string(file).unwrap() + text).unwrap();
}

#[test]
fn settings_that_are_hard_to_read_are_found_as_git_reads_them() {
    let long = format!("# {}\n", "x".repeat(79)).repeat(20_000);
    let longer = long.repeat(11);
    for (what, text) in [
        ("plainly", FILTER.to_owned()),
        ("behind much", long + FILTER),
        ("behind more than is read", longer + FILTER),
        ("behind a comment that ends in a backslash", format!("# a \\\n{FILTER}")),
        ("behind a value's comment that does", format!("[a]\nb = c ; \\\n{FILTER}")),
        ("behind a value that does", format!("[a]\nb = c\\\\\n{FILTER}")),
        ("behind a quoted one", format!("[a]\nb = \"#\\\\\"\n{FILTER}")),
        ("behind a section on the same line", format!("[a] b = c # ]\n[a \"\\\"]\"] {FILTER}")),
        ("on lines that go on", "[filter \"x\"]\nclean = \\\n\\\n touch \"\\\"$RAN\\\"\"; cat\n".to_owned()),
        ("in a file with an odd name", "[include]\npath = \"a\\tb\\\\c\"\n".to_owned()),
        ("in a file of a home", "[include]\npath = ~/mine\n".to_owned()),
        ("under a condition", "[includeIf \"gitdir:**\"]\npath = \"a\\tb\\\\c\"\n".to_owned()),
        ("far away", "[include]\npath = level0\n".to_owned()),
    ] {
        let space = Space::new();
        let git = space.repository("top", &[]).join(".git");
        fs::write(git.join("a\tb\\c"), FILTER).unwrap();
        fs::write(space.path("mine"), FILTER).unwrap();
        for level in 0..8 {
            fs::write(git.join(format!("level{level}")), format!("[include]\npath = level{}\n", level + 1))
                .unwrap();
        }
        fs::write(git.join("level8"), FILTER).unwrap();
        append(&git.join("config"), &text);
        space.check(what);
    }
}

#[test]
fn submodules_are_found_wherever_the_index_has_them() {
    for (what, inner, options, after) in [
        ("in a folder of packages", "node_modules/x", &[][..], &[][..]),
        ("in a protected folder", ".idea/x", &[], &[]),
        ("in its newest form", "target/x", &[], &["update-index", "--index-version", "4"]),
        ("split", "target/x", &[], &["update-index", "--split-index"]),
        ("with longer names of objects", "target/x", &["--object-format=sha256"], &[]),
        ("with an entry of a later version", "target/x", &[], &["add", "--intent-to-add", "late"]),
    ] {
        let space = Space::new();
        let top = space.repository("top", options);
        fs::write(top.join(".git/info/attributes"), "").unwrap();
        fs::write(top.join("late"), "").unwrap();
        let below = space.repository(&format!("top/{inner}"), options);
        assert!(sandbox::git_program_setting(std::slice::from_ref(&top)).is_none(), "{what}");
        assert!(space.git("top", &["add", inner]), "{what}");
        assert!(
            sandbox::git_program_setting(&[top]).is_none(),
            "{what}: a submodule that names nothing is none"
        );
        append(&below.join(".git/config"), FILTER);
        if !after.is_empty() {
            assert!(space.git("top", after), "{what}");
        }
        space.check(what);
    }
}

#[test]
fn submodules_are_found_behind_more_folders_than_are_looked_through() {
    let space = Space::new();
    let top = space.repository("top", &[]);
    fs::write(top.join(".git/info/attributes"), "").unwrap();
    for folder in 0..3100 {
        fs::create_dir(top.join(format!("a{folder}"))).unwrap();
    }
    let below = space.repository("top/z/y/x", &[]);
    assert!(space.git("top", &["add", "z/y/x"]));
    append(&below.join(".git/config"), FILTER);
    space.check("behind folders");
}

/// A submodule of a submodule, whose repositories lie elsewhere.
#[test]
fn submodules_are_followed_through_files_that_lead_to_them() {
    let space = Space::new();
    let top = space.repository("top", &[]);
    fs::write(top.join(".git/info/attributes"), "").unwrap();
    let middle = space.repository("top/build/m", &[]);
    fs::write(middle.join(".git/info/attributes"), "").unwrap();
    let below = space.repository("top/build/m/build/n", &[]);
    append(&below.join(".git/config"), FILTER);
    assert!(space.git("top/build/m", &["add", "build/n"]));
    for (tree, store) in [(&below, "below"), (&middle, "middle")] {
        fs::rename(tree.join(".git"), space.path(store)).unwrap();
        fs::write(tree.join(".git"), format!("gitdir: {}\n", space.path(store).display())).unwrap();
    }
    assert!(space.git("top", &["add", "build/m"]));
    space.check("through files");
}

/// A sparse index does not say what is in a folder that is not checked out, and git looks there if it is there after all.
#[test]
fn a_folder_that_the_index_holds_as_a_whole_counts_where_it_is_there() {
    let space = Space::new();
    let top = space.repository("top", &[]);
    fs::create_dir(top.join("a")).unwrap();
    fs::write(top.join("a/f"), "").unwrap();
    assert!(space.git("top", &["add", "a"]));
    assert!(space.git("top", &["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qam", "two"]));
    assert!(space.git("top", &["sparse-checkout", "set", "--cone", "--sparse-index"]));
    assert_eq!(sandbox::git_program_setting(std::slice::from_ref(&top)), None);
    assert!(!top.join("a").exists());
    fs::create_dir(top.join("a")).unwrap();
    let (file, why) = sandbox::git_program_setting(&[top]).unwrap();
    assert!(file.ends_with("index") && why.contains("what a folder contains"), "{why}");
}

#[test]
fn what_cannot_be_looked_at_counts_as_a_program() {
    let many = b"[a]\nb=c\n".repeat(30_000);
    let tab = b"[include]\npath = a\tb\n";
    for (what, file, text) in [
        ("settings that are none", "config", &b"[core\n"[..]),
        ("more settings than anybody has", "config", &many),
        ("an include that versions of git read differently", "config", tab),
        ("an index that is none", "index", b"DIRC\0\0\0\x09\0\0\0\0"),
        ("an index that ends early", "index", b"DIRC\0\0\0\x02\0\0\0\x01"),
    ] {
        let space = Space::new();
        let top = space.repository("top", &[]);
        fs::write(top.join(".git").join(file), text).unwrap();
        let (path, why) = sandbox::git_program_setting(std::slice::from_ref(&top)).unwrap();
        assert!(path.ends_with(file) && why.contains("could not be checked"), "{what}: {path:?} {why}");
    }
}
