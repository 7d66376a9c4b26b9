//! The browser's end of a subscription: its keys, what it makes of a body, and how a token is checked.
//!
//! Written from the standards (RFC 8188, 8291, 8292) and not from the server's code.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use p256::{PublicKey, SecretKey};
use ring::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::rand::{SecureRandom, SystemRandom};
use ring::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};
use serde_json::Value;
use sha2::Sha256;

const HEADER_BYTES: usize = 21;
const TAG_BYTES: usize = 16;

pub struct Browser {
    secret: SecretKey,
    auth: [u8; 16],
}

impl Browser {
    pub(super) fn new() -> Self {
        let random = |bytes: &mut [u8]| SystemRandom::new().fill(bytes).expect("random bytes");
        let (mut secret, mut auth) = ([0; 32], [0; 16]);
        random(&mut secret);
        random(&mut auth);
        Self::of(&secret, auth)
    }

    fn of(secret: &[u8], auth: [u8; 16]) -> Self {
        Self { secret: SecretKey::from_slice(secret).expect("nearly every number is a key"), auth }
    }

    /// The public key and the secret, as a subscription has them.
    pub(super) fn keys(&self) -> (String, String) {
        (URL_SAFE_NO_PAD.encode(self.point()), URL_SAFE_NO_PAD.encode(self.auth))
    }

    /// The text of a body that was encrypted for this browser.
    pub(super) fn open(&self, body: &[u8]) -> Result<Vec<u8>, String> {
        let (header, rest) = body.split_at_checked(HEADER_BYTES).ok_or("no header")?;
        let (salt, record_bytes, key_bytes) = (&header[..16], &header[16..20], usize::from(header[20]));
        let record_bytes = u32::from_be_bytes(record_bytes.try_into().expect("four bytes"));
        let (theirs, record) = rest.split_at_checked(key_bytes).ok_or("no key")?;
        if record.len() > record_bytes as usize || record.len() < TAG_BYTES + 1 {
            return Err(format!("a record of {} bytes, announced with {record_bytes}", record.len()));
        }
        let public = PublicKey::from_sec1_bytes(theirs).map_err(|error| error.to_string())?;
        let shared = self.secret.diffie_hellman(&public);
        let info = [b"WebPush: info\0", self.point().as_ref(), theirs].concat();
        let secret = hkdf(&self.auth, shared.raw_secret_bytes(), &info);
        let key = hkdf(salt, &secret, b"Content-Encoding: aes128gcm\0");
        let nonce = hkdf(salt, &secret, b"Content-Encoding: nonce\0");

        let key = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &key[..16]).expect("a key of 16 bytes"));
        let nonce = Nonce::try_assume_unique_for_key(&nonce[..12]).expect("a nonce of 12 bytes");
        let mut record = record.to_vec();
        let opened = key.open_in_place(nonce, Aad::empty(), &mut record);
        let padded = opened.map_err(|_| "it was encrypted for somebody else".to_owned())?;
        let end = padded.iter().rposition(|byte| *byte != 0).ok_or("nothing but zeros")?;
        if padded[end] != 2 {
            return Err("it is not the last record".into());
        }
        Ok(padded[..end].to_vec())
    }

    fn point(&self) -> Box<[u8]> {
        self.secret.public_key().to_sec1_bytes()
    }
}

/// One block of HKDF with SHA-256, which is all that is ever taken.
fn hkdf(salt: &[u8], input: &[u8], info: &[u8]) -> [u8; 32] {
    let mac = |key: &[u8], parts: &[&[u8]]| -> [u8; 32] {
        let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("a key of any length");
        parts.iter().for_each(|part| mac.update(part));
        mac.finalize().into_bytes().into()
    };
    mac(&mac(salt, &[input]), &[info, &[1]])
}

/// The key that signed the token of this header, and what the token says. It must be for this origin.
pub(super) fn verify(authorization: &str, origin: &str) -> Result<(String, Value), String> {
    let parameters = authorization.strip_prefix("vapid ").ok_or("no vapid")?;
    let find = |name: &str| {
        let mut found = parameters.split(',').filter_map(|part| part.trim().split_once('='));
        found.find(|(given, _)| *given == name).map(|(_, value)| value)
    };
    let (token, key) = (find("t").ok_or("no token")?, find("k").ok_or("no key")?);
    let decode = |text: &str| URL_SAFE_NO_PAD.decode(text).map_err(|error| error.to_string());
    let (signed, signature) = token.rsplit_once('.').ok_or("no signature")?;
    let public = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, decode(key)?);
    public.verify(signed.as_bytes(), &decode(signature)?).map_err(|_| "a wrong signature")?;
    let (head, claims) = signed.split_once('.').ok_or("no claims")?;
    let json = |text| serde_json::from_slice::<Value>(&decode(text)?).map_err(|error| error.to_string());
    let (head, claims) = (json(head)?, json(claims)?);
    if head["alg"] != "ES256" || claims["aud"] != origin || !claims["exp"].is_i64() {
        return Err(format!("a token for something else: {head} {claims}"));
    }
    Ok((key.to_owned(), claims))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &str) -> Vec<u8> {
        URL_SAFE_NO_PAD.decode(text).unwrap()
    }

    /// RFC 8291, appendix A, from the browser's side: so a server that this browser understands is one
    /// that every browser does.
    #[test]
    fn the_example_of_the_standard_is_read() {
        let secret = bytes("q1dXpw3UpT5VOmu_cf_v6ih07Aems3njxI-JWgLcM94");
        let auth = bytes("BTBZMqHH6r4Tts7J_aSIgg").try_into().unwrap();
        let browser = Browser::of(&secret, auth);
        let body = bytes(
            "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A_yl95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN",
        );
        assert_eq!(browser.open(&body).unwrap(), b"When I grow up, I want to be a watermelon");
        let mut damaged = body.clone();
        *damaged.last_mut().unwrap() ^= 1;
        assert!(browser.open(&damaged).is_err());
        assert!(Browser::new().open(&body).is_err());
        assert!(browser.open(&body[..50]).is_err());
    }
}
