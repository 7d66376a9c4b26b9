//! A receiver that keeps no mirror: it gets ferret's frames like every local client, and sends ferret's requests.
//!
//! The receiver is one client for as long as the bridge lives, also while its socket is cut: its requests are
//! carried out and answered, and the updates it misses are kept in a [`Backlog`]. It cannot name its position, so a ping follows
//! every batch of frames, and its pong confirms them.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;

use engine::{Body, LogRead, PageRequest, Seq, SessionHandle, Settings, StoreError, Totals};
use metrics::DoorLabel;
use serde_json::json;
use service::{REMOTE_UNNAMED, remote_name};
use tokio::sync::{mpsc, watch};
use wire::{Client, Dialect, DialectSelection, Frame, method_names};

use super::backlog::Backlog;
use super::bridge_error::BridgeError;
use super::tunnel_pipe::{Outgoing, TunnelConnection};
use super::{ConnectionEnd, Shared};
use server::memory::{self, LinkPeer};
use server::{Connection, ConnectionParts, FrameBatch, PreopenedSession};

/// The receiver as a client of the session, from its first connection to the bridge's end.
pub(super) struct FerretReceiver {
    shared: Arc<Shared>,
    /// None before the first connection.
    open: Option<OpenConnection>,
    backlog: Option<Backlog>,
    /// The registration that was valid when the last socket ended. If another one is valid at the next socket, the receiver
    /// has forgotten the session in between, and its requests with it.
    registration: u64,
}

struct OpenConnection {
    connection: Connection,
    frames: mpsc::Sender<Frame>,
    batches: mpsc::Receiver<FrameBatch>,
    /// The frames of the current batch that were not handed to the socket yet.
    unsent: VecDeque<Outgoing>,
}

impl FerretReceiver {
    pub fn new(shared: &Arc<Shared>) -> Self {
        Self { shared: Arc::clone(shared), open: None, backlog: None, registration: 0 }
    }

    /// Serves the receiver until the connection ends or the bridge does.
    pub async fn run(
        &mut self,
        handle: &SessionHandle,
        pipe: TunnelConnection,
        registration: u64,
        stopped: impl Future<Output = ()>,
    ) -> ConnectionEnd {
        let shared = Arc::clone(&self.shared);
        if self.registration != registration {
            self.on_forgotten().await;
        }
        let started = match self.start(handle).await {
            Ok(started) => started,
            Err(error) => {
                return ConnectionEnd::Failed(BridgeError::malformed(format!("our own log: {error}")));
            }
        };
        let StartedClient { open, backlog, exceeded } = started;
        let TunnelConnection { out, mut incoming, mut confirmed, over, .. } = pipe;
        let frames = open.frames.clone();
        let ended = {
            let telling = async {
                if exceeded {
                    notify_window_exceeded(&shared, handle, &out).await;
                }
                replay_backlog(backlog, &out).await?;
                tell(&shared, handle, open, backlog, &out, &mut confirmed).await
            };
            tokio::select! {
                biased;
                trouble = over => ConnectionEnd::Failed(trouble.unwrap_or_else(|_| BridgeError::closed())),
                () = stopped => ConnectionEnd::Stopped,
                () = forward_requests(&mut incoming, &frames) => ConnectionEnd::Failed(BridgeError::closed()),
                _ = telling => ConnectionEnd::Failed(BridgeError::closed()),
            }
        };
        while let Ok(line) = incoming.try_recv() {
            // It was sent before the cut. Do not wait for the connection here: it may be waiting for us.
            drop(frames.try_send(Frame::Line(line)));
        }
        backlog.confirm(*confirmed.borrow());
        backlog.connection_lost();
        if let ConnectionEnd::Stopped = ended
            && let Some(OpenConnection { connection, mut batches, mut unsent, .. }) = self.open.take()
        {
            // Events that the log holds by now are still sent.
            let rest = async {
                while hand_over(&mut unsent, &out).await.is_some()
                    && let Some(batch) = batches.recv().await
                {
                    unsent.extend(batch.frames().map(line));
                }
            };
            let rest = async { tokio::join!(connection.finish(), rest) };
            drop(tokio::time::timeout(shared.timings.farewell, rest).await);
        }
        ended
    }

    /// The socket has ended while this registration was valid.
    pub fn ended_with(&mut self, registration: u64) {
        self.registration = registration;
    }

    /// Keeps the session's updates while there is no connection.
    pub async fn buffer_updates(&mut self, handle: &watch::Receiver<SessionHandle>) -> Infallible {
        while let (Some(open), Some(backlog)) = (&mut self.open, &mut self.backlog) {
            match open.batches.recv().await {
                Some(batch) => drop(backlog.keep(&batch)),
                None => self.open = None,
            }
            let queued = self.backlog.as_ref().map_or(0, Backlog::unconfirmed);
            self.shared.bridges.queued(handle.borrow().id(), queued);
        }
        std::future::pending().await
    }

    /// Ends the client: nobody waits for answers any more.
    pub async fn finish(&mut self) {
        if let Some(OpenConnection { connection, batches, .. }) = self.open.take() {
            drop(batches);
            connection.finish().await;
        }
    }

    async fn on_forgotten(&mut self) {
        self.finish().await;
        if let Some(backlog) = &mut self.backlog {
            backlog.on_forgotten();
        }
    }

    async fn start(&mut self, handle: &SessionHandle) -> Result<StartedClient<'_>, StoreError> {
        let shared = &self.shared;
        let window = shared.replay_window;
        let head = handle.read(Seq::START).head();
        // Where the session was opened is where it begins for a receiver that comes for the first time.
        let from = self.backlog.as_ref().map_or(handle.origin().opened_after, Backlog::seq).min(head);
        let first = self.backlog.is_none();
        let start = if first { from.max(Seq(head.0.saturating_sub(window))) } else { from };
        let backlog = self.backlog.get_or_insert_with(|| Backlog::new(window));
        let open = match self.open.take() {
            Some(mut open) if !open.batches.is_closed() => {
                // The backlog has it, and sends it again.
                open.unsent.clear();
                open
            }
            _ => {
                let (settings, totals) = state_at(handle, start).await?;
                attach(shared, handle, start, (settings, totals), first)
            }
        };
        let exceeded = start > from || backlog.is_exceeded();
        Ok(StartedClient { open: self.open.insert(open), backlog, exceeded })
    }
}

struct StartedClient<'a> {
    open: &'a mut OpenConnection,
    backlog: &'a mut Backlog,
    /// The receiver missed more than it is sent.
    exceeded: bool,
}

/// Makes the receiver a client of the session, from a position in its log on.
fn attach(
    shared: &Shared,
    handle: &SessionHandle,
    start: Seq,
    (settings, totals): (Settings, Totals),
    asks: bool,
) -> OpenConnection {
    let shown = PreopenedSession { handle: handle.clone(), after: start, settings, totals, asks };
    let (link, LinkPeer { frames, batches }) = memory::pair();
    let connection = Connection::start_preopened(parts(shared), link, shown);
    OpenConnection { connection, frames, batches, unsent: VecDeque::new() }
}

fn parts(shared: &Shared) -> ConnectionParts {
    ConnectionParts {
        registry: Arc::clone(shared.app.registry()),
        principal: engine::Principal::local(),
        kind: shared.answers.kind(),
        local_answers: shared.answers.are_local(),
        rules: shared.rules.clone(),
        identity: shared.identity.clone(),
        dialect: DialectSelection::Only(Dialect::Ferret),
        // It sends no `initialize`.
        client: Some(Client { dialect: Dialect::Ferret, ..Client::default() }),
        name: remote_name(REMOTE_UNNAMED),
        zeph: false,
        any_session: false,
        metrics: shared.metrics.clone().map(|metrics| (metrics, DoorLabel::WebSocket)),
        on_initialize: None,
    }
}

/// A session's settings and usage at a position in its log.
async fn state_at(handle: &SessionHandle, seq: Seq) -> Result<(Settings, Totals), StoreError> {
    let (mut settings, mut totals) = (Settings::defaults(&handle.specs()), Totals::default());
    let mut reader = handle.read(Seq::START);
    while reader.cursor() < seq {
        let LogRead::Events(events) = reader.take(PageRequest::OUTLINE).await? else { break };
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

async fn notify_window_exceeded(shared: &Shared, handle: &SessionHandle, out: &mpsc::Sender<Outgoing>) {
    let window = shared.replay_window;
    shared.tell(&format!(
        "bridge: replay window exceeded. More than {window} events were missed; the receiver gets the rest by session/load"
    ));
    let text = format!(
        "bridge: replay window exceeded; only the last {window} events follow. session/load tells all of them"
    );
    let notice = json!({
        "jsonrpc": "2.0",
        "method": method_names::UPDATE,
        "params": { "sessionId": handle.id().as_str(), "kind": "notice", "level": "warning", "text": text },
    });
    // A pipe that is closed says so itself.
    drop(out.send(line(notice.to_string().as_bytes())).await);
}

/// A frame ends with a newline, on this socket as everywhere.
fn line(frame: &[u8]) -> Outgoing {
    let mut line = Vec::with_capacity(frame.len() + 1);
    line.extend_from_slice(frame);
    line.push(b'\n');
    Outgoing::Frame(line)
}

/// Sends the backlog. `None`, if the pipe is closed.
async fn replay_backlog(backlog: &mut Backlog, out: &mpsc::Sender<Outgoing>) -> Option<()> {
    let (frames, mark) = backlog.replay();
    for frame in &frames {
        out.send(line(frame)).await.ok()?;
    }
    if mark == 0 { Some(()) } else { out.send(Outgoing::Mark(mark)).await.ok() }
}

enum Wake {
    Said(Option<FrameBatch>),
    Confirmed,
}

/// Forwards every frame unchanged, and asks for a confirmation after each batch. Ends when the pipe is closed.
async fn tell(
    shared: &Shared,
    handle: &SessionHandle,
    open: &mut OpenConnection,
    backlog: &mut Backlog,
    out: &mpsc::Sender<Outgoing>,
    confirmed: &mut watch::Receiver<u64>,
) -> Option<Infallible> {
    loop {
        let wake = tokio::select! {
            biased;
            Ok(()) = confirmed.changed() => Wake::Confirmed,
            batch = open.batches.recv() => Wake::Said(batch),
        };
        match wake {
            Wake::Confirmed => backlog.confirm(*confirmed.borrow_and_update()),
            Wake::Said(batch) => {
                let batch = batch?;
                // Before it is sent: frames that a cut loses are sent again.
                let mark = backlog.keep(&batch);
                open.unsent.extend(batch.frames().map(line));
                open.unsent.push_back(Outgoing::Mark(mark));
                hand_over(&mut open.unsent, out).await?;
            }
        }
        shared.bridges.queued(handle.id(), backlog.unconfirmed());
    }
}

/// Takes a frame out only when there is room for it, so that a cancelled wait loses none.
async fn hand_over(unsent: &mut VecDeque<Outgoing>, out: &mpsc::Sender<Outgoing>) -> Option<()> {
    while !unsent.is_empty() {
        let room = out.reserve().await.ok()?;
        if let Some(first) = unsent.pop_front() {
            room.send(first);
        }
    }
    Some(())
}

async fn forward_requests(incoming: &mut mpsc::Receiver<Vec<u8>>, frames: &mpsc::Sender<Frame>) {
    // A line is taken only when there is room for it, so that none is lost on the way.
    while let Ok(room) = frames.reserve().await {
        match incoming.recv().await {
            Some(line) => room.send(Frame::Line(line)),
            // The pipe gives the reason of its end.
            None => return std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};

    use super::*;

    /// A bridge that is ended in the middle of a batch goes on with the frame that there was no room for.
    #[tokio::test]
    async fn what_was_not_handed_over_when_the_telling_is_stopped_is_told_afterwards() {
        let frames: Vec<Vec<u8>> = (0..10u8).map(|number| vec![number]).collect();
        let mut unsent: VecDeque<Outgoing> = frames.iter().cloned().map(Outgoing::Frame).collect();
        let (out, mut taken) = mpsc::channel(4);
        {
            let mut telling = std::pin::pin!(hand_over(&mut unsent, &out));
            let stopped = telling.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            assert!(stopped.is_pending(), "the pipe is full");
        }
        assert_eq!(unsent.len(), 6, "what is in the pipe, and nothing else, is told");
        let rest = async {
            hand_over(&mut unsent, &out).await.unwrap();
            drop(out);
        };
        let reading = async {
            let mut told = Vec::new();
            while let Some(outgoing) = taken.recv().await {
                told.push(outgoing);
            }
            told
        };
        let ((), told) = tokio::join!(rest, reading);
        assert_eq!(told, frames.into_iter().map(Outgoing::Frame).collect::<Vec<_>>());
    }
}
