//! A receiver that keeps no mirror: ferret's frames as every local client gets them, and its requests.
//!
//! It cannot say where it stands, so a ping follows every batch of frames, and its pong confirms them. What
//! was not confirmed when a connection was lost is told again on the next one, up to the replay window.

use std::sync::Arc;

use engine::{Body, Page, Seq, SessionHandle, Settings, StoreError, SurfaceId, Taken, Totals};
use serde_json::json;
use tokio::sync::{mpsc, watch};
use wire::{Client, Dialect, Frame, Spoken, UpdateStart};

use super::confined::Confined;
use super::pipe::{Outgoing, Pipe};
use super::trouble::Trouble;
use super::{Ended, Shared, UNNAMED, remote_name};
use crate::batch::Batch;
use crate::connection::{Connection, ConnectionParts};
use crate::link::memory::{self, Peer};
use crate::metrics::Door;
use crate::writer::{AttachAnswer, Command, Start};

/// Where a receiver stands, kept from one connection to the next.
pub(super) struct Place {
    /// It was shown everything up to here; nothing, before the first connection.
    confirmed: Option<Seq>,
    surface: SurfaceId,
}

impl Place {
    pub fn new() -> Self {
        Self { confirmed: None, surface: SurfaceId::random() }
    }
}

/// Serves the receiver until the connection ends or the bridge does.
pub(super) async fn run(
    shared: &Arc<Shared>,
    handle: &SessionHandle,
    pipe: Pipe,
    place: &mut Place,
    stopped: impl Future<Output = ()>,
) -> Ended {
    let Pipe { out, incoming, mut confirmed, over, .. } = pipe;
    let first = place.confirmed.is_none();
    let head = handle.read(Seq::START).head();
    let from = place.confirmed.unwrap_or(handle.birth().opened_after).min(head);
    let start = from.max(Seq(head.0.saturating_sub(shared.replay_window)));
    let (settings, totals) = match stand_at(handle, start).await {
        Ok(stand) => stand,
        Err(error) => return Ended::Trouble(Trouble::malformed(format!("our own log: {error}"))),
    };
    if start > from {
        exceeded(shared, handle, &out).await;
    }
    let attach = Command::Attach {
        handle: handle.clone(),
        from: Start::After(start),
        counted: UpdateStart::default(),
        answer: AttachAnswer::Unasked { settings: Box::new(settings), totals, asks: first || start > from },
    };
    let (link, Peer { frames, mut batches }) = memory::pair();
    let confined = Confined { session: handle.id().clone(), answers: shared.answers };
    let connection = Connection::start_unasked(parts(shared), place.surface, link, confined, attach);
    place.confirmed = Some(start);
    let ended = {
        let told = tell(&mut batches, &out);
        let confirming = confirm(shared, handle, &mut confirmed, &mut place.confirmed);
        tokio::select! {
            biased;
            trouble = over => Ended::Trouble(trouble.unwrap_or_else(|_| Trouble::closed())),
            () = stopped => Ended::Stopped,
            () = hear(incoming, frames) => Ended::Trouble(Trouble::closed()),
            () = told => Ended::Trouble(Trouble::closed()),
            () = confirming => Ended::Trouble(Trouble::closed()),
        }
    };
    if let Ended::Stopped = ended {
        // What the log holds by now is still told.
        let rest = async { tokio::join!(connection.finish(), tell(&mut batches, &out)) };
        drop(tokio::time::timeout(shared.pace.farewell, rest).await);
    } else {
        drop(batches);
        connection.finish().await;
    }
    ended
}

fn parts(shared: &Shared) -> ConnectionParts {
    ConnectionParts {
        registry: Arc::clone(shared.desk.registry()),
        principal: engine::Principal::local(),
        standing: engine::Standing::Other,
        rules: shared.rules.clone(),
        identity: shared.identity.clone(),
        dialect: Spoken::Only(Dialect::Ferret),
        // It has nothing to introduce itself by.
        client: Some(Client { dialect: Dialect::Ferret, ..Client::default() }),
        name: remote_name(UNNAMED),
        any_session: false,
        metrics: shared.metrics.clone().map(|metrics| (metrics, Door::WebSocket)),
        greeted: None,
    }
}

/// What a session had chosen and used up to a place in its log.
async fn stand_at(handle: &SessionHandle, seq: Seq) -> Result<(Settings, Totals), StoreError> {
    let (mut settings, mut totals) = (Settings::defaults(&handle.specs()), Totals::default());
    let mut reader = handle.read(Seq::START);
    while reader.cursor() < seq {
        let Taken::Events(events) = reader.take(Page::OUTLINE).await? else { break };
        for event in events.iter().filter(|event| event.seq <= seq) {
            match &event.body {
                Body::SettingChanged { id, value } => settings.set(Arc::clone(id), Arc::clone(value)),
                Body::Usage(usage) => totals.add(usage),
                _ => {}
            }
        }
    }
    Ok((settings, totals))
}

async fn exceeded(shared: &Shared, handle: &SessionHandle, out: &mpsc::Sender<Outgoing>) {
    let window = shared.replay_window;
    shared.tell(&format!(
        "bridge: replay window exceeded. More than {window} events were missed; the receiver gets the rest by session/load"
    ));
    let text = format!(
        "bridge: replay window exceeded; only the last {window} events follow. session/load tells all of them"
    );
    let notice = json!({
        "jsonrpc": "2.0",
        "method": "session/update",
        "params": { "sessionId": handle.id().as_str(), "kind": "notice", "level": "warning", "text": text },
    });
    // A pipe that is closed says so itself.
    drop(out.send(Outgoing::Frame(notice.to_string().into_bytes())).await);
}

/// Hands every frame over as it is, and asks for a confirmation after each batch.
async fn tell(batches: &mut mpsc::Receiver<Batch>, out: &mpsc::Sender<Outgoing>) {
    while let Some(batch) = batches.recv().await {
        for frame in batch.frames() {
            if out.send(Outgoing::Frame(frame.to_vec())).await.is_err() {
                return;
            }
        }
        let seen = batch.placed().iter().map(|placed| placed.position.seq).max();
        if let Some(seen) = seen.filter(|seen| *seen > Seq::START)
            && out.send(Outgoing::Mark(seen.0)).await.is_err()
        {
            return;
        }
    }
}

async fn hear(mut incoming: mpsc::Receiver<Vec<u8>>, frames: mpsc::Sender<Frame>) {
    while let Some(line) = incoming.recv().await {
        if frames.send(Frame::Line(line)).await.is_err() {
            return;
        }
    }
    // Why there is no more to hear, the pipe says.
    std::future::pending().await
}

async fn confirm(
    shared: &Shared,
    handle: &SessionHandle,
    confirmed: &mut watch::Receiver<u64>,
    place: &mut Option<Seq>,
) {
    let mut log = handle.read(Seq::START);
    log.skip_to(log.head());
    while confirmed.changed().await.is_ok() {
        let head = log.head();
        // Nobody has seen what was not written.
        let seen = Seq(*confirmed.borrow_and_update()).min(head);
        *place = (*place).max(Some(seen));
        shared.bridges.queued(handle.id(), head.0.saturating_sub(seen.0));
    }
    std::future::pending().await
}
