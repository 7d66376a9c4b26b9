//! Encryption of a push for one browser: RFC 8291 on top of RFC 8188, one record.
//!
//! The key comes from a fresh key pair of ours, the browser's public key and the secret that only the
//! browser and we know. So the push service that carries the message can neither read nor make one.
//! All messages are of one length, so that not even that tells an ask from a turn's end.

use ring::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::agreement::{ECDH_P256, EphemeralPrivateKey, UnparsedPublicKey, agree_ephemeral};
use ring::error::Unspecified;
use ring::hkdf::{HKDF_SHA256, KeyType, Salt};
use ring::rand::{SecureRandom, SystemRandom};

/// A point of the curve, uncompressed.
pub(super) const POINT_BYTES: usize = 65;
pub(super) const AUTH_BYTES: usize = 16;
const SALT_BYTES: usize = 16;
/// What every message is filled up to before it is encrypted. The longest of ours fits.
const PADDED_BYTES: usize = 256;
/// The size of a record, as it is announced. There is only one, and it is smaller.
const RECORD_BYTES: u32 = 4096;
/// Follows the text in the last record; the rest is zeros.
const LAST: u8 = 2;

/// What a browser gave us to write to it.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Recipient {
    pub(super) point: [u8; POINT_BYTES],
    pub(super) auth: [u8; AUTH_BYTES],
}

impl Recipient {
    /// Encrypts with a key pair and a salt that are used once.
    pub(super) fn seal(&self, text: &[u8]) -> Result<Vec<u8>, Unspecified> {
        let random = SystemRandom::new();
        let mut salt = [0; SALT_BYTES];
        random.fill(&mut salt)?;
        let private = EphemeralPrivateKey::generate(&ECDH_P256, &random)?;
        let ours = private.compute_public_key()?;
        let theirs = UnparsedPublicKey::new(&ECDH_P256, self.point);
        let sealed = |shared: &[u8]| self.encrypt(text, PADDED_BYTES, shared, ours.as_ref(), &salt);
        agree_ephemeral(private, &theirs, sealed)?
    }

    /// The same with everything given: the length, what is shared, our public key, the salt.
    fn encrypt(
        &self,
        text: &[u8],
        padded: usize,
        shared: &[u8],
        ours: &[u8],
        salt: &[u8],
    ) -> Result<Vec<u8>, Unspecified> {
        let extract = Salt::new(HKDF_SHA256, &self.auth).extract(shared);
        let secret: [u8; 32] = derive(&extract, &[b"WebPush: info\0", &self.point, ours])?;
        let extract = Salt::new(HKDF_SHA256, salt).extract(&secret);
        let key: [u8; 16] = derive(&extract, &[b"Content-Encoding: aes128gcm\0"])?;
        let nonce: [u8; 12] = derive(&extract, &[b"Content-Encoding: nonce\0"])?;

        let mut record = text.to_vec();
        record.push(LAST);
        record.resize(record.len().max(padded), 0);
        let key = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &key)?);
        key.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::empty(), &mut record)?;

        let mut body = salt.to_vec();
        body.extend(RECORD_BYTES.to_be_bytes());
        body.push(u8::try_from(ours.len()).map_err(|_| Unspecified)?);
        body.extend(ours);
        body.extend(record);
        Ok(body)
    }
}

/// The secret is nobody's business.
impl std::fmt::Debug for Recipient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Recipient")
    }
}

fn derive<const N: usize>(from: &ring::hkdf::Prk, info: &[&[u8]]) -> Result<[u8; N], Unspecified> {
    struct Length(usize);
    impl KeyType for Length {
        fn len(&self) -> usize {
            self.0
        }
    }
    let mut out = [0; N];
    from.expand(info, Length(N))?.fill(&mut out)?;
    Ok(out)
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;

    use super::*;

    fn bytes<const N: usize>(text: &str) -> [u8; N] {
        URL_SAFE_NO_PAD.decode(text).unwrap().try_into().unwrap()
    }

    /// RFC 8291, appendix A.
    #[test]
    fn the_example_of_the_standard_comes_out_byte_for_byte() {
        let recipient = Recipient {
            point: bytes(
                "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4",
            ),
            auth: bytes("BTBZMqHH6r4Tts7J_aSIgg"),
        };
        let ours: [u8; POINT_BYTES] =
            bytes("BP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A8");
        let shared: [u8; 32] = bytes("kyrL1jIIOHEzg3sM2ZWRHDRB62YACZhhSlknJ672kSs");
        let salt: [u8; SALT_BYTES] = bytes("DGv6ra1nlYgDCS1FRnbzlw");
        let text = b"When I grow up, I want to be a watermelon";
        let body = recipient.encrypt(text, 0, &shared, &ours, &salt).unwrap();
        let expected = "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A_yl95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN";
        assert_eq!(URL_SAFE_NO_PAD.encode(body), expected);
    }

    #[test]
    fn messages_of_any_length_look_alike_and_never_the_same() {
        let point =
            bytes("BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4");
        let recipient = Recipient { point, auth: [7; AUTH_BYTES] };
        let (short, long) = (recipient.seal(b"a").unwrap(), recipient.seal(&[b'a'; 200]).unwrap());
        assert_eq!(short.len(), long.len());
        let again = recipient.seal(b"a").unwrap();
        assert_ne!(short[..SALT_BYTES], again[..SALT_BYTES]);
        assert_ne!(short[SALT_BYTES..], again[SALT_BYTES..]);
    }

    #[test]
    fn a_point_that_is_not_on_the_curve_gets_nothing() {
        let mut point = [1; POINT_BYTES];
        point[0] = 4;
        assert!(Recipient { point, auth: [7; AUTH_BYTES] }.seal(b"a").is_err());
    }
}
