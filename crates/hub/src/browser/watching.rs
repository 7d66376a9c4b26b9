//! Somebody who looks at a session: a number in its feed.

use std::sync::Arc;

use engine::SessionId;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use wire::native::{Answered, Frame, Told};

use super::{Hung, reply, send, send_text};
use crate::feed::{Feed, More};
use crate::metrics::Counted;
use crate::socket::Go;

pub(super) struct Watch {
    pub over: CancellationToken,
    pub task: JoinHandle<()>,
}

pub(super) struct Watching {
    pub session: SessionId,
    pub feed: Arc<Feed>,
    pub after: Option<u64>,
    pub go: mpsc::Sender<Go>,
    pub _counted: Counted,
}

impl Watching {
    /// The answer comes first, then what there is to see.
    pub async fn run(self, re: u64) {
        // Who hung up is told nothing more.
        drop(self.tell(re).await);
    }

    async fn tell(&self, re: u64) -> Result<(), Hung> {
        send(&self.go, &reply(re, Ok(Answered::Done))).await?;
        let mut changes = self.feed.changes();
        let mut spot = None;
        loop {
            changes.mark_unchanged();
            let more = match spot {
                Some(spot) => self.feed.after(spot),
                None => self.feed.begin(self.after),
            };
            match more {
                More::Frames(frames, next) => {
                    spot = Some(next);
                    for frame in frames {
                        send_text(&self.go, frame).await?;
                    }
                }
                More::Wait => {}
                More::Gone(why) => {
                    let told = Told::Over { session: self.session.to_string(), message: why.to_owned() };
                    return send(&self.go, &Frame::Told(Box::new(told))).await;
                }
            }
            if changes.changed().await.is_err() {
                return Ok(());
            }
        }
    }
}
