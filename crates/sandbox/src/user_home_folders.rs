//! The home folders of the account that this process runs as, from the system's user database. The environment (`HOME`) may
//! be missing or wrong.

use std::ffi::{CStr, OsStr, c_char};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::process::{geteuid, getuid};

/// Where the room for an entry of the database starts and ends to grow.
const ENTRY_BYTES_MIN: usize = 1 << 10;
const ENTRY_BYTES_MAX: usize = 1 << 20;

/// The home folders of the real and the effective user, as far as they are known. They need not exist.
pub fn account_homes() -> Vec<PathBuf> {
    let (real, effective) = (getuid().as_raw(), geteuid().as_raw());
    let mut homes: Vec<_> = [real, effective].into_iter().filter_map(home_of).collect();
    homes.dedup();
    homes
}

#[expect(unsafe_code, reason = "the C library's interface to the user database")]
fn home_of(user: u32) -> Option<PathBuf> {
    let mut room: Vec<c_char> = vec![0; ENTRY_BYTES_MIN];
    loop {
        let mut entry = MaybeUninit::<libc::passwd>::uninit();
        let mut found = std::ptr::null_mut();
        // SAFETY: all four pointers are valid for the call, and the room is as long as said.
        let outcome = unsafe {
            libc::getpwuid_r(user, entry.as_mut_ptr(), room.as_mut_ptr(), room.len(), &raw mut found)
        };
        match outcome {
            0 if found.is_null() => return None,
            0 => {
                // SAFETY: `found` points to `entry`, which is filled now; its texts lie in the room.
                let folder = unsafe { entry.assume_init_ref().pw_dir };
                if folder.is_null() {
                    return None;
                }
                // SAFETY: a text of the entry ends with a zero and lives as long as the room.
                let folder = unsafe { CStr::from_ptr(folder) };
                let folder = Path::new(OsStr::from_bytes(folder.to_bytes()));
                return folder.is_absolute().then(|| folder.to_owned());
            }
            libc::EINTR => {}
            libc::ERANGE if room.len() < ENTRY_BYTES_MAX => room.resize(room.len() * 2, 0),
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_superuser_has_a_home_and_an_unknown_user_has_none() {
        assert!(home_of(0).is_some_and(|home| home.is_absolute()));
        assert_eq!(home_of(u32::MAX - 12_345), None);
    }
}
