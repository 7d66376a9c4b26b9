//! The id of this machine at hubs: stable across restarts, with a suffix for each further process that is bridged
//! at the same time.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use access::random;
use wire::tunnel::MachineInfo;

use crate::cli_error::CliError;
use crate::paths;

/// Maximum number of bridged processes on this machine.
const PROCESSES_MAX: u32 = 32;
/// How long to wait for another process that reads or creates the id.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(2);
const LOCK_PAUSE: Duration = Duration::from_millis(10);
/// Bytes of an id, before hexadecimal encoding.
const ID_BYTES: usize = 16;

/// An id that no other process uses while this value lives.
pub struct MachineClaim {
    id: String,
    name: String,
    _lock: Option<File>,
}

impl MachineClaim {
    pub fn take(host: &str) -> Result<Self, CliError> {
        let folder = paths::state()?.join("bridge");
        match claim(&folder, host) {
            Ok(claimed) => Ok(claimed),
            // With a new id, the hub would see a new machine at each start.
            Err(error) if matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::WouldBlock) => {
                let fix = match error.kind() {
                    io::ErrorKind::WouldBlock => "resume or end that process, then try again",
                    _ => "restore the file, or delete it; hubs then treat this as a new machine",
                };
                let path = folder.join("machine.id");
                Err(CliError::failed(format!("could not use {}", path.display())).because(error).fix(fix))
            }
            Err(error) => {
                // If nothing can be stored, neither can sessions: use a new id at each start.
                tracing::warn!(%error, folder = %folder.display(), "could not store the id of this machine");
                let id = fresh().map_err(|error| {
                    CliError::failed("the operating system's random generator failed").because(error)
                })?;
                Ok(Self { id, name: host.to_owned(), _lock: None })
            }
        }
    }

    pub fn described(&self) -> MachineInfo {
        MachineInfo {
            id: self.id.clone(),
            name: self.name.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            sealed: false,
        }
    }
}

fn claim(folder: &Path, host: &str) -> io::Result<MachineClaim> {
    fs::create_dir_all(folder)?;
    let base = read_or_create_id(&folder.join("machine.id"))?;
    for number in 1..=PROCESSES_MAX {
        let path = folder.join(format!("{number}.lock"));
        let lock = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(path)?;
        match lock.try_lock() {
            Ok(()) => {
                let (id, name) = match number {
                    1 => (base, host.to_owned()),
                    _ => (format!("{base}-{number}"), format!("{host} ({number})")),
                };
                return Ok(MachineClaim { id, name, _lock: Some(lock) });
            }
            Err(fs::TryLockError::WouldBlock) => {}
            Err(fs::TryLockError::Error(error)) => return Err(error),
        }
    }
    Err(io::Error::other("too many processes on this machine are bridged"))
}

/// The id in the file, created if it is missing. A full disk or a kill can leave an empty file.
fn read_or_create_id(path: &Path) -> io::Result<String> {
    let lock = path.with_extension("lock");
    let lock = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(lock)?;
    wait_for(&lock)?;
    let mut text = String::new();
    match File::open(path) {
        Ok(file) => drop(file.take(256).read_to_string(&mut text)?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let id = text.trim();
    if id.is_empty() {
        return make(path);
    }
    let plain = id.len() == ID_BYTES * 2 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    let none = || io::Error::new(io::ErrorKind::InvalidData, "it does not contain an id");
    plain.then(|| id.to_owned()).ok_or_else(none)
}

/// The holder of this lock only reads or writes one line, unless it is suspended.
fn wait_for(lock: &File) -> io::Result<()> {
    let until = Instant::now() + LOCK_WAIT_MAX;
    loop {
        match lock.try_lock() {
            Ok(()) => return Ok(()),
            Err(fs::TryLockError::Error(error)) => return Err(error),
            Err(fs::TryLockError::WouldBlock) if Instant::now() < until => std::thread::sleep(LOCK_PAUSE),
            Err(fs::TryLockError::WouldBlock) => {
                let text = "another ropewalk process holds its lock (machine.lock)";
                return Err(io::Error::new(io::ErrorKind::WouldBlock, text));
            }
        }
    }
}

/// Creates the file under its name only when it is complete.
fn make(path: &Path) -> io::Result<String> {
    let (id, unfinished) = (fresh()?, path.with_extension("part"));
    let mut file =
        OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&unfinished)?;
    file.write_all(id.as_bytes())?;
    file.sync_all()?;
    fs::rename(unfinished, path)?;
    Ok(id)
}

fn fresh() -> io::Result<String> {
    let bytes = random().map_err(io::Error::other)?;
    Ok(bytes.iter().take(ID_BYTES).map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_always_the_same_and_each_process_has_a_name() {
        let folder = tempfile::tempdir().unwrap();
        let first = claim(folder.path(), "laptop").unwrap();
        let second = claim(folder.path(), "laptop").unwrap();
        assert_eq!((first.name.as_str(), second.name.as_str()), ("laptop", "laptop (2)"));
        assert_eq!(second.id, format!("{}-2", first.id));
        let id = first.id.clone();
        drop(first);
        assert_eq!(claim(folder.path(), "laptop").unwrap().id, id);
        fs::write(folder.path().join("machine.id"), "").unwrap();
        let made_again = claim(folder.path(), "laptop").unwrap().id;
        assert_eq!(made_again.len(), ID_BYTES * 2, "a file without an id gets one");
        assert_eq!(claim(folder.path(), "laptop").unwrap().id, made_again);
        fs::write(folder.path().join("machine.id"), "../../etc").unwrap();
        assert!(claim(folder.path(), "laptop").is_err(), "what is no id is not sent anywhere");
    }

    #[test]
    fn a_process_that_keeps_the_lock_of_the_id_hangs_nobody() {
        let folder = tempfile::tempdir().unwrap();
        let holder = File::create(folder.path().join("machine.lock")).unwrap();
        holder.lock().unwrap();
        let error = claim(folder.path(), "laptop").map(|claimed| claimed.id).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock, "{error}");
        drop(holder);
        assert!(claim(folder.path(), "laptop").is_ok());
    }

    #[test]
    fn an_id_that_is_none_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        for bytes in [&b"garbage"[..], b"\xff\xfe\x00"] {
            fs::write(folder.path().join("machine.id"), bytes).unwrap();
            let error = claim(folder.path(), "laptop").map(|claimed| claimed.id).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
        }
    }
}
