//! A deadline for permission requests in sessions whose client may have disconnected silently.
//!
//! A Bernstein client opens a session and may never be heard of again: over HTTP it need not even stay
//! to see the permission request. So the deadline is not kept by the connection but by a reader of the
//! session's log, which ends with the session.
//!
//! This is Bernstein's minute alone. How long a permission request waits everywhere else (`ask_timeout`) is decided by the session:
//! `deadlines` in `engine/src/session_task.rs`.

use std::collections::BTreeMap;
use std::time::Duration;

use engine::{AskId, Body, Event, Input, LogReader, Seq, SessionHandle};
use tokio::time::Instant;

/// How long a permission request waits for the client that opened the session.
pub(crate) const ANSWER_WITHIN: Duration = Duration::from_secs(60);

/// Expires every ask that is not answered in time; that is not a denial, for nobody said no. Ends with the session.
pub(crate) async fn expire_unanswered_asks(handle: SessionHandle) {
    let mut reader = handle.read(Seq::START);
    let mut open = BTreeMap::new();
    loop {
        match wake(&mut reader, open.values().min().copied()).await {
            Wake::Events(events) => events.iter().for_each(|event| note(&mut open, event)),
            Wake::Overdue => {
                let now = Instant::now();
                let late: Vec<AskId> =
                    open.iter().filter(|(_, until)| **until <= now).map(|(ask, _)| *ask).collect();
                for ask in late {
                    open.remove(&ask);
                    if let Err(error) = handle.send(Input::AskExpired { ask }).await {
                        // It was answered at the last moment: the log says by whom.
                        tracing::debug!(%error, "a permission request was answered just before its deadline");
                    }
                }
            }
            Wake::Ended => return,
        }
    }
}

enum Wake {
    Events(Vec<std::sync::Arc<Event>>),
    Overdue,
    Ended,
}

async fn wake(reader: &mut LogReader, until: Option<Instant>) -> Wake {
    let overdue = async {
        match until {
            Some(until) => tokio::time::sleep_until(until).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        events = reader.next() => match events {
            Ok(Some(events)) => Wake::Events(events),
            Ok(None) => Wake::Ended,
            Err(error) => {
                tracing::warn!(%error, "could not read the log of a session; its permission requests have no deadline");
                Wake::Ended
            }
        },
        () = overdue => Wake::Overdue,
    }
}

fn note(open: &mut BTreeMap<AskId, Instant>, event: &Event) {
    if let Body::Asked { ask, .. } = &event.body {
        open.insert(*ask, Instant::now() + ANSWER_WITHIN);
    } else if let Body::Resolved { ask, .. } = &event.body {
        open.remove(ask);
    }
}
