//! The client's end of a connection to a server: requests go in, frames come out.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use tokio::sync::mpsc;
use wire::native::{RequestEnvelope, ServerFrame};

/// The first wait after a connection was lost; it is doubled each time, up to the last.
const WAIT_FIRST: Duration = Duration::from_millis(500);
const WAIT_LAST: Duration = Duration::from_secs(8);

pub struct ServerConnection {
    pub requests: mpsc::Sender<RequestEnvelope>,
    /// Ends when the server is gone.
    pub frames: mpsc::Receiver<ServerFrame>,
}

/// A connection attempt: a connection, or why it failed.
pub type Dialing = Pin<Box<dyn Future<Output = Result<ServerConnection, String>> + Send>>;

/// How a server is reached: over a socket, or in the same process.
pub trait Dial: Send + Sync {
    fn dial(&self) -> Dialing;
}

/// How long to wait before the next attempt.
#[derive(Debug)]
pub struct RetryDelay {
    next: Duration,
}

impl Default for RetryDelay {
    fn default() -> Self {
        Self { next: WAIT_FIRST }
    }
}

impl RetryDelay {
    pub fn wait(&mut self) -> Duration {
        let wait = self.next;
        self.next = (wait * 2).min(WAIT_LAST);
        wait
    }

    pub fn reset(&mut self) {
        self.next = WAIT_FIRST;
    }
}

/// Dials after a delay.
pub fn dial_after(dial: &dyn Dial, wait: Duration) -> Dialing {
    let dialing = dial.dial();
    Box::pin(async move {
        tokio::time::sleep(wait).await;
        dialing.await
    })
}
