//! The address and keys of a push subscription, and whether pushes may go there.
//!
//! The address comes from a device, which may be anybody's phone, and this server has access to what the phone
//! has not: other machines of its network and the services of this one. So an address must be one
//! of the public internet, over TLS, and is checked twice: as it is written when the subscription is made, and as
//! it resolves when a push is sent (see `delivery`).

use std::net::IpAddr;

use base64::Engine;
use base64::engine::general_purpose::{URL_SAFE, URL_SAFE_NO_PAD};
use reqwest::Url;
use ring::agreement::{ECDH_P256, EphemeralPrivateKey, UnparsedPublicKey, agree_ephemeral};
use ring::rand::SystemRandom;
use wire::native::PushSubscription;

use super::encryption::Recipient;

/// Push services' addresses have some hundred characters.
const ENDPOINT_CHARS_MAX: usize = 2048;
/// A key of 65 bytes in base64, with room for padding.
const KEY_CHARS_MAX: usize = 128;

/// The addresses that pushes may go to.
#[derive(Clone, Copy)]
pub struct PushAddressPolicy {
    /// Whether this address may be connected to.
    pub allows: fn(IpAddr) -> bool,
    /// Loopback addresses are allowed too, and without TLS: for tests with a push service of their own.
    pub loopback: bool,
}

impl PushAddressPolicy {
    pub(super) fn lets(self, address: IpAddr) -> bool {
        (self.allows)(address) || (self.loopback && address.is_loopback())
    }
}

/// Why a subscription is refused. Shown on the device.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadSubscription {
    #[error("the push service's address is malformed")]
    Malformed,
    #[error("the push service's address is longer than {ENDPOINT_CHARS_MAX} characters")]
    TooLong,
    #[error("the push service's address must begin with https://")]
    Insecure,
    #[error("the push service's address contains a user name, a password or a fragment")]
    Extras,
    #[error("{0} is not a public address, and notifications are sent only to public ones")]
    Private(IpAddr),
    #[error("the browser's push keys are malformed; subscribe again")]
    Keys,
}

/// A subscription that was checked.
#[derive(Debug, Clone)]
pub struct PushTarget {
    pub(super) url: Url,
    pub(super) recipient: Recipient,
}

impl PushTarget {
    pub fn parse(
        subscription: &PushSubscription,
        allowed: PushAddressPolicy,
    ) -> Result<Self, BadSubscription> {
        let url = endpoint(&subscription.endpoint, allowed)?;
        let recipient = Recipient {
            point: key(&subscription.p256dh).ok_or(BadSubscription::Keys)?,
            auth: key(&subscription.auth).ok_or(BadSubscription::Keys)?,
        };
        if !on_the_curve(&recipient) {
            return Err(BadSubscription::Keys);
        }
        Ok(Self { url, recipient })
    }

    /// The origin that a token for this push service names.
    pub(super) fn origin(&self) -> String {
        self.url.origin().ascii_serialization()
    }
}

fn endpoint(text: &str, allowed: PushAddressPolicy) -> Result<Url, BadSubscription> {
    if text.len() > ENDPOINT_CHARS_MAX {
        return Err(BadSubscription::TooLong);
    }
    let url = Url::parse(text).map_err(|_| BadSubscription::Malformed)?;
    let host = url.host_str().ok_or(BadSubscription::Malformed)?;
    // However a number is written, it comes out of the parsing as one.
    let literal: Option<IpAddr> = host.trim_matches(['[', ']']).parse().ok();
    let plain = url.scheme() == "http" && allowed.loopback && literal.is_some_and(|ip| ip.is_loopback());
    if url.scheme() != "https" && !plain {
        return Err(BadSubscription::Insecure);
    }
    if !url.username().is_empty() || url.password().is_some() || url.fragment().is_some() {
        return Err(BadSubscription::Extras);
    }
    match literal {
        Some(address) if !allowed.lets(address) => Err(BadSubscription::Private(address)),
        _ => Ok(url),
    }
}

fn key<const N: usize>(text: &str) -> Option<[u8; N]> {
    if text.len() > KEY_CHARS_MAX {
        return None;
    }
    // Browsers leave the padding out; some libraries do not.
    let bytes = URL_SAFE_NO_PAD.decode(text).or_else(|_| URL_SAFE.decode(text)).ok()?;
    bytes.try_into().ok()
}

/// Whether anything can be encrypted for this key. Checked when the subscription is made, and not when a push is sent.
fn on_the_curve(recipient: &Recipient) -> bool {
    let theirs = UnparsedPublicKey::new(&ECDH_P256, recipient.point);
    EphemeralPrivateKey::generate(&ECDH_P256, &SystemRandom::new())
        .and_then(|ours| agree_ephemeral(ours, &theirs, |_| ()))
        .is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const POINT: &str =
        "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4";
    const AUTH: &str = "BTBZMqHH6r4Tts7J_aSIgg";
    const PUBLIC: PushAddressPolicy =
        PushAddressPolicy { allows: |address| !address.is_loopback() && !local(address), loopback: false };
    const TESTING: PushAddressPolicy = PushAddressPolicy { loopback: true, ..PUBLIC };

    /// Enough of a judge for these tests; the real one has its own.
    const fn local(address: IpAddr) -> bool {
        match address {
            IpAddr::V4(address) => address.is_private() || address.is_link_local(),
            IpAddr::V6(address) => address.to_ipv4_mapped().is_some(),
        }
    }

    fn parse(endpoint: &str, allowed: PushAddressPolicy) -> Result<PushTarget, BadSubscription> {
        let subscription =
            PushSubscription { endpoint: endpoint.into(), p256dh: POINT.into(), auth: AUTH.into() };
        PushTarget::parse(&subscription, allowed)
    }

    #[test]
    fn a_subscription_leads_to_a_public_address_over_tls() {
        let target = parse("https://push.example.com:8443/send/abc?x=1", PUBLIC).unwrap();
        assert_eq!(target.origin(), "https://push.example.com:8443");
        assert_eq!(parse("https://push.example.com/a", PUBLIC).unwrap().origin(), "https://push.example.com");
    }

    #[test]
    fn a_device_cannot_make_us_call_the_neighbours() {
        use BadSubscription::{Extras, Insecure, Malformed, TooLong};
        let long = format!("https://push.example.com/{}", "a".repeat(ENDPOINT_CHARS_MAX));
        for (endpoint, expected) in [
            ("http://push.example.com/a", Insecure),
            ("http://127.0.0.1:9/a", Insecure),
            ("http://localhost:9/a", Insecure),
            ("ftp://push.example.com/a", Insecure),
            ("file:///etc/passwd", Malformed),
            ("push.example.com/a", Malformed),
            ("", Malformed),
            ("https://", Malformed),
            ("https://user@push.example.com/a", Extras),
            ("https://user:word@push.example.com/a", Extras),
            ("https://push.example.com/a#b", Extras),
            (long.as_str(), TooLong),
        ] {
            assert_eq!(parse(endpoint, PUBLIC).err(), Some(expected), "{endpoint}");
        }
        for private in [
            "https://127.0.0.1/a",
            "https://2130706433/a",
            "https://0x7f.1/a",
            "https://0177.0.0.1/a",
            "https://10.0.0.1/a",
            "https://192.168.1.1:8443/a",
            "https://169.254.169.254/latest",
            "https://[::1]/a",
            "https://[::ffff:10.0.0.1]/a",
        ] {
            assert!(matches!(parse(private, PUBLIC), Err(BadSubscription::Private(_))), "{private}");
        }
    }

    #[test]
    fn a_test_may_name_this_machine_and_nothing_else_more() {
        assert!(parse("http://127.0.0.1:9/a", TESTING).is_ok());
        assert!(parse("http://[::1]:9/a", TESTING).is_ok());
        assert!(parse("http://push.example.com/a", TESTING).is_err());
        assert!(parse("http://localhost:9/a", TESTING).is_err());
        assert!(parse("https://10.0.0.1/a", TESTING).is_err());
    }

    #[test]
    fn keys_that_nothing_can_be_encrypted_for_are_refused_at_once() {
        let off_curve = URL_SAFE_NO_PAD.encode([&[4_u8][..], &[1; 64]].concat());
        let long = "A".repeat(1000);
        for (p256dh, auth) in [
            ("", AUTH),
            (POINT, ""),
            ("AAAA", AUTH),
            (POINT, "AAAA"),
            (&off_curve, AUTH),
            (&long, AUTH),
            (POINT, &long),
            ("not base64!", AUTH),
        ] {
            let endpoint = "https://push.example.com/a".to_owned();
            let subscription = PushSubscription { endpoint, p256dh: p256dh.into(), auth: auth.into() };
            let refused = PushTarget::parse(&subscription, PUBLIC).err();
            assert_eq!(refused, Some(BadSubscription::Keys), "{p256dh} {auth}");
        }
        let padded = PushSubscription {
            endpoint: "https://push.example.com/a".into(),
            p256dh: format!("{POINT}="),
            auth: format!("{AUTH}=="),
        };
        assert!(PushTarget::parse(&padded, PUBLIC).is_ok());
    }
}
