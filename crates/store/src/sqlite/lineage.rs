//! The name of the history that a store has, and the checksum that it carries.
//!
//! Whoever mirrors a store takes another name for a restored backup, so a bit that flipped in it must not look like one:
//! 32 hexadecimal digits are followed by the 16 of their checksum. A name of earlier versions is 32 digits alone. It gets
//! its checksum when the file is opened for writing, and so does one that an earlier version gave a restored store.

use rusqlite::{Connection, OptionalExtension};

use super::checksum;

const NAME_CHARS: usize = 32;

/// The name, or what is wrong with it.
pub(super) fn read(connection: &Connection) -> Result<String, String> {
    let value = stored(connection).map_err(|error| error.to_string())?.ok_or("it is missing")?;
    if is_unsigned(&value) || is_whole(&value) {
        return Ok(value.chars().take(NAME_CHARS).collect());
    }
    Err("its checksum does not match".to_owned())
}

/// Gives the name its checksum, if it has none. One that is damaged stays as it is.
pub(super) fn sign(connection: &Connection) -> rusqlite::Result<()> {
    match stored(connection)? {
        Some(value) if is_unsigned(&value) => put(connection, &value),
        Some(_) | None => Ok(()),
    }
}

/// Gives the store another name: from here on its history is another one.
pub(super) fn begin(connection: &Connection) -> rusqlite::Result<()> {
    let name: String = connection.query_row("SELECT lower(hex(randomblob(16)))", [], |row| row.get(0))?;
    put(connection, &name)
}

fn stored(connection: &Connection) -> rusqlite::Result<Option<String>> {
    connection.query_row("SELECT value FROM meta WHERE name = 'lineage'", [], |row| row.get(0)).optional()
}

fn put(connection: &Connection, name: &str) -> rusqlite::Result<()> {
    let value = format!("{name}{}", digits(name));
    let insert = "INSERT INTO meta (name, value) VALUES ('lineage', ?1)
         ON CONFLICT (name) DO UPDATE SET value = excluded.value";
    connection.execute(insert, [value]).map(drop)
}

fn digits(name: &str) -> String {
    format!("{:016x}", checksum::lineage(name.as_bytes()))
}

fn is_unsigned(value: &str) -> bool {
    value.len() == NAME_CHARS && value.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

fn is_whole(value: &str) -> bool {
    value.split_at_checked(NAME_CHARS).is_some_and(|(name, sum)| is_unsigned(name) && sum == digits(name))
}
