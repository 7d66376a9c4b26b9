//! How a device signs in: with a code, at once or after a knock, and later on with its key.
//!
//! The pairing of a phone or a browser, from the device's side.

use std::sync::Arc;

use engine::{Act, Standing, may};
use tokio::time::{Instant, timeout_at};
use wire::native::{Invitation, ReplyError, Role};

use super::device_list::{self, DeviceList, DeviceRecord};
use super::pairing_codes::{BadCode, KnockState, TicketGrant};
use super::{Code, DeviceEvent, Devices, TICKET_LIFE, Visitor, qr, wrong};
use crate::{Digest, Proofs, random, url_safe};

/// How long a device that knocked is kept waiting for one answer.
const KNOCK_POLL: std::time::Duration = std::time::Duration::from_secs(25);
/// Bytes of a code, a key or a knock; what is longer was not made here.
const SECRET_BYTES_MAX: usize = 128;

/// The outcome of a sign-in.
#[derive(Debug)]
pub enum SignInOutcome {
    /// The device is signed in. The key is for its cookie, the proof for its page alone.
    In { key: String, proof: String, visitor: Visitor },
    /// The device waits to be admitted. It comes back with `knock`; the owner sees the same `words`.
    Knocking { knock: String, words: String },
}

/// Why a device is not signed in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SignInDenial {
    #[error("this code is not valid here; check the address of the server, or ask for a new code")]
    Unknown,
    #[error("this code has already been used; ask for a new one")]
    Used,
    #[error("this code has expired; codes are valid for five minutes, ask for a new one")]
    Expired,
    #[error("nobody approved this device in time; ask for a new code")]
    Unanswered,
    #[error("this device was rejected; ask the owner of the server")]
    Refused,
    #[error("too many devices are paired; revoke one first")]
    Full,
    #[error("the server could not save its list of devices; its log says why")]
    Unwritable,
}

/// A device that was authenticated by its key.
pub(crate) struct DeviceLogin {
    pub visitor: Visitor,
    /// The cookie is worth sending again, so that it lives on.
    pub renew: bool,
}

/// Why a key is not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeviceLoginError {
    /// The key is not, or no longer, a device's.
    Unknown,
    /// The key is right and came without its proof.
    Unproven,
}

impl Devices {
    /// A link that signs a browser in as the owner. Only holders of the server's token can have one.
    pub fn login(&self, visitor: &Visitor) -> Result<Invitation, ReplyError> {
        if visitor.role != Role::Owner || visitor.device.is_some() {
            return Err(wrong("forbidden", "sign-in links are created on the machine itself: ropewalk link"));
        }
        may(visitor.standing, Act::AdmitDevice).map_err(|why| wrong("forbidden", &why.to_string()))?;
        self.ticket(TicketGrant { principal: visitor.principal.clone(), role: Role::Owner, enters: true })
    }

    /// A code with which one more device can knock.
    pub(super) fn invitation(&self, owner: &Visitor, role: Role) -> Result<Invitation, ReplyError> {
        self.ticket(TicketGrant { principal: owner.principal.clone(), role, enters: false })
    }

    fn ticket(&self, grant: TicketGrant) -> Result<Invitation, ReplyError> {
        let random = random().map_err(|error| {
            tracing::error!(%error, "the operating system's random generator failed");
            wrong("failed", "could not create a code: the operating system's random generator failed")
        })?;
        let urls = self.urls.get().cloned().unwrap_or_default();
        let (base, page) = match grant.enters {
            true => (urls.own, "login"),
            false => (urls.outside.unwrap_or(urls.own), "pair"),
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

    /// Signs in with a code. `known` is the key in the browser's cookie, if it has one: a browser that
    /// signs in again stays the same device, with a new key.
    pub async fn enter(
        &self,
        code: &Code,
        name: &str,
        known: Option<&str>,
    ) -> Result<SignInOutcome, SignInDenial> {
        let grant = self.state().tickets.redeem(code, Instant::now()).map_err(|bad| match bad {
            BadCode::Unknown => SignInDenial::Unknown,
            BadCode::Used => SignInDenial::Used,
            BadCode::Expired => SignInDenial::Expired,
        })?;
        let name = device_list::name(name);
        if grant.enters {
            return self.admit_device(grant, name, known, false).await;
        }
        let random = random().map_err(|_| SignInDenial::Unwritable)?;
        let (knock, words) = self.state().tickets.knock(grant, name, &random, Instant::now());
        self.changed();
        Ok(SignInOutcome::Knocking { knock, words })
    }

    /// Waits a while for the answer to a knock.
    pub async fn wait(&self, knock: &str, known: Option<&str>) -> Result<SignInOutcome, SignInDenial> {
        if knock.len() > SECRET_BYTES_MAX {
            return Err(SignInDenial::Unknown);
        }
        let mut changes = self.changes.subscribe();
        let deadline = Instant::now() + KNOCK_POLL;
        loop {
            changes.mark_unchanged();
            let heard = self.state().tickets.knock_state(knock, Instant::now());
            let words = match heard {
                Err(BadCode::Expired) => {
                    self.changed();
                    return Err(SignInDenial::Unanswered);
                }
                Err(BadCode::Unknown | BadCode::Used) => return Err(SignInDenial::Unknown),
                Ok(KnockState::Refused) => return Err(SignInDenial::Refused),
                Ok(KnockState::Admitted { grant, name }) => {
                    return self.admit_device(grant, name, known, true).await;
                }
                Ok(KnockState::Waiting { words }) => words,
            };
            if timeout_at(deadline, changes.changed()).await.is_err() {
                return Ok(SignInOutcome::Knocking { knock: knock.to_owned(), words });
            }
        }
    }

    async fn admit_device(
        &self,
        grant: TicketGrant,
        name: Arc<str>,
        known: Option<&str>,
        knocked: bool,
    ) -> Result<SignInOutcome, SignInDenial> {
        let fresh_bytes = || random().map_err(|_| SignInDenial::Unwritable);
        let (key, proof, id) = (url_safe(&fresh_bytes()?), url_safe(&fresh_bytes()?), fresh_bytes()?);
        let now = self.clock.now();
        let client = self.keys.get().and_then(|keys| keys.mark(&grant.principal));
        let same = known.filter(|known| known.len() <= SECRET_BYTES_MAX).map(str::to_owned);
        let fresh = DeviceRecord {
            id: device_list::device_id(&id),
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
        let work = move |list: &mut DeviceList| match same.and_then(|key| same_device(list, &key, &fresh)) {
            Some(record) => Some(record),
            None => list.add(fresh.clone(), now).then_some(fresh),
        };
        let record =
            self.change(work).await.map_err(|_| SignInDenial::Unwritable)?.ok_or(SignInDenial::Full)?;
        self.report(DeviceEvent::Entered {
            device: Arc::clone(&record.id),
            name: Arc::clone(&record.name),
            role: record.role,
            principal: record.principal.clone(),
            knocked,
        });
        Ok(SignInOutcome::In { key, proof, visitor: visitor(&record) })
    }

    /// The device with this key, if its proof is presented too. The time it was seen is written now and then.
    pub(crate) async fn authenticate(
        &self,
        key: &str,
        proofs: &Proofs,
    ) -> Result<DeviceLogin, DeviceLoginError> {
        if key.is_empty() || key.len() > SECRET_BYTES_MAX {
            return Err(DeviceLoginError::Unknown);
        }
        self.refresh().await;
        let now = self.clock.now();
        let known = self.state().list.by_key(key).filter(|record| !record.is_over(now)).cloned();
        let record = known.filter(|record| self.is_bound(record)).ok_or(DeviceLoginError::Unknown)?;
        if !proofs.show(record.proof.as_ref()) {
            return Err(DeviceLoginError::Unproven);
        }
        let renew = record.is_news(now);
        if renew {
            let id = Arc::clone(&record.id);
            let seen = self.change(move |list| {
                if let Some(record) = list.get_mut(&id) {
                    record.seen_at = Some(now);
                }
            });
            if let Err(wrong) = seen.await {
                tracing::warn!(message = wrong.message, "could not record when a device was last seen");
            }
        }
        Ok(DeviceLogin { visitor: visitor(&record), renew })
    }
}

/// The device with this key, updated with the new key and role.
fn same_device(list: &mut DeviceList, key: &str, fresh: &DeviceRecord) -> Option<DeviceRecord> {
    let known = list.by_key(key).filter(|known| known.principal == fresh.principal)?;
    let id = Arc::clone(&known.id);
    let record = list.get_mut(&id)?;
    (record.digest, record.proof, record.client) = (fresh.digest, fresh.proof, fresh.client);
    (record.role, record.seen_at) = (fresh.role, fresh.seen_at);
    Some(record.clone())
}

fn visitor(record: &DeviceRecord) -> Visitor {
    Visitor {
        principal: record.principal.clone(),
        name: Arc::clone(&record.name),
        role: record.role,
        device: Some(Arc::clone(&record.id)),
        remote: None,
        standing: Standing::Other,
    }
}
