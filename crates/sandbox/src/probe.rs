//! Finds out what this machine can enforce by trying it: a real command behind a real fence attempts what the fence must
//! refuse.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::command::{ChildCommand, CommandLimits, Program};
use crate::helper_connection::{Fence, Helper};
use crate::policy::{DenialReason, Mode, Policy};
use crate::run::{Output, run};
use crate::violation::{RefusedOperation, Violation};

/// The mechanism that fences are built with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FenceBackend {
    /// By this program alone: namespaces, Landlock and seccomp.
    Namespaces,
}

impl FenceBackend {
    pub fn name(self) -> &'static str {
        match self {
            Self::Namespaces => "namespaces",
        }
    }
}

/// What this machine can enforce, and the reason for each part that did not work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxSupport {
    /// Whether a fenced command runs at all.
    pub backend: Result<FenceBackend, String>,
    /// The version of Landlock in the kernel.
    pub landlock_abi: Result<u32, String>,
    /// Writes outside of the workspace fail, writes inside do not.
    pub outside: Result<(), String>,
    /// Protected names cannot be changed or created.
    pub protected: Result<(), String>,
    /// Hidden files cannot be read.
    pub hidden: Result<(), String>,
    /// Dangerous system calls fail.
    pub seccomp: Result<(), String>,
    /// What was refused is reported.
    pub notify: Result<(), String>,
    /// The kernel bounds the number of processes of a command; the largest process id.
    pub pid_limit: Result<u64, String>,
    /// Memory and processes are counted while a command runs.
    pub memory_limit: Result<(), String>,
}

impl SandboxSupport {
    /// Whether commands can be fenced as promised.
    pub fn holds(&self) -> bool {
        let each =
            [&self.outside, &self.protected, &self.hidden, &self.seccomp, &self.notify, &self.memory_limit];
        self.backend.is_ok() && self.landlock_abi.is_ok() && each.into_iter().all(Result::is_ok)
    }

    fn none(reason: &str) -> Self {
        let untried = || Err(reason.to_owned());
        Self {
            backend: Err(reason.into()),
            landlock_abi: Err(reason.into()),
            outside: untried(),
            protected: untried(),
            hidden: untried(),
            seccomp: untried(),
            notify: untried(),
            pid_limit: Err(reason.into()),
            memory_limit: untried(),
        }
    }
}

/// Tries what the machine can do, in a new folder below `scratch`, which must be writable and real.
pub async fn probe(helper: &Helper, scratch: &Path) -> SandboxSupport {
    let root = scratch.join(format!("ropewalk-probe-{}", std::process::id()));
    if let Err(error) =
        std::fs::create_dir(&root).and_then(|()| std::fs::write(root.join("secret"), "secret"))
    {
        return SandboxSupport::none(&format!("{} cannot be used to try it: {error}", root.display()));
    }
    let ability = try_in(helper, &root).await;
    // What is left there is only what the probe wrote.
    std::fs::remove_dir_all(&root).ok();
    ability
}

/// Each line prints what succeeded; the last two use calls that every shell can make.
const PROBE_SCRIPT: &str = "
    echo x > inside && echo inside
    echo x > /proc/self/root/ropewalk-probe && echo outside
    mkdir -p .ropewalk/x && echo protected
    cat secret
    unshare --version >/dev/null 2>&1 && unshare --user true && echo seccomp
    echo pids=$(cat /proc/sys/kernel/pid_max)
    echo done";

async fn try_in(helper: &Helper, root: &Path) -> SandboxSupport {
    let policy = Policy {
        mode: Mode::WorkspaceWrite,
        roots: vec![root.to_owned()],
        hidden: vec![root.join("secret")],
        ..Policy::default()
    };
    let limits = CommandLimits { wall: Duration::from_secs(20), ..CommandLimits::default() };
    let command = ChildCommand {
        program: Program::Shell(PROBE_SCRIPT.into()),
        cwd: root.to_owned(),
        environment: vec![("PATH".into(), "/usr/bin:/bin".into())],
        limits,
        fence: Some(Fence { policy, helper: helper.clone() }),
    };
    let (sender, mut receiver) = mpsc::channel(8);
    let gather = async {
        let (mut text, mut refused) = (Vec::new(), Vec::new());
        while let Some(output) = receiver.recv().await {
            match output {
                Output::Chunk(chunk) => text.extend(chunk.bytes),
                Output::Refused(violation) => refused.push(violation),
            }
        }
        (String::from_utf8_lossy(&text).into_owned(), refused)
    };
    let (ended, (text, refused)) = tokio::join!(run(command, CancellationToken::new(), sender), gather);
    match ended {
        Err(error) => SandboxSupport::none(&error.to_string()),
        Ok(_) if !text.contains("done\n") => SandboxSupport::none("a sandboxed command did not finish"),
        Ok(_) => evaluate(&text, &refused, limits.processes_max),
    }
}

fn evaluate(text: &str, refused: &[Violation], processes_max: u32) -> SandboxSupport {
    let happened = |word: &str| text.lines().any(|line| line == word);
    let must_not = |word: &str, what: &str| if happened(word) { Err(what.to_owned()) } else { Ok(()) };
    let reported = |op, reason| refused.iter().any(|seen| seen.op == op && seen.reason == reason);
    let all_reported = reported(RefusedOperation::Create, Some(DenialReason::Outside))
        && reported(RefusedOperation::Create, Some(DenialReason::Protected))
        && reported(RefusedOperation::Read, Some(DenialReason::Hidden));
    let ids = text.lines().find_map(|line| line.strip_prefix("pids=")?.parse::<u64>().ok());
    SandboxSupport {
        backend: Ok(FenceBackend::Namespaces),
        landlock_abi: landlock_version(),
        outside: if happened("inside") {
            must_not("outside", "a file outside of the workspace was written")
        } else {
            Err("the workspace could not be written".into())
        },
        protected: must_not("protected", "a protected name was created"),
        hidden: must_not("secret", "a hidden file was read"),
        seccomp: must_not("seccomp", "a namespace was created inside"),
        notify: if all_reported { Ok(()) } else { Err("not every refusal was reported".into()) },
        pid_limit: match ids {
            Some(ids) if ids < 2 * u64::from(processes_max) + 600 => Ok(ids),
            _ => {
                Err("the kernel has no limit per namespace (Linux 6.14); processes are counted instead"
                    .into())
            }
        },
        memory_limit: if PathBuf::from("/proc/self/smaps_rollup").exists() {
            Ok(())
        } else {
            Err("the kernel does not report how much memory processes share".into())
        },
    }
}

#[cfg(target_os = "linux")]
fn landlock_version() -> Result<u32, String> {
    crate::fence::landlock_version().map_err(|error| error.to_string())
}

#[cfg(not(target_os = "linux"))]
fn landlock_version() -> Result<u32, String> {
    Err("there is no Landlock on this operating system".into())
}
