//! Challenges that need not be stored before they are answered.
//!
//! A challenge contains its expiry, and a tag over its purpose and its person under a key that all nodes share. So nobody
//! can fill the database by requesting challenges; only a successful answer is stored, so that it is valid once.

use engine::Timestamp;
use ring::hmac;

const RANDOM_BYTES: usize = 16;
const TAG_BYTES: usize = 32;
const BYTES: usize = RANDOM_BYTES + 8 + TAG_BYTES;
/// How long a person may take to use their authenticator.
const LIFE_MS: i64 = 5 * 60 * 1000;

/// What a challenge is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::people) enum Purpose<'a> {
    /// A person, who is known only from the response, signs in.
    SignIn,
    /// This person adds a passkey.
    Add(&'a str),
}

pub(in crate::people) struct Challenges(hmac::Key);

impl Challenges {
    pub(in crate::people) fn new(key: &[u8]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, key))
    }

    pub(super) fn make(&self, purpose: Purpose<'_>, random: &[u8; 32], now: Timestamp) -> Vec<u8> {
        let mut challenge = random[..RANDOM_BYTES].to_vec();
        challenge.extend((now.0 + LIFE_MS).to_be_bytes());
        let tag = hmac::sign(&self.0, &tag_input(purpose, &challenge));
        challenge.extend(tag.as_ref());
        challenge
    }

    /// Until when a challenge is valid, if it was made here for this purpose.
    pub(super) fn check(&self, purpose: Purpose<'_>, challenge: &[u8], now: Timestamp) -> Option<Timestamp> {
        if challenge.len() != BYTES {
            return None;
        }
        let (signed_part, tag) = challenge.split_at_checked(RANDOM_BYTES + 8)?;
        hmac::verify(&self.0, &tag_input(purpose, signed_part), tag).ok()?;
        let until = Timestamp(i64::from_be_bytes(signed_part[RANDOM_BYTES..].try_into().ok()?));
        (until > now).then_some(until)
    }
}

/// What the tag is computed over. All challenges have the same length, so purpose and person cannot be confused with them.
fn tag_input(purpose: Purpose<'_>, challenge: &[u8]) -> Vec<u8> {
    let (word, person) = match purpose {
        Purpose::SignIn => ("enter", ""),
        Purpose::Add(person) => ("add", person),
    };
    [challenge, word.as_bytes(), b" ", person.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_challenge_is_good_for_its_purpose_its_person_and_five_minutes() {
        let (ours, now) = (Challenges::new(&[1; 32]), Timestamp(1_000));
        let made = ours.make(Purpose::Add("p1"), &[7; 32], now);
        assert_eq!(ours.check(Purpose::Add("p1"), &made, now), Some(Timestamp(1_000 + LIFE_MS)));
        assert_eq!(ours.check(Purpose::Add("p1"), &made, Timestamp(1_000 + LIFE_MS)), None);
        assert_eq!(ours.check(Purpose::Add("p2"), &made, now), None);
        assert_eq!(ours.check(Purpose::SignIn, &made, now), None);
        assert_eq!(Challenges::new(&[2; 32]).check(Purpose::Add("p1"), &made, now), None);
        for byte in 0..made.len() {
            let mut other = made.clone();
            other[byte] ^= 1;
            assert_eq!(ours.check(Purpose::Add("p1"), &other, now), None, "{byte}");
        }
        assert_eq!(ours.check(Purpose::Add("p1"), &made[1..], now), None);
        assert_eq!(ours.check(Purpose::Add("p1"), &[], now), None);
    }
}
