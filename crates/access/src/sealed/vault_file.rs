//! `sealed.json`: a machine's own key, the keys of its contents, its devices, and its open invitations.
//!
//! The file belongs to its owner alone, is replaced whole, and is changed by one process at a time. A server
//! that seals follows what others write in it: `ropewalk pair` adds an invitation, `ropewalk devices
//! revoke` removes a device. So neither needs to connect to the server. A file that cannot be read is left
//! as it is: with other keys every device would have to be paired again, and nobody should do that in passing.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use seal::{ContentKeys, Point, PrivateKey, SealError, SystemRandom};
use serde::{Deserialize, Serialize};
use wire::native::Role;

use crate::devices::device_file::{FileStamp, lock, replace};
use crate::devices::device_list::name;

const VERSION: u32 = 1;
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Devices of one machine; beyond that one has to go before the next comes.
pub(super) const DEVICES_MAX: usize = 64;
/// Invitations at a time; one more takes the place of the oldest.
const INVITED_MAX: usize = 8;

#[derive(Debug, thiserror::Error)]
pub enum VaultError {
    #[error("could not read the keys in {0}")]
    Unread(PathBuf, #[source] io::Error),
    #[error("could not save the keys in {0}")]
    Unwritten(PathBuf, #[source] io::Error),
    #[error(
        "{0} does not contain keys of this program; restore it from a backup, or delete it and pair every device again"
    )]
    Damaged(PathBuf),
    #[error("other users may read {0}, which contains keys; run chmod 600 on it")]
    Open(PathBuf),
    #[error("could not seal a message")]
    Sealing(#[from] SealError),
    #[error("device limit of {DEVICES_MAX} reached; revoke one (ropewalk devices revoke)")]
    Full,
}

/// A device that can read what this machine shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedDevice {
    pub id: String,
    pub name: String,
    pub role: Role,
    pub created_at: i64,
    /// The words that were shown on both screens.
    pub words: String,
    pub(super) point: Point,
    pub(super) invitation: String,
}

/// An open invitation, with a secret that only its device and this file know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StoredInvitation {
    /// The last part of the link.
    pub link: String,
    pub role: Role,
    pub made_at: i64,
}

/// The contents of the file.
#[derive(Debug, Clone)]
pub(super) struct VaultData {
    pub own: PrivateKey,
    pub contents: ContentKeys,
    /// The machine's id at the hub, and the hub's address: for making links.
    pub machine: String,
    pub hub: String,
    pub devices: Vec<SealedDevice>,
    pub invited: Vec<StoredInvitation>,
}

impl VaultData {
    fn new() -> Result<Self, VaultError> {
        Ok(Self {
            own: PrivateKey::generate(&mut SystemRandom)?,
            contents: ContentKeys::generate(&mut SystemRandom)?,
            machine: String::new(),
            hub: String::new(),
            devices: Vec::new(),
            invited: Vec::new(),
        })
    }

    pub fn invite(&mut self, invited: StoredInvitation) {
        if self.invited.len() >= INVITED_MAX {
            self.invited.remove(0);
        }
        self.invited.push(invited);
    }

    /// Removes a device and renews the key of the contents. Gives whether there was such a device.
    pub fn revoke(&mut self, device: &str) -> Result<bool, VaultError> {
        let before = self.devices.len();
        self.devices.retain(|known| known.id != device);
        let is_gone = self.devices.len() < before;
        if is_gone {
            self.contents.renew(&mut SystemRandom)?;
        }
        Ok(is_gone)
    }
}

#[derive(Serialize, Deserialize)]
struct StoredVault {
    version: u32,
    machine: String,
    hub: String,
    key: String,
    contents: String,
    devices: Vec<StoredSealedDevice>,
    #[serde(default)]
    invited: Vec<StoredInvitation>,
}

#[derive(Serialize, Deserialize)]
struct StoredSealedDevice {
    name: String,
    role: Role,
    key: String,
    created_at: i64,
    words: String,
    invitation: String,
}

/// Reads the file; `None`, if there is none.
pub(super) fn read(path: &Path) -> Result<Option<(VaultData, FileStamp)>, VaultError> {
    let unread = |error| VaultError::Unread(path.to_owned(), error);
    let stamp = FileStamp::of(path);
    let file = match guard::open_regular(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unread(error)),
    };
    if file.metadata().map_err(unread)?.mode() & 0o077 != 0 {
        return Err(VaultError::Open(path.to_owned()));
    }
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX).read_to_end(&mut bytes).map_err(unread)?;
    let data = parse(&bytes).ok_or_else(|| VaultError::Damaged(path.to_owned()))?;
    Ok(Some((data, stamp)))
}

fn parse(bytes: &[u8]) -> Option<VaultData> {
    let stored: StoredVault = serde_json::from_slice(bytes).ok()?;
    if stored.version != VERSION {
        return None;
    }
    let decode = |text: &str| URL_SAFE_NO_PAD.decode(text).ok();
    let device = |stored: StoredSealedDevice| {
        let point = Point::parse(&decode(&stored.key)?).ok()?;
        Some(SealedDevice {
            id: point.device().to_string(),
            name: name(&stored.name).to_string(),
            role: stored.role,
            created_at: stored.created_at,
            words: stored.words,
            point,
            invitation: stored.invitation,
        })
    };
    let own: [u8; 32] = decode(&stored.key)?.try_into().ok()?;
    Some(VaultData {
        own: PrivateKey::from_bytes(&own).ok()?,
        contents: ContentKeys::from_bytes(&decode(&stored.contents)?).ok()?,
        machine: stored.machine,
        hub: stored.hub,
        devices: stored.devices.into_iter().map(device).collect::<Option<_>>()?,
        invited: stored.invited,
    })
}

/// Reads, changes and writes the file under a lock. If there is none, it is made.
pub(super) fn change<T>(
    path: &Path,
    work: impl FnOnce(&mut VaultData) -> Result<T, VaultError>,
) -> Result<(T, VaultData, FileStamp), VaultError> {
    let unwritten = |error| VaultError::Unwritten(path.to_owned(), error);
    let folder = path.parent().unwrap_or_else(|| Path::new("."));
    DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(unwritten)?;
    let _lock = lock(&path.with_extension("lock")).map_err(unwritten)?;
    let mut data = match read(path)? {
        Some((data, _)) => data,
        None => VaultData::new()?,
    };
    let outcome = work(&mut data)?;
    let bytes = serde_json::to_vec_pretty(&stored(&data)).map_err(|error| unwritten(error.into()))?;
    replace(path, folder, &bytes).map_err(unwritten)?;
    Ok((outcome, data, FileStamp::of(path)))
}

fn stored(data: &VaultData) -> StoredVault {
    let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
    let device = |device: &SealedDevice| StoredSealedDevice {
        name: device.name.clone(),
        role: device.role,
        key: encode(device.point.as_slice()),
        created_at: device.created_at,
        words: device.words.clone(),
        invitation: device.invitation.clone(),
    };
    StoredVault {
        version: VERSION,
        machine: data.machine.clone(),
        hub: data.hub.clone(),
        key: encode(data.own.to_bytes().as_slice()),
        contents: encode(&data.contents.to_bytes()),
        devices: data.devices.iter().map(device).collect(),
        invited: data.invited.clone(),
    }
}

/// A lock that a server holds as long as it seals, so that others see that one does.
pub(super) fn mark_running(path: &Path) -> Result<File, VaultError> {
    let unwritten = |error| VaultError::Unwritten(path.to_owned(), error);
    let file = running_file(path, true).map_err(unwritten)?;
    file.lock_shared().map_err(unwritten)?;
    Ok(file)
}

/// Whether a server seals with this file at the moment.
pub(super) fn is_running(path: &Path) -> bool {
    let file = running_file(path, false);
    file.is_ok_and(|file| matches!(file.try_lock(), Err(fs::TryLockError::WouldBlock)))
}

fn running_file(path: &Path, create: bool) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = fs::OpenOptions::new();
    options.write(true).create(create).truncate(false).mode(0o600).open(path.with_extension("running"))
}
