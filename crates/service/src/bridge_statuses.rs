//! The bridge status of each session: the bridge writes it, doors read it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use engine::{SessionId, Timestamp};
use tokio::sync::watch;
use wire::BridgeStatus;

/// The name of a person at a bridge's receiver who gives no name.
pub const REMOTE_UNNAMED: &str = "remote";

/// The name here of a person at a bridge's receiver.
pub fn remote_name(user: &str) -> Arc<str> {
    format!("{user} (bridge)").into()
}

/// Shared by the bridge and all connections of a server.
#[derive(Debug, Clone, Default)]
pub struct BridgeStatuses {
    sessions: Arc<Mutex<HashMap<SessionId, BridgeStatus>>>,
    /// Counts the changes of what [`BridgeStatuses::name`] says.
    version: watch::Sender<u64>,
}

impl BridgeStatuses {
    pub fn status(&self, session: &SessionId) -> BridgeStatus {
        self.lock().get(session).cloned().unwrap_or_default()
    }

    /// How these sessions are seen together: connected, if one of them is. All lead to the same receiver.
    pub fn status_of_all(&self, sessions: &[SessionId]) -> BridgeStatus {
        let known = self.lock();
        let mut all = BridgeStatus::default();
        for status in sessions.iter().filter_map(|session| known.get(session)) {
            all.connected |= status.connected;
            all.queued = all.queued.saturating_add(status.queued);
            all.url = all.url.or_else(|| status.url.clone());
            all.since = all.since.max(status.since);
        }
        all
    }

    /// The receiver's name for clients of the session; `None` if the session is not bridged.
    pub fn name(&self, session: &SessionId) -> Option<String> {
        let sessions = self.lock();
        let status = sessions.get(session)?;
        let url = status.url.as_deref()?;
        let state = if status.connected { "" } else { " (not connected)" };
        Some(format!("bridge to {url}{state}"))
    }

    /// Changes whenever a session is bridged, connected, cut off, or not bridged any more.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    pub fn set(&self, session: &SessionId, connected: bool, at: Timestamp) {
        if let Some(status) = self.lock().get_mut(session) {
            if status.connected != connected || status.since.is_none() {
                status.since = Some(at);
            }
            status.connected = connected;
        }
        self.changed();
    }

    pub fn begin(&self, session: &SessionId, url: String) {
        self.lock().entry(session.clone()).or_default().url = Some(url);
        self.changed();
    }

    pub fn shown_at(&self, session: &SessionId, ui_url: String) {
        if let Some(status) = self.lock().get_mut(session) {
            status.ui_url = Some(ui_url);
        }
    }

    pub fn queued(&self, session: &SessionId, queued: u64) {
        if let Some(status) = self.lock().get_mut(session) {
            status.queued = queued;
        }
    }

    pub fn forget(&self, session: &SessionId) {
        self.lock().remove(session);
        self.changed();
    }

    fn changed(&self) {
        self.version.send_modify(|version| *version += 1);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, BridgeStatus>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
