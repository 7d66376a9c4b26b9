//! A digest of the pages of a backup. It tells a backup that was damaged later from a good backup of a damaged store.
//!
//! It is stored in the table of facts and covers every page except the only one of that table. It is written without
//! SQLite, which would change the first page with it.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;

use rusqlite::{Connection, OptionalExtension};
use sha2::{Digest, Sha256};

/// The name of the fact. Backups of earlier versions have none.
pub(super) const FACT: &str = "pages_sha256";
/// Its value until the other pages are written.
pub(super) const NONE: &str = "0000000000000000000000000000000000000000000000000000000000000000";

const DAMAGED: &str = "the file was damaged after it was made, so nothing of it is restored; use another backup, or save \
                       what can be read of its sessions with `ropewalk sessions salvage FILE --into NEW`";

/// Puts the digest in its place.
pub(super) fn write(connection: &Connection, backup: &Path) -> Result<(), String> {
    let pages = PageLayout::of(connection).map_err(|error| error.to_string())?;
    let put = || {
        let digest = pages.digest(backup)?;
        let file = File::options().read(true).write(true).open(backup)?;
        let mut facts = vec![0; pages.bytes];
        file.read_exact_at(&mut facts, pages.facts_at())?;
        let place = facts.windows(NONE.len()).position(|found| found == NONE.as_bytes());
        let place = place.ok_or_else(|| io::Error::other("its table of facts was changed"))?;
        file.write_all_at(digest.as_bytes(), pages.facts_at() + place as u64)?;
        file.sync_all()
    };
    put().map_err(|error| error.to_string())
}

/// The error says that the file is another one than was made.
pub(super) fn check(connection: &Connection, backup: &Path) -> Result<(), String> {
    let select = "SELECT value FROM backup_facts WHERE name = ?1";
    let known: Option<String> = connection
        .query_row(select, [FACT], |row| row.get(0))
        .optional()
        .map_err(|error| error.to_string())?;
    let Some(known) = known.filter(|known| known != NONE) else { return Ok(()) };
    let pages = PageLayout::of(connection).map_err(|error| error.to_string())?;
    let digest = pages.digest(backup).map_err(|error| error.to_string())?;
    if digest == known { Ok(()) } else { Err(DAMAGED.to_owned()) }
}

/// The page size, and the number of the page with the table of facts, from 1.
struct PageLayout {
    bytes: usize,
    facts: u64,
}

impl PageLayout {
    fn of(connection: &Connection) -> rusqlite::Result<Self> {
        let bytes: i64 = connection.pragma_query_value(None, "page_size", |row| row.get(0))?;
        let select = "SELECT rootpage FROM sqlite_schema WHERE name = 'backup_facts'";
        let facts: i64 = connection.query_row(select, [], |row| row.get(0))?;
        Ok(Self { bytes: usize::try_from(bytes).unwrap_or(0), facts: u64::try_from(facts).unwrap_or(0) })
    }

    fn facts_at(&self) -> u64 {
        self.facts.saturating_sub(1) * self.bytes as u64
    }

    fn digest(&self, backup: &Path) -> io::Result<String> {
        let mut file = BufReader::new(File::open(backup)?);
        let (mut hash, mut page, mut number) = (Sha256::new(), Vec::with_capacity(self.bytes), 1);
        while file.by_ref().take(self.bytes as u64).read_to_end(&mut page)? > 0 {
            if number != self.facts {
                hash.update(&page);
            }
            page.clear();
            number += 1;
        }
        Ok(hash.finalize().iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}")))
    }
}
