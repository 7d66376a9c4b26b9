//! The submodules that a repository's index contains, read without running git.
//!
//! The format is described in git's `gitformat-index`. Only the modes and paths of entries are read, and the one extension
//! that says that more entries are in another file.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use super::settings::open_file;

/// An entry takes some 100 bytes; a working tree of a million files 100 MiB.
const INDEX_BYTES_MAX: u64 = 1 << 30;
/// As long as a path can be.
const PATH_BYTES_MAX: usize = 4096;
/// All paths of submodules and folders together.
const PATHS_BYTES_MAX: usize = 4 << 20;
/// Modes of entries, without the permissions.
const KIND: u32 = 0o170_000;
const SUBMODULE: u32 = 0o160_000;
const FOLDER: u32 = 0o040_000;

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct GitIndex {
    /// Entries that are commits of other repositories, by their paths from the working tree.
    pub(super) submodules: Vec<PathBuf>,
    /// Folders that a sparse index holds instead of their entries.
    pub(super) collapsed_folders: Vec<PathBuf>,
}

/// Reads an index; one that is not there is empty. `wide`: names of objects have 32 bytes instead of 20.
pub(super) fn read_index(file: &Path, wide: bool) -> Result<GitIndex, &'static str> {
    let mut index = GitIndex::default();
    let shared = match read_into(file, wide, &mut index)? {
        None | Some(None) => return Ok(index),
        Some(Some(shared)) => file.with_file_name(format!("sharedindex.{shared}")),
    };
    // Entries that mostly stay the same lie in a file of their own.
    match read_into(&shared, wide, &mut index)? {
        Some(None) => Ok(index),
        Some(Some(_)) | None => Err("its shared part is missing or split again"),
    }
}

/// The name of the file with further entries, if there is one. `None`: the index is not there.
fn read_into(file: &Path, wide: bool, index: &mut GitIndex) -> Result<Option<Option<String>>, &'static str> {
    let Some((open, length)) = open_file(file)? else { return Ok(None) };
    if length > INDEX_BYTES_MAX {
        return Err("it is too large");
    }
    let mut reader = Reader { from: BufReader::with_capacity(1 << 16, open), wide };
    reader.index(length, index).map(Some).ok_or("unknown index format")
}

struct Reader<R> {
    from: R,
    wide: bool,
}

impl<R: BufRead> Reader<R> {
    fn index(&mut self, length: u64, index: &mut GitIndex) -> Option<Option<String>> {
        if length == 0 {
            return Some(None);
        }
        let name_bytes = if self.wide { 32 } else { 20 };
        if self.bytes::<4>()? != *b"DIRC" {
            return None;
        }
        let (version, count) = (self.number()?, self.number()?);
        if !(2..=4).contains(&version) {
            return None;
        }
        let (mut path, mut read, mut kept) = (Vec::new(), 12, 0);
        for _ in 0..count {
            let (mode, taken) = self.entry(version, name_bytes, &mut path)?;
            read += taken;
            let kind = mode & KIND;
            if kind == SUBMODULE || kind == FOLDER {
                // One that replaces an entry of the shared file has no path of its own.
                let path = (!path.is_empty()).then(|| PathBuf::from(OsString::from_vec(path.clone())))?;
                kept += path.as_os_str().len();
                if kept > PATHS_BYTES_MAX {
                    return None;
                }
                let list =
                    if kind == SUBMODULE { &mut index.submodules } else { &mut index.collapsed_folders };
                list.push(path);
            }
        }
        self.shared(length.checked_sub(read)?, name_bytes)
    }

    /// Reads an entry over the path of the one before; its mode and how many bytes it took.
    fn entry(&mut self, version: u32, name_bytes: usize, path: &mut Vec<u8>) -> Option<(u32, u64)> {
        let fixed = 40 + name_bytes + 2;
        let mut room = [0; 74];
        let head = room.get_mut(..fixed)?;
        self.from.read_exact(head).ok()?;
        let mode = u32::from_be_bytes(head.get(24..28)?.try_into().ok()?);
        let extended = head.get(fixed - 2)? & 0x40 != 0;
        let mut taken = fixed;
        if extended {
            if version < 3 {
                return None;
            }
            self.bytes::<2>()?;
            taken += 2;
        }
        let kept = if version == 4 {
            let (dropped, bytes) = self.variable()?;
            taken += bytes;
            path.len().checked_sub(dropped)?
        } else {
            0
        };
        path.truncate(kept);
        let limit = u64::try_from(PATH_BYTES_MAX.checked_sub(kept)?).ok()?;
        let added = self.from.by_ref().take(limit).read_until(0, path).ok()?;
        if path.pop() != Some(0) {
            return None;
        }
        taken += added;
        if version < 4 {
            // Filled up with zeros, one of which ended the path.
            let padding = (8 - taken % 8) % 8;
            for _ in 0..padding {
                self.bytes::<1>()?;
            }
            taken += padding;
        }
        Some((mode, u64::try_from(taken).ok()?))
    }

    /// Looks through the extensions, up to the checksum at the end.
    fn shared(&mut self, mut left: u64, name_bytes: usize) -> Option<Option<String>> {
        let name_length = u64::try_from(name_bytes).ok()?;
        while left > name_length {
            let (name, length) = (self.bytes::<4>()?, u64::from(self.number()?));
            left = left.checked_sub(8)?.checked_sub(length)?;
            if name == *b"link" {
                let mut room = [0; 32];
                let shared = room.get_mut(..name_bytes)?;
                self.from.read_exact(shared).ok()?;
                let none = shared.iter().all(|byte| *byte == 0);
                return Some((!none).then(|| shared.iter().map(|byte| format!("{byte:02x}")).collect()));
            }
            let skipped = std::io::copy(&mut self.from.by_ref().take(length), &mut std::io::sink()).ok()?;
            if skipped != length {
                return None;
            }
        }
        (left == name_length).then_some(None)
    }

    /// A number of as many bytes as it needs, and how many these are.
    fn variable(&mut self) -> Option<(usize, usize)> {
        let [mut byte] = self.bytes::<1>()?;
        let (mut value, mut taken) = (usize::from(byte & 0x7f), 1);
        while byte & 0x80 != 0 {
            [byte] = self.bytes::<1>()?;
            value = value.checked_add(1)?.checked_mul(128)?.checked_add(usize::from(byte & 0x7f))?;
            taken += 1;
        }
        Some((value, taken))
    }

    fn number(&mut self) -> Option<u32> {
        self.bytes::<4>().map(u32::from_be_bytes)
    }

    fn bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        self.from.read_exact(&mut bytes).ok()?;
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Each entry has the path of the one before, and one letter more.
    #[test]
    fn paths_that_grow_without_end_are_refused() {
        let entry = |letter: &[u8]| {
            let mut head = [0; 62];
            head[24..28].copy_from_slice(&SUBMODULE.to_be_bytes());
            [&head[..], &[0], letter, &[0]].concat()
        };
        let read = |count: u32| {
            let entries = entry(b"a").repeat(usize::try_from(count).unwrap());
            let text =
                [&b"DIRC"[..], &4_u32.to_be_bytes(), &count.to_be_bytes(), &entries, &[0; 20]].concat();
            let mut index = GitIndex::default();
            let length = u64::try_from(text.len()).unwrap();
            Reader { from: &text[..], wide: false }.index(length, &mut index).map(|_| index.submodules.len())
        };
        assert_eq!(read(100), Some(100));
        assert_eq!(read(4097), None, "a path that is too long");
        assert_eq!(read(4090), None, "too many long ones");
    }

    proptest! {
        /// A command writes the index as it likes.
        #[test]
        fn any_bytes_are_read_or_refused(
            version in 0_u32..6,
            count: u32,
            bytes in proptest::collection::vec(any::<u8>(), 0..300),
            wide: bool,
        ) {
            let text = [&b"DIRC"[..], &version.to_be_bytes(), &count.to_be_bytes(), &bytes].concat();
            let length = u64::try_from(text.len()).unwrap();
            let found = Reader { from: &text[..], wide }.index(length, &mut GitIndex::default());
            prop_assert!(found.is_none() || (2..=4).contains(&version));
        }
    }
}
