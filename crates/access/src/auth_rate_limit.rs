//! Rate limit for failed authentication: how often an address may show a wrong token.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use tokio::time::Instant;

/// Wrong tokens that are answered before an address has to wait.
const BURST: u32 = 20;
/// After this time one more is answered.
const REFILL: Duration = Duration::from_secs(3);
/// Addresses that are remembered; beyond that, those without a wrong token for longest are forgotten.
const ADDRESSES_MAX: usize = 4096;

/// Per address when its last wrong token will be forgiven: a token bucket in one instant.
#[derive(Debug, Default)]
pub struct AuthRateLimit {
    forgiven: HashMap<IpAddr, Instant>,
}

impl AuthRateLimit {
    /// How long this address has to wait before it may try again, if it has to.
    pub fn wait(&self, address: IpAddr, now: Instant) -> Option<Duration> {
        let forgiven = *self.forgiven.get(&group(address))?;
        // A full bucket reaches up to here; what is beyond it is the wait.
        let allowed = now + REFILL * (BURST - 1);
        (forgiven > allowed).then(|| forgiven - allowed)
    }

    /// A wrong token was shown.
    pub fn count(&mut self, address: IpAddr, now: Instant) {
        if self.forgiven.len() >= ADDRESSES_MAX {
            self.forget(now);
        }
        let forgiven = self.forgiven.entry(group(address)).or_insert(now);
        *forgiven = (*forgiven).max(now).min(now + REFILL * BURST) + REFILL;
    }

    fn forget(&mut self, now: Instant) {
        self.forgiven.retain(|_, forgiven| *forgiven > now);
        if self.forgiven.len() >= ADDRESSES_MAX {
            let mut all: Vec<Instant> = self.forgiven.values().copied().collect();
            all.sort_unstable();
            let middle = all[all.len() / 2];
            self.forgiven.retain(|_, forgiven| *forgiven > middle);
        }
    }
}

/// The group of addresses that is counted as one: a client with one IPv6 address has a whole /64 network of them.
fn group(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(v6) => v6.to_ipv4_mapped().map_or_else(
            || {
                let mut segments = v6.segments();
                segments[4..].fill(0);
                IpAddr::from(segments)
            },
            IpAddr::V4,
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_burst_is_answered_and_then_one_at_a_time() {
        let (mut wrong, now) = (AuthRateLimit::default(), Instant::now());
        let guesser = address("192.0.2.1");
        for number in 0..BURST {
            assert_eq!(wrong.wait(guesser, now), None, "{number}");
            wrong.count(guesser, now);
        }
        assert_eq!(wrong.wait(guesser, now), Some(REFILL));
        assert_eq!(wrong.wait(address("192.0.2.2"), now), None);
        assert_eq!(wrong.wait(guesser, now + REFILL), None);
        wrong.count(guesser, now + REFILL);
        assert!(wrong.wait(guesser, now + REFILL).is_some());
        assert_eq!(wrong.wait(guesser, now + REFILL * (BURST + 2)), None);
    }

    #[test]
    fn a_network_of_version_6_counts_as_one() {
        let (mut wrong, now) = (AuthRateLimit::default(), Instant::now());
        for number in 0..BURST {
            wrong.count(address(&format!("2001:db8::{number}")), now);
        }
        assert!(wrong.wait(address("2001:db8::ffff"), now).is_some());
        assert_eq!(wrong.wait(address("2001:db8:0:1::1"), now), None);
    }

    #[test]
    fn the_memory_for_addresses_is_bounded() {
        let (mut wrong, now) = (AuthRateLimit::default(), Instant::now());
        for number in 0..10_000_u32 {
            wrong.count(IpAddr::from(number.to_be_bytes()), now + Duration::from_millis(u64::from(number)));
        }
        assert!(wrong.forgiven.len() <= ADDRESSES_MAX, "{}", wrong.forgiven.len());
    }
}
