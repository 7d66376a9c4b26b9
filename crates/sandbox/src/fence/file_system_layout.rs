//! The layout of the file system that the command will see, decided before anything is built: which folders are writable,
//! private, hidden or guarded.

use std::path::{Path, PathBuf};

use super::FenceError;
use super::guarded_entries::{self, GuardKind, GuardedEntry, WritableRoot};
use super::placeholder::Placeholder;
use super::programs_in_tmp;
use crate::helper_request::HelperRequest;
use crate::policy::{DenialReason, Mode, PathAccess, Policy};

/// Folders that any user may write, and where programs keep sockets and files for each other. The command gets empty
/// ones of its own.
const SCRATCH: [&str; 2] = ["/tmp", "/var/tmp"];
pub(super) const SHARED_MEMORY: &str = "/dev/shm";
const RUN: &str = "/run";
/// What the command needs from `/run`, if it exists: the resolver's settings, and the programs of systems that keep
/// them there.
const KEPT_IN_RUN: [&str; 4] =
    ["/etc/resolv.conf", "/run/current-system", "/run/wrappers", "/run/opengl-driver"];
/// Folders of the kernel. None of them can be a workspace.
const KERNEL: [&str; 3] = ["/proc", "/sys", "/dev"];
/// At most this much of the memory limit may be files in the private places.
const SCRATCH_BYTES_MAX: u64 = 1 << 30;

pub(super) struct FenceLayout {
    pub(super) mode: Mode,
    /// Every root that exists, writable or not.
    pub(super) root_paths: Vec<PathBuf>,
    pub(super) writable: Vec<PathBuf>,
    /// Private folders that may be written.
    pub(super) scratch: Vec<PathBuf>,
    /// Private folders that are only empty.
    pub(super) emptied: Vec<PathBuf>,
    pub(super) kept_in_run: Vec<PathBuf>,
    /// Programs in private folders, which may be read.
    pub(super) visible_programs: Vec<PathBuf>,
    /// Hidden entries that exist.
    pub(super) hidden: Vec<HiddenEntry>,
    pub(super) guards: Vec<GuardedEntry>,
    pub(super) scratch_bytes: u64,
    pub(super) processes_max: u64,
}

pub(super) struct HiddenEntry {
    pub(super) path: PathBuf,
    pub(super) folder: bool,
}

impl FenceLayout {
    /// Examines the machine, and occupies the protected names that do not exist.
    pub(super) fn new(spec: &HelperRequest) -> Result<(Self, Vec<Placeholder>), FenceError> {
        let policy = &spec.policy;
        let hidden: Vec<_> = policy.hidden.iter().filter_map(|path| hidden_entry(path)).collect();
        let mut root_paths: Vec<_> = policy.roots.iter().filter(|root| root.is_absolute()).cloned().collect();
        root_paths.sort();
        root_paths.dedup();
        if let Some(lost) = spec.policy.roots.first().filter(|root| is_below(&hidden, root)) {
            return Err(FenceError::NoFence(format!(
                "the folder {} is inside a folder that is hidden from commands; work in another folder",
                lost.display()
            )));
        }
        root_paths.retain(|root| !is_below(&hidden, root));
        if policy.mode.writes() {
            root_paths.iter().try_for_each(|root| check_root(root))?;
        }
        let writable: Vec<_> = root_paths.iter().filter(|root| is_writable(policy, root)).cloned().collect();
        let roots: Vec<WritableRoot> =
            writable.iter().map(|root| WritableRoot::open(root)).collect::<Result<_, _>>()?;
        let (mut guards, placeholders) = guarded_entries::find(&roots, policy)?;
        let under_hidden = |guard: &GuardedEntry| {
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
        let seen =
            |path: &Path| root_paths.iter().any(|root| path.starts_with(root)) || is_below(&hidden, path);
        let visible_programs = programs_in_tmp::find(spec, &private, seen);
        let layout = Self {
            mode: policy.mode,
            kept_in_run: kept_in_run(&emptied, policy.mode),
            visible_programs,
            root_paths,
            writable,
            scratch,
            emptied,
            hidden,
            guards,
            scratch_bytes: (spec.memory_bytes_max / 2).min(SCRATCH_BYTES_MAX),
            processes_max: spec.processes_max,
        };
        Ok((layout, placeholders))
    }

    /// Why a write to a path will be refused. The path has no link left in it.
    pub(super) fn judge_write(&self, path: &Path) -> Option<DenialReason> {
        if self.is_hidden(path) {
            return Some(DenialReason::Hidden);
        }
        if !self.mode.writes() {
            let scratch = self.is_scratch(path) && !self.root_paths.iter().any(|root| path.starts_with(root));
            return (!scratch).then_some(DenialReason::ReadOnly);
        }
        if self.writable.iter().any(|root| path.starts_with(root)) {
            return self.is_guarded(path).then_some(DenialReason::Protected);
        }
        (!self.is_scratch(path)).then_some(DenialReason::Outside)
    }

    pub(super) fn is_hidden(&self, path: &Path) -> bool {
        self.hidden.iter().any(|hidden| path.starts_with(&hidden.path))
    }

    fn is_scratch(&self, path: &Path) -> bool {
        (path.starts_with(SHARED_MEMORY) || self.scratch.iter().any(|scratch| path.starts_with(scratch)))
            && !self.visible_programs.iter().any(|visible_programs| path.starts_with(visible_programs))
    }

    fn is_guarded(&self, path: &Path) -> bool {
        self.guards.iter().any(|guard| {
            let Ok(below) = path.strip_prefix(&self.writable[guard.root]) else { return false };
            match guard.hold {
                GuardKind::ReadOnly => below.starts_with(&guard.below),
                GuardKind::Pinned => false,
            }
        })
    }

    /// Whether the entry itself cannot be renamed or removed.
    pub(super) fn is_pinned(&self, path: &Path) -> bool {
        self.guards.iter().any(|guard| path == self.writable[guard.root].join(&guard.below))
    }
}

fn is_below(hidden: &[HiddenEntry], path: &Path) -> bool {
    hidden.iter().any(|hidden| path.starts_with(&hidden.path))
}

fn hidden_entry(path: &Path) -> Option<HiddenEntry> {
    let real = path.canonicalize().ok()?;
    let folder = real.is_dir();
    Some(HiddenEntry { path: real, folder })
}

fn is_writable(policy: &Policy, root: &Path) -> bool {
    policy.judge(PathAccess::Write, root).is_ok()
}

/// A workspace that contains the kernel's folders cannot be fenced.
fn check_root(root: &Path) -> Result<(), FenceError> {
    let clash =
        KERNEL.iter().map(Path::new).find(|kernel| kernel.starts_with(root) || root.starts_with(kernel));
    match clash {
        Some(kernel) if !root.starts_with(SHARED_MEMORY) => Err(FenceError::NoFence(format!(
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

fn kept_in_run(emptied: &[PathBuf], mode: Mode) -> Vec<PathBuf> {
    let wanted = KEPT_IN_RUN.iter().filter(|path| mode.network() || !path.starts_with("/etc"));
    let real = wanted.filter_map(|path| Path::new(path).canonicalize().ok());
    real.filter(|path| emptied.iter().any(|emptied| path.starts_with(emptied))).collect()
}
