//! For how long what was written and not synced is certain to be still there: while the machine is up and
//! the file system stays mounted.
//!
//! Within one boot, too, a file system can lose what was not synced: its device goes away, or it is shut
//! down by force, and it is mounted again. So a session's row names the boot and the mount that it was
//! written in. A row of an earlier version names the boot alone, and is believed.
//!
//! **Limit:** a disk that confirms a sync and then loses it cannot be noticed here, nor a remount where the
//! system tells neither the file system's own number nor a mount's (Linux before 6.8 with btrfs, overlay or
//! a network file system; other systems).

use std::path::Path;

/// The holder of a session that came from a backup. How many positions were assigned after the backup was
/// made is not known here.
pub(super) const RESTORED: &str = "restored";
/// Left out then: more than any session gets in the time between two backups.
pub(super) const RESTORED_GAP: u64 = 1 << 28;

/// Between the boot's name and the mount's, neither of which has a space in it.
const BETWEEN: char = ' ';

/// Names the boot and the mount; nothing if the boot has no name.
pub(super) fn name(boot: Option<&str>, mount: Option<&str>) -> Option<String> {
    Some(match (boot?, mount) {
        (boot, Some(mount)) => format!("{boot}{BETWEEN}{mount}"),
        (boot, None) => boot.to_owned(),
    })
}

/// Whether nothing can have been lost between a row that was written in `then` and `now`.
pub(super) fn lasts(then: Option<&str>, now: Option<&str>) -> bool {
    let (Some(then), Some(now)) = (then, now) else { return false };
    let boot = now.split_once(BETWEEN).map_or(now, |(boot, _)| boot);
    then == now || then == boot
}

/// Identifies the period for which the file's file system has been mounted, as far as the system says.
pub(super) fn mount_of(path: &Path) -> Option<String> {
    #[cfg(target_os = "linux")]
    return linux::mount_of(path);
    #[cfg(not(target_os = "linux"))]
    return None;
}

#[cfg(target_os = "linux")]
mod linux {
    use std::os::unix::fs::MetadataExt;
    use std::path::Path;

    use rustix::fs::{AtFlags, CWD, StatxFlags, statx};

    /// `STATX_MNT_ID_UNIQUE` (since Linux 6.8): a mount's number that no other mount gets in this boot.
    const UNIQUE_MOUNT: u32 = 0x4000;

    pub(super) fn mount_of(path: &Path) -> Option<String> {
        let found = statx(CWD, path, AtFlags::empty(), StatxFlags::from_bits_retain(UNIQUE_MOUNT)).ok()?;
        let by_mount = || {
            let told = found.stx_mask & UNIQUE_MOUNT != 0;
            told.then(|| format!("mount-{}", found.stx_mnt_id))
        };
        entry_of(found.stx_dev_major, found.stx_dev_minor).or_else(by_mount)
    }

    /// Most file systems on a block device have an entry in /sys/fs while they are mounted. The kernel gives
    /// each entry a number of its own. It is the same for every mount of the one file system, in every
    /// container, where the mount's number is not.
    fn entry_of(major: u32, minor: u32) -> Option<String> {
        let device = std::fs::read_link(format!("/sys/dev/block/{major}:{minor}")).ok()?;
        let device = device.file_name()?;
        let kinds = std::fs::read_dir("/sys/fs").ok()?;
        let entries = kinds.flatten().filter_map(|kind| kind.path().join(device).metadata().ok());
        entries.map(|entry| format!("fs-{}", entry.ino())).next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_lasts_for_a_boot_and_a_mount() {
        let now = name(Some("boot-1"), Some("fs-7"));
        for (then, expected) in [
            (Some("boot-1 fs-7"), true),
            // An earlier version wrote it.
            (Some("boot-1"), true),
            (Some("boot-1 fs-8"), false),
            (Some("boot-2 fs-7"), false),
            (Some("boot-2"), false),
            (Some("boot-10"), false),
            (None, false),
        ] {
            assert_eq!(lasts(then, now.as_deref()), expected, "{then:?}");
        }
        assert!(lasts(Some("boot-1"), name(Some("boot-1"), None).as_deref()));
        assert!(!lasts(Some("boot-1 fs-7"), name(Some("boot-1"), None).as_deref()));
        assert!(!lasts(None, name(None, Some("fs-7")).as_deref()));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn one_file_system_has_one_name_for_as_long_as_it_is_mounted() {
        let folder = tempfile::tempdir().unwrap();
        let (one, two) = (folder.path().join("one"), folder.path().join("two"));
        std::fs::write(&one, "").unwrap();
        std::fs::write(&two, "").unwrap();
        assert_eq!(mount_of(&one), mount_of(&two));
        assert_eq!(mount_of(&folder.path().join("missing")), None);
    }
}
