//! A link whose other end is in this process: for tests, and for programs that embed a server.

use tokio::sync::mpsc;
use wire::Frame;

use super::{INCOMING_MAX, Link, OUTGOING_MAX};

/// The peer's end of a memory link.
pub struct Peer {
    pub frames: mpsc::Sender<Frame>,
    pub bytes: mpsc::Receiver<Vec<u8>>,
}

pub fn pair() -> (Link, Peer) {
    let (frames, incoming) = mpsc::channel(INCOMING_MAX);
    let (outgoing, bytes) = mpsc::channel(OUTGOING_MAX);
    (Link { incoming, outgoing }, Peer { frames, bytes })
}
