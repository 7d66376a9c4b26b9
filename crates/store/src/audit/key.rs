//! The key that signs the chain, and the rules for the file that holds it.
//!
//! The file has 64 hexadecimal characters, for its owner's eyes only. As in the chain that this one is
//! to be read beside, these characters themselves are the key, not the bytes they stand for.
//!
//! **Invariant:** a key that others could have read is not used, not even to verify.

use std::ffi::OsStr;
use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use ring::hmac::{self, HMAC_SHA256};
use sha2::{Digest, Sha256};

use super::{chain_files, chain_head, hex};
use crate::regular_file::open_regular;

const KEY_BYTES: usize = 32;
const KEY_CHARS: usize = 2 * KEY_BYTES;
/// A file that is longer is no key.
const FILE_BYTES_MAX: u64 = 4096;
/// How the name of a mark ends.
const MARK_END: &str = ".mark";
/// Characters of a key's name.
const ID_CHARS: usize = 16;

/// A signing key. The secret cannot be read back from it.
#[derive(Clone)]
pub struct AuditKey {
    keyed: hmac::Key,
    id: String,
    /// The key file, if there is one, and the mark beside it, which records how far the chain has come.
    file: Option<PathBuf>,
    mark: Option<PathBuf>,
    /// The key was made elsewhere, so it may well be older than the first row.
    given: bool,
}

impl fmt::Debug for AuditKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({})", self.id)
    }
}

#[derive(Debug, thiserror::Error)]
pub enum AuditKeyError {
    #[error("there is no audit key at {}", .0.display())]
    Missing(PathBuf),
    #[error("the audit key {} is missing, but there are rows that were signed with it", .0.display())]
    Lost(PathBuf),
    #[error("could not read the audit key {}", .0.display())]
    Unreadable(PathBuf, #[source] io::Error),
    #[error("could not create the audit key {}", .0.display())]
    Unmade(PathBuf, #[source] io::Error),
    #[error("other users may read the audit key {}: its mode is {mode:04o}, not 0600", path.display())]
    Open { path: PathBuf, mode: u32 },
    #[error("the audit key {} belongs to the user {owner}, not to you ({user})", path.display())]
    Foreign { path: PathBuf, owner: u32, user: u32 },
    #[error("the audit key {} is not {KEY_CHARS} hexadecimal characters", .0.display())]
    Malformed(PathBuf),
    #[error("the audit key {} is in the folder that it protects", .0.display())]
    Inside(PathBuf),
}

/// Whether something was ever signed for this folder.
fn has_rows(log: &Path) -> bool {
    log.join(chain_head::HEAD).exists() || chain_files::all(log).is_ok_and(|found| !found.is_empty())
}

impl AuditKeyError {
    /// What to do about the error.
    pub fn fix(&self) -> String {
        match self {
            Self::Open { path, .. } => {
                format!("run chmod 600 {}; if others may have read it, create a new key", path.display())
            }
            Self::Lost(_) => {
                "restore the key, or move the folder `audit` away to start a new audit log".into()
            }
            Self::Inside(_) => "set ROPEWALK_AUDIT_KEY_PATH to a file elsewhere".into(),
            Self::Missing(_) => {
                "set ROPEWALK_AUDIT_KEY_PATH to the key file; the first ropewalk serve or run creates one"
                    .into()
            }
            Self::Foreign { .. } | Self::Malformed(_) | Self::Unreadable(..) | Self::Unmade(..) => {
                "set ROPEWALK_AUDIT_KEY_PATH to another file".into()
            }
        }
    }
}

/// The marks beside a key: one for each chain that is signed with it, with its length. To replace a chain by
/// an older copy, its owner has to move its mark away.
pub fn marks(key: &Path) -> Vec<PathBuf> {
    let (Some(folder), Some(name)) = (key.parent(), key.file_name().and_then(OsStr::to_str)) else {
        return Vec::new();
    };
    let begins = format!("{name}.");
    let entries = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    let is_mark = |name: &OsStr| {
        name.to_str().is_some_and(|name| name.starts_with(&begins) && name.ends_with(MARK_END))
    };
    entries.filter(|entry| is_mark(&entry.file_name())).map(|entry| entry.path()).collect()
}

impl AuditKey {
    /// The key in this file, which must not lie in `log`, the folder of the audit.
    pub fn load(path: &Path, log: &Path) -> Result<Self, AuditKeyError> {
        if lies_in(path, log) {
            return Err(AuditKeyError::Inside(path.to_owned()));
        }
        let unreadable = |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound => AuditKeyError::Missing(path.to_owned()),
            _ => AuditKeyError::Unreadable(path.to_owned(), error),
        };
        let opened = open_regular(path).map_err(unreadable)?;
        let file = opened.ok_or_else(|| AuditKeyError::Missing(path.to_owned()))?;
        // Asked of the open file: what the path names may change meanwhile.
        let metadata = file.metadata().map_err(unreadable)?;
        let mode = metadata.mode() & 0o7777;
        if mode & 0o077 != 0 {
            return Err(AuditKeyError::Open { path: path.to_owned(), mode });
        }
        let user = rustix::process::geteuid().as_raw();
        if metadata.uid() != user {
            return Err(AuditKeyError::Foreign { path: path.to_owned(), owner: metadata.uid(), user });
        }
        let mut text = Vec::new();
        file.take(FILE_BYTES_MAX).read_to_end(&mut text).map_err(unreadable)?;
        let text = text.trim_ascii();
        if text.len() != KEY_CHARS || !text.iter().all(u8::is_ascii_hexdigit) {
            return Err(AuditKeyError::Malformed(path.to_owned()));
        }
        let key = Self::of(text);
        Ok(key.kept_at(path, log))
    }

    /// The mark is outside the chain's folder, so that somebody who can write to that folder cannot restore
    /// it together with the chain. It is named after the key and the folder: a new key has a new mark, and
    /// each of several chains that are signed with one key has its own.
    fn kept_at(self, path: &Path, log: &Path) -> Self {
        let log = std::path::absolute(log).unwrap_or_else(|_| log.to_owned());
        let mut id = hex(&Sha256::new()
            .chain_update(&self.id)
            .chain_update(log.as_os_str().as_encoded_bytes())
            .finalize());
        id.truncate(ID_CHARS);
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{id}{MARK_END}"));
        Self { mark: Some(path.with_file_name(name)), file: Some(path.to_owned()), ..self }
    }

    /// The same key, marked as made elsewhere: that it is older than the chain means nothing.
    pub fn given(self) -> Self {
        Self { given: true, ..self }
    }

    /// The key in this file; a new key if there is no such file.
    pub fn load_or_create(path: &Path, log: &Path) -> Result<Self, AuditKeyError> {
        match Self::load(path, log) {
            // A new key would make everything that was signed with the old one look forged.
            Err(AuditKeyError::Missing(_)) if has_rows(log) => Err(AuditKeyError::Lost(path.to_owned())),
            Err(AuditKeyError::Missing(_)) => {
                create(path, log).map_err(|error| AuditKeyError::Unmade(path.to_owned(), error))?;
                Self::load(path, log)
            }
            loaded => loaded,
        }
    }

    /// A key of exactly these characters.
    pub fn of(text: &[u8]) -> Self {
        let keyed = hmac::Key::new(HMAC_SHA256, text);
        let mut id = hex(&Sha256::digest(text));
        id.truncate(ID_CHARS);
        Self { keyed, id, file: None, mark: None, given: false }
    }

    /// The mark: the file beside the key that records how far the chain has come.
    pub(super) fn mark(&self) -> Option<&Path> {
        self.mark.as_deref()
    }

    /// The mark of a chain that has not begun, and where it goes.
    fn first_mark(self) -> Option<(PathBuf, Vec<u8>)> {
        let mark = self.mark.clone()?;
        Some((
            mark,
            chain_head::text(&self, chain_head::MARK, &chain_head::ChainHead::default(), None).into_bytes(),
        ))
    }

    /// Whether a record that was never begun is what one expects of this key.
    pub(super) fn may_begin(&self) -> bool {
        self.given || self.file.is_none()
    }

    /// Rows that are signed with a key which is gone from the disk could never be verified.
    pub(super) fn must_be_there(&self) -> io::Result<()> {
        let gone = |file: &PathBuf| {
            let what =
                format!("the audit key {} was removed or moved while in use; restore it", file.display());
            io::Error::new(io::ErrorKind::NotFound, what)
        };
        self.file.as_ref().filter(|file| !file.exists()).map_or(Ok(()), |file| Err(gone(file)))
    }

    /// Tells keys apart without giving them away.
    pub fn id(&self) -> &str {
        &self.id
    }

    pub(super) fn sign(&self, parts: &[&[u8]]) -> String {
        let mut mac = hmac::Context::with_key(&self.keyed);
        for part in parts {
            mac.update(part);
        }
        hex(mac.sign().as_ref())
    }
}

fn lies_in(path: &Path, log: &Path) -> bool {
    let Ok(log) = log.canonicalize() else { return path.starts_with(log) };
    // A missing file would be created in its folder, or in the nearest existing one.
    let nearest = path.ancestors().find_map(|place| place.canonicalize().ok());
    nearest.is_some_and(|place| place.starts_with(log))
}

/// The file appears completely or not at all, so that a process that starts at the same moment never reads
/// half a key; and only one process creates it.
fn create(path: &Path, log: &Path) -> io::Result<()> {
    let folder = path.parent().unwrap_or_else(|| Path::new("."));
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let mut bytes = [0; KEY_BYTES];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    let unfinished = folder.join(format!(".audit.key.{}", uuid::Uuid::new_v4()));
    let text = hex(&bytes);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&unfinished)?;
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
    // Before the key: a key without its mark means that its chain was removed.
    let mark = AuditKey::of(text.as_bytes()).kept_at(path, log).first_mark();
    let marked =
        written.and_then(|()| mark.as_ref().map_or(Ok(()), |(mark, text)| chain_head::replace(mark, text)));
    let linked = marked.and_then(|()| fs::hard_link(&unfinished, path));
    if let (Err(_), Some((mark, _))) = (&linked, &mark) {
        drop(fs::remove_file(mark));
    }
    fs::remove_file(&unfinished)?;
    match linked {
        // A key that another process just made is as good as ours.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        linked => linked.and_then(|()| File::open(folder)?.sync_all()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_key_is_made_once_for_its_owner_only() {
        let home = tempfile::tempdir().unwrap();
        let (path, log) = (home.path().join("deep/audit.key"), home.path().join("audit"));
        assert!(matches!(AuditKey::load(&path, &log), Err(AuditKeyError::Missing(_))));
        let first = AuditKey::load_or_create(&path, &log).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text.len(), KEY_CHARS);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
        // The key, and the mark of a chain that has not begun.
        assert_eq!(fs::read_dir(home.path().join("deep")).unwrap().count(), 2);
        assert_eq!(AuditKey::load_or_create(&path, &log).unwrap().id(), first.id());
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }

    #[test]
    fn a_key_that_others_may_read_or_that_is_none_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let (path, log) = (home.path().join("audit.key"), home.path().join("audit"));
        AuditKey::load_or_create(&path, &log).unwrap();
        for mode in [0o644, 0o640, 0o604, 0o620, 0o660, 0o601] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            assert!(
                matches!(AuditKey::load_or_create(&path, &log), Err(AuditKeyError::Open { .. })),
                "{mode:o}"
            );
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o400)).unwrap();
        assert!(AuditKey::load(&path, &log).is_ok());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        for text in ["", "00", &"g".repeat(64), &"0".repeat(63), &"0".repeat(66)] {
            fs::write(&path, text).unwrap();
            assert!(
                matches!(AuditKey::load_or_create(&path, &log), Err(AuditKeyError::Malformed(_))),
                "{text}"
            );
        }
        fs::write(&path, format!("{}\n", "0".repeat(64))).unwrap();
        assert!(AuditKey::load(&path, &log).is_ok());
    }

    #[test]
    fn a_key_in_the_folder_it_protects_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let log = home.path().join("audit");
        for path in [log.join("audit.key"), log.join("deeper/audit.key"), log.join("../audit/k")] {
            fs::create_dir_all(&log).unwrap();
            assert!(
                matches!(AuditKey::load_or_create(&path, &log), Err(AuditKeyError::Inside(_))),
                "{path:?}"
            );
            assert!(!path.exists());
        }
        assert!(AuditKey::load_or_create(&log.join("../audit.key"), &log).is_ok());
    }
}
