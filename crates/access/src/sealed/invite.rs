//! What is done with the keys from outside the server that seals: inviting, looking, revoking. By the file.

use std::path::Path;

use engine::Timestamp;
use seal::{INVITATION_MS, Invitation, MachineId, PairingLink, Secret, SystemRandom, to_text};
use wire::native::Role;

use super::kept::{self, SealedDevice, VaultError};
use super::word;
use crate::devices::qr;

/// An invitation that can be shown.
pub struct Invited {
    /// What a device opens. What stands behind the `#` reaches no server.
    pub url: String,
    /// As rows of `0` and `1`.
    pub qr: Vec<String>,
    pub expires_at: i64,
    id: String,
}

/// The address of the hub, if a server seals for it at the moment.
pub fn bridged(path: &Path) -> Result<Option<String>, VaultError> {
    let book = kept::read(path)?.map(|(book, _)| book);
    Ok(book.map(|book| book.hub).filter(|hub| !hub.is_empty() && kept::runs(path)))
}

/// One device may come, within five minutes.
pub fn invite(path: &Path, role: Role, now: Timestamp) -> Result<Invited, VaultError> {
    let secret = Secret::generate(&mut SystemRandom)?;
    let (invited, _, _) = kept::change(path, |book| {
        let machine = MachineId::parse(&book.machine)?;
        let fingerprint = book.own.public().fingerprint();
        let link = PairingLink { machine, secret, fingerprint };
        let text = link.to_text();
        let id = to_text(&Invitation::new(link, &word(role), now.0)?.id());
        book.invited.retain(|other| other.made_at.saturating_add(INVITATION_MS) > now.0);
        book.invite(kept::Invited { link: text.to_string(), role, made_at: now.0 });
        let url = format!("{}/pair#{}", book.hub, text.as_str());
        let (qr, expires_at) = (qr::rows(&url), now.0.saturating_add(INVITATION_MS));
        Ok(Invited { url, qr, expires_at, id })
    })?;
    Ok(invited)
}

/// The device that came with it, once it has.
pub fn paired(path: &Path, invited: &Invited) -> Result<Option<SealedDevice>, VaultError> {
    Ok(devices(path)?.into_iter().find(|device| device.invitation == invited.id))
}

/// Every device that can read what this machine seals. None, if it never sealed anything.
pub fn devices(path: &Path) -> Result<Vec<SealedDevice>, VaultError> {
    Ok(kept::read(path)?.map(|(book, _)| book.devices).unwrap_or_default())
}

/// It reads nothing that is sealed from here on, and says nothing that is taken. Gives whether it was known.
pub fn revoke(path: &Path, device: &str) -> Result<bool, VaultError> {
    kept::change(path, |book| book.revoke(device)).map(|(is_gone, _, _)| is_gone)
}
