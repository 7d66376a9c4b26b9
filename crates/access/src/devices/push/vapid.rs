//! How we identify ourselves to a push service: VAPID, RFC 8292.
//!
//! A browser ties its subscription to our public key, and the push service accepts messages for it only
//! with a token that this key has signed. So the key is kept for good: with another one every device
//! would have to subscribe again.

use std::io;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use engine::Timestamp;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use serde::Serialize;

use crate::{create_secret_file, read_secret_file};

/// How long a token is good for. The standard allows a day; half of it forgives a clock that is wrong.
const TOKEN_SECONDS: i64 = 12 * 60 * 60;

#[derive(Debug, thiserror::Error)]
pub enum VapidKeyError {
    #[error("could not read the push key in {0}")]
    Unread(PathBuf, #[source] io::Error),
    #[error("could not save the push key in {0}")]
    Unmade(PathBuf, #[source] io::Error),
    #[error(
        "{0} does not contain a push key; delete it to generate a new one (devices then subscribe again)"
    )]
    Damaged(PathBuf),
    #[error("could not create a push key: the operating system's random generator failed")]
    NoRandom,
}

/// The key with which pushes are signed, and whom a push service may write to about them.
pub struct Vapid {
    pair: EcdsaKeyPair,
    random: SystemRandom,
    public: String,
    contact: String,
}

#[derive(Serialize)]
struct Claims<'a> {
    aud: &'a str,
    exp: i64,
    sub: &'a str,
}

impl Vapid {
    /// The key in this file, which is made if there is none. `contact` is a `mailto:` or `https:`
    /// address; some push services refuse tokens without one.
    pub fn load_or_create(path: &Path, contact: &str) -> Result<Self, VapidKeyError> {
        let unread = |error| VapidKeyError::Unread(path.to_owned(), error);
        let text = match read_secret_file(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                create_secret_file(path, &new_key()?)
                    .map_err(|error| VapidKeyError::Unmade(path.to_owned(), error))?;
                // Another process that started at the same moment may have been first: its key is used.
                read_secret_file(path).map_err(unread)?
            }
            text => text.map_err(unread)?,
        };
        let damaged = || VapidKeyError::Damaged(path.to_owned());
        let bytes = URL_SAFE_NO_PAD.decode(text.trim()).map_err(|_| damaged())?;
        Self::of(&bytes, contact).ok_or_else(damaged)
    }

    /// A new key, as it is kept: one line of text.
    pub fn new_key() -> Result<String, VapidKeyError> {
        new_key()
    }

    /// The key of such a line.
    pub fn of_key(text: &str, contact: &str) -> Option<Self> {
        Self::of(&URL_SAFE_NO_PAD.decode(text.trim()).ok()?, contact)
    }

    fn of(bytes: &[u8], contact: &str) -> Option<Self> {
        let random = SystemRandom::new();
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, bytes, &random).ok()?;
        let public = URL_SAFE_NO_PAD.encode(pair.public_key());
        Some(Self { pair, random, public, contact: contact.to_owned() })
    }

    /// What browsers subscribe with: a point of the curve, uncompressed, in base64url.
    pub fn public_key(&self) -> &str {
        &self.public
    }

    /// The header that lets us in at the push service of this origin.
    pub(super) fn authorization(&self, origin: &str, now: Timestamp) -> Option<String> {
        let claims = Claims { aud: origin, exp: now.0 / 1000 + TOKEN_SECONDS, sub: &self.contact };
        let head = URL_SAFE_NO_PAD.encode(r#"{"typ":"JWT","alg":"ES256"}"#);
        let claims = URL_SAFE_NO_PAD.encode(serde_json::to_vec(&claims).ok()?);
        let signed = format!("{head}.{claims}");
        let signature = self.pair.sign(&self.random, signed.as_bytes()).ok()?;
        let signature = URL_SAFE_NO_PAD.encode(signature);
        Some(format!("vapid t={signed}.{signature}, k={}", self.public))
    }
}

/// The key is nobody's business.
impl std::fmt::Debug for Vapid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Vapid").field("public", &self.public).finish_non_exhaustive()
    }
}

fn new_key() -> Result<String, VapidKeyError> {
    let made = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new());
    Ok(URL_SAFE_NO_PAD.encode(made.map_err(|_| VapidKeyError::NoRandom)?))
}

#[cfg(test)]
mod tests {
    use ring::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};
    use serde_json::{Value, json};

    use std::fs;
    use std::os::unix::fs::MetadataExt;

    use super::*;

    fn made(folder: &Path) -> Vapid {
        Vapid::load_or_create(&folder.join("state/push.key"), "mailto:ops@example.com").unwrap()
    }

    #[test]
    fn a_token_names_the_service_and_an_end_and_is_signed_by_the_public_key() {
        let folder = tempfile::tempdir().unwrap();
        let vapid = made(folder.path());
        let header = vapid.authorization("https://push.example.com", Timestamp(1_700_000_000_000)).unwrap();
        let (token, key) = header.strip_prefix("vapid t=").unwrap().split_once(", k=").unwrap();
        assert_eq!(key, vapid.public_key());
        let (signed, signature) = token.rsplit_once('.').unwrap();
        let point = URL_SAFE_NO_PAD.decode(key).unwrap();
        assert_eq!((point.len(), point[0]), (65, 4));
        let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point);
        key.verify(signed.as_bytes(), &URL_SAFE_NO_PAD.decode(signature).unwrap()).unwrap();
        let parts: Vec<Value> = signed
            .split('.')
            .map(|part| serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap())
            .collect();
        let claims = json!({
            "aud": "https://push.example.com",
            "exp": 1_700_000_000 + 12 * 3600,
            "sub": "mailto:ops@example.com",
        });
        assert_eq!(parts, [json!({ "typ": "JWT", "alg": "ES256" }), claims]);
    }

    #[test]
    fn the_key_is_made_once_and_is_for_its_owner_only() {
        let folder = tempfile::tempdir().unwrap();
        let first = made(folder.path()).public_key().to_owned();
        assert_eq!(made(folder.path()).public_key(), first);
        let path = folder.path().join("state/push.key");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(folder.path().join("state")).unwrap().count(), 1);
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
        assert!(matches!(
            Vapid::load_or_create(&path, "mailto:a@example.com"),
            Err(VapidKeyError::Unread(..))
        ));
    }

    #[test]
    fn a_file_without_a_key_is_said_to_be_damaged_and_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("push.key");
        for text in ["", "not a key", "AAAA"] {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
            let error = Vapid::load_or_create(&path, "mailto:a@example.com").unwrap_err();
            assert!(matches!(error, VapidKeyError::Damaged(_)), "{error}");
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
    }
}
