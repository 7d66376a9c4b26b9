//! A way in and out: frames arrive, bytes leave. Both queues are bounded, so a peer that stops
//! reading stops its own connection's writer and nothing else.

pub mod memory;
pub mod stdio;
pub mod stream;

use tokio::sync::mpsc;
use wire::Frame;

use crate::batch::Batch;

/// Frames read and not yet looked at. Few, because each may be as large as the limit.
pub(crate) const INCOMING_MAX: usize = 4;
/// Buffers handed over and not yet written.
pub(crate) const OUTGOING_MAX: usize = 2;

pub type Incoming = mpsc::Receiver<Frame>;

pub struct Link {
    /// Ends when the peer closes its side.
    pub incoming: Incoming,
    /// Whole frames, in order. Fails when the peer is gone.
    pub outgoing: mpsc::Sender<Batch>,
}
