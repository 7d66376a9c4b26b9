//! `devices.json`: the list of devices on disk.
//!
//! Several servers may share one state folder. Whoever changes the file holds a lock, reads it,
//! changes what was read and replaces the file whole; whoever reads it checks first whether the file has changed since
//! the last time. A file that cannot be read is moved aside: nobody signs in by it, and nothing that
//! may still be repaired is lost.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use engine::{Principal, Timestamp};
use serde::{Deserialize, Serialize};
use wire::native::{PushSubscription, Role};

use super::device_list::{DeviceList, DeviceRecord};
use crate::{Digest, random, url_safe};

const VERSION: u32 = 1;
const FILE_BYTES_MAX: u64 = 4 << 20;
/// Others hold the lock for a few writes at most.
const LOCK_WAIT: Duration = Duration::from_secs(5);
const LOCK_LOOK_EVERY: Duration = Duration::from_millis(10);

/// Identifies the version of a file that was read: a changed file has another stamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct FileStamp(Option<(u64, u64, i64, i64)>);

impl FileStamp {
    pub fn of(path: &Path) -> Self {
        let metadata = fs::metadata(path).ok();
        Self(metadata.map(|file| (file.ino(), file.len(), file.mtime(), file.mtime_nsec())))
    }
}

#[derive(Serialize, Deserialize)]
struct StoredDevices {
    version: u32,
    devices: Vec<StoredDevice>,
}

/// The field that every version of the file has.
#[derive(Deserialize)]
struct StoredVersion {
    version: u32,
}

#[derive(Serialize, Deserialize)]
struct StoredDevice {
    id: String,
    principal: String,
    name: String,
    role: Role,
    key_sha256: String,
    /// None if the device signed in before there were proofs: it has to sign in again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    proof_sha256: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    client_sha256: Option<String>,
    created_at: i64,
    #[serde(default)]
    seen_at: Option<i64>,
    #[serde(default)]
    push: Option<PushSubscription>,
    #[serde(default)]
    muted_until: Option<i64>,
}

/// Reads the list. No file is an empty list, and so is a damaged file: the next change moves it aside.
pub(super) fn read(path: &Path) -> io::Result<(DeviceList, FileStamp)> {
    let (list, stamp) = read_list(path)?;
    if list.is_none() {
        let path = path.display();
        tracing::warn!(%path, "could not read the list of devices; every device has to be paired again");
    }
    Ok((list.unwrap_or_default(), stamp))
}

/// Reads the list; `None` if the file is damaged. A file of another version is left to the program that knows it.
fn read_list(path: &Path) -> io::Result<(Option<DeviceList>, FileStamp)> {
    let stamp = FileStamp::of(path);
    let file = match guard::open_regular(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok((Some(DeviceList::default()), FileStamp(None)));
        }
        Err(error) => return Err(error),
    };
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    Ok((parse(&bytes)?, stamp))
}

fn parse(bytes: &[u8]) -> io::Result<Option<DeviceList>> {
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Ok(None);
    }
    let Ok(StoredVersion { version }) = serde_json::from_slice(bytes) else { return Ok(None) };
    if version != VERSION {
        let reason =
            format!("the list of devices has version {version}, but this program supports {VERSION}");
        return Err(io::Error::other(reason));
    }
    let Ok(stored) = serde_json::from_slice::<StoredDevices>(bytes) else { return Ok(None) };
    let records: Option<Vec<DeviceRecord>> = stored.devices.into_iter().map(record).collect();
    Ok(records.map(|records| DeviceList { records }))
}

/// Moves a damaged file aside, for inspection.
fn put_aside(path: &Path) -> io::Result<()> {
    let aside = path.with_extension(format!("damaged-{}.json", url_safe(&random()?[..6])));
    fs::rename(path, &aside)?;
    tracing::warn!(aside = %aside.display(), "the damaged list of devices was moved aside");
    Ok(())
}

fn record(stored: StoredDevice) -> Option<DeviceRecord> {
    Some(DeviceRecord {
        id: stored.id.into(),
        principal: Principal(stored.principal.into()),
        name: super::device_list::name(&stored.name),
        role: stored.role,
        digest: Digest::parse(&stored.key_sha256)?,
        proof: stored.proof_sha256.as_deref().and_then(Digest::parse),
        client: stored.client_sha256.as_deref().and_then(Digest::parse),
        created_at: Timestamp(stored.created_at),
        seen_at: stored.seen_at.map(Timestamp),
        subscription: stored.push,
        muted_until: stored.muted_until.map(Timestamp),
    })
}

fn stored(record: &DeviceRecord) -> StoredDevice {
    StoredDevice {
        id: record.id.to_string(),
        principal: record.principal.0.to_string(),
        name: record.name.to_string(),
        role: record.role,
        key_sha256: record.digest.hex(),
        proof_sha256: record.proof.as_ref().map(Digest::hex),
        client_sha256: record.client.as_ref().map(Digest::hex),
        created_at: record.created_at.0,
        seen_at: record.seen_at.map(|seen| seen.0),
        push: record.subscription.clone(),
        muted_until: record.muted_until.map(|until| until.0),
    }
}

/// Reads, changes and writes, with nobody in between.
pub(super) fn change<T>(
    path: &Path,
    work: impl FnOnce(&mut DeviceList) -> T,
) -> io::Result<(T, DeviceList, FileStamp)> {
    let folder = path.parent().unwrap_or_else(|| Path::new("."));
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let _lock = lock(&path.with_extension("lock"))?;
    let mut list = match read_list(path)? {
        (Some(list), _) => list,
        (None, _) => {
            put_aside(path)?;
            DeviceList::default()
        }
    };
    let outcome = work(&mut list);
    write(path, folder, &list)?;
    Ok((outcome, list, FileStamp::of(path)))
}

/// Gone with the file that is returned.
pub(crate) fn lock(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)?;
    let mut waited = Duration::ZERO;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(fs::TryLockError::WouldBlock) if waited < LOCK_WAIT => {
                std::thread::sleep(LOCK_LOOK_EVERY);
                waited += LOCK_LOOK_EVERY;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

fn write(path: &Path, folder: &Path, list: &DeviceList) -> io::Result<()> {
    let devices = list.records.iter().map(stored).collect();
    let mut bytes = serde_json::to_vec_pretty(&StoredDevices { version: VERSION, devices })?;
    bytes.push(b'\n');
    replace(path, folder, &bytes)
}

/// The new file takes the old one's place whole, or not at all. It is for its owner only.
pub(crate) fn replace(path: &Path, folder: &Path, bytes: &[u8]) -> io::Result<()> {
    let unfinished: PathBuf = folder.join(format!(".devices.{}", url_safe(&random()?[..9])));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&unfinished)?;
    let written = file.write_all(bytes).and_then(|()| file.sync_all());
    let replaced = written.and_then(|()| fs::rename(&unfinished, path));
    if replaced.is_err() {
        // What could not be finished is of no use to anybody.
        drop(fs::remove_file(&unfinished));
    }
    replaced.and_then(|()| File::open(folder)?.sync_all())
}
