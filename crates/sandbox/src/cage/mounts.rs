//! Builds what the command sees, in a mount namespace of its own.
//!
//! The tree stays where it is, so every path means what it means outside; all of it is made read-only
//! and then single places are mounted over. Every mount is made from a file that was opened once, never
//! from a path that is looked up again: nobody can put a link in between.

use std::ffi::CStr;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;
use rustix::mount::{MountFlags, MoveMountFlags, OpenTreeFlags, mount, move_mount, open_tree};

use super::guards::Hold;
use super::scene::Scene;
use super::sys::{MOUNT_NODEV, MOUNT_NOSUID, MOUNT_RDONLY, restrict_mounts};
use super::{Trouble, step};

/// Where the private file system is put together. Its parts are then mounted where they belong, one of
/// them over this very place.
const STAGE: &str = "/tmp";
/// Devices that hold nothing and reach nobody.
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];
const DEVICE_LINKS: [(&str, &str); 5] = [
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
    ("ptmx", "pts/ptmx"),
];
/// Process ids below this are not given out a second time, so the count of ids is larger than the
/// count of processes.
const RESERVED_IDS: u64 = 300;

/// A part of the view.
struct Part {
    path: PathBuf,
    tree: OwnedFd,
    folder: bool,
    /// What comes later covers what came earlier, at the same path.
    rank: u8,
    /// Whether the place may be created, because it lies in something private.
    create: bool,
}

pub(super) fn build(scene: &Scene) -> Result<(), Trouble> {
    let own = |path: &Path| step("opening the workspace", own_tree(path, scene.mode.writes()));
    let mut roots = Vec::new();
    for path in &scene.shown {
        roots.push(if scene.writable.contains(path) {
            own(path)?
        } else {
            step("opening the workspace", own_tree(path, false))?
        });
    }
    let mut parts = Vec::new();
    for path in &scene.kept {
        let tree = step("keeping a part of /run", own_tree(path, false))?;
        parts.push(Part { path: path.clone(), tree, folder: path.is_dir(), rank: 1, create: true });
    }
    for path in &scene.lent {
        let tree = step("keeping a program in a private place", own_tree(path, false))?;
        parts.push(Part { path: path.clone(), tree, folder: path.is_dir(), rank: 1, create: true });
    }
    for name in DEVICES {
        let path = Path::new("/dev").join(name);
        let tree = step("opening the devices", device_tree(&path))?;
        parts.push(Part { path, tree, folder: false, rank: 1, create: false });
    }
    let root = step("opening /", open_path(Path::new("/")))?;
    step("making everything read-only", restrict_mounts(root, MOUNT_RDONLY | MOUNT_NOSUID | MOUNT_NODEV))?;
    stage(scene, &mut parts)?;
    for (path, tree) in scene.shown.iter().zip(&roots) {
        let tree = step("opening the workspace", tree.try_clone())?;
        let private = scene.scratch.iter().chain(&scene.emptied).any(|place| path.starts_with(place))
            || path.starts_with("/dev");
        parts.push(Part { path: path.clone(), tree, folder: true, rank: 2, create: private });
    }
    parts.sort_by_key(|part| (part.path.components().count(), part.rank));
    for part in &parts {
        step(&format!("mounting {}", part.path.display()), put(part))?;
    }
    step("mounting /dev/pts", terminals())?;
    processes(scene)?;
    guard(scene, &roots)
}

fn own_tree(path: &Path, writable: bool) -> io::Result<OwnedFd> {
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
fn stage(scene: &Scene, parts: &mut Vec<Part>) -> Result<(), Trouble> {
    let options =
        std::ffi::CString::new(format!("mode=0755,size={}", scene.scratch_bytes)).unwrap_or_default();
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
        Ok::<_, Trouble>(())
    };
    for (nth, path) in scene.scratch.iter().enumerate() {
        part(if nth == 0 { "scratch" } else { "more" }, path, true, 0, 0)?;
    }
    for path in &scene.emptied {
        part("emptied", path, true, 0, 0)?;
    }
    part("dev", Path::new("/dev"), true, 0, 0)?;
    for hidden in &scene.hidden {
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

fn put(part: &Part) -> io::Result<()> {
    let place = match open_path(&part.path) {
        Err(error) if error.raw_os_error() == Some(Errno::NOENT.raw_os_error()) => {
            if !part.create {
                // A hidden entry in a place that is empty now, or a device that this machine lacks.
                return Ok(());
            }
            create_place(&part.path, part.folder)?;
            open_path(&part.path)?
        }
        other => other?,
    };
    attach(&part.tree, &place)
}

fn create_place(path: &Path, folder: bool) -> io::Result<()> {
    if folder {
        return fs::create_dir_all(path);
    }
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::write(path, "")
}

/// Terminals of its own, for programs that start others in one.
fn terminals() -> io::Result<()> {
    let (kind, options): (&CStr, &CStr) = (c"devpts", c"newinstance,ptmxmode=0666,mode=0620");
    let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
    Ok(mount(kind, "/dev/pts", kind, flags, options)?)
}

/// The processes of the new namespace, and how many there may be.
fn processes(scene: &Scene) -> Result<(), Trouble> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    step("mounting /proc", mount(c"proc", "/proc", c"proc", flags, None).map_err(Into::into))?;
    let ids = scene.processes_max + scene.processes_max / 8 + RESERVED_IDS;
    // Before Linux 6.14 there is no such limit for a namespace. Then the limit on processes of a user
    // holds, and for root the supervisor's count.
    fs::write("/proc/sys/kernel/pid_max", ids.to_string()).ok();
    let place = step("opening /proc", open_path(Path::new("/proc")))?;
    // Root owns what is in there, and would be asked for no capability.
    step("making /proc read-only", restrict_mounts(place, MOUNT_RDONLY | MOUNT_NOSUID | MOUNT_NODEV))
}

fn guard(scene: &Scene, roots: &[OwnedFd]) -> Result<(), Trouble> {
    for guard in &scene.guards {
        let path = scene.writable[guard.root].join(&guard.below);
        let root = scene.shown.iter().position(|shown| *shown == scene.writable[guard.root]);
        let Some(root) = root.and_then(|root| roots.get(root)) else { continue };
        let held = hold(root, &guard.below, guard.hold);
        step(&format!("protecting {}", path.display()), held)?;
    }
    Ok(())
}

fn hold(root: &OwnedFd, below: &Path, hold: Hold) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::BENEATH;
    let place = openat2(root, below, flags, Mode::empty(), resolve)?;
    let tree = clone_tree(&place)?;
    let readonly = if hold == Hold::ReadOnly { MOUNT_RDONLY } else { 0 };
    restrict_mounts(&tree, MOUNT_NOSUID | MOUNT_NODEV | readonly)?;
    attach(&tree, &place)
}
