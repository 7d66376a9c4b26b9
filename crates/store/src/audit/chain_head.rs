//! How far the chain has come, stored beside it: a chain that was cut at its end still has correct links,
//! and only its head reveals the cut.
//!
//! The same format is used for four files: the head, written with every batch; the cursors, a head with the
//! position of every session, written now and then so that a start need not read the whole chain; the mark,
//! a head beside the key, which reveals that the whole folder was removed or restored; and a seal, a head
//! that is kept elsewhere.
//!
//! **Invariant:** rows are on the disk before a head that counts them.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::canonical_json;
use super::key::AuditKey;
use super::row::GENESIS;
use crate::regular_file::read_regular;

pub(super) const HEAD: &str = "head.json";
pub(super) const CURSORS: &str = "cursors.json";
/// The kind of the head that is stored beside the key.
pub(super) const MARK: &str = "mark";

/// A position in the chain: the number of rows, and the signature of the last one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChainHead {
    /// Rows since the beginning.
    pub rows: u64,
    pub hmac: String,
    /// The file of the last row, and how far into it that row goes.
    pub file: String,
    pub bytes: u64,
}

impl Default for ChainHead {
    fn default() -> Self {
        Self { rows: 0, hmac: GENESIS.to_owned(), file: String::new(), bytes: 0 }
    }
}

/// How far the log of each session was read.
pub(super) type Cursors = BTreeMap<String, u64>;

#[derive(Serialize, Deserialize)]
struct SignedHead {
    #[serde(flatten)]
    head: ChainHead,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sessions: Option<Cursors>,
    /// The kind of this file, so that none passes for another.
    kind: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    mac: String,
}

#[derive(Debug, thiserror::Error)]
pub enum ChainHeadError {
    #[error("it cannot be read")]
    Io(#[from] io::Error),
    #[error("it is malformed or was changed")]
    Forged,
}

/// The text of a signed head.
pub(super) fn text(key: &AuditKey, kind: &str, head: &ChainHead, sessions: Option<&Cursors>) -> String {
    let mut signed = SignedHead {
        head: head.clone(),
        sessions: sessions.cloned(),
        kind: kind.to_owned(),
        mac: String::new(),
    };
    signed.mac = key.sign(&[canonical_text(&signed).as_bytes()]);
    format!("{}\n", canonical_text(&signed))
}

pub(super) fn parse(
    key: &AuditKey,
    kind: &str,
    bytes: &[u8],
) -> Result<(ChainHead, Option<Cursors>), ChainHeadError> {
    let mut signed: SignedHead = serde_json::from_slice(bytes).map_err(|_| ChainHeadError::Forged)?;
    let mac = std::mem::take(&mut signed.mac);
    let genuine = key.sign(&[canonical_text(&signed).as_bytes()]) == mac && signed.kind == kind;
    signed.mac = mac;
    // Spaces that were put in are a change, too.
    let same = format!("{}\n", canonical_text(&signed)).as_bytes() == bytes;
    if genuine && same { Ok((signed.head, signed.sessions)) } else { Err(ChainHeadError::Forged) }
}

fn canonical_text(signed: &SignedHead) -> String {
    let mut out = String::new();
    canonical_json::write(&serde_json::to_value(signed).unwrap_or(Value::Null), &mut out);
    out
}

/// The file's head; `None` if there is no such file.
pub(super) fn load(
    key: &AuditKey,
    folder: &Path,
    name: &str,
) -> Result<Option<(ChainHead, Option<Cursors>)>, ChainHeadError> {
    match read_regular(&folder.join(name)) {
        Ok(bytes) => parse(key, name, &bytes).map(Some),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// How far the chain had come according to the file beside the key; `None` if there is no such file.
pub(super) fn load_mark(key: &AuditKey) -> Result<Option<ChainHead>, ChainHeadError> {
    let Some(path) = key.mark() else { return Ok(None) };
    match read_regular(path) {
        Ok(bytes) => parse(key, MARK, &bytes).map(|(head, _)| Some(head)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

pub(super) fn save_mark(key: &AuditKey, head: &ChainHead) -> io::Result<()> {
    key.mark().map_or(Ok(()), |path| replace(path, text(key, MARK, head, None).as_bytes()))
}

/// Replaces the file, whole or not at all.
pub(super) fn save(
    key: &AuditKey,
    folder: &Path,
    name: &str,
    head: &ChainHead,
    sessions: Option<&Cursors>,
) -> io::Result<()> {
    replace(&folder.join(name), text(key, name, head, sessions).as_bytes())
}

pub(super) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let unfinished = path.with_extension("part");
    // A killed process may have left it; the caller holds the chain's lock.
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&unfinished)?;
    file.write_all(bytes)?;
    file.sync_data()?;
    fs::rename(unfinished, path)
}

pub(super) fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}
