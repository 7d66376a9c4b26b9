//! A browser that watches a session: a cursor in the session's feed.

use std::sync::Arc;

use engine::SessionId;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use wire::native::{ReplyBody, ServerFrame, ServerNotification};

use super::{BrowserGone, reply, send, send_text};
use crate::metrics::GaugeGuard;
use crate::view_feed::{FeedRead, ViewFeed};
use crate::websocket_queues::OutgoingFrame;

pub(super) struct WatchHandle {
    pub cancel: CancellationToken,
    pub task: JoinHandle<()>,
}

pub(super) struct WatchTask {
    pub session: SessionId,
    pub feed: Arc<ViewFeed>,
    pub after: Option<u64>,
    pub outgoing: mpsc::Sender<OutgoingFrame>,
    pub _gauge: GaugeGuard,
}

impl WatchTask {
    /// Replies first, then sends the views.
    pub async fn run(self, re: u64) {
        // Fails if the browser has hung up.
        drop(self.forward(re).await);
    }

    async fn forward(&self, re: u64) -> Result<(), BrowserGone> {
        send(&self.outgoing, &reply(re, Ok(ReplyBody::Done))).await?;
        let mut changes = self.feed.changes();
        let mut cursor = None;
        loop {
            changes.mark_unchanged();
            let more = match cursor {
                Some(cursor) => self.feed.after(cursor),
                None => self.feed.begin(self.after),
            };
            match more {
                FeedRead::Frames(frames, next) => {
                    cursor = Some(next);
                    for frame in frames {
                        send_text(&self.outgoing, frame).await?;
                    }
                }
                FeedRead::Wait => {}
                FeedRead::End(why) => {
                    let frame = ServerNotification::WatchEnded {
                        session: self.session.to_string(),
                        message: why.to_owned(),
                    };
                    return send(&self.outgoing, &ServerFrame::Notification(Box::new(frame))).await;
                }
            }
            if changes.changed().await.is_err() {
                return Ok(());
            }
        }
    }
}
