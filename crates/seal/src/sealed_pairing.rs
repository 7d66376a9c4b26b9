//! Pairing of a device with a machine.
//!
//! The machine shows a link whose fragment never reaches the hub: its id, a secret, and the fingerprint of
//! its key. The device sends its public key, signed with the secret; the machine answers with its own and
//! signs the whole exchange. Without the secret nobody can join or pose as the machine, and the
//! secret is too long to be guessed from the exchanged messages.

use std::fmt;

use p256::elliptic_curve::zeroize::Zeroizing;
use ring::digest::{SHA256, digest};

use crate::comparison_words::two;
use crate::key::{
    Fingerprint, MAC_BYTES, MachineId, POINT_BYTES, Point, PrivateKey, SharedSecret, SymmetricKey,
};
use crate::key_context::Context;
use crate::message_format::{OFFER, PAIRED, Reader, from_text, to_text};
use crate::random::array;
use crate::{Random, SealError};

/// How long an invitation is good for.
pub const INVITATION_MS: i64 = 5 * 60_000;
pub const NAME_BYTES_MAX: usize = 128;
const TRIES_MAX: u8 = 5;
const SECRET_BYTES: usize = 16;
const INVITATION_BYTES: usize = 8;

/// The secret in a pairing link.
#[derive(Clone)]
pub struct PairingSecret(Zeroizing<[u8; SECRET_BYTES]>);

impl PairingSecret {
    pub fn generate(random: &mut dyn Random) -> Result<Self, SealError> {
        Ok(Self(Zeroizing::new(array(random)?)))
    }

    /// The key of this pairing: it is tied to the machine that the link names.
    fn key(&self, machine: &MachineId, fingerprint: Fingerprint) -> Result<SymmetricKey, SealError> {
        let context = Context::of("pairing").text(machine.as_str()).bytes(&fingerprint.0);
        SymmetricKey::derive(self.0.as_slice(), &[], &context)
    }
}

impl fmt::Debug for PairingSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// The fragment after the `#` of a link.
#[derive(Debug, Clone)]
pub struct PairingLink {
    pub machine: MachineId,
    pub secret: PairingSecret,
    pub fingerprint: Fingerprint,
}

impl PairingLink {
    pub fn parse(text: &str) -> Result<Self, SealError> {
        let mut parts = text.rsplitn(3, '.');
        let (fingerprint, secret, machine) = (parts.next(), parts.next(), parts.next());
        let bytes = |part: Option<&str>| -> Result<[u8; 16], SealError> {
            let bytes = Zeroizing::new(from_text(part.unwrap_or_default()).map_err(|_| SealError::NotALink)?);
            bytes.as_slice().try_into().map_err(|_| SealError::NotALink)
        };
        Ok(Self {
            machine: MachineId::parse(machine.unwrap_or_default()).map_err(|_| SealError::NotALink)?,
            secret: PairingSecret(Zeroizing::new(bytes(secret)?)),
            fingerprint: Fingerprint(bytes(fingerprint)?),
        })
    }

    /// To be shown, and not to be logged.
    pub fn to_text(&self) -> Zeroizing<String> {
        let secret = Zeroizing::new(to_text(self.secret.0.as_slice()));
        Zeroizing::new(format!("{}.{}.{}", self.machine.as_str(), secret.as_str(), self.fingerprint))
    }
}

/// A device's request to be paired. Nothing in it can be trusted before a [`PairingInvitation`] accepted it.
pub struct PairingOffer {
    pub invitation: [u8; INVITATION_BYTES],
    device: Point,
    name: String,
    mac: [u8; MAC_BYTES],
}

impl PairingOffer {
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, SealError> {
        let mut reader = Reader::of(bytes, OFFER)?;
        let invitation = reader.array()?;
        let device = Point::parse(&reader.array::<POINT_BYTES>()?)?;
        let mac = reader.array()?;
        let name = reader.rest();
        if name.len() > NAME_BYTES_MAX {
            return Err(SealError::Malformed);
        }
        let name = std::str::from_utf8(name).map_err(|_| SealError::Malformed)?.to_owned();
        Ok(Self { invitation, device, name, mac })
    }
}

/// The machine's side of a pairing: valid for one device, for a limited time and number of tries.
pub struct PairingInvitation {
    link: PairingLink,
    key: SymmetricKey,
    /// The role of the device: a word that this crate does not interpret.
    role: String,
    expires_at: i64,
    tries_left: u8,
    taken_by: Option<(Point, String)>,
}

/// A device that was let in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Enrolment {
    pub device: Point,
    /// As the device gave it: to be cleaned before it is shown.
    pub name: String,
    pub role: String,
    /// The words that both screens show.
    pub words: String,
    /// The answer to send.
    pub answer: Vec<u8>,
    /// The same offer came before: its answer was lost, and nothing is new.
    pub again: bool,
}

impl PairingInvitation {
    pub fn new(link: PairingLink, role: &str, now: i64) -> Result<Self, SealError> {
        let key = link.secret.key(&link.machine, link.fingerprint)?;
        let (role, expires_at) = (role.to_owned(), now.saturating_add(INVITATION_MS));
        Ok(Self { link, key, role, expires_at, tries_left: TRIES_MAX, taken_by: None })
    }

    /// The id that offers for this invitation contain.
    pub fn id(&self) -> [u8; INVITATION_BYTES] {
        invitation(&self.key)
    }

    pub fn expires_at(&self) -> i64 {
        self.expires_at
    }

    /// A wrong offer uses up a try. The right one is accepted once; if its answer was lost, the very same
    /// offer gets the same answer again.
    pub fn take(&mut self, offer: &PairingOffer, own: &PrivateKey, now: i64) -> Result<Enrolment, SealError> {
        if now >= self.expires_at || self.tries_left == 0 || offer.invitation != self.id() {
            return Err(SealError::Uninvited);
        }
        if self.key.verify(&bound_offer(&offer.device, &offer.name), &offer.mac).is_err() {
            self.tries_left -= 1;
            return Err(SealError::Uninvited);
        }
        let given = (offer.device, offer.name.clone());
        let again = self.taken_by.as_ref() == Some(&given);
        if self.taken_by.is_some() && !again {
            return Err(SealError::Uninvited);
        }
        let (device, name) = given.clone();
        self.taken_by = Some(given);
        let machine = own.public();
        let mac = self.key.sign(&bound_paired(&device, &name, &machine, &self.role));
        let answer = [&[PAIRED][..], machine.as_slice(), &mac, self.role.as_bytes()].concat();
        let words = words(&self.link.machine, &machine, &device);
        Ok(Enrolment { device, name, role: self.role.clone(), words, answer, again })
    }
}

/// The device's side of a pairing.
pub struct DevicePairing {
    link: PairingLink,
    key: SymmetricKey,
    own: PrivateKey,
    name: String,
}

/// What a device knows about a machine that it is paired with.
pub struct PairedMachine {
    pub bond: SharedSecret,
    pub machine: Point,
    pub role: String,
    pub words: String,
}

impl DevicePairing {
    pub fn new(link: PairingLink, own: PrivateKey, name: &str) -> Result<Self, SealError> {
        if name.len() > NAME_BYTES_MAX {
            return Err(SealError::Malformed);
        }
        let key = link.secret.key(&link.machine, link.fingerprint)?;
        Ok(Self { link, key, own, name: name.to_owned() })
    }

    /// The offer to send.
    pub fn offer(&self) -> Vec<u8> {
        let device = self.own.public();
        let mac = self.key.sign(&bound_offer(&device, &self.name));
        [&[OFFER][..], &invitation(&self.key), device.as_slice(), &mac, self.name.as_bytes()].concat()
    }

    pub fn answered(&self, bytes: &[u8]) -> Result<PairedMachine, SealError> {
        let mut reader = Reader::of(bytes, PAIRED)?;
        let machine = Point::parse(&reader.array::<POINT_BYTES>()?)?;
        let mac = reader.array()?;
        let role = std::str::from_utf8(reader.rest()).map_err(|_| SealError::Malformed)?.to_owned();
        if machine.fingerprint() != self.link.fingerprint {
            return Err(SealError::AnotherMachine);
        }
        let device = self.own.public();
        self.key.verify(&bound_paired(&device, &self.name, &machine, &role), &mac)?;
        let bond = SharedSecret::at_device(&self.link.machine, &self.own, &machine)?;
        Ok(PairedMachine { bond, machine, role, words: words(&self.link.machine, &machine, &device) })
    }
}

/// It is not secret, and reveals nothing about the secret.
fn invitation(key: &SymmetricKey) -> [u8; INVITATION_BYTES] {
    let mut id = [0; INVITATION_BYTES];
    id.copy_from_slice(&key.sign(&Context::of("invitation"))[..INVITATION_BYTES]);
    id
}

fn bound_offer(device: &Point, name: &str) -> Context {
    Context::of("offer").bytes(device.as_slice()).text(name)
}

fn bound_paired(device: &Point, name: &str, machine: &Point, role: &str) -> Context {
    Context::of("paired").bytes(device.as_slice()).text(name).bytes(machine.as_slice()).text(role)
}

fn words(id: &MachineId, machine: &Point, device: &Point) -> String {
    let context = Context::of("words").text(id.as_str()).bytes(machine.as_slice()).bytes(device.as_slice());
    let digest = digest(&SHA256, context.as_slice());
    let mut bytes = [0; 32];
    bytes.copy_from_slice(digest.as_ref());
    two(&bytes)
}
