//! The servers that clients named, by session. A session that leaves memory and comes back has its servers
//! again. They are never written to disk, since their settings may contain secrets.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use engine::{SessionId, ToolServer};

/// Sessions that are remembered; the oldest are dropped.
const SESSIONS_MAX: usize = 1000;

type Inner = (HashMap<SessionId, Vec<ToolServer>>, VecDeque<SessionId>);

#[derive(Default)]
pub(crate) struct ClientServers {
    inner: Mutex<Inner>,
}

impl ClientServers {
    pub(super) fn get(&self, id: &SessionId) -> Vec<ToolServer> {
        self.lock().0.get(id).cloned().unwrap_or_default()
    }

    pub(super) fn put(&self, id: &SessionId, servers: Vec<ToolServer>) {
        let (kept, order) = &mut *self.lock();
        if servers.is_empty() {
            if kept.remove(id).is_some() {
                order.retain(|known| known != id);
            }
            return;
        }
        if kept.insert(id.clone(), servers).is_none() {
            order.push_back(id.clone());
        }
        if order.len() > SESSIONS_MAX
            && let Some(oldest) = order.pop_front()
        {
            kept.remove(&oldest);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
