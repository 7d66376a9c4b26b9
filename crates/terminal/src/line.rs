//! The connection to a server, as a client has it: requests go in, frames come out.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use tokio::sync::mpsc;
use wire::native::{Envelope, Frame};

/// The first wait after a connection was lost, doubled up to the last.
const WAIT_FIRST: Duration = Duration::from_millis(500);
const WAIT_LAST: Duration = Duration::from_secs(8);

pub struct Line {
    pub requests: mpsc::Sender<Envelope>,
    /// Ends when the server is gone.
    pub frames: mpsc::Receiver<Frame>,
}

/// A line, or why there is none.
pub type Dialing = Pin<Box<dyn Future<Output = Result<Line, String>> + Send>>;

/// How a server is reached: over a socket, or in the same process.
pub trait Dial: Send + Sync {
    fn dial(&self) -> Dialing;
}

/// How long to wait before the next try.
#[derive(Debug)]
pub struct Patience {
    next: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self { next: WAIT_FIRST }
    }
}

impl Patience {
    pub fn wait(&mut self) -> Duration {
        let wait = self.next;
        self.next = (wait * 2).min(WAIT_LAST);
        wait
    }

    pub fn calm(&mut self) {
        self.next = WAIT_FIRST;
    }
}

/// Dials after a while.
pub fn later(dial: &dyn Dial, wait: Duration) -> Dialing {
    let dialing = dial.dial();
    Box::pin(async move {
        tokio::time::sleep(wait).await;
        dialing.await
    })
}
