//! The streams of one connection: one for the connection itself and one for each session.
//!
//! Each has a writer of its own, so that a stream that nobody reads blocks no other. A writer
//! outlives its readers: a client that reconnects names its position, and is sent the rest.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use engine::SessionId;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use wire::{Cursor, RequestError, RequestOutcome, RpcId, SessionView};

use crate::connection::{COMMANDS_MAX, WriterFactory};
use crate::frame_batch::FrameBatch;
use crate::writer::{AttachAnswer, AttachFrom, WriterCommand};

/// Batches on their way to one reader.
const OUTGOING_MAX: usize = 2;
/// Streams of sessions that the client has not opened yet: it may read the stream before it opens the session.
const UNCONFIRMED_MAX: usize = 16;
/// Streams of one connection.
const STREAMS_MAX: usize = 256;

pub(crate) struct ConnectionStreams {
    writers: WriterFactory,
    tasks: TaskTracker,
    streams: Mutex<HashMap<Option<SessionId>, ConnectionStream>>,
}

struct ConnectionStream {
    commands: mpsc::Sender<WriterCommand>,
    /// The session was opened by the client.
    confirmed: bool,
    /// The position up to which frames were handed to the last reader.
    delivered: Arc<Mutex<Cursor>>,
    reader: Option<mpsc::WeakSender<FrameBatch>>,
    /// The position of the last extra frame that is not kept any more.
    lost: Arc<Mutex<Option<Cursor>>>,
    /// Tells the writer that the reader was replaced.
    replaced: CancellationToken,
}

/// A reader's end of a stream.
pub(super) struct StreamReader {
    pub(super) batches: mpsc::Receiver<FrameBatch>,
    pub(super) delivered: Arc<Mutex<Cursor>>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum StreamReadError {
    /// Somebody reads it already.
    Busy,
    /// There are as many streams of unopened sessions as allowed.
    TooMany,
    /// Some frames that the client has not seen are not kept any more.
    Lost,
}

impl ConnectionStreams {
    pub(super) fn new(writers: WriterFactory, tasks: TaskTracker) -> Arc<Self> {
        Arc::new(Self { writers, tasks, streams: Mutex::default() })
    }

    /// Reads a stream from the position on; without one, from where its last reader left off.
    pub(super) async fn open_reader(
        &self,
        session: Option<&SessionId>,
        after: Option<Cursor>,
    ) -> Result<StreamReader, StreamReadError> {
        let (outgoing, batches) = mpsc::channel(OUTGOING_MAX);
        let replaced = CancellationToken::new();
        let (commands, position, delivered) = {
            let mut streams = self.lock();
            let unconfirmed = streams.iter().filter(|(of, stream)| of.is_some() && !stream.confirmed).count();
            let known = streams.contains_key(&session.cloned());
            if session.is_some() && !known && (unconfirmed >= UNCONFIRMED_MAX || streams.len() >= STREAMS_MAX)
            {
                return Err(StreamReadError::TooMany);
            }
            let stream = self.stream(&mut streams, session);
            if let (Some(after), Some(lost)) = (after, *locked(&stream.lost))
                && after < lost
            {
                return Err(StreamReadError::Lost);
            }
            // A client that names its position has lost its stream, also if that is not known here yet.
            if after.is_none() && stream.is_read() {
                return Err(StreamReadError::Busy);
            }
            stream.reader = Some(outgoing.downgrade());
            std::mem::replace(&mut stream.replaced, replaced.clone()).cancel();
            let left_off = stream.reader_position();
            let position = after.or(left_off);
            // The previous reader may still get something; that does not count any more.
            stream.delivered = Arc::new(Mutex::new(position.unwrap_or_default()));
            (stream.commands.clone(), position, Arc::clone(&stream.delivered))
        };
        // A writer that is gone closes the channel, and with it the answer.
        drop(commands.send(WriterCommand::Connect { outgoing, replaced, after: position }).await);
        Ok(StreamReader { batches, delivered })
    }

    /// Whether the client has this session's stream.
    pub(super) fn shows(&self, session: &SessionId) -> bool {
        self.lock().get(&Some(session.clone())).is_some_and(|stream| stream.confirmed)
    }

    pub(super) fn is_read(&self) -> bool {
        self.lock().values().any(ConnectionStream::is_read)
    }

    /// Ends every stream when its pending frames were written.
    pub(super) fn close(&self) {
        self.lock().clear();
    }

    pub(crate) async fn send(&self, command: WriterCommand) {
        let (session, command, answer) = self.split_command(command);
        let finished = matches!(command, WriterCommand::Finish { .. }).then(|| session.clone()).flatten();
        if let (WriterCommand::Attach { .. }, Some(_), true) =
            (&command, &session, self.is_full(session.as_ref()))
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
        // The writer ends when it has carried out its commands, unless the stream is read.
        if finished.is_some() {
            self.lock().retain(|of, stream| *of != finished || stream.is_read());
        }
    }

    /// Sends a command without waiting, if there is room for it.
    pub(crate) fn send_now(&self, command: WriterCommand) -> bool {
        let (session, command, _) = self.split_command(command);
        self.commands(session.as_ref()).try_send(command).is_ok()
    }

    /// Whether somebody reads the session's stream.
    pub(crate) fn reaches(&self, session: &SessionId) -> bool {
        self.lock().get(&Some(session.clone())).is_some_and(ConnectionStream::is_read)
    }

    fn is_full(&self, session: Option<&SessionId>) -> bool {
        let mut streams = self.lock();
        let known = streams.contains_key(&session.cloned());
        if !known && streams.len() >= STREAMS_MAX {
            // A stream that is not read can be resumed later.
            let unread = streams.iter().find(|(of, stream)| of.is_some() && !stream.is_read());
            if let Some(unread) = unread.and_then(|(of, _)| of.clone()) {
                streams.remove(&Some(unread));
            }
        }
        !known && streams.len() >= STREAMS_MAX
    }

    /// The session is open, but this connection cannot stream any more sessions.
    async fn refuse(&self, answer: Option<WriterCommand>) {
        let Some(WriterCommand::Answer { id, .. }) = answer else { return };
        let text = format!(
            "this connection already shows {STREAMS_MAX} sessions, which is the limit; open another connection"
        );
        let outcome = Err(RequestError::InvalidRequest(text));
        drop(self.commands(None).send(WriterCommand::Answer { id, outcome }).await);
    }

    /// The stream that a command belongs to, and the part of it that belongs to the connection's own stream.
    fn split_command(
        &self,
        command: WriterCommand,
    ) -> (Option<SessionId>, WriterCommand, Option<WriterCommand>) {
        let WriterCommand::Attach { handle, from, counted, answer } = command else {
            let session = match &command {
                WriterCommand::AnswerAfter { session, .. }
                | WriterCommand::Finish { session, .. }
                | WriterCommand::Host { session, .. } => {
                    Some(session.clone()).filter(|session| self.shows(session))
                }
                WriterCommand::Answer { .. }
                | WriterCommand::Attach { .. }
                | WriterCommand::Connect { .. } => None,
            };
            return (session, command, None);
        };
        let session = Some(handle.id().clone());
        let read = self.lock().get(&session).is_some_and(ConnectionStream::is_read);
        let answered =
            |id: RpcId, outcome: RequestOutcome| Some(WriterCommand::Answer { id, outcome: Ok(outcome) });
        let (answer, elsewhere) = match answer {
            AttachAnswer::First { id, outcome } => {
                let history = matches!(from, AttachFrom::Missed(_));
                (AttachAnswer::Elsewhere { history }, answered(id, outcome))
            }
            // Nobody reads the history yet, and the client may wait for the answer before it does.
            AttachAnswer::AfterReplay { id, rules, outcome } if !read => {
                let outcome =
                    outcome.unwrap_or_else(|| RequestOutcome::Opened(SessionView::of(&handle, rules)));
                (AttachAnswer::Elsewhere { history: true }, answered(id, outcome))
            }
            answer @ (AttachAnswer::AfterReplay { .. }
            | AttachAnswer::Elsewhere { .. }
            | AttachAnswer::Preopened { .. }
            | AttachAnswer::Back) => (answer, None),
        };
        (session, WriterCommand::Attach { handle, from, counted, answer }, elsewhere)
    }

    fn commands(&self, session: Option<&SessionId>) -> mpsc::Sender<WriterCommand> {
        let mut streams = self.lock();
        let stream = self.stream(&mut streams, session);
        stream.confirmed = true;
        stream.commands.clone()
    }

    fn stream<'a>(
        &self,
        streams: &'a mut HashMap<Option<SessionId>, ConnectionStream>,
        session: Option<&SessionId>,
    ) -> &'a mut ConnectionStream {
        streams.entry(session.cloned()).or_insert_with(|| {
            let (commands, receiver) = mpsc::channel(COMMANDS_MAX);
            let lost = Arc::default();
            drop(self.tasks.spawn(self.writers.make(receiver, None, Arc::clone(&lost)).run()));
            ConnectionStream {
                lost,
                commands,
                confirmed: session.is_none(),
                delivered: Arc::default(),
                reader: None,
                replaced: CancellationToken::new(),
            }
        })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Option<SessionId>, ConnectionStream>> {
        locked(&self.streams)
    }
}

impl ConnectionStream {
    fn is_read(&self) -> bool {
        self.reader.as_ref().and_then(mpsc::WeakSender::upgrade).is_some_and(|reader| !reader.is_closed())
    }

    /// The position of the last reader, if there was one.
    fn reader_position(&self) -> Option<Cursor> {
        let position = *locked(&self.delivered);
        (position != Cursor::default()).then_some(position)
    }
}

pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
