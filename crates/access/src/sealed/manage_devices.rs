//! Managing a machine's sealed devices from outside the server that seals, by way of the file: invite, list, revoke.

use std::path::Path;

use engine::Timestamp;
use seal::{INVITATION_MS, MachineId, PairingInvitation, PairingLink, PairingSecret, SystemRandom, to_text};
use wire::native::Role;

use super::vault_file::{self, SealedDevice, VaultError};
use super::word;
use crate::devices::qr;

/// An invitation that can be shown.
pub struct PairingInvite {
    /// The link that a device opens. The part after the `#` reaches no server.
    pub url: String,
    /// As rows of `0` and `1`.
    pub qr: Vec<String>,
    pub expires_at: i64,
    id: String,
}

/// The address of the hub that a server seals for at the moment, if one does.
pub fn bridged(path: &Path) -> Result<Option<String>, VaultError> {
    let data = vault_file::read(path)?.map(|(data, _)| data);
    Ok(data.map(|data| data.hub).filter(|hub| !hub.is_empty() && vault_file::is_running(path)))
}

/// Invites one device, for five minutes.
pub fn invite(path: &Path, role: Role, now: Timestamp) -> Result<PairingInvite, VaultError> {
    let secret = PairingSecret::generate(&mut SystemRandom)?;
    let (invited, _, _) = vault_file::change(path, |data| {
        let machine = MachineId::parse(&data.machine)?;
        let fingerprint = data.own.public().fingerprint();
        let link = PairingLink { machine, secret, fingerprint };
        let text = link.to_text();
        let id = to_text(&PairingInvitation::new(link, &word(role), now.0)?.id());
        data.invited.retain(|other| other.made_at.saturating_add(INVITATION_MS) > now.0);
        data.invite(vault_file::StoredInvitation { link: text.to_string(), role, made_at: now.0 });
        let url = format!("{}/pair#{}", data.hub, text.as_str());
        let (qr, expires_at) = (qr::rows(&url), now.0.saturating_add(INVITATION_MS));
        Ok(PairingInvite { url, qr, expires_at, id })
    })?;
    Ok(invited)
}

/// The device that has accepted the invitation, if one has.
pub fn paired(path: &Path, invited: &PairingInvite) -> Result<Option<SealedDevice>, VaultError> {
    Ok(devices(path)?.into_iter().find(|device| device.invitation == invited.id))
}

/// Every device that can read what this machine seals. None, if it never sealed anything.
pub fn devices(path: &Path) -> Result<Vec<SealedDevice>, VaultError> {
    Ok(vault_file::read(path)?.map(|(data, _)| data.devices).unwrap_or_default())
}

/// Revokes a device: it can read nothing that is sealed from here on, and its requests are refused. Gives whether it was
/// known.
pub fn revoke(path: &Path, device: &str) -> Result<bool, VaultError> {
    vault_file::change(path, |data| data.revoke(device)).map(|(is_gone, _, _)| is_gone)
}
