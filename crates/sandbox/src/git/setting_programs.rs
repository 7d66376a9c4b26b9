//! Whether git, while it only shows something, runs a program that a repository's settings name.
//!
//! Git starts in the folder it is run in, goes up to the repository around it, and from there into the submodules that the
//! index contains (entries that are commits), wherever they lie. This module takes the same way. Settings that cannot be read,
//! or not completely, count as naming a program.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::index::{GitIndex, read_index};
use super::settings::{GitSetting, GitSettings};
use super::{config_files, is_repository, repository_folders};
use crate::protected_names::protected_below;
use crate::user_home_folders::account_homes;

/// What a repository names that git runs while it only shows something. Variables cannot switch it off,
/// because the repository chose the name.
const PROGRAMS: [(&str, &[&str]); 3] = [
    ("diff", &["external", "command", "textconv"]),
    ("filter", &["clean", "smudge", "process"]),
    ("merge", &["driver"]),
];
/// The filters of large files as their installer writes them.
const KNOWN_PROGRAMS: [&str; 3] = ["git-lfs clean -- %f", "git-lfs smudge -- %f", "git-lfs filter-process"];
/// How many repositories are looked at.
const REPOSITORIES_MAX: usize = 1000;

/// Variables under which git, while it only shows something, runs none of the programs that a repository's
/// settings can name under a name that is known. They hold in submodules too.
pub fn git_read_only_environment() -> Vec<(String, String)> {
    const SETTINGS: [(&str, &str); 16] = [
        ("core.fsmonitor", "false"),
        ("core.hooksPath", "/dev/null"),
        ("core.pager", "cat"),
        ("core.sshCommand", "false"),
        ("core.askPass", ""),
        ("core.alternateRefsCommand", "true"),
        // Else `git diff` writes the index anew where a file was touched.
        ("diff.autoRefreshIndex", "false"),
        ("credential.helper", ""),
        ("protocol.allow", "never"),
        // Else a difference between two commits is looked up in submodules that the index does not hold.
        ("diff.submodule", "short"),
        ("log.showSignature", "false"),
        ("gpg.program", "false"),
        ("gpg.openpgp.program", "false"),
        ("gpg.x509.program", "false"),
        ("gpg.ssh.program", "false"),
        ("gpg.ssh.defaultKeyCommand", "false"),
    ];
    let count = ("GIT_CONFIG_COUNT".to_owned(), SETTINGS.len().to_string());
    let settings = SETTINGS.iter().enumerate().flat_map(|(nth, (key, value))| {
        [
            (format!("GIT_CONFIG_KEY_{nth}"), (*key).to_owned()),
            (format!("GIT_CONFIG_VALUE_{nth}"), (*value).to_owned()),
        ]
    });
    let plain = [("GIT_OPTIONAL_LOCKS", "0"), ("GIT_NO_LAZY_FETCH", "1"), ("GIT_PAGER", "cat")];
    let plain = plain.map(|(name, value)| (name.to_owned(), value.to_owned()));
    std::iter::once(count).chain(settings).chain(plain).collect()
}

/// The first setting of a repository in, around or below these folders that makes git run a program even then, or
/// what could not be looked at: the file, and the key or why it counts.
pub fn git_program_setting(roots: &[PathBuf]) -> Option<(PathBuf, String)> {
    let mut search = RepositorySearch::default();
    for root in roots {
        search.around(root);
        for (below, _) in protected_below(root) {
            let path = root.join(&below);
            if path.file_name().is_some_and(|name| name == ".git") || is_repository(&path) {
                search.add(path);
            }
        }
    }
    search.find()
}

#[derive(Default)]
struct RepositorySearch {
    seen: BTreeSet<PathBuf>,
    ahead: Vec<PathBuf>,
}

type FoundProgram = (PathBuf, String);

impl RepositorySearch {
    /// The repositories that git can take for the one around a folder. It passes over what is none.
    fn around(&mut self, folder: &Path) {
        for folder in folder.ancestors() {
            let git = folder.join(".git");
            let (sure, exists) = (is_repository(&git) || git.is_file(), git.exists());
            if exists {
                self.add(git);
            }
            if is_repository(folder) {
                self.add(folder.to_owned());
            }
            if sure {
                break;
            }
        }
    }

    fn add(&mut self, git: PathBuf) {
        // The same one may be reached by several ways. Its own name may be a link, and its folder is the working tree.
        let folder = git.parent().and_then(|folder| folder.canonicalize().ok());
        let git = folder.zip(git.file_name()).map_or(git.clone(), |(folder, name)| folder.join(name));
        if self.seen.insert(git.clone()) {
            self.ahead.push(git);
        }
    }

    fn find(&mut self) -> Option<FoundProgram> {
        while let Some(git) = self.ahead.pop() {
            if self.seen.len() > REPOSITORIES_MAX {
                return Some(unchecked(git, "there are too many repositories"));
            }
            if let Err(found) = self.repository(&git) {
                return Some(found);
            }
        }
        None
    }

    fn repository(&mut self, git: &Path) -> Result<(), FoundProgram> {
        let folders = repository_folders(git).map_err(|why| unchecked(git.to_owned(), why))?;
        let Some(own) = folders.first() else { return Ok(()) };
        let settings = GitSettings::read(&config_files(&folders));
        if let Some(setting) = settings.list.iter().find(|setting| runs(setting)) {
            return Err((setting.file.clone(), format!("{}.{}", setting.section, setting.key)));
        }
        if let Some((file, why)) = settings.unread.first() {
            return Err(unchecked(file.clone(), why));
        }
        self.submodules(git, own, &settings)
    }

    /// The repositories that git goes on into: what the index holds as a commit and is one in the working tree.
    fn submodules(&mut self, git: &Path, own: &Path, settings: &GitSettings) -> Result<(), FoundProgram> {
        // Git takes this from no file that is included.
        let formats = settings.all("extensions", "objectformat");
        let wide =
            formats.filter(|format| format.depth == 0).last().is_some_and(|format| format.value == "sha256");
        let index = own.join("index");
        let GitIndex { submodules, collapsed_folders } =
            read_index(&index, wide).map_err(|why| unchecked(index.clone(), why))?;
        let trees: Vec<PathBuf> = git
            .parent()
            .map(Path::to_owned)
            .into_iter()
            .chain(settings.all("core", "worktree").flat_map(|setting| setting.paths(&account_homes())))
            .collect();
        for tree in trees {
            // A folder that the index holds as a whole, because it is not checked out, is looked into if it is there.
            if collapsed_folders.iter().any(|folder| tree.join(folder).symlink_metadata().is_ok()) {
                return Err(unchecked(index, "it does not say what a folder contains"));
            }
            let links = submodules.iter().map(|submodule| tree.join(submodule).join(".git"));
            links.filter(|git| git.symlink_metadata().is_ok()).for_each(|git| self.add(git));
        }
        Ok(())
    }
}

fn runs(setting: &GitSetting) -> bool {
    let value = setting.value.to_string_lossy();
    let known = PROGRAMS.iter().find(|(name, _)| *name == setting.section);
    known.is_some_and(|(_, keys)| keys.contains(&setting.key.as_str()))
        && !value.is_empty()
        && !KNOWN_PROGRAMS.contains(&value.as_ref())
}

fn unchecked(file: PathBuf, why: &str) -> FoundProgram {
    (file, format!("not known, the settings could not be checked ({why})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_run_a_program_are_found_in_every_repository_around() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let make = |name: &str| {
            std::fs::create_dir_all(root.join(name).join("objects")).unwrap();
            std::fs::create_dir_all(root.join(name).join("refs")).unwrap();
            std::fs::write(root.join(name).join("HEAD"), "ref: refs/heads/main").unwrap();
            std::fs::write(root.join(name).join("config"), "[core]\n\tbare = false\n").unwrap();
        };
        ["top/.git", "top/lib/.git", "top/bare", "store/sub", "store/other"].into_iter().for_each(make);
        std::fs::create_dir_all(root.join("top/sub")).unwrap();
        std::fs::write(root.join("top/sub/.git"), "gitdir: ../../store/sub\n").unwrap();
        std::fs::write(root.join("store/sub/commondir"), "../other\n").unwrap();
        std::fs::create_dir_all(root.join("top/src")).unwrap();
        let plain = "[core]\nfsmonitor = ./x\n[alias]\nst = status\n[diff \"a]b\"]\nxfuncname = x\n[filter \"lfs\"]\nprocess = git-lfs filter-process\n";
        let check = |work: &str| git_program_setting(&[root.join(work)]).map(|(_, key)| key);
        std::fs::write(root.join("top/.git/config"), plain).unwrap();
        assert_eq!((check("top"), check("top/src")), (None, None));
        for (config, text, key) in [
            ("top/.git/config", "[diff]\nexternal = ./x\n", "diff.external"),
            ("top/.git/config.worktree", "[diff \"x\"] textconv=./x\n", "diff.textconv"),
            ("top/lib/.git/config", "\u{feff}[core][Filter \"x\"]\n\tClean = \\\n./x\n", "filter.clean"),
            ("top/bare/config", "[diff.x]\ncommand = ./x\n", "diff.command"),
            ("store/sub/config", "[merge \"a]\"]\ndriver = ./x\n", "merge.driver"),
            ("store/other/config", "[include]\npath = more\n", "diff.external"),
        ] {
            let config = root.join(config);
            let before = std::fs::read(&config);
            std::fs::write(root.join("store/other/more"), "[diff]\nexternal = ./x\n").unwrap();
            std::fs::write(&config, text).unwrap();
            assert_eq!(check("top").as_deref(), Some(key), "{}", config.display());
            match before {
                Ok(before) => std::fs::write(&config, before).unwrap(),
                Err(_) => std::fs::remove_file(&config).unwrap(),
            }
        }
        std::fs::write(root.join("top/.git/config"), "[diff]\nexternal = ./x\n").unwrap();
        assert!(check("top/src").is_some());
    }
}
