//! A person elsewhere, as one more client of ours: a line with a visitor, and who waits for which reply.
//!
//! Several browsers of one person share the line, so each request gets a number of its own on it. The line
//! is closed when nothing was asked for a while.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use access::devices::{Remote, Visitor};
use engine::{Principal, Standing};
use service::remote_name;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::Instant;
use wire::native::{Envelope, Frame, Reply, Request, Role, Wrong};

use super::body::Closing;
use super::machine::Outcome;
use super::{Shared, locked};
use app::Line;

/// Requests of one person that may wait.
const WAITING_MAX: usize = 32;
const IDLE_MAX: Duration = Duration::from_secs(600);

/// Who waits for an answer.
pub(super) struct Taker {
    pub call: u64,
    /// What the person's client calls its request.
    pub id: u64,
    pub closing: Closing,
    /// The session that it is a prompt for.
    pub prompted: Option<String>,
    pub answers: mpsc::Sender<Outcome>,
    pub room: OwnedSemaphorePermit,
}

impl Taker {
    pub fn answer(self, reply: Reply) {
        let Self { call, closing, prompted, answers, room, id } = self;
        let reply = Reply { re: id, ..reply };
        // The connection that it came by may be gone, and with it whoever waits.
        drop(answers.try_send(Outcome { call, closing, prompted, reply, _room: room }));
    }
}

pub(super) struct Asked {
    pub request: Request,
    pub taker: Taker,
}

pub(super) struct Seat {
    pub role: Role,
    pub user: Arc<str>,
    asked: mpsc::Sender<Asked>,
    used: Mutex<Instant>,
}

impl Seat {
    pub fn open(shared: &Arc<Shared>, id: Arc<str>, user: Arc<str>, role: Role) -> Self {
        let (asked, receiver) = mpsc::channel(WAITING_MAX);
        let remote = Remote { id, user: Arc::clone(&user), answers_here: shared.answers.are_local() };
        let visitor = Visitor {
            principal: Principal::local(),
            name: remote_name(&user),
            role,
            device: None,
            remote: Some(remote),
            standing: Standing::Other,
        };
        let line = app::open(&shared.desk, visitor);
        let stop = shared.stop.clone();
        drop(shared.tasks.spawn(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = Speaking { line, pending: HashMap::new(), last: 0 }.run(receiver) => {}
            }
        }));
        Self { role, user, asked, used: Mutex::new(Instant::now()) }
    }

    pub fn is_open(&self) -> bool {
        !self.asked.is_closed()
    }

    pub fn used(&self) -> Instant {
        *locked(&self.used)
    }

    /// Gives it back if too much waits.
    pub fn ask(&self, asked: Asked) -> Result<(), Box<Asked>> {
        *locked(&self.used) = Instant::now();
        self.asked.try_send(asked).map_err(|full| Box::new(full.into_inner()))
    }
}

struct Speaking {
    line: Line,
    pending: HashMap<u64, Taker>,
    last: u64,
}

enum Wake {
    Asked(Option<Asked>),
    Room,
    Told(Option<Frame>),
    Idle,
}

impl Speaking {
    /// Whoever asked is answered, also those whose request was not come to when the line ended.
    async fn run(mut self, mut asked: mpsc::Receiver<Asked>) {
        self.speak(&mut asked).await;
        asked.close();
        while let Ok(Asked { taker, .. }) = asked.try_recv() {
            self.last += 1;
            self.pending.insert(self.last, taker);
        }
        for (_, taker) in self.pending {
            let message = "the machine ended this before it was done; look whether it was, then try again";
            let error = Wrong { code: "busy".into(), message: message.into() };
            taker.answer(Reply { re: 0, ok: None, error: Some(error) });
        }
    }

    async fn speak(&mut self, asked: &mut mpsc::Receiver<Asked>) {
        let mut next: Option<Envelope> = None;
        loop {
            let quiet = self.pending.is_empty() && next.is_none();
            let wake = tokio::select! {
                biased;
                frame = self.line.frames.recv() => Wake::Told(frame),
                permit = self.line.requests.reserve(), if next.is_some() => {
                    if let (Ok(permit), Some(envelope)) = (permit, next.take()) {
                        permit.send(envelope);
                    }
                    Wake::Room
                }
                asked = asked.recv(), if next.is_none() => Wake::Asked(asked),
                () = tokio::time::sleep(IDLE_MAX), if quiet => Wake::Idle,
            };
            match wake {
                Wake::Asked(Some(Asked { request, taker })) => {
                    self.last += 1;
                    self.pending.insert(self.last, taker);
                    next = Some(Envelope { id: self.last, request });
                }
                Wake::Told(Some(Frame::Reply(reply))) => {
                    if let Some(taker) = self.pending.remove(&reply.re) {
                        taker.answer(reply);
                    }
                }
                // What happens, the mirror tells.
                Wake::Told(Some(Frame::Told(_))) | Wake::Room => {}
                // Nobody asks any more; those who have are answered.
                Wake::Asked(None) if self.pending.is_empty() => return,
                Wake::Asked(None) => return self.rest().await,
                Wake::Idle => return,
                Wake::Told(None) => return,
            }
        }
    }

    async fn rest(&mut self) {
        while !self.pending.is_empty() {
            match self.line.frames.recv().await {
                Some(Frame::Reply(reply)) => {
                    if let Some(taker) = self.pending.remove(&reply.re) {
                        taker.answer(reply);
                    }
                }
                Some(Frame::Told(_)) => {}
                None => return,
            }
        }
    }
}
