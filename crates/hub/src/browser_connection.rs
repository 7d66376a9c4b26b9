//! `/ui/socket`: the connection of a browser. It speaks `native`, and the hub's additions to it.
//!
//! The hub itself serves what it stores: cards, machines, views. Requests about people and browsers go to `people_api`.
//! All other requests are forwarded to the machine that has the session, together with who asks, and the answer is
//! returned unchanged. Reading never waits for a machine: requests are sent in the order they came, and answers arrive in
//! any order.

mod card_updates;
mod forward;
mod requests;
mod session_watch;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use access::devices::PresenceHandle;
use access::websocket_pump::{COME_BACK, GOING_AWAY, NORMAL, NOT_WELCOME};
use access::{Peer, Refusal, UI_PROTOCOL};
use axum::Extension;
use axum::Router;
use axum::extract::State;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{Utf8Bytes, WebSocketUpgrade};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use engine::SessionId;
use serde::Serialize;
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use wire::native::hub_requests::{HubNotification, HubReplyBody, PersonView};
use wire::native::{ReplyBody, ReplyError, RequestReply, Role, ServerFrame, ServerHello, ServerNotification};

use crate::audit::AuditEntry;
use crate::authenticator::{HubVisitor, VisitorKind};
use crate::hub::Hub;
use crate::metrics::GaugeGuard;
use crate::router::ClientAddress;
use crate::session_list::SessionList;
use crate::websocket_queues::{self, FrameChannel, OutgoingFrame};
use card_updates::CardUpdates;
use session_watch::WatchHandle;

/// The largest frame of a visitor who may prompt (with a few pictures), and of any other.
const BROWSER_FRAME_BYTES_MAX: usize = 24 << 20;
const SMALL_BYTES_MAX: usize = 256 << 10;
/// Sessions that one browser may watch at the same time.
const WATCHES_MAX: usize = 16;
/// Requests of one browser that wait for an answer at the same time.
const WAITING_MAX: usize = 32;
const SIGNED_OUT: (u16, &str) = (NOT_WELCOME, "you are signed out here");

pub fn routes() -> Router<Arc<Hub>> {
    Router::new().route("/ui/socket", get(socket))
}

async fn socket(
    State(hub): State<Arc<Hub>>,
    Extension(from): Extension<ClientAddress>,
    peer: Option<Extension<Peer>>,
    headers: HeaderMap,
    socket: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, Refusal> {
    let visitor = hub.people_api.accounts.visitor(&headers).await?;
    if let Some(peer) = peer {
        peer.admit();
    }
    // A page cannot read why its WebSocket handshake failed, so it sends a plain request, which is answered here.
    let Ok(socket) = socket else { return Ok(StatusCode::NO_CONTENT.into_response()) };
    let bytes_max = frame_bytes_max(&visitor);
    let socket = socket.protocols([UI_PROTOCOL]).max_message_size(bytes_max).max_frame_size(bytes_max);
    let tasks = hub.tasks.clone();
    Ok(socket.on_upgrade(move |socket| async move {
        let (channel, socket_end) = websocket_queues::channel();
        let connection = BrowserConnection::new(hub, visitor, from.0, channel.outgoing.clone());
        let working = tasks.spawn(connection.run(channel));
        websocket_queues::pump(socket, socket_end).await;
        drop(working.await);
    }))
}

/// A visitor who may not prompt has no pictures to send.
pub fn frame_bytes_max(visitor: &HubVisitor) -> usize {
    let prompts = match &visitor.kind {
        VisitorKind::Person { .. } => true,
        VisitorKind::ShareLink { role, .. } => *role >= Role::Driver,
    };
    if prompts { BROWSER_FRAME_BYTES_MAX } else { SMALL_BYTES_MAX }
}

/// The connection of one browser.
struct BrowserConnection {
    hub: Arc<Hub>,
    visitor: Arc<HubVisitor>,
    address: Option<IpAddr>,
    /// This connection in the presence table.
    seat: Option<PresenceHandle>,
    outgoing: mpsc::Sender<OutgoingFrame>,
    /// Ends every task that this connection has started.
    cancel: CancellationToken,
    watches: HashMap<SessionId, WatchHandle>,
    waiting: Arc<Semaphore>,
    /// The cards and machines of the owner whose sessions this visitor sees.
    session_list: Option<Arc<SessionList>>,
}

/// The browser has hung up.
struct BrowserGone;

/// A reply to a request that only hubs answer.
#[derive(Serialize)]
struct HubReply<'a> {
    re: u64,
    ok: &'a HubReplyBody,
}

impl BrowserConnection {
    fn new(
        hub: Arc<Hub>,
        visitor: HubVisitor,
        address: Option<IpAddr>,
        outgoing: mpsc::Sender<OutgoingFrame>,
    ) -> Self {
        Self {
            seat: hub.people_api.seat(&visitor),
            cancel: hub.stop.child_token(),
            hub,
            visitor: Arc::new(visitor),
            address,
            outgoing,
            watches: HashMap::new(),
            waiting: Arc::new(Semaphore::new(WAITING_MAX)),
            session_list: None,
        }
    }

    async fn run(mut self, mut channel: FrameChannel) {
        let _gauge = GaugeGuard::new(&self.hub.metrics.browsers);
        if let VisitorKind::ShareLink { share, session, .. } = &self.visitor.kind {
            let entry = AuditEntry::new("share.visited", None).about(format!("{share} {session}"));
            self.hub.record(entry.from(self.address));
        }
        let (stop, revoked) = (self.hub.stop.clone(), self.visitor.revoked.clone());
        let (code, reason) = tokio::select! {
            biased;
            () = stop.cancelled() => (GOING_AWAY, "this node of the hub is stopping; come back"),
            () = revoked.cancelled() => SIGNED_OUT,
            close = self.serve(&mut channel) => close,
        };
        self.cancel.cancel();
        // Fails if the browser has hung up.
        drop(self.outgoing.send(OutgoingFrame::Close(code, reason.to_owned())).await);
    }

    async fn serve(&mut self, channel: &mut FrameChannel) -> (u16, &'static str) {
        // A failed look-up must not sign anybody out.
        let person = match self.hub.people_api.view(&self.visitor).await {
            Ok(None) if matches!(self.visitor.kind, VisitorKind::Person { .. }) => return SIGNED_OUT,
            Ok(person) => person,
            Err(_) => return (COME_BACK, "the hub's database is away; come back"),
        };
        // Fails if the browser has hung up.
        drop(self.talk(channel, person).await);
        (NORMAL, "")
    }

    async fn talk(
        &mut self,
        channel: &mut FrameChannel,
        person: Option<PersonView>,
    ) -> Result<(), BrowserGone> {
        self.send(&ServerFrame::Notification(Box::new(ServerNotification::Hello(self.hello())))).await?;
        let (session, until) = match &self.visitor.kind {
            VisitorKind::Person { .. } => (None, None),
            VisitorKind::ShareLink { session, until, .. } => (Some(session.to_string()), Some(until.0)),
        };
        self.send(&HubNotification::Hello { person, session, until }).await?;
        self.start_card_updates();
        while let Some(text) = channel.incoming.recv().await {
            self.handle_text(&text).await?;
        }
        Ok(())
    }

    fn hello(&self) -> ServerHello {
        let role = match &self.visitor.kind {
            VisitorKind::Person { .. } => Role::Owner,
            VisitorKind::ShareLink { role, .. } => *role,
        };
        ServerHello {
            version: self.hub.options.version.clone(),
            host: self.hub.options.name.clone(),
            role,
            device: Some(self.visitor.device.to_string()),
            makes_rules: false,
            folder: String::new(),
            folders: Vec::new(),
            sandbox: String::new(),
            push_key: self.hub.people_api.push_key(),
            now: self.hub.now().0,
        }
    }

    /// Starts sending cards and machines: the visitor's own, or those of the owner who shared a session.
    fn start_card_updates(&mut self) {
        let owner = match &self.visitor.kind {
            VisitorKind::Person { id, .. } => id,
            VisitorKind::ShareLink { owner, .. } => owner,
        };
        let session_list = self.hub.session_lists.of(&self.hub, owner);
        self.session_list = Some(Arc::clone(&session_list));
        let card_updates = CardUpdates::new(Arc::clone(&self.visitor), session_list, self.outgoing.clone());
        self.start(card_updates.run());
    }

    fn start(&self, work: impl Future<Output = ()> + Send + 'static) {
        let cancel = self.cancel.clone();
        drop(self.hub.tasks.spawn(async move {
            tokio::select! {
                biased;
                () = cancel.cancelled() => {}
                () = work => {}
            }
        }));
    }

    async fn send(&self, frame: &impl Serialize) -> Result<(), BrowserGone> {
        send(&self.outgoing, frame).await
    }

    async fn reply(&self, re: u64, answer: Result<ReplyBody, ReplyError>) -> Result<(), BrowserGone> {
        self.send(&reply(re, answer)).await
    }
}

fn reply(re: u64, answer: Result<ReplyBody, ReplyError>) -> RequestReply {
    match answer {
        Ok(answered) => RequestReply { re, ok: Some(answered), error: None },
        Err(wrong) => RequestReply { re, ok: None, error: Some(wrong) },
    }
}

async fn send(outgoing: &mpsc::Sender<OutgoingFrame>, frame: &impl Serialize) -> Result<(), BrowserGone> {
    match serde_json::to_string(frame) {
        Ok(text) => send_text(outgoing, text.into()).await,
        Err(error) => {
            tracing::error!(%error, "a frame cannot be written");
            Err(BrowserGone)
        }
    }
}

async fn send_text(outgoing: &mpsc::Sender<OutgoingFrame>, text: Utf8Bytes) -> Result<(), BrowserGone> {
    outgoing.send(OutgoingFrame::Text(text)).await.map_err(|_| BrowserGone)
}
