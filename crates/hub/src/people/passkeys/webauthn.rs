//! Verifies the responses of a browser and its authenticator: WebAuthn level 2, sections 7.1 and 7.2.
//!
//! Pure functions: challenges, owners and counters are checked by the caller. Attestation of the authenticator's maker is
//! neither requested nor checked.

use base64::Engine;
use base64::alphabet::URL_SAFE;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use ring::signature::{ECDSA_P256_SHA256_ASN1, ED25519, UnparsedPublicKey, VerificationAlgorithm};
use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::cbor::Cbor;

/// Browsers write base64url without padding; some libraries add it.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &URL_SAFE,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);
/// The standard's longest id.
const CREDENTIAL_BYTES_MAX: usize = 1023;
/// The authenticator data up to the counter, inclusive.
const HEAD_BYTES: usize = 37;

/// ECDSA on P-256 with SHA-256, by its number at IANA.
pub(super) const ES256: i64 = -7;
/// EdDSA, which is Ed25519 here.
pub(super) const EDDSA: i64 = -8;

const PRESENT: u8 = 1;
const VERIFIED: u8 = 1 << 2;
const ATTESTED: u8 = 1 << 6;
const EXTENDED: u8 = 1 << 7;

/// Why a passkey, or its signature, is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum WebauthnError {
    #[error("could not read what the browser sent")]
    Malformed,
    #[error("it was made for another purpose")]
    Purpose,
    #[error("it was made on another page")]
    Origin,
    #[error("it was made for another site")]
    Site,
    #[error("the device did not confirm that somebody was there")]
    Absent,
    #[error(
        "the device did not check who you are; set a PIN, a fingerprint or a face for it, or use another passkey"
    )]
    Unverified,
    #[error("this kind of key is not supported")]
    Algorithm,
    #[error("the signature is wrong")]
    Signature,
}

/// The client data of a response, verified for its purpose and site.
#[derive(Debug)]
pub(super) struct VerifiedClientData {
    pub challenge: Vec<u8>,
    hash: [u8; 32],
}

/// The site that a response must be made for.
#[derive(Debug, Clone, Copy)]
pub(super) struct RelyingParty<'a> {
    pub origin: &'a str,
    pub relying_party: &'a str,
}

/// A public key as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PublicKey {
    pub algorithm: i64,
    pub bytes: Vec<u8>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct NewKey {
    pub credential: Vec<u8>,
    pub key: PublicKey,
    pub counter: u32,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ClientData {
    #[serde(rename = "type")]
    purpose: String,
    challenge: String,
    origin: String,
    #[serde(default)]
    cross_origin: bool,
}

pub(super) fn decode(text: &str) -> Result<Vec<u8>, WebauthnError> {
    BASE64.decode(text).map_err(|_| WebauthnError::Malformed)
}

/// `purpose` is `webauthn.create` or `webauthn.get`.
pub(super) fn verify_client_data(
    json: &[u8],
    purpose: &str,
    site: RelyingParty<'_>,
) -> Result<VerifiedClientData, WebauthnError> {
    let data: ClientData = serde_json::from_slice(json).map_err(|_| WebauthnError::Malformed)?;
    if data.purpose != purpose {
        return Err(WebauthnError::Purpose);
    }
    if data.origin != site.origin || data.cross_origin {
        return Err(WebauthnError::Origin);
    }
    Ok(VerifiedClientData { challenge: decode(&data.challenge)?, hash: Sha256::digest(json).into() })
}

/// The key of an attestation object.
pub(super) fn verify_attestation(
    attestation: &[u8],
    site: RelyingParty<'_>,
) -> Result<NewKey, WebauthnError> {
    let (object, rest) = Cbor::read(attestation).ok_or(WebauthnError::Malformed)?;
    let data = object.get(&Cbor::Text("authData")).and_then(Cbor::bytes).ok_or(WebauthnError::Malformed)?;
    if !rest.is_empty() {
        return Err(WebauthnError::Malformed);
    }
    let data = AuthenticatorData::read(data, site)?;
    let (credential, key) = data.attested.ok_or(WebauthnError::Malformed)?;
    Ok(NewKey { credential: credential.to_vec(), key: public_key(&key)?, counter: data.counter })
}

/// The counter of an assertion that this key has signed.
pub(super) fn verify_assertion(
    key: &PublicKey,
    data: &[u8],
    signature: &[u8],
    client: &VerifiedClientData,
    site: RelyingParty<'_>,
) -> Result<u32, WebauthnError> {
    let counter = AuthenticatorData::read(data, site)?.counter;
    let algorithm: &'static dyn VerificationAlgorithm = match key.algorithm {
        ES256 => &ECDSA_P256_SHA256_ASN1,
        EDDSA => &ED25519,
        _ => return Err(WebauthnError::Algorithm),
    };
    let message = [data, &client.hash].concat();
    let verified = UnparsedPublicKey::new(algorithm, &key.bytes).verify(&message, signature);
    verified.map_err(|_| WebauthnError::Signature)?;
    Ok(counter)
}

struct AuthenticatorData<'a> {
    counter: u32,
    attested: Option<(&'a [u8], Cbor<'a>)>,
}

impl<'a> AuthenticatorData<'a> {
    fn read(bytes: &'a [u8], site: RelyingParty<'_>) -> Result<Self, WebauthnError> {
        let (head, mut rest) = bytes.split_at_checked(HEAD_BYTES).ok_or(WebauthnError::Malformed)?;
        let (name, tail) = head.split_at_checked(32).ok_or(WebauthnError::Malformed)?;
        let [flags, counter @ ..] = tail else { return Err(WebauthnError::Malformed) };
        if name != Sha256::digest(site.relying_party.as_bytes()).as_slice() {
            return Err(WebauthnError::Site);
        }
        if flags & PRESENT == 0 {
            return Err(WebauthnError::Absent);
        }
        // Without user verification, a touch of the key by anybody would sign in.
        if flags & VERIFIED == 0 {
            return Err(WebauthnError::Unverified);
        }
        let counter = u32::from_be_bytes(counter.try_into().map_err(|_| WebauthnError::Malformed)?);
        let mut attested = None;
        if flags & ATTESTED != 0 {
            let (credential, after) = credential(rest).ok_or(WebauthnError::Malformed)?;
            let (key, after) = Cbor::read(after).ok_or(WebauthnError::Malformed)?;
            (attested, rest) = (Some((credential, key)), after);
        }
        if flags & EXTENDED != 0 {
            rest = Cbor::read(rest).ok_or(WebauthnError::Malformed)?.1;
        }
        if rest.is_empty() { Ok(Self { counter, attested }) } else { Err(WebauthnError::Malformed) }
    }
}

/// Follows the 16 bytes that name the authenticator's model.
fn credential(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (_, rest) = bytes.split_at_checked(16)?;
    let (length, rest) = rest.split_at_checked(2)?;
    let length = usize::from(u16::from_be_bytes(length.try_into().ok()?));
    if length == 0 || length > CREDENTIAL_BYTES_MAX {
        return None;
    }
    rest.split_at_checked(length)
}

/// Reads a COSE key (RFC 9053) of one of the algorithms that were offered.
fn public_key(key: &Cbor<'_>) -> Result<PublicKey, WebauthnError> {
    let int = |label: i64| key.get(&Cbor::Int(label)).and_then(Cbor::int);
    let point = |label: i64| {
        let bytes = key.get(&Cbor::Int(label)).and_then(Cbor::bytes);
        bytes.filter(|bytes| bytes.len() == 32).ok_or(WebauthnError::Malformed)
    };
    match (int(1), int(3), int(-1)) {
        (Some(2), Some(ES256), Some(1)) => {
            Ok(PublicKey { algorithm: ES256, bytes: [&[4], point(-2)?, point(-3)?].concat() })
        }
        (Some(1), Some(EDDSA), Some(6)) => Ok(PublicKey { algorithm: EDDSA, bytes: point(-2)?.to_vec() }),
        _ => Err(WebauthnError::Algorithm),
    }
}
