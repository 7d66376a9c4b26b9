//! What the command will see, decided before anything is built: which folders are writable, private,
//! hidden or guarded.

use std::path::{Path, PathBuf};

use super::Trouble;
use super::guards::{self, Guard, Hold, Root};
use super::lent;
use super::placeholder::Placeholder;
use crate::policy::{Broken, Mode, Policy, Want};
use crate::spec::Spec;

/// Places where anybody may write, and where programs keep what they say to each other. The command
/// gets empty ones of its own.
const SCRATCH: [&str; 2] = ["/tmp", "/var/tmp"];
pub(super) const SHARED_MEMORY: &str = "/dev/shm";
const RUN: &str = "/run";
/// What the command needs of `/run`, where it is there: names of machines, and the programs of systems
/// that keep them in there.
const KEPT_IN_RUN: [&str; 4] =
    ["/etc/resolv.conf", "/run/current-system", "/run/wrappers", "/run/opengl-driver"];
/// Folders of the kernel. None of them can be a workspace.
const KERNEL: [&str; 3] = ["/proc", "/sys", "/dev"];
/// At most this much of the memory limit may be files in the private places.
const SCRATCH_BYTES_MAX: u64 = 1 << 30;

pub(super) struct Scene {
    pub(super) mode: Mode,
    /// Every root that is there, writable or not.
    pub(super) shown: Vec<PathBuf>,
    pub(super) writable: Vec<PathBuf>,
    /// Private places that may be written.
    pub(super) scratch: Vec<PathBuf>,
    /// Private places that are only empty.
    pub(super) emptied: Vec<PathBuf>,
    pub(super) kept: Vec<PathBuf>,
    /// Programs in private places, which are there to be read.
    pub(super) lent: Vec<PathBuf>,
    /// Hidden entries that exist.
    pub(super) hidden: Vec<Hidden>,
    pub(super) guards: Vec<Guard>,
    pub(super) scratch_bytes: u64,
    pub(super) processes_max: u64,
}

pub(super) struct Hidden {
    pub(super) path: PathBuf,
    pub(super) folder: bool,
}

impl Scene {
    /// Looks at the machine, and takes the protected names that nobody has.
    pub(super) fn new(spec: &Spec) -> Result<(Self, Vec<Placeholder>), Trouble> {
        let policy = &spec.policy;
        let hidden: Vec<_> = policy.hidden.iter().filter_map(|path| hidden(path)).collect();
        let mut shown: Vec<_> = policy.roots.iter().filter(|root| root.is_absolute()).cloned().collect();
        shown.sort();
        shown.dedup();
        if let Some(lost) = spec.policy.roots.first().filter(|root| is_below(&hidden, root)) {
            return Err(Trouble::NoFence(format!(
                "the folder {} lies in one that is hidden from commands; work in another folder",
                lost.display()
            )));
        }
        shown.retain(|root| !is_below(&hidden, root));
        if policy.mode.writes() {
            shown.iter().try_for_each(|root| check_root(root))?;
        }
        let writable: Vec<_> = shown.iter().filter(|root| is_writable(policy, root)).cloned().collect();
        let roots: Vec<Root> = writable.iter().map(|root| Root::open(root)).collect::<Result<_, _>>()?;
        let (mut guards, placeholders) = guards::find(&roots, policy)?;
        let under_hidden = |guard: &Guard| {
            let path = writable[guard.root].join(&guard.below);
            hidden.iter().any(|hidden| path.starts_with(&hidden.path))
        };
        guards.retain(|guard| !under_hidden(guard));
        let scratch = real_folders(SCRATCH.iter().map(Path::new));
        let runtime = spec.variable("XDG_RUNTIME_DIR").map(Path::new).filter(|path| path.is_absolute());
        let mut emptied = real_folders(std::iter::once(Path::new(RUN)).chain(runtime));
        emptied.retain(|path| !scratch.contains(path) && path != Path::new("/"));
        let private: Vec<_> =
            scratch.iter().chain(&emptied).cloned().chain([PathBuf::from(SHARED_MEMORY)]).collect();
        let seen = |path: &Path| shown.iter().any(|root| path.starts_with(root)) || is_below(&hidden, path);
        let lent = lent::find(spec, &private, seen);
        let scene = Self {
            mode: policy.mode,
            kept: kept(&emptied, policy.mode),
            lent,
            shown,
            writable,
            scratch,
            emptied,
            hidden,
            guards,
            scratch_bytes: (spec.memory_bytes_max / 2).min(SCRATCH_BYTES_MAX),
            processes_max: spec.processes_max,
        };
        Ok((scene, placeholders))
    }

    /// Why a write to a path will be refused. The path has no link left in it.
    pub(super) fn judge_write(&self, path: &Path) -> Option<Broken> {
        if self.is_hidden(path) {
            return Some(Broken::Hidden);
        }
        if !self.mode.writes() {
            let scratch = self.is_scratch(path) && !self.shown.iter().any(|root| path.starts_with(root));
            return (!scratch).then_some(Broken::ReadOnly);
        }
        if self.writable.iter().any(|root| path.starts_with(root)) {
            return self.is_guarded(path).then_some(Broken::Protected);
        }
        (!self.is_scratch(path)).then_some(Broken::Outside)
    }

    pub(super) fn is_hidden(&self, path: &Path) -> bool {
        self.hidden.iter().any(|hidden| path.starts_with(&hidden.path))
    }

    fn is_scratch(&self, path: &Path) -> bool {
        (path.starts_with(SHARED_MEMORY) || self.scratch.iter().any(|scratch| path.starts_with(scratch)))
            && !self.lent.iter().any(|lent| path.starts_with(lent))
    }

    fn is_guarded(&self, path: &Path) -> bool {
        self.guards.iter().any(|guard| {
            let Ok(below) = path.strip_prefix(&self.writable[guard.root]) else { return false };
            match guard.hold {
                Hold::ReadOnly => below.starts_with(&guard.below),
                Hold::Pinned => false,
            }
        })
    }

    /// Whether the entry itself cannot be renamed or removed.
    pub(super) fn is_pinned(&self, path: &Path) -> bool {
        self.guards.iter().any(|guard| path == self.writable[guard.root].join(&guard.below))
    }
}

fn is_below(hidden: &[Hidden], path: &Path) -> bool {
    hidden.iter().any(|hidden| path.starts_with(&hidden.path))
}

fn hidden(path: &Path) -> Option<Hidden> {
    let real = path.canonicalize().ok()?;
    let folder = real.is_dir();
    Some(Hidden { path: real, folder })
}

fn is_writable(policy: &Policy, root: &Path) -> bool {
    policy.judge(Want::Write, root).is_ok()
}

/// A workspace that contains the kernel's folders cannot be fenced.
fn check_root(root: &Path) -> Result<(), Trouble> {
    let clash =
        KERNEL.iter().map(Path::new).find(|kernel| kernel.starts_with(root) || root.starts_with(kernel));
    match clash {
        Some(kernel) if !root.starts_with(SHARED_MEMORY) => Err(Trouble::NoFence(format!(
            "the folder {} cannot be a writable workspace because of {}; choose a folder of your own",
            root.display(),
            kernel.display()
        ))),
        _ => Ok(()),
    }
}

/// The folders that are there, without links and each once.
fn real_folders<'a>(paths: impl Iterator<Item = &'a Path>) -> Vec<PathBuf> {
    let mut real: Vec<_> =
        paths.filter_map(|path| path.canonicalize().ok()).filter(|path| path.is_dir()).collect();
    real.sort();
    real.dedup();
    real
}

fn kept(emptied: &[PathBuf], mode: Mode) -> Vec<PathBuf> {
    let wanted = KEPT_IN_RUN.iter().filter(|path| mode.network() || !path.starts_with("/etc"));
    let real = wanted.filter_map(|path| Path::new(path).canonicalize().ok());
    real.filter(|path| emptied.iter().any(|emptied| path.starts_with(emptied))).collect()
}
