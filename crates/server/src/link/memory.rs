//! A link whose other end is in this process: for tests, and for programs that embed a server.

use tokio::sync::mpsc;
use wire::Frame;

use crate::frame_batch::FrameBatch;

use super::{INCOMING_MAX, Link, OUTGOING_MAX};

/// The peer's end of a memory link.
pub struct LinkPeer {
    pub frames: mpsc::Sender<Frame>,
    pub batches: mpsc::Receiver<FrameBatch>,
}

pub fn pair() -> (Link, LinkPeer) {
    let (frames, incoming) = mpsc::channel(INCOMING_MAX);
    let (outgoing, batches) = mpsc::channel(OUTGOING_MAX);
    (Link { incoming, outgoing }, LinkPeer { frames, batches })
}
