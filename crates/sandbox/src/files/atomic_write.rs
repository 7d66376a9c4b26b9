//! Writes a complete file and puts it in place in one step.
//!
//! Where the file system supports it, a file is written without a name, so a process that is killed meanwhile leaves nothing
//! behind. Only where the file replaces another one does it get a temporary name, between two calls. Elsewhere it has that name
//! while it is written. Temporary files that a killed process left are removed when something is next replaced in the same
//! folder.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Write as _;
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Dir, FileType, Mode as Bits, OFlags, Stat};
use rustix::io::Errno;

use super::{PERMISSIONS, UnusableReason, regular, unusable_reason};

/// No write takes this long, so older drafts belong to no running process.
const DRAFT_SECONDS_MAX: i64 = 600;

pub(super) fn put(
    folder: &OwnedFd,
    name: &OsStr,
    bytes: &[u8],
    draft: &str,
    permissions: Option<u32>,
) -> Result<(), UnusableReason> {
    let replaced = match rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => {
            regular(FileType::from_raw_mode(stat.st_mode))?;
            Some(stat)
        }
        Err(Errno::NOENT) => None,
        Err(error) => return Err(error.into()),
    };
    let wanted = permissions.and_then(|bits| u16::try_from(bits & 0o777).ok());
    let wanted = wanted.map(|bits| Bits::from_bits_truncate(bits.into()));
    let bits = wanted.or(replaced.as_ref().map(|stat| Bits::from_raw_mode(stat.st_mode) & PERMISSIONS));
    match without_name(folder, bytes, bits)? {
        Some(file) => link(folder, &file, name, draft, replaced.is_some()),
        None => by_draft(folder, name, bytes, draft, bits),
    }
}

/// A whole file that has no name yet. `None`: it could not get one here.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn without_name(folder: &OwnedFd, bytes: &[u8], bits: Option<Bits>) -> Result<Option<File>, UnusableReason> {
    use std::os::fd::AsRawFd as _;

    let flags = OFlags::WRONLY | OFlags::TMPFILE | OFlags::CLOEXEC;
    let file = match rustix::fs::openat(folder, ".", flags, first_bits(bits)) {
        Ok(file) => File::from(file),
        // It shows in other ways, too, whether the folder can be written.
        Err(_) => return Ok(None),
    };
    if rustix::fs::lstat(format!("/proc/self/fd/{}", file.as_raw_fd())).is_err() {
        return Ok(None);
    }
    fill(&file, bytes, bits)?;
    Ok(Some(file))
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn without_name(_: &OwnedFd, _: &[u8], _: Option<Bits>) -> Result<Option<File>, UnusableReason> {
    Ok(None)
}

/// Gives a file its name.
fn link(
    folder: &OwnedFd,
    file: &File,
    name: &OsStr,
    draft: &str,
    replaces: bool,
) -> Result<(), UnusableReason> {
    use std::os::fd::AsRawFd as _;

    let itself = format!("/proc/self/fd/{}", file.as_raw_fd());
    let named =
        |name: &OsStr| rustix::fs::linkat(rustix::fs::CWD, &itself, folder, name, AtFlags::SYMLINK_FOLLOW);
    if !replaces {
        match named(name) {
            // Somebody was faster, and is replaced.
            Err(Errno::EXIST) => {}
            outcome => return Ok(outcome?),
        }
    }
    named(OsStr::new(draft))?;
    let placed = rustix::fs::renameat(folder, draft, folder, name);
    if placed.is_err() {
        rustix::fs::unlinkat(folder, draft, AtFlags::empty()).ok();
    }
    sweep(folder, name, draft);
    Ok(placed?)
}

fn by_draft(
    folder: &OwnedFd,
    name: &OsStr,
    bytes: &[u8],
    draft: &str,
    bits: Option<Bits>,
) -> Result<(), UnusableReason> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::openat(folder, draft, flags, first_bits(bits))?);
    let placed =
        fill(&file, bytes, bits).and_then(|()| Ok(rustix::fs::renameat(folder, draft, folder, name)?));
    if placed.is_err() {
        rustix::fs::unlinkat(folder, draft, AtFlags::empty()).ok();
    }
    sweep(folder, name, draft);
    placed
}

/// What replaces a private file must not be readable for others before it has its permissions.
fn first_bits(bits: Option<Bits>) -> Bits {
    Bits::from_raw_mode(if bits.is_some() { 0o600 } else { 0o666 })
}

fn fill(mut file: &File, bytes: &[u8], bits: Option<Bits>) -> Result<(), UnusableReason> {
    if let Some(bits) = bits {
        // A file system without permissions has none to keep.
        rustix::fs::fchmod(file, bits).ok();
    }
    let written = file.write_all(bytes).and_then(|()| file.sync_all());
    written.map_err(|error| unusable_reason(&error))
}

/// Removes drafts that a killed process left beside a file that was just written: those that are named as ours
/// are, and are much older than it.
fn sweep(folder: &OwnedFd, written: &OsStr, draft: &str) {
    let Some((start, end)) = draft.split_once('-').zip(draft.rsplit_once('.')).map(|(a, b)| (a.0, b.1))
    else {
        return;
    };
    let stat = |name: &OsStr| rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW);
    let Ok(now) = stat(written) else { return };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(entries) = rustix::fs::openat(folder, ".", flags, Bits::empty()).and_then(Dir::new) else {
        return;
    };
    let is_old = |stat: Stat| {
        FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
            && now.st_mtime.saturating_sub(stat.st_mtime) > DRAFT_SECONDS_MAX
    };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy();
        let alike = name.len() == draft.len()
            && name.strip_prefix(start).is_some_and(|rest| rest.starts_with('-'))
            && name.rsplit_once('.').is_some_and(|(_, ending)| ending == end);
        if alike && name != draft && stat(OsStr::new(name.as_ref())).is_ok_and(is_old) {
            rustix::fs::unlinkat(folder, name.as_ref(), AtFlags::empty()).ok();
        }
    }
}
