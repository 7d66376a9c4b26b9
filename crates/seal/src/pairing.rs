//! How a device becomes one of a machine.
//!
//! The machine shows a link whose last part never reaches the hub: its id, a secret, and the fingerprint of
//! its key. The device sends its public key, signed with the secret; the machine sends its own back, and
//! signs all that was said. Who does not know the secret can neither join nor pose as the machine, and the
//! secret is too long to be guessed from what passes by.

use std::fmt;

use p256::elliptic_curve::zeroize::Zeroizing;
use ring::digest::{SHA256, digest};

use crate::context::Context;
use crate::key::{Bond, Fingerprint, Key, MAC_BYTES, MachineId, POINT_BYTES, Point, PrivateKey};
use crate::message::{OFFER, PAIRED, Reader, from_text, to_text};
use crate::random::array;
use crate::words::two;
use crate::{Random, Refused};

/// How long an invitation is good for.
pub const INVITATION_MS: i64 = 5 * 60_000;
pub const NAME_BYTES_MAX: usize = 128;
const TRIES_MAX: u8 = 5;
const SECRET_BYTES: usize = 16;
const INVITATION_BYTES: usize = 8;

/// Known to whoever saw the link.
#[derive(Clone)]
pub struct Secret(Zeroizing<[u8; SECRET_BYTES]>);

impl Secret {
    pub fn generate(random: &mut dyn Random) -> Result<Self, Refused> {
        Ok(Self(Zeroizing::new(array(random)?)))
    }

    /// The key of this pairing: it is tied to the machine that the link names.
    fn key(&self, machine: &MachineId, fingerprint: Fingerprint) -> Result<Key, Refused> {
        let context = Context::of("pairing").text(machine.as_str()).bytes(&fingerprint.0);
        Key::derive(self.0.as_slice(), &[], &context)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// What stands behind the `#` of a link.
#[derive(Debug, Clone)]
pub struct PairingLink {
    pub machine: MachineId,
    pub secret: Secret,
    pub fingerprint: Fingerprint,
}

impl PairingLink {
    pub fn parse(text: &str) -> Result<Self, Refused> {
        let mut parts = text.rsplitn(3, '.');
        let (fingerprint, secret, machine) = (parts.next(), parts.next(), parts.next());
        let bytes = |part: Option<&str>| -> Result<[u8; 16], Refused> {
            let bytes = Zeroizing::new(from_text(part.unwrap_or_default()).map_err(|_| Refused::NotALink)?);
            bytes.as_slice().try_into().map_err(|_| Refused::NotALink)
        };
        Ok(Self {
            machine: MachineId::parse(machine.unwrap_or_default()).map_err(|_| Refused::NotALink)?,
            secret: Secret(Zeroizing::new(bytes(secret)?)),
            fingerprint: Fingerprint(bytes(fingerprint)?),
        })
    }

    /// To be shown, and not to be logged.
    pub fn to_text(&self) -> Zeroizing<String> {
        let secret = Zeroizing::new(to_text(self.secret.0.as_slice()));
        Zeroizing::new(format!("{}.{}.{}", self.machine.as_str(), secret.as_str(), self.fingerprint))
    }
}

/// What a device sends. Nothing of it is to be believed before an [`Invitation`] took it.
pub struct Offer {
    pub invitation: [u8; INVITATION_BYTES],
    device: Point,
    name: String,
    mac: [u8; MAC_BYTES],
}

impl Offer {
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, Refused> {
        let mut reader = Reader::of(bytes, OFFER)?;
        let invitation = reader.array()?;
        let device = Point::parse(&reader.array::<POINT_BYTES>()?)?;
        let mac = reader.array()?;
        let name = reader.rest();
        if name.len() > NAME_BYTES_MAX {
            return Err(Refused::Malformed);
        }
        let name = std::str::from_utf8(name).map_err(|_| Refused::Malformed)?.to_owned();
        Ok(Self { invitation, device, name, mac })
    }
}

/// The machine's side: good for one device, for a while, and for a few tries.
pub struct Invitation {
    link: PairingLink,
    key: Key,
    /// What a device of it may do: a word that this crate does not know.
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
    /// They stand on both screens.
    pub words: String,
    /// What to answer.
    pub answer: Vec<u8>,
    /// The same offer came before: the answer was lost, and nothing is new.
    pub again: bool,
}

impl Invitation {
    pub fn new(link: PairingLink, role: &str, now: i64) -> Result<Self, Refused> {
        let key = link.secret.key(&link.machine, link.fingerprint)?;
        let (role, expires_at) = (role.to_owned(), now.saturating_add(INVITATION_MS));
        Ok(Self { link, key, role, expires_at, tries_left: TRIES_MAX, taken_by: None })
    }

    /// What offers for it name.
    pub fn id(&self) -> [u8; INVITATION_BYTES] {
        invitation(&self.key)
    }

    pub fn expires_at(&self) -> i64 {
        self.expires_at
    }

    /// A wrong offer uses up a try. The right one is taken once; if its answer was lost, the very same
    /// offer gets the same answer again.
    pub fn take(&mut self, offer: &Offer, own: &PrivateKey, now: i64) -> Result<Enrolment, Refused> {
        if now >= self.expires_at || self.tries_left == 0 || offer.invitation != self.id() {
            return Err(Refused::Uninvited);
        }
        if self.key.verify(&bound_offer(&offer.device, &offer.name), &offer.mac).is_err() {
            self.tries_left -= 1;
            return Err(Refused::Uninvited);
        }
        let given = (offer.device, offer.name.clone());
        let again = self.taken_by.as_ref() == Some(&given);
        if self.taken_by.is_some() && !again {
            return Err(Refused::Uninvited);
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

/// The device's side.
pub struct Joining {
    link: PairingLink,
    key: Key,
    own: PrivateKey,
    name: String,
}

/// What a device knows of a machine that let it in.
pub struct Paired {
    pub bond: Bond,
    pub machine: Point,
    pub role: String,
    pub words: String,
}

impl Joining {
    pub fn new(link: PairingLink, own: PrivateKey, name: &str) -> Result<Self, Refused> {
        if name.len() > NAME_BYTES_MAX {
            return Err(Refused::Malformed);
        }
        let key = link.secret.key(&link.machine, link.fingerprint)?;
        Ok(Self { link, key, own, name: name.to_owned() })
    }

    /// What to send.
    pub fn offer(&self) -> Vec<u8> {
        let device = self.own.public();
        let mac = self.key.sign(&bound_offer(&device, &self.name));
        [&[OFFER][..], &invitation(&self.key), device.as_slice(), &mac, self.name.as_bytes()].concat()
    }

    pub fn answered(&self, bytes: &[u8]) -> Result<Paired, Refused> {
        let mut reader = Reader::of(bytes, PAIRED)?;
        let machine = Point::parse(&reader.array::<POINT_BYTES>()?)?;
        let mac = reader.array()?;
        let role = std::str::from_utf8(reader.rest()).map_err(|_| Refused::Malformed)?.to_owned();
        if machine.fingerprint() != self.link.fingerprint {
            return Err(Refused::AnotherMachine);
        }
        let device = self.own.public();
        self.key.verify(&bound_paired(&device, &self.name, &machine, &role), &mac)?;
        let bond = Bond::at_device(&self.link.machine, &self.own, &machine)?;
        Ok(Paired { bond, machine, role, words: words(&self.link.machine, &machine, &device) })
    }
}

/// Not secret, and tells nothing of the secret.
fn invitation(key: &Key) -> [u8; INVITATION_BYTES] {
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
