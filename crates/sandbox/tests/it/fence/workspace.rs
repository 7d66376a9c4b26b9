//! A workspace for the tests of the fence, and commands in it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sandbox::{
    ChildCommand, Chunk, CommandExit, CommandLimits, DenialReason, Fence, Helper, Mode, Output, Policy,
    Program, RefusedOperation, StartError, StdStream, Violation, run,
};
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

pub struct Workspace {
    folder: Option<TempDir>,
    root: PathBuf,
    hidden: Vec<PathBuf>,
    pub locked: Vec<PathBuf>,
    /// More folders on the command's `PATH`. They are seen also where they lie in a private place.
    pub path: Vec<PathBuf>,
    pub limits: CommandLimits,
    pub helper: Helper,
}

#[derive(Debug)]
pub struct Outcome {
    pub ended: CommandExit,
    pub stdout: String,
    pub stderr: String,
    pub violations: Vec<Violation>,
}

impl Outcome {
    pub fn refused(&self) -> Vec<(RefusedOperation, Option<PathBuf>, Option<DenialReason>)> {
        self.violations.iter().map(|seen| (seen.op, seen.path.clone(), seen.reason)).collect()
    }
}

impl Workspace {
    pub fn new() -> Self {
        Self::under(env!("CARGO_TARGET_TMPDIR"))
    }

    pub fn under(place: &str) -> Self {
        let folder = tempfile::tempdir_in(place).unwrap();
        let root = folder.path().canonicalize().unwrap();
        Self { folder: Some(folder), ..Self::at(root.to_str().unwrap()) }
    }

    pub fn at(root: &str) -> Self {
        let helper = Helper { program: env!("CARGO_BIN_EXE_fence-helper").into(), arguments: vec![] };
        Self {
            folder: None,
            root: root.into(),
            hidden: vec![],
            locked: vec![],
            path: vec![],
            limits: CommandLimits::default(),
            helper,
        }
    }

    /// A workspace in a new folder of this one.
    pub fn inner(&self, name: &str) -> Self {
        let root = self.root.join(name);
        fs::create_dir_all(&root).unwrap();
        Self::at(root.to_str().unwrap())
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn hide(&mut self, name: &str) {
        self.hidden.push(self.root.join(name));
    }

    /// A repository, made without a command.
    pub fn git(&self) {
        let git = self.root.join(".git");
        for folder in ["hooks", "objects", "refs/heads", "info"] {
            fs::create_dir_all(git.join(folder)).unwrap();
        }
        fs::write(git.join("HEAD"), "ref: refs/heads/main\n").unwrap();
        fs::write(git.join("config"), "[core]\n\trepositoryformatversion = 0\n").unwrap();
    }

    pub fn command(&self, mode: Mode, program: &str, arguments: &[&str]) -> ChildCommand {
        let (roots, hidden, locked) = (vec![self.root.clone()], self.hidden.clone(), self.locked.clone());
        let policy = Policy { mode, roots, hidden, locked, ..Policy::default() };
        let usual = ["/usr/local/bin", "/usr/bin", "/bin"].map(PathBuf::from);
        let path = std::env::join_paths(self.path.iter().chain(&usual)).unwrap();
        ChildCommand {
            program: Program::Exec {
                program: program.into(),
                arguments: arguments.iter().map(Into::into).collect(),
            },
            cwd: self.root.clone(),
            environment: vec![("PATH".into(), path)],
            limits: self.limits,
            fence: Some(Fence { policy, helper: self.helper.clone() }),
        }
    }

    pub async fn exec(&self, mode: Mode, program: &str, arguments: &[&str]) -> Result<Outcome, StartError> {
        collect(self.command(mode, program, arguments)).await
    }

    /// Nothing is there but what a test put there.
    pub fn assert_clean(&self) {
        self.assert_clean_but(&[]);
    }

    pub fn assert_clean_but(&self, names: &[&str]) {
        assert!(self.folder.is_some());
        let left =
            fs::read_dir(&self.root).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let protected =
            |name: &String| sandbox::PROTECTED.contains(&name.as_str()) && !names.contains(&name.as_str());
        assert_eq!(left.filter(protected).collect::<Vec<_>>(), Vec::<String>::new());
    }
}

pub async fn run_in(space: &Workspace, mode: Mode, line: &str) -> Outcome {
    space.exec(mode, "/bin/sh", &["-c", line]).await.unwrap()
}

pub async fn collect(command: ChildCommand) -> Result<Outcome, StartError> {
    let (sender, mut receiver) = mpsc::channel(8);
    let gather = async {
        let (mut stdout, mut stderr, mut violations) = (Vec::new(), Vec::new(), Vec::new());
        while let Some(output) = receiver.recv().await {
            match output {
                Output::Chunk(Chunk { stream: StdStream::Stdout, bytes }) => stdout.extend(bytes),
                Output::Chunk(Chunk { stream: StdStream::Stderr, bytes }) => stderr.extend(bytes),
                Output::Refused(violation) => violations.push(violation),
            }
        }
        (
            String::from_utf8_lossy(&stdout).into_owned(),
            String::from_utf8_lossy(&stderr).into_owned(),
            violations,
        )
    };
    let (ended, (stdout, stderr, violations)) =
        tokio::join!(run(command, CancellationToken::new(), sender), gather);
    Ok(Outcome { ended: ended?, stdout, stderr, violations })
}

/// Waits for a state, and fails if it does not come.
pub async fn until(state: impl Fn() -> bool) {
    let wait = async {
        while !state() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), wait).await.unwrap();
}
