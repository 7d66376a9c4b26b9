//! `/ui/socket`: people with a browser. They speak `native`, and what a hub adds to it.
//!
//! What the hub has it shows itself: cards, machines, views. What concerns people their own house answers. Everything
//! else goes to the machine that has the session, with who asks, and its answer comes back as it is. Reading never
//! waits for a machine: requests leave in the order they came, and answers come when they come.

mod handing;
mod requests;
mod table;
mod watching;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use access::devices::Seat;
use access::websocket::{COME_BACK, GOING_AWAY, NORMAL, NOT_WELCOME};
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
use wire::native::hub::{HubAnswered, HubTold, PersonView};
use wire::native::{Answered, Frame, Hello, Reply, Role, Told, Wrong};

use crate::audit::Note;
use crate::door::From;
use crate::guest::{Guest, Who};
use crate::hub::Hub;
use crate::metrics::Counted;
use crate::shelf::Shelf;
use crate::socket::{self, Go, Pipe};
use table::Table;
use watching::Watch;

/// A frame of somebody who can prompt, with a few pictures, and of anybody else.
const FRAME_BYTES_MAX: usize = 24 << 20;
const SMALL_BYTES_MAX: usize = 256 << 10;
/// Sessions that one browser may watch at once.
const WATCHES_MAX: usize = 16;
/// Requests of one browser that are waited for at once.
const WAITING_MAX: usize = 32;
const SIGNED_OUT: (u16, &str) = (NOT_WELCOME, "you are signed out here");

pub fn routes() -> Router<Arc<Hub>> {
    Router::new().route("/ui/socket", get(socket))
}

async fn socket(
    State(hub): State<Arc<Hub>>,
    Extension(from): Extension<From>,
    peer: Option<Extension<Peer>>,
    headers: HeaderMap,
    socket: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, Refusal> {
    let guest = hub.door.keeper.guest(&headers).await?;
    if let Some(peer) = peer {
        peer.admit();
    }
    // A page cannot read why its handshake failed. It asks plainly, and who gets here is welcome.
    let Ok(socket) = socket else { return Ok(StatusCode::NO_CONTENT.into_response()) };
    let bytes_max = frame_bytes_max(&guest);
    let socket = socket.protocols([UI_PROTOCOL]).max_message_size(bytes_max).max_frame_size(bytes_max);
    let tasks = hub.tasks.clone();
    Ok(socket.on_upgrade(move |socket| async move {
        let (pipe, mouth) = socket::pipe();
        let line = Line::new(hub, guest, from.0, pipe.go.clone());
        let working = tasks.spawn(line.run(pipe));
        socket::pump(socket, mouth).await;
        drop(working.await);
    }))
}

/// Who cannot prompt has no pictures to send.
pub fn frame_bytes_max(guest: &Guest) -> usize {
    let prompts = match &guest.who {
        Who::Person { .. } => true,
        Who::Bearer { role, .. } => *role >= Role::Driver,
    };
    if prompts { FRAME_BYTES_MAX } else { SMALL_BYTES_MAX }
}

/// One browser's line.
struct Line {
    hub: Arc<Hub>,
    guest: Arc<Guest>,
    address: Option<IpAddr>,
    /// Its place among those who look.
    seat: Option<Seat>,
    go: mpsc::Sender<Go>,
    /// Everything that this line has started ends with it.
    over: CancellationToken,
    watches: HashMap<SessionId, Watch>,
    waiting: Arc<Semaphore>,
    /// The cards and machines that this guest sees, of whoever owns them.
    shelf: Option<Arc<Shelf>>,
}

/// The browser has hung up.
struct Hung;

/// A reply with what a hub answers.
#[derive(Serialize)]
struct HubReply<'a> {
    re: u64,
    ok: &'a HubAnswered,
}

impl Line {
    fn new(hub: Arc<Hub>, guest: Guest, address: Option<IpAddr>, go: mpsc::Sender<Go>) -> Self {
        Self {
            seat: hub.door.seat(&guest),
            over: hub.stop.child_token(),
            hub,
            guest: Arc::new(guest),
            address,
            go,
            watches: HashMap::new(),
            waiting: Arc::new(Semaphore::new(WAITING_MAX)),
            shelf: None,
        }
    }

    async fn run(mut self, mut pipe: Pipe) {
        let _counted = Counted::new(&self.hub.metrics.browsers);
        if let Who::Bearer { share, session, .. } = &self.guest.who {
            let note = Note::new("share.visited", None).about(format!("{share} {session}"));
            self.hub.note(note.from(self.address));
        }
        let (stop, ended) = (self.hub.stop.clone(), self.guest.ended.clone());
        let (code, reason) = tokio::select! {
            biased;
            () = stop.cancelled() => (GOING_AWAY, "this node of the hub is stopping; come back"),
            () = ended.cancelled() => SIGNED_OUT,
            over = self.serve(&mut pipe) => over,
        };
        self.over.cancel();
        // A browser that hung up hears nothing more.
        drop(self.go.send(Go::Close(code, reason.to_owned())).await);
    }

    async fn serve(&mut self, pipe: &mut Pipe) -> (u16, &'static str) {
        // Who cannot be looked up at the moment is not told that they are nobody.
        let person = match self.hub.door.view(&self.guest).await {
            Ok(None) if matches!(self.guest.who, Who::Person { .. }) => return SIGNED_OUT,
            Ok(person) => person,
            Err(_) => return (COME_BACK, "the hub's database is away; come back"),
        };
        // A browser that hung up hears nothing more.
        drop(self.talk(pipe, person).await);
        (NORMAL, "")
    }

    async fn talk(&mut self, pipe: &mut Pipe, person: Option<PersonView>) -> Result<(), Hung> {
        self.tell(&Frame::Told(Box::new(Told::Hello(self.hello())))).await?;
        let (session, until) = match &self.guest.who {
            Who::Person { .. } => (None, None),
            Who::Bearer { session, until, .. } => (Some(session.to_string()), Some(until.0)),
        };
        self.tell(&HubTold::At { person, session, until }).await?;
        self.lay_table();
        while let Some(text) = pipe.came.recv().await {
            self.take(&text).await?;
        }
        Ok(())
    }

    fn hello(&self) -> Hello {
        let role = match &self.guest.who {
            Who::Person { .. } => Role::Owner,
            Who::Bearer { role, .. } => *role,
        };
        Hello {
            version: self.hub.options.version.clone(),
            host: self.hub.options.name.clone(),
            role,
            device: Some(self.guest.device.to_string()),
            makes_rules: false,
            folder: String::new(),
            folders: Vec::new(),
            sandbox: String::new(),
            push_key: self.hub.door.push_key(),
            now: self.hub.now().0,
        }
    }

    /// Whose things this guest sees: their own, or those of whoever shared one.
    fn lay_table(&mut self) {
        let owner = match &self.guest.who {
            Who::Person { id, .. } => id,
            Who::Bearer { owner, .. } => owner,
        };
        let shelf = self.hub.shelves.of(&self.hub, owner);
        self.shelf = Some(Arc::clone(&shelf));
        let table = Table::new(Arc::clone(&self.guest), shelf, self.go.clone());
        self.start(table.run());
    }

    fn start(&self, work: impl Future<Output = ()> + Send + 'static) {
        let over = self.over.clone();
        drop(self.hub.tasks.spawn(async move {
            tokio::select! {
                biased;
                () = over.cancelled() => {}
                () = work => {}
            }
        }));
    }

    async fn tell(&self, told: &impl Serialize) -> Result<(), Hung> {
        send(&self.go, told).await
    }

    async fn reply(&self, re: u64, answer: Result<Answered, Wrong>) -> Result<(), Hung> {
        self.tell(&reply(re, answer)).await
    }
}

fn reply(re: u64, answer: Result<Answered, Wrong>) -> Reply {
    match answer {
        Ok(answered) => Reply { re, ok: Some(answered), error: None },
        Err(wrong) => Reply { re, ok: None, error: Some(wrong) },
    }
}

async fn send(go: &mpsc::Sender<Go>, told: &impl Serialize) -> Result<(), Hung> {
    match serde_json::to_string(told) {
        Ok(text) => send_text(go, text.into()).await,
        Err(error) => {
            tracing::error!(%error, "a frame cannot be written");
            Err(Hung)
        }
    }
}

async fn send_text(go: &mpsc::Sender<Go>, text: Utf8Bytes) -> Result<(), Hung> {
    go.send(Go::Text(text)).await.map_err(|_| Hung)
}
