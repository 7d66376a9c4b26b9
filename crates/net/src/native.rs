//! Our own clients: the web app over a WebSocket, the terminal client in the same process.
//!
//! Both hold a [`Line`]: they send requests and are told what happens, in the types of `wire::native`.

use tokio::sync::mpsc;
use wire::native::{Envelope, Frame};

/// One client's connection, as the client has it.
pub struct Line {
    pub requests: mpsc::Sender<Envelope>,
    /// Ends when the client is not welcome any more, or the server stops.
    pub frames: mpsc::Receiver<Frame>,
}
