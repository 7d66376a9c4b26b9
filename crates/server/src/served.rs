//! A connection over a link whose last bytes take a while to leave: standard output, a socket.

use std::time::Duration;

use tokio::sync::oneshot;

use crate::connection::{Connection, ConnectionParts};
use crate::link::Link;

/// How long the last bytes may take to leave.
const OUTPUT_GRACE: Duration = Duration::from_secs(1);

pub struct Served {
    connection: Connection,
    written: oneshot::Receiver<()>,
}

impl Served {
    /// `written` is kept when everything that the link was given has left.
    pub fn start(parts: ConnectionParts, (link, written): (Link, oneshot::Receiver<()>)) -> Self {
        Self { connection: Connection::start(parts, link), written }
    }

    /// See [`Connection::input_ended`].
    pub async fn input_ended(&mut self) {
        self.connection.input_ended().await;
    }

    /// Takes no more from the client. What was taken is still answered.
    pub fn stop_reading(&self) {
        self.connection.stop_reading();
    }

    /// Writes what is left and waits, not for ever, until it has left.
    pub async fn finish(self) {
        self.connection.finish().await;
        // Whether the last bytes were written is all that is asked of it.
        if tokio::time::timeout(OUTPUT_GRACE, self.written).await.is_err() {
            tracing::info!("the client did not take the last bytes");
        }
    }
}
