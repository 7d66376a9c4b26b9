//! Keys: those of a machine and of a device, and the secret that the two share.

use std::fmt;

use p256::elliptic_curve::zeroize::Zeroizing;
use p256::{PublicKey, SecretKey};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::digest::{SHA256, digest};
use ring::hkdf::{HKDF_SHA256, KeyType, Salt};
use ring::hmac;

use crate::key_context::Context;
use crate::message_format::to_text;
use crate::random::array;
use crate::{Random, SealError};

pub(crate) const POINT_BYTES: usize = 65;
pub(crate) const NONCE_BYTES: usize = 12;
pub(crate) const MAC_BYTES: usize = 32;
const ID_BYTES: usize = 16;
const MARK_BYTES: usize = 16;
const MACHINE_CHARS_MAX: usize = 128;
/// Nearly every number is a private key; this many invalid ones in a row cannot happen by chance.
const KEY_TRIES: usize = 16;

/// A machine at a hub, by the name under which it registers.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct MachineId(String);

impl MachineId {
    /// Letters, digits, `-`, `_` and `.`, because it is part of links.
    pub fn parse(text: &str) -> Result<Self, SealError> {
        let fits = (1..=MACHINE_CHARS_MAX).contains(&text.len());
        let plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
        if fits && plain { Ok(Self(text.to_owned())) } else { Err(SealError::NotAMachine) }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A public key: a point of the curve, uncompressed. There is none that is not on the curve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Point([u8; POINT_BYTES]);

impl Point {
    pub fn parse(bytes: &[u8]) -> Result<Self, SealError> {
        let point: [u8; POINT_BYTES] = bytes.try_into().map_err(|_| SealError::NotAPoint)?;
        PublicKey::from_sec1_bytes(&point).map_err(|_| SealError::NotAPoint)?;
        Ok(Self(point))
    }

    pub fn as_slice(&self) -> &[u8] {
        &self.0
    }

    /// The id of the device with this key.
    pub fn device(&self) -> DeviceId {
        DeviceId(self.digest("device"))
    }

    /// The fingerprint in links of the machine with this key.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint(self.digest("fingerprint"))
    }

    /// Half of a digest: who wants another key with the same one has to try 2^128 of them.
    fn digest(&self, label: &str) -> [u8; ID_BYTES] {
        let whole = digest(&SHA256, Context::of(label).bytes(&self.0).as_slice());
        let mut half = [0; ID_BYTES];
        half.copy_from_slice(&whole.as_ref()[..ID_BYTES]);
        half
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceId(pub(crate) [u8; ID_BYTES]);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint(pub(crate) [u8; ID_BYTES]);

impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&to_text(&self.0))
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&to_text(&self.0))
    }
}

/// The private key of a machine or of a device. Overwritten when it is dropped.
#[derive(Clone)]
pub struct PrivateKey(SecretKey);

impl PrivateKey {
    pub fn generate(random: &mut dyn Random) -> Result<Self, SealError> {
        for _ in 0..KEY_TRIES {
            let bytes = Zeroizing::new(array::<32>(random)?);
            if let Ok(key) = SecretKey::from_slice(bytes.as_slice()) {
                return Ok(Self(key));
            }
        }
        Err(SealError::NoRandom)
    }

    pub fn from_bytes(bytes: &[u8; 32]) -> Result<Self, SealError> {
        SecretKey::from_slice(bytes).map(Self).map_err(|_| SealError::Malformed)
    }

    pub fn to_bytes(&self) -> Zeroizing<[u8; 32]> {
        Zeroizing::new(self.0.to_bytes().into())
    }

    pub fn public(&self) -> Point {
        let mut point = [0; POINT_BYTES];
        // A private key's point is never the one at infinity, the only one of another length.
        point.copy_from_slice(&self.0.public_key().to_sec1_bytes());
        Point(point)
    }

    /// Marks a value so that this machine recognises it again, while nobody else can learn or guess the
    /// value from the mark.
    pub fn mark(&self, of: &[u8]) -> [u8; MARK_BYTES] {
        let key = hmac::Key::new(hmac::HMAC_SHA256, self.to_bytes().as_slice());
        let own = hmac::sign(&key, Context::of("mark").as_slice());
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, own.as_ref()), of);
        let mut mark = [0; MARK_BYTES];
        mark.copy_from_slice(&tag.as_ref()[..MARK_BYTES]);
        mark
    }

    fn agree(&self, other: &Point) -> Result<Zeroizing<[u8; 32]>, SealError> {
        let other = PublicKey::from_sec1_bytes(&other.0).map_err(|_| SealError::NotAPoint)?;
        let shared = self.0.diffie_hellman(&other);
        let mut bytes = Zeroizing::new([0; 32]);
        bytes.copy_from_slice(shared.raw_secret_bytes());
        Ok(bytes)
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PrivateKey")
    }
}

/// The secret that a machine and one of its devices share. Both ends derive the same one.
#[derive(Clone)]
pub struct SharedSecret {
    pub(crate) machine: MachineId,
    pub(crate) device: DeviceId,
    /// Who it is between: part of every key.
    parties: [Point; 2],
    shared: Zeroizing<[u8; 32]>,
}

impl SharedSecret {
    pub fn at_machine(id: &MachineId, own: &PrivateKey, device: &Point) -> Result<Self, SealError> {
        Self::new(id, own.public(), *device, own.agree(device)?)
    }

    pub fn at_device(id: &MachineId, own: &PrivateKey, machine: &Point) -> Result<Self, SealError> {
        Self::new(id, *machine, own.public(), own.agree(machine)?)
    }

    fn new(
        id: &MachineId,
        machine: Point,
        device: Point,
        shared: Zeroizing<[u8; 32]>,
    ) -> Result<Self, SealError> {
        Ok(Self { machine: id.clone(), device: device.device(), parties: [machine, device], shared })
    }

    pub fn device(&self) -> DeviceId {
        self.device
    }

    /// A key of this bond for one purpose. `salt` makes it one of a conversation.
    pub(crate) fn derive(&self, purpose: &str, salt: &[u8]) -> Result<SymmetricKey, SealError> {
        let [machine, device] = &self.parties;
        let context = Context::of(purpose).text(self.machine.as_str()).bytes(&machine.0).bytes(&device.0);
        SymmetricKey::derive(self.shared.as_slice(), salt, &context)
    }
}

impl fmt::Debug for SharedSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedSecret")
            .field("machine", &self.machine)
            .field("device", &self.device)
            .finish_non_exhaustive()
    }
}

/// 32 bytes for one purpose. Overwritten when dropped, never printed.
#[derive(Clone)]
pub(crate) struct SymmetricKey(pub Zeroizing<[u8; 32]>);

impl SymmetricKey {
    pub fn derive(secret: &[u8], salt: &[u8], context: &Context) -> Result<Self, SealError> {
        struct Length;
        impl KeyType for Length {
            fn len(&self) -> usize {
                32
            }
        }
        let mut bytes = Zeroizing::new([0; 32]);
        let extract = Salt::new(HKDF_SHA256, salt).extract(secret);
        let info = [context.as_slice()];
        let expanded = extract.expand(&info, Length).map_err(|_| SealError::Malformed)?;
        expanded.fill(bytes.as_mut_slice()).map_err(|_| SealError::Malformed)?;
        Ok(Self(bytes))
    }

    /// The nonce must never have been used with this key.
    pub fn seal(
        &self,
        nonce: [u8; NONCE_BYTES],
        bound: &Context,
        plain: &[u8],
    ) -> Result<Vec<u8>, SealError> {
        let mut bytes = Vec::with_capacity(plain.len() + AES_256_GCM.tag_len());
        bytes.extend(plain);
        let nonce = Nonce::assume_unique_for_key(nonce);
        let sealed = self.cipher()?.seal_in_place_append_tag(nonce, Aad::from(bound.as_slice()), &mut bytes);
        // The only reason is a length that no frame has.
        sealed.map_err(|_| SealError::Exhausted)?;
        Ok(bytes)
    }

    pub fn open(
        &self,
        nonce: [u8; NONCE_BYTES],
        bound: &Context,
        sealed: &[u8],
    ) -> Result<Vec<u8>, SealError> {
        let mut bytes = sealed.to_vec();
        let nonce = Nonce::assume_unique_for_key(nonce);
        let opened = self.cipher()?.open_in_place(nonce, Aad::from(bound.as_slice()), &mut bytes);
        let length = opened.map_err(|_| SealError::Forged)?.len();
        bytes.truncate(length);
        Ok(bytes)
    }

    pub fn sign(&self, what: &Context) -> [u8; MAC_BYTES] {
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, self.0.as_slice()), what.as_slice());
        let mut mac = [0; MAC_BYTES];
        mac.copy_from_slice(tag.as_ref());
        mac
    }

    /// In constant time.
    pub fn verify(&self, what: &Context, mac: &[u8; MAC_BYTES]) -> Result<(), SealError> {
        let key = hmac::Key::new(hmac::HMAC_SHA256, self.0.as_slice());
        hmac::verify(&key, what.as_slice(), mac).map_err(|_| SealError::Forged)
    }

    fn cipher(&self) -> Result<LessSafeKey, SealError> {
        UnboundKey::new(&AES_256_GCM, self.0.as_slice())
            .map(LessSafeKey::new)
            .map_err(|_| SealError::Malformed)
    }
}
