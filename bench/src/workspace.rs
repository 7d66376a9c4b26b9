//! The folder that the guards are measured in: a git repository with some files, beside a home folder
//! with something to hide.
//!
//! A fence protects the settings of a repository and covers what is hidden, so an empty folder would
//! make it cheaper than it is where people work.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};

/// Below the home folder, as the product hides them. The first three exist.
const HIDDEN: [&str; 8] =
    [".ssh", ".aws", ".netrc", ".gnupg", ".docker", ".kube", ".git-credentials", ".config/gh"];
const FOLDERS: [&str; 4] = ["", "src", "src/wire", "docs/guide/first"];
const FILES_PER_FOLDER: usize = 6;

pub struct Workspace {
    /// By its real path.
    pub folder: PathBuf,
    pub home: PathBuf,
    pub hidden: Vec<PathBuf>,
    /// Files that exist.
    pub files: Vec<PathBuf>,
}

impl Workspace {
    /// Makes everything anew below `scratch`.
    pub fn create(scratch: &Path) -> anyhow::Result<Self> {
        if scratch.exists() {
            std::fs::remove_dir_all(scratch)?;
        }
        std::fs::create_dir_all(scratch)?;
        let scratch = scratch.canonicalize()?;
        let (home, folder) = (scratch.join("home"), scratch.join("workspace"));
        for made in [home.join(".ssh"), home.join(".aws"), folder.clone()] {
            std::fs::create_dir_all(made)?;
        }
        std::fs::write(home.join(".netrc"), "machine example.org\n")?;
        git_init(&folder)?;
        let mut files = Vec::new();
        for below in FOLDERS {
            let below = folder.join(below);
            std::fs::create_dir_all(&below)?;
            for nth in 0..FILES_PER_FOLDER {
                let file = below.join(format!("part_{nth}.txt"));
                std::fs::write(&file, "some text\n")?;
                files.push(file);
            }
        }
        let hidden = HIDDEN.iter().map(|name| home.join(name)).collect();
        Ok(Self { folder, home, hidden, files })
    }
}

#[expect(clippy::disallowed_methods, reason = "prepares the measurement; it is no sandboxed tool")]
fn git_init(folder: &Path) -> anyhow::Result<()> {
    let mut git = Command::new("git");
    git.args(["init", "--quiet"]).current_dir(folder).stdin(Stdio::null());
    let status = git.status().context("cannot run git, which makes the repository to measure in")?;
    ensure!(status.success(), "git init failed in {}", folder.display());
    Ok(())
}
