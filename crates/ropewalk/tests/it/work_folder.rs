//! A folder of its own for a test, the program in it, and programs that do not outlive their test.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::ops::{Deref, DerefMut};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// Has a `project` to work in; whatever else a test needs stands beside it.
pub struct WorkFolder(TempDir);

impl Default for WorkFolder {
    fn default() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("project")).unwrap();
        Self(folder)
    }
}

impl WorkFolder {
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().canonicalize().unwrap().join(name)
    }

    /// The program in the project, without input; what it prints is kept.
    #[expect(clippy::disallowed_methods, reason = "the program under test is what this starts")]
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ropewalk"));
        command.args(arguments).current_dir(self.path("project"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }
}

/// Waits for the end of a program; how it ended.
pub fn exit_code(child: &mut Child, deadline: Duration) -> Option<i32> {
    let began = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        assert!(began.elapsed() < deadline, "the server does not end");
        std::thread::yield_now();
    }
}

/// Ends with its test, however that ends.
pub struct KilledOnDrop(pub Child);

impl Drop for KilledOnDrop {
    fn drop(&mut self) {
        // It has ended unless the test failed.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

impl Deref for KilledOnDrop {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for KilledOnDrop {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}
