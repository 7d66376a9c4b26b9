//! A connection over a link that needs time to write its last bytes: standard output, a socket.

use std::time::Duration;

use tokio::sync::oneshot;

use crate::connection::{Connection, ConnectionParts};
use crate::link::Link;

/// How long writing the last bytes may take.
const OUTPUT_GRACE: Duration = Duration::from_secs(1);

pub struct FlushedConnection {
    connection: Connection,
    written: oneshot::Receiver<()>,
}

impl FlushedConnection {
    /// `written` completes when everything that the link was given was written.
    pub fn start(parts: ConnectionParts, (link, written): (Link, oneshot::Receiver<()>)) -> Self {
        Self { connection: Connection::start(parts, link), written }
    }

    /// See [`Connection::input_ended`].
    pub async fn input_ended(&mut self) {
        self.connection.input_ended().await;
    }

    /// Reads no more from the client. What was read is still answered.
    pub fn stop_reading(&self) {
        self.connection.stop_reading();
    }

    /// Writes the rest and waits, for a bounded time, until it was written.
    pub async fn finish(self) {
        self.connection.finish().await;
        // A dropped sender counts as written too: there is nothing else to wait for.
        if tokio::time::timeout(OUTPUT_GRACE, self.written).await.is_err() {
            tracing::info!("the client did not take the last bytes");
        }
    }
}
