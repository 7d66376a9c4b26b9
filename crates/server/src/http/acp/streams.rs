//! The streams of one connection: one for the connection itself and one for each session.
//!
//! Each has a writer of its own, so that a stream that nobody reads holds up no other. A writer
//! outlives its readers: whoever comes back says how much it has, and is told the rest.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use engine::SessionId;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use wire::{Cursor, Fault, Outcome, RpcId, SessionView};

use crate::batch::Batch;
use crate::connection::{COMMANDS_MAX, Writers};
use crate::writer::{AttachAnswer, Command, Start};

/// Batches on their way to one reader.
const OUTGOING_MAX: usize = 2;
/// Streams of sessions that the client has not opened: it may ask for the stream first.
const UNCONFIRMED_MAX: usize = 16;
/// Streams of one connection.
const STREAMS_MAX: usize = 256;

pub(crate) struct Streams {
    writers: Writers,
    tasks: TaskTracker,
    streams: Mutex<HashMap<Option<SessionId>, Stream>>,
}

struct Stream {
    commands: mpsc::Sender<Command>,
    /// The session was opened by the client.
    confirmed: bool,
    /// How much was handed to the last reader.
    taken: Arc<Mutex<Cursor>>,
    reader: Option<mpsc::WeakSender<Batch>>,
    /// What can be told no more.
    lost: Arc<Mutex<Option<Cursor>>>,
    /// Tells the writer that the reader was replaced.
    given_up: CancellationToken,
}

/// A reader's end of a stream.
pub(super) struct Tap {
    pub(super) batches: mpsc::Receiver<Batch>,
    pub(super) taken: Arc<Mutex<Cursor>>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum NoTap {
    /// Somebody reads it already.
    Busy,
    /// There are as many as may be of sessions that nobody opened.
    TooMany,
    /// Some of what the client has not seen can be told no more.
    Lost,
}

impl Streams {
    pub(super) fn new(writers: Writers, tasks: TaskTracker) -> Arc<Self> {
        Arc::new(Self { writers, tasks, streams: Mutex::default() })
    }

    /// Reads a stream from the position on; without one, from where its last reader left off.
    pub(super) async fn tap(&self, session: Option<&SessionId>, after: Option<Cursor>) -> Result<Tap, NoTap> {
        let (outgoing, batches) = mpsc::channel(OUTGOING_MAX);
        let given_up = CancellationToken::new();
        let (commands, position, taken) = {
            let mut streams = self.lock();
            let unconfirmed = streams.iter().filter(|(of, stream)| of.is_some() && !stream.confirmed).count();
            let known = streams.contains_key(&session.cloned());
            if session.is_some() && !known && (unconfirmed >= UNCONFIRMED_MAX || streams.len() >= STREAMS_MAX)
            {
                return Err(NoTap::TooMany);
            }
            let stream = self.stream(&mut streams, session);
            if let (Some(after), Some(lost)) = (after, *locked(&stream.lost))
                && after < lost
            {
                return Err(NoTap::Lost);
            }
            // Whoever says how much it has, has lost its stream, also where that is not known here yet.
            if after.is_none() && stream.is_read() {
                return Err(NoTap::Busy);
            }
            stream.reader = Some(outgoing.downgrade());
            std::mem::replace(&mut stream.given_up, given_up.clone()).cancel();
            let left_off = stream.reader_position();
            let position = after.or(left_off);
            // The one before may still be told something; that does not count any more.
            stream.taken = Arc::new(Mutex::new(position.unwrap_or_default()));
            (stream.commands.clone(), position, Arc::clone(&stream.taken))
        };
        // A writer that is gone closes the channel, and with it the answer.
        drop(commands.send(Command::Connect { outgoing, given_up, after: position }).await);
        Ok(Tap { batches, taken })
    }

    /// Whether the client has this session's stream.
    pub(super) fn shows(&self, session: &SessionId) -> bool {
        self.lock().get(&Some(session.clone())).is_some_and(|stream| stream.confirmed)
    }

    pub(super) fn is_read(&self) -> bool {
        self.lock().values().any(Stream::is_read)
    }

    /// Ends every stream when what it has was written.
    pub(super) fn close(&self) {
        self.lock().clear();
    }

    pub(crate) async fn send(&self, command: Command) {
        let (session, command, answer) = self.parted(command);
        let finished = matches!(command, Command::Finish { .. }).then(|| session.clone()).flatten();
        if let (Command::Attach { .. }, Some(_), true) = (&command, &session, self.is_full(session.as_ref()))
        {
            return self.refuse(answer).await;
        }
        if let Some(answer) = answer {
            let commands = self.commands(None);
            // A writer that is gone took the client with it.
            drop(commands.send(answer).await);
        }
        let commands = self.commands(session.as_ref());
        drop(commands.send(command).await);
        // The writer ends when it has carried out what it was told, unless somebody reads it.
        if finished.is_some() {
            self.lock().retain(|of, stream| *of != finished || stream.is_read());
        }
    }

    /// Hands over what belongs to one session, if there is room for it.
    pub(crate) fn send_now(&self, command: Command) -> bool {
        let (session, command, _) = self.parted(command);
        self.commands(session.as_ref()).try_send(command).is_ok()
    }

    /// Whether somebody reads the session's stream.
    pub(crate) fn reaches(&self, session: &SessionId) -> bool {
        self.lock().get(&Some(session.clone())).is_some_and(Stream::is_read)
    }

    fn is_full(&self, session: Option<&SessionId>) -> bool {
        let mut streams = self.lock();
        let known = streams.contains_key(&session.cloned());
        if !known && streams.len() >= STREAMS_MAX {
            // Whoever does not read a stream can take it up again later.
            let unread = streams.iter().find(|(of, stream)| of.is_some() && !stream.is_read());
            if let Some(unread) = unread.and_then(|(of, _)| of.clone()) {
                streams.remove(&Some(unread));
            }
        }
        !known && streams.len() >= STREAMS_MAX
    }

    /// The session is open; this connection can show no more.
    async fn refuse(&self, answer: Option<Command>) {
        let Some(Command::Answer { id, .. }) = answer else { return };
        let text = format!(
            "this connection shows {STREAMS_MAX} sessions, which is as many as one can; open another"
        );
        let outcome = Err(Fault::InvalidRequest(text));
        drop(self.commands(None).send(Command::Answer { id, outcome }).await);
    }

    /// Which stream a command belongs to, and what of it belongs to the connection's own.
    fn parted(&self, command: Command) -> (Option<SessionId>, Command, Option<Command>) {
        let Command::Attach { handle, from, counted, answer } = command else {
            let session = match &command {
                Command::AnswerAfter { session, .. }
                | Command::Finish { session, .. }
                | Command::Host { session, .. } => {
                    Some(session.clone()).filter(|session| self.shows(session))
                }
                Command::Answer { .. } | Command::Attach { .. } | Command::Connect { .. } => None,
            };
            return (session, command, None);
        };
        let session = Some(handle.id().clone());
        let read = self.lock().get(&session).is_some_and(Stream::is_read);
        let answered = |id: RpcId, outcome: Outcome| Some(Command::Answer { id, outcome: Ok(outcome) });
        let (answer, elsewhere) = match answer {
            AttachAnswer::First { id, outcome } => {
                let history = matches!(from, Start::Missed(_));
                (AttachAnswer::Elsewhere { history }, answered(id, outcome))
            }
            // Nobody reads the history yet, and the client may wait for the answer before it does.
            AttachAnswer::AfterReplay { id, rules, outcome } if !read => {
                let outcome = outcome.unwrap_or_else(|| Outcome::Opened(SessionView::of(&handle, rules)));
                (AttachAnswer::Elsewhere { history: true }, answered(id, outcome))
            }
            answer @ (AttachAnswer::AfterReplay { .. }
            | AttachAnswer::Elsewhere { .. }
            | AttachAnswer::Unasked { .. }
            | AttachAnswer::Back) => (answer, None),
        };
        (session, Command::Attach { handle, from, counted, answer }, elsewhere)
    }

    fn commands(&self, session: Option<&SessionId>) -> mpsc::Sender<Command> {
        let mut streams = self.lock();
        let stream = self.stream(&mut streams, session);
        stream.confirmed = true;
        stream.commands.clone()
    }

    fn stream<'a>(
        &self,
        streams: &'a mut HashMap<Option<SessionId>, Stream>,
        session: Option<&SessionId>,
    ) -> &'a mut Stream {
        streams.entry(session.cloned()).or_insert_with(|| {
            let (commands, receiver) = mpsc::channel(COMMANDS_MAX);
            let lost = Arc::default();
            drop(self.tasks.spawn(self.writers.make(receiver, None, Arc::clone(&lost)).run()));
            Stream {
                lost,
                commands,
                confirmed: session.is_none(),
                taken: Arc::default(),
                reader: None,
                given_up: CancellationToken::new(),
            }
        })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Option<SessionId>, Stream>> {
        locked(&self.streams)
    }
}

impl Stream {
    fn is_read(&self) -> bool {
        self.reader.as_ref().and_then(mpsc::WeakSender::upgrade).is_some_and(|reader| !reader.is_closed())
    }

    /// Where the last reader left off, if there was one.
    fn reader_position(&self) -> Option<Cursor> {
        let position = *locked(&self.taken);
        (position != Cursor::default()).then_some(position)
    }
}

pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
