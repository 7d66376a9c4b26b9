//! Follows a session's log for as long as the session is in memory here.

use std::sync::Arc;
use std::time::Duration;

use crate::event::Event;
use crate::event_log::{Doorbell, LogRead, LogReader};
use crate::session_handle::SessionHandle;
use crate::store::{PageRequest, StoreError};

/// How long a reader waits before it looks again for what the store could not give it.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Calls back for every event that is written while this process has the session, in order and once, and
/// returns when the session has left memory. If the store cannot be read for a moment, the cursor stays
/// where it is, and the same position is read again until the store answers or the session is closed. All
/// pure observers (metrics, pushes, traces, the board) use this function, so that none of them has to handle
/// that case itself.
pub async fn follow_log(session: &SessionHandle, mut seen: impl FnMut(&Event) + Send) {
    let mut reader = session.read(session.origin().opened_after);
    while let Err(error) = read(&mut reader, &mut seen).await {
        tracing::debug!(session = %session.id(), %error, "a reader of the log waits for the store");
        if session.is_closed() {
            return;
        }
        tokio::time::sleep(RETRY_AFTER).await;
    }
}

/// Reads until the log ends.
async fn read(reader: &mut LogReader, seen: &mut (impl FnMut(&Event) + Send)) -> Result<(), StoreError> {
    // One bell for the whole way: `LogReader::next` has one for each call, and looks twice before it waits.
    let bell = Arc::new(Doorbell::default());
    let _ringing = reader.subscribe(&bell, 0);
    loop {
        match reader.take(PageRequest::OUTLINE).await? {
            LogRead::Events(events) => events.iter().for_each(|event| seen(event)),
            LogRead::UpToDate => drop(bell.wait().await),
            LogRead::Ended { .. } => return Ok(()),
        }
    }
}
