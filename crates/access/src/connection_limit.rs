//! How many connections there are, and which of them must go when there are too many.
//!
//! A connection is a stranger until a request on it has shown a token. When the house is full a new
//! connection takes the place of the stranger that has been there longest, so whoever opens
//! connections only to hold them pushes out their own and nobody else's.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

/// Connections at once, of all clients together.
pub(super) const CONNECTIONS_MAX: usize = 1024;
/// Connections at once from one address. Loopback has no such limit: all programs of the machine and
/// every proxy on it share that address.
pub(super) const PER_ADDRESS_MAX: usize = 64;

pub(super) struct Crowd {
    max: usize,
    per_address_max: usize,
    inside: Mutex<Inside>,
}

#[derive(Default)]
struct Inside {
    last: u64,
    /// By when they came.
    strangers: BTreeMap<u64, CancellationToken>,
    known: usize,
    addresses: HashMap<IpAddr, usize>,
}

/// Why a connection is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Full {
    House,
    Address,
}

/// The place of one connection, given back when it is dropped.
pub(super) struct Seat {
    crowd: Arc<Crowd>,
    number: u64,
    address: IpAddr,
    leave: CancellationToken,
}

impl Crowd {
    pub fn new(max: usize, per_address_max: usize) -> Arc<Self> {
        Arc::new(Self { max, per_address_max, inside: Mutex::default() })
    }

    pub fn enter(self: &Arc<Self>, address: IpAddr) -> Result<Seat, Full> {
        // An IPv4 client of an IPv6 socket is who it is.
        let address = address.to_canonical();
        let mut inside = self.inside();
        let here = inside.addresses.get(&address).copied().unwrap_or_default();
        if !address.is_loopback() && here >= self.per_address_max {
            return Err(Full::Address);
        }
        if inside.strangers.len() + inside.known >= self.max {
            let (_, oldest) = inside.strangers.pop_first().ok_or(Full::House)?;
            oldest.cancel();
        }
        inside.last += 1;
        let (number, leave) = (inside.last, CancellationToken::new());
        inside.strangers.insert(number, leave.clone());
        *inside.addresses.entry(address).or_default() += 1;
        drop(inside);
        Ok(Seat { crowd: Arc::clone(self), number, address, leave })
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seat {
    /// A token was shown: the connection keeps its place.
    pub fn admit(&self) {
        let mut inside = self.crowd.inside();
        if inside.strangers.remove(&self.number).is_some() {
            inside.known += 1;
        }
    }

    /// The connection must end: others need the place.
    pub async fn must_leave(&self) {
        self.leave.cancelled().await;
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut inside = self.crowd.inside();
        let stranger = inside.strangers.remove(&self.number).is_some();
        if !stranger && !self.leave.is_cancelled() {
            inside.known = inside.known.saturating_sub(1);
        }
        let here = inside.addresses.get(&self.address).copied().unwrap_or_default();
        if here > 1 {
            inside.addresses.insert(self.address, here - 1);
        } else {
            inside.addresses.remove(&self.address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
    const THERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 7));

    #[test]
    fn a_full_house_loses_its_oldest_stranger_and_never_somebody_known() {
        let crowd = Crowd::new(3, PER_ADDRESS_MAX);
        let known = crowd.enter(HERE).unwrap();
        known.admit();
        let (older, newer) = (crowd.enter(HERE).unwrap(), crowd.enter(HERE).unwrap());
        let latest = crowd.enter(HERE).unwrap();
        assert!(older.leave.is_cancelled());
        assert!(!known.leave.is_cancelled() && !newer.leave.is_cancelled());
        newer.admit();
        latest.admit();
        assert_eq!(crowd.enter(HERE).err(), Some(Full::House));
        // Who was sent away has given the place back already.
        drop(older);
        assert_eq!(crowd.enter(HERE).err(), Some(Full::House));
        drop(known);
        assert!(crowd.enter(HERE).is_ok());
    }

    #[test]
    fn one_address_gets_its_share_and_loopback_is_free() {
        let crowd = Crowd::new(1000, PER_ADDRESS_MAX);
        let seats: Vec<Seat> = (0..PER_ADDRESS_MAX).map(|_| crowd.enter(THERE).unwrap()).collect();
        assert_eq!(crowd.enter(THERE).err(), Some(Full::Address));
        let _here: Vec<Seat> = (0..=PER_ADDRESS_MAX).map(|_| crowd.enter(HERE).unwrap()).collect();
        drop(seats);
        assert!(crowd.enter(THERE).is_ok());
        assert!(!crowd.inside().addresses.contains_key(&THERE), "what is given back is forgotten");
    }
}
