//! Builds the file system that the command sees, in a mount namespace of its own.
//!
//! The tree stays where it is, so every path means the same as outside. All of it is made read-only, and then single paths are
//! mounted over. Every mount is made from a file that was opened once, never from a path that is looked up again, so no link
//! can be put in between.

use std::ffi::CStr;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;
use rustix::mount::{MountFlags, MoveMountFlags, OpenTreeFlags, mount, move_mount, open_tree};

use super::file_system_layout::FenceLayout;
use super::guarded_entries::GuardKind;
use super::sys::{MOUNT_NODEV, MOUNT_NOSUID, MOUNT_RDONLY, restrict_mounts};
use super::{FenceError, step};

/// Where the private file system is assembled. Its parts are then mounted where they belong, one of them over this
/// path.
const STAGE: &str = "/tmp";
/// Devices that store nothing and connect to nothing.
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];
const DEVICE_LINKS: [(&str, &str); 5] = [
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
    ("ptmx", "pts/ptmx"),
];
/// Process ids below this are not reused, so the count of ids is larger than the
/// count of processes.
const RESERVED_IDS: u64 = 300;

/// A part of the file system that the command sees.
struct Part {
    path: PathBuf,
    tree: OwnedFd,
    folder: bool,
    /// At the same path, a part of higher rank covers one of lower rank.
    rank: u8,
    /// Whether the mount point may be created, because it lies in a private folder.
    create: bool,
}

pub(super) fn build(layout: &FenceLayout) -> Result<(), FenceError> {
    let own = |path: &Path| step("opening the workspace", private_tree(path, layout.mode.writes()));
    let mut roots = Vec::new();
    for path in &layout.root_paths {
        roots.push(if layout.writable.contains(path) {
            own(path)?
        } else {
            step("opening the workspace", private_tree(path, false))?
        });
    }
    let mut parts = Vec::new();
    for path in &layout.kept_in_run {
        let tree = step("keeping a part of /run", private_tree(path, false))?;
        parts.push(Part { path: path.clone(), tree, folder: path.is_dir(), rank: 1, create: true });
    }
    for path in &layout.visible_programs {
        let tree = step("keeping a program in a private place", private_tree(path, false))?;
        parts.push(Part { path: path.clone(), tree, folder: path.is_dir(), rank: 1, create: true });
    }
    for name in DEVICES {
        let path = Path::new("/dev").join(name);
        let tree = step("opening the devices", device_tree(&path))?;
        parts.push(Part { path, tree, folder: false, rank: 1, create: false });
    }
    let root = step("opening /", open_path(Path::new("/")))?;
    step("making everything read-only", restrict_mounts(root, MOUNT_RDONLY | MOUNT_NOSUID | MOUNT_NODEV))?;
    stage_private_folders(layout, &mut parts)?;
    for (path, tree) in layout.root_paths.iter().zip(&roots) {
        let tree = step("opening the workspace", tree.try_clone())?;
        let private = layout.scratch.iter().chain(&layout.emptied).any(|place| path.starts_with(place))
            || path.starts_with("/dev");
        parts.push(Part { path: path.clone(), tree, folder: true, rank: 2, create: private });
    }
    parts.sort_by_key(|part| (part.path.components().count(), part.rank));
    for part in &parts {
        step(&format!("mounting {}", part.path.display()), mount_part(part))?;
    }
    step("mounting /dev/pts", mount_terminals())?;
    mount_proc(layout)?;
    mount_guards(layout, &roots)
}

fn private_tree(path: &Path, writable: bool) -> io::Result<OwnedFd> {
    let place = open_path(path)?;
    let tree = clone_tree(&place)?;
    let readonly = if writable { 0 } else { MOUNT_RDONLY };
    restrict_mounts(&tree, MOUNT_NOSUID | MOUNT_NODEV | readonly)?;
    Ok(tree)
}

/// A device as a mount of its own. Read-only means that its owner and its rights stay as they are; it
/// can be written all the same.
fn device_tree(path: &Path) -> io::Result<OwnedFd> {
    let tree = clone_tree(&open_path(path)?)?;
    restrict_mounts(&tree, MOUNT_NOSUID | MOUNT_RDONLY)?;
    Ok(tree)
}

fn open_path(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)?)
}

fn clone_tree(place: &OwnedFd) -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH
        | OpenTreeFlags::AT_RECURSIVE;
    Ok(open_tree(place, c"", flags)?)
}

fn attach(tree: &OwnedFd, place: &OwnedFd) -> io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    Ok(move_mount(tree, c"", place, c"", flags)?)
}

/// One private file system for all private places: making one costs more than mounting parts of it.
fn stage_private_folders(layout: &FenceLayout, parts: &mut Vec<Part>) -> Result<(), FenceError> {
    let options =
        std::ffi::CString::new(format!("mode=0755,size={}", layout.scratch_bytes)).unwrap_or_default();
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    step(
        "mounting a private file system",
        mount(c"tmpfs", STAGE, c"tmpfs", flags, options.as_c_str()).map_err(Into::into),
    )?;
    step("filling the private file system", fill_stage())?;
    let mut part = |from: &str, path: &Path, folder: bool, rank: u8, attributes: u64| {
        let tree = open_path(&Path::new(STAGE).join(from)).and_then(|place| clone_tree(&place));
        let tree = tree
            .and_then(|tree| restrict_mounts(&tree, MOUNT_NOSUID | MOUNT_NODEV | attributes).map(|()| tree));
        let tree = step("taking a part of the private file system", tree)?;
        parts.push(Part { path: path.into(), tree, folder, rank, create: false });
        Ok::<_, FenceError>(())
    };
    for (nth, path) in layout.scratch.iter().enumerate() {
        part(if nth == 0 { "scratch" } else { "more" }, path, true, 0, 0)?;
    }
    for path in &layout.emptied {
        part("emptied", path, true, 0, 0)?;
    }
    part("dev", Path::new("/dev"), true, 0, 0)?;
    for hidden in &layout.hidden {
        let from = if hidden.folder { "nothing" } else { "none" };
        part(from, &hidden.path, hidden.folder, 3, MOUNT_RDONLY)?;
    }
    Ok(())
}

fn fill_stage() -> io::Result<()> {
    let stage = Path::new(STAGE);
    let folders =
        [("scratch", 0o1777), ("more", 0o1777), ("emptied", 0o755), ("nothing", 0o555), ("dev", 0o755)];
    for (name, mode) in folders.into_iter().chain([("dev/shm", 0o1777), ("dev/pts", 0o755)]) {
        fs::create_dir(stage.join(name))?;
        fs::set_permissions(stage.join(name), fs::Permissions::from_mode(mode))?;
    }
    fs::write(stage.join("none"), "")?;
    for name in DEVICES {
        fs::write(stage.join("dev").join(name), "")?;
    }
    DEVICE_LINKS.into_iter().try_for_each(|(name, target)| symlink(target, stage.join("dev").join(name)))
}

fn mount_part(part: &Part) -> io::Result<()> {
    let place = match open_path(&part.path) {
        Err(error) if error.raw_os_error() == Some(Errno::NOENT.raw_os_error()) => {
            if !part.create {
                // A hidden entry in a place that is empty now, or a device that this machine lacks.
                return Ok(());
            }
            create_mount_point(&part.path, part.folder)?;
            open_path(&part.path)?
        }
        other => other?,
    };
    attach(&part.tree, &place)
}

fn create_mount_point(path: &Path, folder: bool) -> io::Result<()> {
    if folder {
        return fs::create_dir_all(path);
    }
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::write(path, "")
}

/// Terminals of its own, for programs that start others in one.
fn mount_terminals() -> io::Result<()> {
    let (kind, options): (&CStr, &CStr) = (c"devpts", c"newinstance,ptmxmode=0666,mode=0620");
    let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
    Ok(mount(kind, "/dev/pts", kind, flags, options)?)
}

/// The processes of the new namespace, and how many there may be.
fn mount_proc(layout: &FenceLayout) -> Result<(), FenceError> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    step("mounting /proc", mount(c"proc", "/proc", c"proc", flags, None).map_err(Into::into))?;
    let ids = layout.processes_max + layout.processes_max / 8 + RESERVED_IDS;
    // Before Linux 6.14 there is no such limit for a namespace. Then the limit on processes of a user
    // holds, and for root the supervisor's count.
    fs::write("/proc/sys/kernel/pid_max", ids.to_string()).ok();
    let place = step("opening /proc", open_path(Path::new("/proc")))?;
    // Root owns what is in there, and would be asked for no capability.
    step("making /proc read-only", restrict_mounts(place, MOUNT_RDONLY | MOUNT_NOSUID | MOUNT_NODEV))
}

fn mount_guards(layout: &FenceLayout, roots: &[OwnedFd]) -> Result<(), FenceError> {
    for guard in &layout.guards {
        let path = layout.writable[guard.root].join(&guard.below);
        let root = layout.root_paths.iter().position(|root_paths| *root_paths == layout.writable[guard.root]);
        let Some(root) = root.and_then(|root| roots.get(root)) else { continue };
        let held = mount_guard(root, &guard.below, guard.hold);
        step(&format!("protecting {}", path.display()), held)?;
    }
    Ok(())
}

fn mount_guard(root: &OwnedFd, below: &Path, hold: GuardKind) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::BENEATH;
    let place = openat2(root, below, flags, Mode::empty(), resolve)?;
    let tree = clone_tree(&place)?;
    let readonly = if hold == GuardKind::ReadOnly { MOUNT_RDONLY } else { 0 };
    restrict_mounts(&tree, MOUNT_NOSUID | MOUNT_NODEV | readonly)?;
    attach(&tree, &place)
}
