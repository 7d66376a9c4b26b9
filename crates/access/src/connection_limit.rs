//! The limit of open connections, and which of them is closed when there are too many.
//!
//! A connection is unauthenticated until a request on it has shown a token. When the limit is reached, a new
//! connection replaces the oldest unauthenticated one, so a client that opens
//! connections only to hold them evicts its own and nobody else's.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

/// Connections at once, of all clients together.
pub(super) const CONNECTIONS_MAX: usize = 1024;
/// Connections at once from one address. Loopback has no such limit: all programs of the machine and
/// every proxy on it share that address.
pub(super) const PER_ADDRESS_MAX: usize = 64;

pub(super) struct ConnectionLimit {
    max: usize,
    per_address_max: usize,
    table: Mutex<ConnectionTable>,
}

#[derive(Default)]
struct ConnectionTable {
    last: u64,
    /// In the order in which they connected.
    unauthenticated: BTreeMap<u64, CancellationToken>,
    authenticated: usize,
    addresses: HashMap<IpAddr, usize>,
}

/// Why a connection is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConnectionRefusal {
    House,
    Address,
}

/// The slot of one connection, given back when it is dropped.
pub(super) struct ConnectionSlot {
    limit: Arc<ConnectionLimit>,
    number: u64,
    address: IpAddr,
    evicted: CancellationToken,
}

impl ConnectionLimit {
    pub fn new(max: usize, per_address_max: usize) -> Arc<Self> {
        Arc::new(Self { max, per_address_max, table: Mutex::default() })
    }

    pub fn acquire(self: &Arc<Self>, address: IpAddr) -> Result<ConnectionSlot, ConnectionRefusal> {
        // An IPv4 client of an IPv6 socket counts as IPv4.
        let address = address.to_canonical();
        let mut table = self.table();
        let open_here = table.addresses.get(&address).copied().unwrap_or_default();
        if !address.is_loopback() && open_here >= self.per_address_max {
            return Err(ConnectionRefusal::Address);
        }
        if table.unauthenticated.len() + table.authenticated >= self.max {
            let (_, oldest) = table.unauthenticated.pop_first().ok_or(ConnectionRefusal::House)?;
            oldest.cancel();
        }
        table.last += 1;
        let (number, evicted) = (table.last, CancellationToken::new());
        table.unauthenticated.insert(number, evicted.clone());
        *table.addresses.entry(address).or_default() += 1;
        drop(table);
        Ok(ConnectionSlot { limit: Arc::clone(self), number, address, evicted })
    }

    fn table(&self) -> MutexGuard<'_, ConnectionTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConnectionSlot {
    /// A token was shown: the connection keeps its slot.
    pub fn admit(&self) {
        let mut table = self.limit.table();
        if table.unauthenticated.remove(&self.number).is_some() {
            table.authenticated += 1;
        }
    }

    /// Waits until the connection must end, because others need the slot.
    pub async fn evicted(&self) {
        self.evicted.cancelled().await;
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut table = self.limit.table();
        let unauthenticated = table.unauthenticated.remove(&self.number).is_some();
        if !unauthenticated && !self.evicted.is_cancelled() {
            table.authenticated = table.authenticated.saturating_sub(1);
        }
        let open_here = table.addresses.get(&self.address).copied().unwrap_or_default();
        if open_here > 1 {
            table.addresses.insert(self.address, open_here - 1);
        } else {
            table.addresses.remove(&self.address);
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
        let limit = ConnectionLimit::new(3, PER_ADDRESS_MAX);
        let authenticated = limit.acquire(HERE).unwrap();
        authenticated.admit();
        let (older, newer) = (limit.acquire(HERE).unwrap(), limit.acquire(HERE).unwrap());
        let latest = limit.acquire(HERE).unwrap();
        assert!(older.evicted.is_cancelled());
        assert!(!authenticated.evicted.is_cancelled() && !newer.evicted.is_cancelled());
        newer.admit();
        latest.admit();
        assert_eq!(limit.acquire(HERE).err(), Some(ConnectionRefusal::House));
        // The slot of the evicted connection was free already.
        drop(older);
        assert_eq!(limit.acquire(HERE).err(), Some(ConnectionRefusal::House));
        drop(authenticated);
        assert!(limit.acquire(HERE).is_ok());
    }

    #[test]
    fn one_address_gets_its_share_and_loopback_is_free() {
        let limit = ConnectionLimit::new(1000, PER_ADDRESS_MAX);
        let slots: Vec<ConnectionSlot> =
            (0..PER_ADDRESS_MAX).map(|_| limit.acquire(THERE).unwrap()).collect();
        assert_eq!(limit.acquire(THERE).err(), Some(ConnectionRefusal::Address));
        let _here: Vec<ConnectionSlot> =
            (0..=PER_ADDRESS_MAX).map(|_| limit.acquire(HERE).unwrap()).collect();
        drop(slots);
        assert!(limit.acquire(THERE).is_ok());
        assert!(!limit.table().addresses.contains_key(&THERE), "what is given back is forgotten");
    }
}
