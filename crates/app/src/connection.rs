//! The server's end of one client's connection, from hello to the end.
//!
//! Reading never waits for a turn: quick requests are done in the order they came, so that a cancel does not overtake
//! its prompt, and slow requests run in tasks of their own. Every request is answered exactly once.

use std::collections::HashMap;
use std::sync::Arc;

use access::devices::{PresenceHandle, Visitor};
use engine::{Sender, SessionId};
use service::Caller;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use wire::native::{
    ReplyBody, ReplyError, Request, RequestEnvelope, RequestReply, Role, ServerFrame, ServerHello,
    ServerNotification,
};

use super::board_updates::BoardUpdates;
use super::error_replies::{bad, busy};
use super::session_watch::SessionWatch;
use super::{AppServer, health, role_check, surface};

/// Sessions that one client may watch at once.
const WATCHES_MAX: usize = 16;
/// Slow requests of one client that run at once.
const SLOW_MAX: usize = 8;

pub(super) struct ConnectionTask {
    app: Arc<AppServer>,
    visitor: Arc<Visitor>,
    caller: Arc<Caller>,
    /// Whether the client has the app in view.
    presence: PresenceHandle,
    /// Cancelled when the connection ends, and with it every task that it has started.
    lifetime: CancellationToken,
    frames: mpsc::Sender<ServerFrame>,
    watches: HashMap<SessionId, WatchTask>,
    slow: Arc<Semaphore>,
}

struct WatchTask {
    lifetime: CancellationToken,
    task: JoinHandle<()>,
}

/// What a request is carried out with: the server, and who sent it.
#[derive(Clone)]
pub(super) struct RequestContext {
    pub app: Arc<AppServer>,
    pub visitor: Arc<Visitor>,
    pub caller: Arc<Caller>,
}

fn caller(visitor: &Visitor) -> Caller {
    let remote = visitor.remote.as_ref();
    let user = remote.map(|remote| Arc::clone(&remote.user));
    let sender = Sender { remote: user, ..Sender::new(surface(visitor), Arc::clone(&visitor.name)) };
    let caller = Caller::new(visitor.kind(), visitor.principal.clone(), sender);
    Caller { local_answers: remote.is_some_and(|remote| remote.answers_here), ..caller }
}

impl ConnectionTask {
    pub fn new(app: Arc<AppServer>, visitor: Visitor, frames: mpsc::Sender<ServerFrame>) -> Self {
        Self {
            presence: app.devices.open_presence(&visitor),
            app,
            caller: Arc::new(caller(&visitor)),
            visitor: Arc::new(visitor),
            lifetime: CancellationToken::new(),
            frames,
            watches: HashMap::new(),
            slow: Arc::new(Semaphore::new(SLOW_MAX)),
        }
    }

    pub async fn run(mut self, mut requests: mpsc::Receiver<RequestEnvelope>) {
        let (stop, ended) = (self.app.stop.clone(), self.presence.ended().clone());
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = ended.cancelled() => {}
            () = self.serve(&mut requests) => {}
        }
        self.lifetime.cancel();
    }

    async fn serve(&mut self, requests: &mut mpsc::Receiver<RequestEnvelope>) {
        if self.tell(ServerNotification::Hello(self.hello())).await.is_err() {
            return;
        }
        let updates =
            BoardUpdates::new(Arc::clone(&self.app), Arc::clone(&self.visitor), self.frames.clone());
        drop(self.spawn(self.lifetime.clone(), updates.run()));
        let (app, visitor) = (Arc::clone(&self.app), Arc::clone(&self.visitor));
        drop(self.spawn(self.lifetime.clone(), health::tell(app, visitor, self.frames.clone())));
        if self.visitor.role == Role::Owner {
            let (app, visitor) = (Arc::clone(&self.app), Arc::clone(&self.visitor));
            drop(self.spawn(self.lifetime.clone(), devices(app, visitor, self.frames.clone())));
        }
        while let Some(RequestEnvelope { id, request }) = requests.recv().await {
            if self.handle(id, request).await.is_err() {
                return;
            }
        }
    }

    fn hello(&self) -> ServerHello {
        let rules = self.app.service.rules();
        ServerHello {
            version: self.app.identity.version.clone(),
            host: self.app.extras.host.clone(),
            role: self.visitor.role,
            device: self.visitor.device.as_ref().map(ToString::to_string),
            makes_rules: self.caller.may(engine::Act::ChangeRules).is_ok(),
            folder: rules.home_dir.display().to_string(),
            folders: rules.places.iter().flatten().map(|folder| folder.display().to_string()).collect(),
            sandbox: self.app.identity.sandbox.clone(),
            push_key: self.app.devices.push_key().map(|key| key.to_string()),
            now: self.app.registry().clock().now().0,
        }
    }

    /// Answers a request, or starts a task that will.
    async fn handle(&mut self, id: u64, request: Request) -> Result<(), Disconnected> {
        if let Err(wrong) = role_check::check(&self.caller, &self.visitor, &request) {
            return self.reply(id, Err(wrong)).await;
        }
        match request {
            Request::Watch { session, after } => self.watch(id, &session, after).await,
            Request::Unwatch { session } => {
                if let Some(watch) = SessionId::parse(&session).ok().and_then(|id| self.watches.remove(&id)) {
                    watch.lifetime.cancel();
                }
                self.reply(id, Ok(ReplyBody::Done)).await
            }
            Request::Presence { visible, .. } => {
                self.presence.look(visible);
                self.reply(id, Ok(ReplyBody::Done)).await
            }
            request => {
                let client = self.client();
                if client.is_quick(&request) {
                    let answer = client.act(request).await;
                    return self.reply(id, answer).await;
                }
                self.run_beside(id, async move { client.act(request).await }).await
            }
        }
    }

    fn client(&self) -> RequestContext {
        RequestContext {
            app: Arc::clone(&self.app),
            visitor: Arc::clone(&self.visitor),
            caller: Arc::clone(&self.caller),
        }
    }

    /// Runs a slow request in a task of its own, while others are read.
    async fn run_beside(
        &self,
        id: u64,
        work: impl Future<Output = Result<ReplyBody, ReplyError>> + Send + 'static,
    ) -> Result<(), Disconnected> {
        // Never closed.
        let permit = Arc::clone(&self.slow).acquire_owned().await.map_err(|_| Disconnected)?;
        let frames = self.frames.clone();
        drop(self.spawn(self.lifetime.clone(), async move {
            let answer = work.await;
            drop(permit);
            // The client may be gone.
            drop(frames.send(ServerFrame::Reply(reply(id, answer))).await);
        }));
        Ok(())
    }

    /// Starts watching a session. The reply is sent first, then the session's view.
    async fn watch(&mut self, id: u64, session: &str, after: Option<u64>) -> Result<(), Disconnected> {
        let Ok(session) = SessionId::parse(session) else {
            return self.reply(id, Err(bad("this is not a session ID"))).await;
        };
        self.watches.retain(|_, watch| !watch.task.is_finished());
        let before = self.watches.remove(&session);
        if let Some(before) = &before {
            before.lifetime.cancel();
        }
        if before.is_none() && self.watches.len() >= WATCHES_MAX {
            let message = format!("a client can watch at most {WATCHES_MAX} sessions; close one first");
            return self.reply(id, Err(busy(message))).await;
        }
        let lifetime = self.lifetime.child_token();
        let (client, frames, watched) = (self.client(), self.frames.clone(), session.clone());
        let leaves = lifetime.clone();
        let work = async move {
            if let Some(before) = before {
                // A view that the old watch is sending must not come after the first view of this one.
                drop(before.task.await);
            }
            let feed = match client.open(&watched).await {
                Ok(handle) => Ok(client.app.feeds.of(&client.app, &handle)),
                Err(wrong) => Err(wrong),
            };
            let ready = match &feed {
                Ok(feed) => feed.ready().await,
                Err(wrong) => Err(wrong.clone()),
            };
            let told = frames.send(ServerFrame::Reply(reply(id, ready.map(|()| ReplyBody::Done)))).await;
            if let (Ok(feed), Ok(())) = (feed, told) {
                let name = Arc::clone(&client.visitor.name);
                let bridges = client.app.service.rules().bridges.clone();
                let watching = SessionWatch::new(watched, &feed, bridges, name, after, frames);
                // After `Unwatch` nothing more is sent.
                let _left = leaves.run_until_cancelled(watching.run()).await;
            }
        };
        // The request is answered also if the session is unwatched before it is open.
        let task = self.spawn(self.lifetime.clone(), work);
        self.watches.insert(session, WatchTask { lifetime, task });
        Ok(())
    }

    fn spawn(
        &self,
        lifetime: CancellationToken,
        work: impl Future<Output = ()> + Send + 'static,
    ) -> JoinHandle<()> {
        self.app.tasks.spawn(async move {
            tokio::select! {
                biased;
                () = lifetime.cancelled() => {}
                () = work => {}
            }
        })
    }

    async fn reply(&self, id: u64, answer: Result<ReplyBody, ReplyError>) -> Result<(), Disconnected> {
        self.frames.send(ServerFrame::Reply(reply(id, answer))).await.map_err(|_| Disconnected)
    }

    async fn tell(&self, told: ServerNotification) -> Result<(), Disconnected> {
        self.frames.send(ServerFrame::Notification(Box::new(told))).await.map_err(|_| Disconnected)
    }
}

/// Sends an owner the list of devices whenever a device signs in, is removed or knocks.
async fn devices(app: Arc<AppServer>, visitor: Arc<Visitor>, frames: mpsc::Sender<ServerFrame>) {
    let mut changes = app.devices.changes();
    changes.mark_unchanged();
    while changes.changed().await.is_ok() {
        let (devices, knocks) = app.devices.devices_and_knocks(&visitor.principal);
        if frames
            .send(ServerFrame::Notification(Box::new(ServerNotification::Devices { devices, knocks })))
            .await
            .is_err()
        {
            return;
        }
    }
}

/// The client has closed the connection.
struct Disconnected;

pub(super) fn reply(id: u64, answer: Result<ReplyBody, ReplyError>) -> RequestReply {
    match answer {
        Ok(answered) => RequestReply { re: id, ok: Some(answered), error: None },
        Err(wrong) => RequestReply { re: id, ok: None, error: Some(wrong) },
    }
}
