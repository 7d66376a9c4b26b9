//! An authenticator in software: it makes passkeys and signs with them, correctly or with one error.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::people::test_hub::PUBLIC;

enum Pair {
    P256(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
}

pub struct Authenticator {
    pair: Pair,
    credential: Vec<u8>,
    user: String,
    pub counter: u32,
}

/// The values that go into a response; a test changes one of these.
#[derive(Clone)]
pub struct CeremonyInput {
    pub purpose: &'static str,
    pub origin: String,
    pub cross_origin: bool,
    pub site: String,
    pub flags: u8,
    /// Instead of the challenge that was given.
    pub challenge: Option<String>,
    /// Appended to the authenticator's data.
    pub tail: Vec<u8>,
    pub spoil_signature: bool,
    pub user: Option<Value>,
}

impl CeremonyInput {
    pub fn create() -> Self {
        Self { purpose: "webauthn.create", flags: 0x45, ..Self::get() }
    }

    pub fn get() -> Self {
        Self {
            purpose: "webauthn.get",
            origin: PUBLIC.into(),
            cross_origin: false,
            site: "hub.example.org".into(),
            flags: 0x05,
            challenge: None,
            tail: Vec::new(),
            spoil_signature: false,
            user: None,
        }
    }

    fn client_data(&self, asked: &Value) -> Vec<u8> {
        let given = asked["publicKey"]["challenge"].as_str().unwrap();
        let data = json!({
            "type": self.purpose,
            "challenge": self.challenge.as_deref().unwrap_or(given),
            "origin": self.origin,
            "crossOrigin": self.cross_origin,
        });
        data.to_string().into_bytes()
    }
}

pub fn encode(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

impl Authenticator {
    pub fn p256() -> Self {
        let random = SystemRandom::new();
        let made = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, made.as_ref(), &random).unwrap();
        Self::of(Pair::P256(pair))
    }

    pub fn ed25519() -> Self {
        let made = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        Self::of(Pair::Ed25519(Ed25519KeyPair::from_pkcs8(made.as_ref()).unwrap()))
    }

    fn of(pair: Pair) -> Self {
        let public = match &pair {
            Pair::P256(pair) => pair.public_key().as_ref().to_vec(),
            Pair::Ed25519(pair) => pair.public_key().as_ref().to_vec(),
        };
        Self { pair, credential: Sha256::digest(public)[..20].to_vec(), user: String::new(), counter: 0 }
    }

    /// The public key, in COSE form.
    fn cose(&self) -> Vec<u8> {
        match &self.pair {
            Pair::P256(pair) => {
                let point = pair.public_key().as_ref();
                let head = [0xa5, 1, 2, 3, 0x26, 0x20, 1];
                [&head[..], &[0x21, 0x58, 32], &point[1..33], &[0x22, 0x58, 32], &point[33..]].concat()
            }
            Pair::Ed25519(pair) => {
                let head = [0xa4, 1, 1, 3, 0x27, 0x20, 6, 0x21, 0x58, 32];
                [&head[..], pair.public_key().as_ref()].concat()
            }
        }
    }

    fn data(&self, ceremony: &CeremonyInput) -> Vec<u8> {
        let mut data = Sha256::digest(ceremony.site.as_bytes()).to_vec();
        data.push(ceremony.flags);
        data.extend(self.counter.to_be_bytes());
        if ceremony.flags & 0x40 != 0 {
            data.extend([7; 16]);
            data.extend(u16::try_from(self.credential.len()).unwrap().to_be_bytes());
            data.extend(&self.credential);
            data.extend(self.cose());
        }
        data.extend(&ceremony.tail);
        data
    }

    /// The bytes of `{fmt: "none", attStmt: {}, authData}`.
    pub fn attestation(&self, ceremony: &CeremonyInput) -> Vec<u8> {
        let data = self.data(ceremony);
        let mut object = b"\xa3\x63fmt\x64none\x67attStmt\xa0\x68authData\x59".to_vec();
        object.extend(u16::try_from(data.len()).unwrap().to_be_bytes());
        object.extend(data);
        object
    }

    /// Answers `navigator.credentials.create`.
    pub fn create(&mut self, asked: &Value, ceremony: &CeremonyInput) -> Value {
        let user = asked["publicKey"]["user"]["id"].as_str().unwrap();
        self.user = user.to_owned();
        json!({
            "id": encode(&self.credential),
            "rawId": encode(&self.credential),
            "type": "public-key",
            "response": {
                "clientDataJSON": encode(&ceremony.client_data(asked)),
                "attestationObject": encode(&self.attestation(ceremony)),
                "transports": ["internal"],
            },
        })
    }

    /// Answers `navigator.credentials.get`.
    pub fn get(&self, asked: &Value, ceremony: &CeremonyInput) -> Value {
        let (data, client) = (self.data(ceremony), ceremony.client_data(asked));
        let message = [&data[..], &Sha256::digest(&client)].concat();
        let mut signature = match &self.pair {
            Pair::P256(pair) => pair.sign(&SystemRandom::new(), &message).unwrap().as_ref().to_vec(),
            Pair::Ed25519(pair) => pair.sign(&message).as_ref().to_vec(),
        };
        if ceremony.spoil_signature {
            *signature.last_mut().unwrap() ^= 1;
        }
        json!({
            "id": encode(&self.credential),
            "rawId": encode(&self.credential),
            "type": "public-key",
            "response": {
                "clientDataJSON": encode(&client),
                "authenticatorData": encode(&data),
                "signature": encode(&signature),
                "userHandle": ceremony.user.clone().unwrap_or_else(|| json!(self.user)),
            },
        })
    }
}
