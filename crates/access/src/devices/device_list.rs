//! The list of devices: what is known of each, and what can change.
//!
//! Plain values. Of a device's key and proof only the digests are kept, so that a reader of the file cannot sign in with it.

use std::sync::Arc;

use engine::{Principal, Timestamp, is_hidden};
use wire::native::{DeviceView, PushSubscription, Role};

use super::push::PushSubscriber;
use crate::{Digest, url_safe};

/// Devices of one owner; beyond that one has to go before the next comes.
pub(super) const DEVICES_MAX: usize = 64;
/// A device that was not seen for this long has to knock again.
pub(crate) const ABSENCE_MAX_MS: i64 = 30 * 24 * 60 * 60 * 1000;
/// How exactly it is known when a device was here last.
const SEEN_EVERY_MS: i64 = 60 * 1000;
/// Characters of a name.
const NAME_CHARS_MAX: usize = 60;

/// One device.
#[derive(Debug, Clone)]
pub(super) struct DeviceRecord {
    pub id: Arc<str>,
    /// Whose sessions it sees.
    pub principal: Principal,
    pub name: Arc<str>,
    pub role: Role,
    /// The digest of the key in its cookie.
    pub digest: Digest,
    /// The digest of the proof that its page presents with the cookie; none, if it signed in before there were proofs.
    pub proof: Option<Digest>,
    /// The mark of the client's token under which it was let in; none for the owner's own devices.
    pub client: Option<Digest>,
    pub created_at: Timestamp,
    pub seen_at: Option<Timestamp>,
    pub subscription: Option<PushSubscription>,
    pub muted_until: Option<Timestamp>,
}

impl DeviceRecord {
    pub fn shown(&self, now: Timestamp) -> DeviceView {
        DeviceView {
            id: self.id.to_string(),
            name: self.name.to_string(),
            role: self.role,
            created_at: self.created_at.0,
            seen_at: self.seen_at.map(|seen| seen.0),
            push: self.subscription.is_some(),
            muted_until: self.muted_until.filter(|until| *until > now).map(|until| until.0),
        }
    }

    /// The subscriber, if it wants pushes.
    pub fn subscribed(&self, now: Timestamp) -> Option<PushSubscriber> {
        if self.is_over(now) {
            return None;
        }
        Some(PushSubscriber {
            device: Arc::clone(&self.id),
            role: self.role,
            subscription: self.subscription.clone()?,
            muted: self.muted_until.is_some_and(|until| until > now),
        })
    }

    /// Whether it was not seen for too long.
    pub fn is_over(&self, now: Timestamp) -> bool {
        now.0.saturating_sub(self.last_seen().0) > ABSENCE_MAX_MS
    }

    /// Whether the time it was last seen has to be written again.
    pub fn is_news(&self, now: Timestamp) -> bool {
        now.0.saturating_sub(self.last_seen().0) >= SEEN_EVERY_MS
    }

    fn last_seen(&self) -> Timestamp {
        self.seen_at.unwrap_or(self.created_at)
    }
}

/// All devices.
#[derive(Debug, Clone, Default)]
pub(super) struct DeviceList {
    pub records: Vec<DeviceRecord>,
}

impl DeviceList {
    pub fn get(&self, id: &str) -> Option<&DeviceRecord> {
        self.records.iter().find(|record| *record.id == *id)
    }

    pub fn get_mut(&mut self, id: &str) -> Option<&mut DeviceRecord> {
        self.records.iter_mut().find(|record| *record.id == *id)
    }

    /// Compares with every key, so that the time does not tell which one was nearly right.
    pub fn by_key(&self, key: &str) -> Option<&DeviceRecord> {
        let given = Digest::of(key);
        let mut found = None;
        for record in &self.records {
            if record.digest.is(&given) {
                found = Some(record);
            }
        }
        found
    }

    pub fn of<'a>(&'a self, principal: &'a Principal) -> impl Iterator<Item = &'a DeviceRecord> {
        self.records.iter().filter(move |record| record.principal == *principal)
    }

    /// Takes a new device in, unless its owner has too many. Those that stayed away too long go first.
    pub fn add(&mut self, record: DeviceRecord, now: Timestamp) -> bool {
        self.records.retain(|known| !known.is_over(now));
        if self.of(&record.principal).count() >= DEVICES_MAX {
            return false;
        }
        self.records.push(record);
        true
    }

    pub fn remove(&mut self, id: &str) -> Option<DeviceRecord> {
        let index = self.records.iter().position(|record| *record.id == *id)?;
        Some(self.records.remove(index))
    }
}

/// The name of a device, cleaned.
pub(crate) fn name(given: &str) -> Arc<str> {
    plain_name(given).map_or_else(|| "a device".into(), Into::into)
}

/// Cleans a name that is shown to people and written to logs: a few plain words, if anything is left of it.
pub fn plain_name(given: &str) -> Option<String> {
    let harmless = |c: char| !is_hidden(c) && !matches!(c, '\u{200c}' | '\u{200d}');
    let words: String = given.chars().map(|c| if harmless(c) { c } else { ' ' }).collect();
    let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
    let name: String = words.chars().take(NAME_CHARS_MAX).collect();
    (!name.is_empty()).then_some(name)
}

/// Short, because people see it and type it.
pub(super) fn device_id(random: &[u8; 32]) -> Arc<str> {
    // The first character is a letter, so that an id cannot be taken for an option of a command.
    format!("d{}", url_safe(&random[..9]).replace(['-', '_'], "x")).into()
}
