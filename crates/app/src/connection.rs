//! One client's line, from hello to the end.
//!
//! Reading never waits for a turn: what is quick is done in the order it came, so that a cancel is not
//! before its prompt, and what may be slow is done beside it. Every request is answered exactly once.

use std::collections::HashMap;
use std::sync::Arc;

use access::devices::{Seat, Visitor};
use engine::{Sender, SessionId};
use service::Caller;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use wire::native::{Answered, Envelope, Frame, Hello, Reply, Request, Role, Told, Wrong};

use super::table::Table;
use super::watching::Watching;
use super::wrong::{bad, busy};
use super::{Desk, faults, roles, surface};

/// Sessions that one client may watch at once.
const WATCHES_MAX: usize = 16;
/// Slow requests of one client that are worked on at once.
const SLOW_MAX: usize = 8;

pub(super) struct Connection {
    desk: Arc<Desk>,
    visitor: Arc<Visitor>,
    caller: Arc<Caller>,
    /// Its place in the hall.
    seat: Seat,
    /// Everything that this line has started ends with it.
    over: CancellationToken,
    frames: mpsc::Sender<Frame>,
    watches: HashMap<SessionId, Watch>,
    slow: Arc<Semaphore>,
}

struct Watch {
    over: CancellationToken,
    task: JoinHandle<()>,
}

/// Who asks, and on whose behalf it is done.
#[derive(Clone)]
pub(super) struct Client {
    pub desk: Arc<Desk>,
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

impl Connection {
    pub fn new(desk: Arc<Desk>, visitor: Visitor, frames: mpsc::Sender<Frame>) -> Self {
        Self {
            seat: desk.hall.seat(&visitor),
            desk,
            caller: Arc::new(caller(&visitor)),
            visitor: Arc::new(visitor),
            over: CancellationToken::new(),
            frames,
            watches: HashMap::new(),
            slow: Arc::new(Semaphore::new(SLOW_MAX)),
        }
    }

    pub async fn run(mut self, mut asked: mpsc::Receiver<Envelope>) {
        let (stop, ended) = (self.desk.stop.clone(), self.seat.ended().clone());
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = ended.cancelled() => {}
            () = self.serve(&mut asked) => {}
        }
        self.over.cancel();
    }

    async fn serve(&mut self, asked: &mut mpsc::Receiver<Envelope>) {
        if self.tell(Told::Hello(self.hello())).await.is_err() {
            return;
        }
        let table = Table::new(Arc::clone(&self.desk), Arc::clone(&self.visitor), self.frames.clone());
        drop(self.start(self.over.clone(), table.run()));
        let (desk, visitor) = (Arc::clone(&self.desk), Arc::clone(&self.visitor));
        drop(self.start(self.over.clone(), faults::tell(desk, visitor, self.frames.clone())));
        if self.visitor.role == Role::Owner {
            let (desk, visitor) = (Arc::clone(&self.desk), Arc::clone(&self.visitor));
            drop(self.start(self.over.clone(), devices(desk, visitor, self.frames.clone())));
        }
        while let Some(Envelope { id, request }) = asked.recv().await {
            if self.take(id, request).await.is_err() {
                return;
            }
        }
    }

    fn hello(&self) -> Hello {
        let rules = self.desk.service.rules();
        Hello {
            version: self.desk.identity.version.clone(),
            host: self.desk.extras.host.clone(),
            role: self.visitor.role,
            device: self.visitor.device.as_ref().map(ToString::to_string),
            makes_rules: self.caller.may(engine::Act::ChangeRules).is_ok(),
            folder: rules.home_dir.display().to_string(),
            folders: rules.places.iter().flatten().map(|place| place.display().to_string()).collect(),
            sandbox: self.desk.identity.sandbox.clone(),
            push_key: self.desk.hall.push_key().map(|key| key.to_string()),
            now: self.desk.registry().clock().now().0,
        }
    }

    /// Answers a request, or sees to it that it will be.
    async fn take(&mut self, id: u64, request: Request) -> Result<(), Hung> {
        if let Err(wrong) = roles::check(&self.caller, &self.visitor, &request) {
            return self.reply(id, Err(wrong)).await;
        }
        match request {
            Request::Watch { session, after } => self.watch(id, &session, after).await,
            Request::Unwatch { session } => {
                if let Some(watch) = SessionId::parse(&session).ok().and_then(|id| self.watches.remove(&id)) {
                    watch.over.cancel();
                }
                self.reply(id, Ok(Answered::Done)).await
            }
            Request::Looking { visible, .. } => {
                self.seat.look(visible);
                self.reply(id, Ok(Answered::Done)).await
            }
            request => {
                let client = self.client();
                if client.is_quick(&request) {
                    let answer = client.act(request).await;
                    return self.reply(id, answer).await;
                }
                self.beside(id, async move { client.act(request).await }).await
            }
        }
    }

    fn client(&self) -> Client {
        Client {
            desk: Arc::clone(&self.desk),
            visitor: Arc::clone(&self.visitor),
            caller: Arc::clone(&self.caller),
        }
    }

    /// Works on a request while others are read.
    async fn beside(
        &self,
        id: u64,
        work: impl Future<Output = Result<Answered, Wrong>> + Send + 'static,
    ) -> Result<(), Hung> {
        // Never closed.
        let place = Arc::clone(&self.slow).acquire_owned().await.map_err(|_| Hung)?;
        let frames = self.frames.clone();
        drop(self.start(self.over.clone(), async move {
            let answer = work.await;
            drop(place);
            // The client may be gone.
            drop(frames.send(Frame::Reply(reply(id, answer))).await);
        }));
        Ok(())
    }

    /// The answer comes first, then what there is to see.
    async fn watch(&mut self, id: u64, session: &str, after: Option<u64>) -> Result<(), Hung> {
        let Ok(session) = SessionId::parse(session) else {
            return self.reply(id, Err(bad("this is no session id"))).await;
        };
        self.watches.retain(|_, watch| !watch.task.is_finished());
        let before = self.watches.remove(&session);
        if let Some(before) = &before {
            before.over.cancel();
        }
        if before.is_none() && self.watches.len() >= WATCHES_MAX {
            let message = format!("a client watches at most {WATCHES_MAX} sessions; leave one");
            return self.reply(id, Err(busy(message))).await;
        }
        let over = self.over.child_token();
        let (client, frames, watched) = (self.client(), self.frames.clone(), session.clone());
        let leaves = over.clone();
        let work = async move {
            if let Some(before) = before {
                // What it has in hand must not come after the first view of this one.
                drop(before.task.await);
            }
            let feed = match client.open(&watched).await {
                Ok(handle) => Ok(client.desk.feeds.of(&client.desk, &handle)),
                Err(wrong) => Err(wrong),
            };
            let ready = match &feed {
                Ok(feed) => feed.ready().await,
                Err(wrong) => Err(wrong.clone()),
            };
            let told = frames.send(Frame::Reply(reply(id, ready.map(|()| Answered::Done)))).await;
            if let (Ok(feed), Ok(())) = (feed, told) {
                let name = Arc::clone(&client.visitor.name);
                let bridges = client.desk.service.rules().bridges.clone();
                let watching = Watching::new(watched, &feed, bridges, name, after, frames);
                // Who leaves is told nothing more of it.
                let _left = leaves.run_until_cancelled(watching.run()).await;
            }
        };
        // The request is answered also if its session is left before it is open.
        let task = self.start(self.over.clone(), work);
        self.watches.insert(session, Watch { over, task });
        Ok(())
    }

    fn start(
        &self,
        over: CancellationToken,
        work: impl Future<Output = ()> + Send + 'static,
    ) -> JoinHandle<()> {
        self.desk.tasks.spawn(async move {
            tokio::select! {
                biased;
                () = over.cancelled() => {}
                () = work => {}
            }
        })
    }

    async fn reply(&self, id: u64, answer: Result<Answered, Wrong>) -> Result<(), Hung> {
        self.frames.send(Frame::Reply(reply(id, answer))).await.map_err(|_| Hung)
    }

    async fn tell(&self, told: Told) -> Result<(), Hung> {
        self.frames.send(Frame::Told(Box::new(told))).await.map_err(|_| Hung)
    }
}

/// Tells an owner whenever somebody comes, goes or knocks.
async fn devices(desk: Arc<Desk>, visitor: Arc<Visitor>, frames: mpsc::Sender<Frame>) {
    let mut changes = desk.hall.changes();
    changes.mark_unchanged();
    while changes.changed().await.is_ok() {
        let (devices, knocks) = desk.hall.guests(&visitor.principal);
        if frames.send(Frame::Told(Box::new(Told::Devices { devices, knocks }))).await.is_err() {
            return;
        }
    }
}

/// The client has hung up.
struct Hung;

pub(super) fn reply(id: u64, answer: Result<Answered, Wrong>) -> Reply {
    match answer {
        Ok(answered) => Reply { re: id, ok: Some(answered), error: None },
        Err(wrong) => Reply { re: id, ok: None, error: Some(wrong) },
    }
}
