//! `devices.json`: the book of devices on disk.
//!
//! Several servers may share one state folder. Whoever changes the file holds a lock, reads what is
//! there, changes that and replaces the file whole; whoever reads looks first whether it is another one
//! than the last time. A file that cannot be read is put aside: nobody comes in by it, and nothing that
//! may still be mended is lost.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use engine::{Principal, Timestamp};
use serde::{Deserialize, Serialize};
use wire::native::{Role, Subscription};

use super::device_store::{Book, Record};
use crate::{Digest, random, url_safe};

const VERSION: u32 = 1;
const FILE_BYTES_MAX: u64 = 4 << 20;
/// Others hold the lock for a few writes at most.
const LOCK_WAIT: Duration = Duration::from_secs(5);
const LOCK_LOOK_EVERY: Duration = Duration::from_millis(10);

/// Which file was read: another one has another stamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Stamp(Option<(u64, u64, i64, i64)>);

impl Stamp {
    pub fn of(path: &Path) -> Self {
        let metadata = fs::metadata(path).ok();
        Self(metadata.map(|file| (file.ino(), file.len(), file.mtime(), file.mtime_nsec())))
    }
}

#[derive(Serialize, Deserialize)]
struct Stored {
    version: u32,
    devices: Vec<StoredDevice>,
}

/// All that every version has.
#[derive(Deserialize)]
struct Versioned {
    version: u32,
}

#[derive(Serialize, Deserialize)]
struct StoredDevice {
    id: String,
    principal: String,
    name: String,
    role: Role,
    key_sha256: String,
    /// None of a device that signed in before there were proofs: it has to sign in again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    proof_sha256: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    client_sha256: Option<String>,
    created_at: i64,
    #[serde(default)]
    seen_at: Option<i64>,
    #[serde(default)]
    push: Option<Subscription>,
    #[serde(default)]
    muted_until: Option<i64>,
}

/// What is in the file. No file is an empty book, and so is a damaged one: it is put aside by the next change.
pub(super) fn read(path: &Path) -> io::Result<(Book, Stamp)> {
    let (book, stamp) = look(path)?;
    if book.is_none() {
        let path = path.display();
        tracing::warn!(%path, "the list of devices cannot be read; every device has to be paired again");
    }
    Ok((book.unwrap_or_default(), stamp))
}

/// Nothing, if what is there is damaged. A list of another version is left to the program that knows it.
fn look(path: &Path) -> io::Result<(Option<Book>, Stamp)> {
    let stamp = Stamp::of(path);
    let file = match guard::open_regular(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok((Some(Book::default()), Stamp(None)));
        }
        Err(error) => return Err(error),
    };
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    Ok((parse(&bytes)?, stamp))
}

fn parse(bytes: &[u8]) -> io::Result<Option<Book>> {
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Ok(None);
    }
    let Ok(Versioned { version }) = serde_json::from_slice(bytes) else { return Ok(None) };
    if version != VERSION {
        let reason = format!("the list of devices has version {version}, and this program knows {VERSION}");
        return Err(io::Error::other(reason));
    }
    let Ok(stored) = serde_json::from_slice::<Stored>(bytes) else { return Ok(None) };
    let records: Option<Vec<Record>> = stored.devices.into_iter().map(record).collect();
    Ok(records.map(|records| Book { records }))
}

/// Out of the way, for whoever wants to look at it.
fn put_aside(path: &Path) -> io::Result<()> {
    let aside = path.with_extension(format!("damaged-{}.json", url_safe(&random()?[..6])));
    fs::rename(path, &aside)?;
    tracing::warn!(aside = %aside.display(), "the damaged list of devices was put aside");
    Ok(())
}

fn record(stored: StoredDevice) -> Option<Record> {
    Some(Record {
        id: stored.id.into(),
        principal: Principal(stored.principal.into()),
        name: super::device_store::name(&stored.name),
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

fn stored(record: &Record) -> StoredDevice {
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
pub(super) fn change<T>(path: &Path, work: impl FnOnce(&mut Book) -> T) -> io::Result<(T, Book, Stamp)> {
    let folder = path.parent().unwrap_or_else(|| Path::new("."));
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let _lock = lock(&path.with_extension("lock"))?;
    let mut book = match look(path)? {
        (Some(book), _) => book,
        (None, _) => {
            put_aside(path)?;
            Book::default()
        }
    };
    let outcome = work(&mut book);
    write(path, folder, &book)?;
    Ok((outcome, book, Stamp::of(path)))
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

fn write(path: &Path, folder: &Path, book: &Book) -> io::Result<()> {
    let devices = book.records.iter().map(stored).collect();
    let mut bytes = serde_json::to_vec_pretty(&Stored { version: VERSION, devices })?;
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
