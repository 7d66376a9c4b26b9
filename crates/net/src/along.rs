//! Reading along with a session for as long as it is in memory here.

use std::sync::Arc;
use std::time::Duration;

use engine::{Doorbell, Event, LogReader, Page, SessionHandle, StoreError, Taken};

/// How long a reader waits before it looks again for what the store could not give it.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Shows every event that is written while this process has the session, in order and once.
pub async fn read_along(session: &SessionHandle, mut seen: impl FnMut(&Event) + Send) {
    let mut reader = session.read(session.birth().opened_after);
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
    let bell = Arc::new(Doorbell::default());
    let _ringing = reader.subscribe(&bell, 0);
    loop {
        match reader.take(Page::OUTLINE).await? {
            Taken::Events(events) => events.iter().for_each(|event| seen(event)),
            Taken::UpToDate => drop(bell.wait().await),
            Taken::Ended { .. } => return Ok(()),
        }
    }
}
