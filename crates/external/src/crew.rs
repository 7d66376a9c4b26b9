//! One running program and the sessions that it has for us.
//!
//! A task hears it and passes on what it says, by the agent's own name of the session, in order. Another
//! waits for its end, and ends it when nobody has needed it for a while.
//!
//! **Invariant:** an answer to a session's request reaches whoever asked after everything that the agent
//! said to that session before it.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use engine::ForeignError;
use sandbox::{Fence, Files, Mode};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use wire::upstream::{self, Can};
use wire::{RpcId, json};

use super::external::{ExternalConfig, Folders, Shared, failed, foreign};
use super::peer::{Answered, Ears, Heard, Noise, Peer, PeerError, PeerLimits, Remote, Room, Terms};
use super::process::{Launch, Process, ProcessNews};

/// What a session has not yet taken of what it was told.
const INBOX_MAX: usize = 256;
const UNCLAIMED_MAX: usize = 64;
const UNCLAIMED_BYTES_MAX: usize = 4 << 20;
const SPEAKS: &str = "is it a program that speaks the Agent Client Protocol?";
/// For each of the two gentle ways to end.
const END_GRACE: Duration = Duration::from_millis(1500);

/// What the agent says to one of its sessions.
pub(super) enum Told {
    Update(Box<RawValue>),
    /// A notification that only the agent and its client understand.
    Extension {
        method: Box<str>,
        params: Option<Box<RawValue>>,
    },
    Request {
        id: RpcId,
        method: Box<str>,
        params: Option<Box<RawValue>>,
    },
    /// Everything before the answer to a request of the session's was taken.
    Answered(Answered),
    Noise(Noise),
}

impl Told {
    /// How much text it is, about.
    pub(super) fn bytes(&self) -> usize {
        let of = |params: &Option<Box<RawValue>>| params.as_ref().map_or(0, |params| params.get().len());
        match self {
            Self::Update(params) => params.get().len(),
            Self::Extension { params, .. } | Self::Request { params, .. } => of(params),
            Self::Answered(_) | Self::Noise(_) => 0,
        }
    }
}

/// Where something is to be put.
enum Way {
    Inbox(mpsc::Sender<(Told, Room)>, Told),
    /// A request that nobody can work on.
    Nowhere {
        id: RpcId,
        method: Box<str>,
    },
    Done,
}

/// What a session is told, each thing with the room that it takes until it was taken.
pub(super) type Inbox = mpsc::Receiver<(Told, Room)>;

pub(super) struct Crew {
    peer: Peer,
    can: Can,
    /// What it answered when it was greeted, word for word.
    greeting: Arc<str>,
    seats: Mutex<Seats>,
    started: Instant,
    /// How and when it ended, once it has.
    end: watch::Receiver<Option<End>>,
    /// Cancelled to end it.
    stop: CancellationToken,
}

#[derive(Clone)]
struct End {
    why: Arc<str>,
    at: Instant,
}

/// A program that is not ended for want of work as long as this is there.
pub(super) struct Held(Arc<Crew>);

impl std::ops::Deref for Held {
    type Target = Arc<Crew>;

    fn deref(&self) -> &Arc<Crew> {
        &self.0
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut seats = self.0.seats();
        seats.held -= 1;
        seats.look_empty();
    }
}

#[derive(Default)]
struct Seats {
    inboxes: HashMap<Arc<str>, mpsc::Sender<(Told, Room)>>,
    /// What was said to sessions that nobody has taken yet: an agent speaks before we have read its name.
    unclaimed: VecDeque<(String, Told)>,
    /// Requests outside of sessions that are under way.
    held: usize,
    /// Since when nobody has a session here, nor wants anything.
    empty_since: Option<Instant>,
    /// It was ended because nobody needed it.
    let_go: bool,
}

impl Seats {
    fn look_empty(&mut self) {
        if self.inboxes.is_empty() && self.held == 0 {
            self.empty_since = Some(Instant::now());
        }
    }
}

impl Crew {
    pub(super) async fn start(shared: &Arc<Shared>, folders: Folders<'_>) -> Result<Arc<Self>, ForeignError> {
        let config = &shared.config;
        let notes = config.journal.as_ref().and_then(|journal| journal.notes(&shared.tasks));
        let launch = Launch { notes, ..launch(config, folders)? };
        let started = Instant::now();
        let (process, mut ears) =
            Process::start(launch, &shared.tasks).await.map_err(|error| failed(error.to_string()))?;
        let peer = process.peer().clone();
        let (ended, end) = watch::channel(None);
        let stop = CancellationToken::new();
        let seats = Mutex::new(Seats { empty_since: Some(started), ..Seats::default() });
        // Whoever gives up waiting for the greeting leaves no program behind.
        let given_up = stop.clone().drop_guard();
        let watching = watch_over(process, stop.clone(), ended);
        drop(shared.tasks.spawn(watching));
        // Nothing is said to a session before there is one, so the greeting can be heard apart.
        let text = match greet(config, &peer, &mut ears).await {
            Ok(text) => text,
            Err(error) => {
                stop.cancel();
                return Err(said_why(end, error).await);
            }
        };
        let Some(text) = text else {
            stop.cancel();
            return Err(failed(format!("{} repeats what it is told; {SPEAKS}", config.name)));
        };
        let read = json::read::<&RawValue>(&text, "its greeting").map_err(|error| error.to_string());
        let read = read.and_then(|answer| upstream::greeted(answer).map_err(|error| error.to_string()));
        let (_, can) = match read {
            Ok(read) => read,
            Err(error) => {
                stop.cancel();
                return Err(failed(format!("{} cannot be worked with: {error}", config.name)));
            }
        };
        given_up.disarm();
        let crew = Arc::new(Self { peer, can, greeting: text, seats, started, end, stop });
        drop(shared.tasks.spawn(hear(Arc::clone(&crew), ears)));
        drop(shared.tasks.spawn(let_go(Arc::clone(&crew), config.patience.idle)));
        Ok(crew)
    }

    pub(super) fn peer(&self) -> &Peer {
        &self.peer
    }

    pub(super) fn can(&self) -> &Can {
        &self.can
    }

    pub(super) fn greeting(&self) -> &Arc<str> {
        &self.greeting
    }

    pub(super) fn is_there(&self) -> bool {
        self.end.borrow().is_none() && !self.stop.is_cancelled() && self.peer.is_open()
    }

    /// Keeps it from being let go. `None`: it was.
    pub(super) fn hold(self: &Arc<Self>) -> Option<Held> {
        let mut seats = self.seats();
        if seats.let_go {
            return None;
        }
        seats.held += 1;
        seats.empty_since = None;
        drop(seats);
        Some(Held(Arc::clone(self)))
    }

    /// From here on the session is told what the agent says to it. `None`: somebody else is.
    pub(super) fn sit(&self, session: &Arc<str>) -> Option<Inbox> {
        let (inbox, told) = mpsc::channel(INBOX_MAX);
        let mut seats = self.seats();
        if seats.inboxes.get(session).is_some_and(|inbox| !inbox.is_closed()) {
            return None;
        }
        seats.empty_since = None;
        for (of, told) in std::mem::take(&mut seats.unclaimed) {
            if of == **session || of.is_empty() {
                // There is more room than can be unclaimed.
                inbox.try_send((told, Room::default())).ok();
            } else {
                seats.unclaimed.push_back((of, told));
            }
        }
        seats.inboxes.insert(Arc::clone(session), inbox);
        Some(told)
    }

    pub(super) fn leave(&self, session: &str) {
        let mut seats = self.seats();
        seats.inboxes.remove(session);
        seats.look_empty();
    }

    /// Ends the program by force if need be, and waits until it has ended.
    pub(super) async fn end(&self) {
        self.stop.cancel();
        let mut end = self.end.clone();
        // The one who would tell is gone only when all tasks are.
        end.wait_for(Option::is_some).await.ok();
    }

    /// How it ended. Waits for it.
    pub(super) async fn why(&self) -> Arc<str> {
        let mut end = self.end.clone();
        let ended = end.wait_for(Option::is_some).await.ok().and_then(|end| end.clone());
        ended.map_or_else(|| "the agent has ended".into(), |end| end.why)
    }

    /// How long it lived, and how it ended.
    pub(super) async fn obituary(&self) -> (Duration, Arc<str>) {
        let why = self.why().await;
        let end = self.end.borrow().as_ref().map_or_else(Instant::now, |end| end.at);
        (end - self.started, why)
    }

    pub(super) fn was_let_go(&self) -> bool {
        self.seats().let_go
    }

    /// Where something is to be put that was said to a session. What nobody can be told yet is kept; an answer
    /// reaches whoever asked all the same, and a request is given back to be refused.
    fn way_to(&self, session: String, told: Told) -> Way {
        let mut seats = self.seats();
        if let Some(inbox) = seats.inboxes.get(&*session) {
            return Way::Inbox(inbox.clone(), told);
        }
        match told {
            Told::Request { id, method, .. } => return Way::Nowhere { id, method },
            Told::Answered(_) | Told::Noise(_) => return Way::Done,
            Told::Update(_) | Told::Extension { .. } => {}
        }
        seats.unclaimed.push_back((session, told));
        let mut bytes: usize = seats.unclaimed.iter().map(|(_, told)| told.bytes()).sum();
        while seats.unclaimed.len() > UNCLAIMED_MAX || bytes > UNCLAIMED_BYTES_MAX {
            bytes -= seats.unclaimed.pop_front().map_or(bytes, |(_, told)| told.bytes());
        }
        Way::Done
    }

    /// Whom a message is for that may name no session: the only one there is.
    fn addressee(&self, params: Option<&RawValue>) -> Option<String> {
        addressee(params).or_else(|| {
            let seats = self.seats();
            let mut sessions = seats.inboxes.keys();
            sessions.next().filter(|_| sessions.len() == 0).map(ToString::to_string)
        })
    }

    fn seats(&self) -> MutexGuard<'_, Seats> {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The program behind its fence: it writes where its sessions work and where it keeps its own things, and
/// reaches the network, for its model is there.
fn launch(config: &ExternalConfig, folders: Folders<'_>) -> Result<Launch, ForeignError> {
    let mut policy = (config.place)(folders);
    let fenced = policy.mode != Mode::Off;
    if policy.mode == Mode::ReadOnly {
        // They are there, also where temporary folders are not, and only to be read.
        policy.locked.extend(policy.roots.iter().cloned());
    }
    policy.roots.extend(config.own_folders.iter().cloned());
    policy.within.iter_mut().for_each(|within| within.extend(config.own_folders.iter().cloned()));
    policy.locked.extend(config.own_settings.iter().cloned());
    policy.hidden.retain(|hidden| !config.own_secrets.contains(hidden));
    if fenced {
        policy.mode = Mode::WorkspaceWriteNetwork;
    }
    // The real paths, and what in them is locked.
    let policy = match Files::open(policy.clone()) {
        Ok(files) => files.policy().clone(),
        // It may lead out of the folders that the session must stay in.
        Err(error) if policy.within.is_some() => return Err(failed(error.to_string())),
        Err(_) => policy,
    };
    let fence = config.helper.clone().filter(|_| fenced).map(|helper| Fence { policy, helper });
    Ok(Launch {
        name: config.name.to_string(),
        program: config.program.clone(),
        arguments: config.arguments.clone(),
        environment: config.environment.clone(),
        folder: folders.cwd.to_owned(),
        fence,
        limits: config.limits,
        peer: PeerLimits::default(),
        notes: None,
    })
}

/// What it answers to the greeting. `None`: it repeats the greeting, so it understands none.
async fn greet(
    config: &ExternalConfig,
    peer: &Peer,
    ears: &mut Ears,
) -> Result<Option<Arc<str>>, ForeignError> {
    let terms = Terms { deadline: Some(config.patience.handshake), lane: None };
    let mut asked = peer.request("initialize", &upstream::initialize(config.files), terms);
    let name = &config.name;
    loop {
        tokio::select! {
            biased;
            answer = &mut asked => return match answer {
                Ok(answer) => Ok(Some(answer.get().into())),
                Err(PeerError::TimedOut) => {
                    let seconds = config.patience.handshake.as_secs();
                    Err(failed(format!("{name} did not answer initialize within {seconds} s; {SPEAKS}")))
                }
                Err(error) => Err(foreign(name, &error)),
            },
            heard = ears.next() => match heard {
                Heard::Request { method, .. } if &*method == "initialize" => return Ok(None),
                Heard::Request { id, method, .. } => {
                    let error = Remote::new(-32601, format!("{method} came before initialize was answered"));
                    peer.refuse(&id, &error).await.ok();
                }
                // Whoever asked is told at once.
                Heard::Ended(_) => {}
                Heard::Notification { .. } | Heard::Answered(_) | Heard::Noise { .. } => {}
            },
        }
    }
}

/// The end of the program says more than that there was no answer.
async fn said_why(mut end: watch::Receiver<Option<End>>, error: ForeignError) -> ForeignError {
    let ended = tokio::time::timeout(END_GRACE * 3, end.wait_for(Option::is_some)).await;
    match ended.ok().and_then(|end| end.ok()?.clone()) {
        Some(End { why, .. }) => failed(format!("{}; {why}", error.message)),
        None => error,
    }
}

async fn watch_over(mut process: Process, stop: CancellationToken, ended: watch::Sender<Option<End>>) {
    let end = loop {
        tokio::select! {
            () = stop.cancelled() => break process.end(END_GRACE).await,
            news = process.next() => match news {
                ProcessNews::Refused(violation) => tracing::info!(?violation, "the agent's fence refused something"),
                ProcessNews::Ended(end) => break end,
            },
        }
    };
    ended.send_replace(Some(End { why: end.to_string().into(), at: Instant::now() }));
}

/// Ends a program that nobody has needed for a while.
async fn let_go(crew: Arc<Crew>, idle: Duration) {
    let mut end = crew.end.clone();
    loop {
        let waited =
            tokio::time::timeout(idle / 2 + Duration::from_millis(1), end.wait_for(Option::is_some)).await;
        if waited.is_ok() {
            return;
        }
        let mut seats = crew.seats();
        if seats.empty_since.is_some_and(|since| since.elapsed() >= idle) {
            seats.let_go = true;
            crew.stop.cancel();
            return;
        }
    }
}

#[derive(Deserialize)]
struct Addressed {
    #[serde(rename = "sessionId")]
    session: String,
}

fn addressee(params: Option<&RawValue>) -> Option<String> {
    serde_json::from_str::<Addressed>(params?.get()).ok().map(|addressed| addressed.session)
}

async fn hear(crew: Arc<Crew>, mut ears: Ears) {
    loop {
        let (heard, room) = ears.next_with_room().await;
        let (session, told) = match heard {
            Heard::Ended(_) => break,
            Heard::Answered(answered) => match answered.lane().cloned() {
                Some(lane) => (Some(lane.to_string()), Told::Answered(answered)),
                None => continue,
            },
            Heard::Notification { method, params } => match params {
                Some(params) if &*method == "session/update" => {
                    (addressee(Some(&params)), Told::Update(params))
                }
                // About the conversation itself, which ends here.
                _ if method.starts_with("$/") => continue,
                params => {
                    let session = crew.addressee(params.as_deref());
                    // Before there is a session, the first one is told.
                    (session.or_else(|| Some(String::new())), Told::Extension { method, params })
                }
            },
            Heard::Request { id, method, params } => {
                let session = crew.addressee(params.as_deref()).unwrap_or_default();
                (Some(session), Told::Request { id, method, params })
            }
            Heard::Noise { what, .. } => {
                tracing::debug!(?what, "the agent said something that is no message");
                let inboxes: Vec<_> = crew.seats().inboxes.values().cloned().collect();
                for inbox in inboxes {
                    inbox.try_send((Told::Noise(what.clone()), Room::default())).ok();
                }
                continue;
            }
        };
        let Some(session) = session else { continue };
        let unheard = match crew.way_to(session, told) {
            Way::Inbox(inbox, told) => match inbox.send((told, room)).await {
                // The session has gone meanwhile.
                Err(mpsc::error::SendError((Told::Request { id, method, .. }, _))) => Some((id, method)),
                Ok(()) | Err(_) => None,
            },
            Way::Nowhere { id, method } => Some((id, method)),
            Way::Done => None,
        };
        if let Some((id, method)) = unheard {
            let error = Remote::new(-32602, format!("{method} names no session that is open here"));
            // An agent that is gone waits for no answer.
            crew.peer.refuse(&id, &error).await.ok();
        }
    }
    crew.stop.cancel();
    crew.seats().inboxes.clear();
}
