//! How a device comes in: with a code, at once or after a knock, and later on with its key.

use std::sync::Arc;

use engine::{Act, Standing, may};
use tokio::time::{Instant, timeout_at};
use wire::native::{Invitation, Role, Wrong};

use super::device_store::{self, Book, Record};
use super::tickets::{Bad, Grant, Heard};
use super::{Code, Devices, Happened, TICKET_LIFE, Visitor, qr, wrong};
use crate::{Digest, Proofs, random, url_safe};

/// How long a device that knocked is kept waiting for one answer.
const KNOCK_POLL: std::time::Duration = std::time::Duration::from_secs(25);
/// Bytes of a code, a key or a knock; what is longer was not made here.
const SECRET_BYTES_MAX: usize = 128;

/// What became of somebody at the door.
#[derive(Debug)]
pub enum Entered {
    /// They are in. The key is for their cookie, the proof for their page alone.
    In { key: String, proof: String, visitor: Visitor },
    /// They wait. What they come back with, and the words that the owner sees too.
    Knocking { knock: String, words: String },
}

/// Why somebody is not let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Denial {
    #[error("this code opens nothing here; ask for a new one, and check that it is for this server")]
    Unknown,
    #[error("this code was used already; ask for a new one")]
    Used,
    #[error("this code has expired; ask for a new one, they live for five minutes")]
    Expired,
    #[error("nobody answered in time; ask for a new code")]
    Unanswered,
    #[error("you were not let in")]
    Refused,
    #[error("there are as many devices as may be; revoke one first")]
    Full,
    #[error("the server cannot write its list of devices; its log says why")]
    Unwritable,
}

/// Whose key it was.
pub(crate) struct Arrival {
    pub visitor: Visitor,
    /// The cookie is worth sending again, so that it lives on.
    pub renew: bool,
}

/// Why a key does not let its bearer in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotIn {
    /// The key opens nothing, or nothing any more.
    Unknown,
    /// The key is right and came without its proof.
    Unproven,
}

impl Devices {
    /// A link that lets a browser in as the owner. Only who holds the server's token can have one.
    pub fn login(&self, visitor: &Visitor) -> Result<Invitation, Wrong> {
        if visitor.role != Role::Owner || visitor.device.is_some() {
            return Err(wrong("forbidden", "a login link is made on the machine itself: ropewalk link"));
        }
        may(visitor.standing, Act::AdmitDevice).map_err(|why| wrong("forbidden", &why.to_string()))?;
        self.ticket(Grant { principal: visitor.principal.clone(), role: Role::Owner, enters: true })
    }

    /// A code with which one more device can knock.
    pub(super) fn invitation(&self, owner: &Visitor, role: Role) -> Result<Invitation, Wrong> {
        self.ticket(Grant { principal: owner.principal.clone(), role, enters: false })
    }

    fn ticket(&self, grant: Grant) -> Result<Invitation, Wrong> {
        let random = random().map_err(|error| {
            tracing::error!(%error, "there are no random bytes");
            wrong("failed", "there are no random bytes to make a code of")
        })?;
        let places = self.places.get().cloned().unwrap_or_default();
        let (base, page) = match grant.enters {
            true => (places.own, "login"),
            false => (places.outside.unwrap_or(places.own), "pair"),
        };
        let made = self.state().tickets.make(grant, &random, Instant::now());
        let url = format!("{base}/{page}#{}", made.link);
        let life_ms = i64::try_from(TICKET_LIFE.as_millis()).unwrap_or(i64::MAX);
        let typed = made.typed.unwrap_or_default();
        let code = match typed.split_at_checked(4) {
            Some((first, second)) => format!("{first}-{second}"),
            None => typed,
        };
        Ok(Invitation { qr: qr::rows(&url), url, code, expires_at: self.clock.now().0 + life_ms })
    }

    /// Somebody comes with a code. `known` is the key of their cookie, if they have one: a browser that
    /// logs in again stays the same device, with a new key.
    pub async fn enter(&self, code: &Code, name: &str, known: Option<&str>) -> Result<Entered, Denial> {
        let grant = self.state().tickets.redeem(code, Instant::now()).map_err(|bad| match bad {
            Bad::Unknown => Denial::Unknown,
            Bad::Used => Denial::Used,
            Bad::Expired => Denial::Expired,
        })?;
        let name = device_store::name(name);
        if grant.enters {
            return self.take_in(grant, name, known, false).await;
        }
        let random = random().map_err(|_| Denial::Unwritable)?;
        let (knock, words) = self.state().tickets.knock(grant, name, &random, Instant::now());
        self.changed();
        Ok(Entered::Knocking { knock, words })
    }

    /// Somebody who knocked asks what became of it, and waits a while for an answer.
    pub async fn wait(&self, knock: &str, known: Option<&str>) -> Result<Entered, Denial> {
        if knock.len() > SECRET_BYTES_MAX {
            return Err(Denial::Unknown);
        }
        let mut changes = self.changes.subscribe();
        let deadline = Instant::now() + KNOCK_POLL;
        loop {
            changes.mark_unchanged();
            let heard = self.state().tickets.hear(knock, Instant::now());
            let words = match heard {
                Err(Bad::Expired) => {
                    self.changed();
                    return Err(Denial::Unanswered);
                }
                Err(Bad::Unknown | Bad::Used) => return Err(Denial::Unknown),
                Ok(Heard::Refused) => return Err(Denial::Refused),
                Ok(Heard::Admitted { grant, name }) => return self.take_in(grant, name, known, true).await,
                Ok(Heard::Waiting { words }) => words,
            };
            if timeout_at(deadline, changes.changed()).await.is_err() {
                return Ok(Entered::Knocking { knock: knock.to_owned(), words });
            }
        }
    }

    async fn take_in(
        &self,
        grant: Grant,
        name: Arc<str>,
        known: Option<&str>,
        knocked: bool,
    ) -> Result<Entered, Denial> {
        let fresh_bytes = || random().map_err(|_| Denial::Unwritable);
        let (key, proof, id) = (url_safe(&fresh_bytes()?), url_safe(&fresh_bytes()?), fresh_bytes()?);
        let now = self.clock.now();
        let client = self.keys.get().and_then(|keys| keys.mark(&grant.principal));
        let same = known.filter(|known| known.len() <= SECRET_BYTES_MAX).map(str::to_owned);
        let fresh = Record {
            id: device_store::device_id(&id),
            principal: grant.principal,
            name,
            role: grant.role,
            digest: Digest::of(&key),
            proof: Some(Digest::of(&proof)),
            client,
            created_at: now,
            seen_at: Some(now),
            subscription: None,
            muted_until: None,
        };
        let work = move |book: &mut Book| match same.and_then(|key| same_device(book, &key, &fresh)) {
            Some(record) => Some(record),
            None => book.add(fresh.clone(), now).then_some(fresh),
        };
        let record = self.change(work).await.map_err(|_| Denial::Unwritable)?.ok_or(Denial::Full)?;
        self.happened(Happened::Entered {
            device: Arc::clone(&record.id),
            name: Arc::clone(&record.name),
            role: record.role,
            principal: record.principal.clone(),
            knocked,
        });
        Ok(Entered::In { key, proof, visitor: visitor(&record) })
    }

    /// Whose key this is, if its proof is shown too. That they were here is written down now and then.
    pub(crate) async fn arrival(&self, key: &str, proofs: &Proofs) -> Result<Arrival, NotIn> {
        if key.is_empty() || key.len() > SECRET_BYTES_MAX {
            return Err(NotIn::Unknown);
        }
        self.refresh().await;
        let now = self.clock.now();
        let known = self.state().book.by_key(key).filter(|record| !record.is_over(now)).cloned();
        let record = known.filter(|record| self.is_bound(record)).ok_or(NotIn::Unknown)?;
        if !proofs.show(record.proof.as_ref()) {
            return Err(NotIn::Unproven);
        }
        let renew = record.is_news(now);
        if renew {
            let id = Arc::clone(&record.id);
            let seen = self.change(move |book| {
                if let Some(record) = book.get_mut(&id) {
                    record.seen_at = Some(now);
                }
            });
            if let Err(wrong) = seen.await {
                tracing::warn!(message = wrong.message, "it was not written down that a device was here");
            }
        }
        Ok(Arrival { visitor: visitor(&record), renew })
    }
}

/// The browser that has this key, with a new one and what it may do from here on.
fn same_device(book: &mut Book, key: &str, fresh: &Record) -> Option<Record> {
    let known = book.by_key(key).filter(|known| known.principal == fresh.principal)?;
    let id = Arc::clone(&known.id);
    let record = book.get_mut(&id)?;
    (record.digest, record.proof, record.client) = (fresh.digest, fresh.proof, fresh.client);
    (record.role, record.seen_at) = (fresh.role, fresh.seen_at);
    Some(record.clone())
}

fn visitor(record: &Record) -> Visitor {
    Visitor {
        principal: record.principal.clone(),
        name: Arc::clone(&record.name),
        role: record.role,
        device: Some(Arc::clone(&record.id)),
        remote: None,
        standing: Standing::Other,
    }
}
