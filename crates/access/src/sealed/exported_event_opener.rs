//! Decrypts what a machine sealed for a hub, with the keys that the machine had.

use std::path::Path;

use seal::{ContentKeys, ContentPosition, MachineId, SealError, from_text};
use wire::session_archive;

use super::identity;
use super::vault_file::{self, VaultError};

/// The keys of one machine, for events of one session.
pub struct SealedEventOpener {
    contents: ContentKeys,
    machine: MachineId,
    session: String,
}

impl SealedEventOpener {
    /// With the keys in this file; nothing if there is no such file. `machine` and `session` are as the hub has them.
    pub fn read(path: &Path, machine: &str, session: &str) -> Result<Option<Self>, VaultError> {
        let Some((data, _)) = vault_file::read(path)? else { return Ok(None) };
        Ok(Some(Self { contents: data.contents, machine: identity(machine)?, session: session.to_owned() }))
    }

    /// Decrypts an event of an export: it is sealed for its position alone.
    pub fn open(&self, event: &str) -> Result<String, VaultError> {
        let event = session_archive::sealed_event(event).ok_or(SealError::Malformed)?;
        let (bytes, place) = (from_text(&event.sealed)?, ContentPosition::Event { seq: event.seq });
        let (_, plain) = self.contents.open(&self.machine, &self.session, &place, &bytes)?;
        Ok(String::from_utf8(plain).map_err(|_| SealError::Malformed)?)
    }
}
