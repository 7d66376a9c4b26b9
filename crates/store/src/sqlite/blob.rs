//! Big strings, each stored once under the hash of its content. So a file that appears in ten events, or a
//! fork that repeats a session, is stored once.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension};
use sha2::{Digest, Sha256};

/// Longer strings leave the event's row. Four pages: below that a row of its own costs more than it saves.
const KEPT_FROM_BYTES: usize = 16 * 1024;

/// Takes the big strings out of the events of one session.
pub(super) struct BlobWriter<'c> {
    connection: &'c Connection,
    session: i64,
    failure: Option<rusqlite::Error>,
}

impl<'c> BlobWriter<'c> {
    pub(super) fn new(connection: &'c Connection, session: i64) -> Self {
        Self { connection, session, failure: None }
    }

    /// The hash under which the text is stored, or `None` if it stays where it is.
    pub(super) fn keep(&mut self, text: &str) -> Option<String> {
        if text.len() <= KEPT_FROM_BYTES {
            return None;
        }
        let hash = hash_of(text);
        match self.store(&hash, text) {
            Ok(()) => Some(hash),
            Err(error) => {
                self.failure.get_or_insert(error);
                None
            }
        }
    }

    /// Returns the first error; the transaction is then useless.
    pub(super) fn finish(self) -> rusqlite::Result<()> {
        self.failure.map_or(Ok(()), Err)
    }

    fn store(&self, hash: &str, text: &str) -> rusqlite::Result<()> {
        let known: Option<i64> = self
            .connection
            .prepare_cached("SELECT 1 FROM blobs WHERE hash = ?1")?
            .query_row([hash], |row| row.get(0))
            .optional()?;
        if known.is_none() {
            self.connection
                .prepare_cached("INSERT INTO blobs (hash, text) VALUES (?1, ?2)")?
                .execute((hash, text))?;
        }
        self.connection
            .prepare_cached("INSERT OR IGNORE INTO blob_uses (session, hash) VALUES (?1, ?2)")?
            .execute((self.session, hash))?;
        Ok(())
    }
}

/// Fetches stored strings, each once per page of events.
pub(super) struct BlobReader<'c> {
    connection: &'c Connection,
    known: RefCell<HashMap<String, Arc<str>>>,
}

impl<'c> BlobReader<'c> {
    pub(super) fn new(connection: &'c Connection) -> Self {
        Self { connection, known: RefCell::default() }
    }

    pub(super) fn fetch(&self, hash: &str) -> Option<Arc<str>> {
        if let Some(text) = self.known.borrow().get(hash) {
            return Some(Arc::clone(text));
        }
        let text = self.load(hash).filter(|text| is_named(hash, text))?;
        self.known.borrow_mut().insert(hash.to_owned(), Arc::clone(&text));
        Some(text)
    }

    fn load(&self, hash: &str) -> Option<Arc<str>> {
        let select = self.connection.prepare_cached("SELECT text FROM blobs WHERE hash = ?1");
        let text = select.and_then(|mut select| {
            select.query_row([hash], |row| Ok(row.get_ref(0)?.as_str()?.into())).optional()
        });
        text.unwrap_or_else(|error| {
            tracing::error!(%error, hash, "cannot read stored content");
            None
        })
    }
}

/// Whether a text has this hash.
pub(super) fn is_named(hash: &str, text: &str) -> bool {
    let sound = hash_of(text) == hash;
    if !sound {
        tracing::error!(hash, "stored content is damaged: it does not match its hash");
    }
    sound
}

fn hash_of(text: &str) -> String {
    let digits = Sha256::digest(text.as_bytes()).into_iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.filter_map(|digit| char::from_digit(digit.into(), 16)).collect()
}
