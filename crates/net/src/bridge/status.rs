//! How each session is seen elsewhere: written by the bridge, read by whoever asks.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use engine::{SessionId, Timestamp};
use wire::BridgeStatus;

/// Shared by the bridge and all connections of a server.
#[derive(Debug, Clone, Default)]
pub struct Bridges(Arc<Mutex<HashMap<SessionId, BridgeStatus>>>);

impl Bridges {
    pub fn status(&self, session: &SessionId) -> BridgeStatus {
        self.lock().get(session).cloned().unwrap_or_default()
    }

    pub(super) fn set(&self, session: &SessionId, connected: bool, at: Timestamp) {
        if let Some(status) = self.lock().get_mut(session) {
            if status.connected != connected || status.since.is_none() {
                status.since = Some(at);
            }
            status.connected = connected;
        }
    }

    pub(super) fn begin(&self, session: &SessionId, url: String) {
        self.lock().entry(session.clone()).or_default().url = Some(url);
    }

    pub(super) fn shown_at(&self, session: &SessionId, ui_url: String) {
        if let Some(status) = self.lock().get_mut(session) {
            status.ui_url = Some(ui_url);
        }
    }

    pub(super) fn queued(&self, session: &SessionId, queued: u64) {
        if let Some(status) = self.lock().get_mut(session) {
            status.queued = queued;
        }
    }

    pub(super) fn forget(&self, session: &SessionId) {
        self.lock().remove(session);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, BridgeStatus>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
