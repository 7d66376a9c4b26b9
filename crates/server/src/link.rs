//! A bidirectional transport of frames: frames arrive, batches of bytes leave. Both queues are bounded, so a peer that stops
//! reading stops its own connection's writer and nothing else.

pub mod byte_stream;
pub mod memory;
pub mod stdio;

use tokio::sync::mpsc;
use wire::Frame;

use crate::frame_batch::FrameBatch;

/// Frames that were read and not yet handled. Few, because each may be as large as the limit.
pub(crate) const INCOMING_MAX: usize = 4;
/// Batches that were handed over and not yet written.
pub(crate) const OUTGOING_MAX: usize = 2;

pub type Incoming = mpsc::Receiver<Frame>;

pub struct Link {
    /// Ends when the peer closes its side.
    pub incoming: Incoming,
    /// Whole frames, in order. Fails when the peer is gone.
    pub outgoing: mpsc::Sender<FrameBatch>,
}
