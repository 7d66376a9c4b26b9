//! The sender of commands to the writer of a connection, or, where a connection has many streams, to the writer of the
//! stream that the command belongs to.

use std::sync::Arc;

use engine::SessionId;
use tokio::sync::mpsc;

use crate::http::ConnectionStreams;
use crate::writer::WriterCommand;

#[derive(Clone)]
pub(crate) enum CommandSender {
    One(mpsc::Sender<WriterCommand>),
    Many(Arc<ConnectionStreams>),
}

impl CommandSender {
    /// Drops the command if the writer is gone: then the client is gone too.
    pub(crate) async fn send(&self, command: WriterCommand) {
        match self {
            Self::One(writer) => drop(writer.send(command).await),
            Self::Many(streams) => streams.send(command).await,
        }
    }

    /// The same without waiting. The command is dropped if the client has too much unread already.
    pub(crate) fn send_now(&self, command: WriterCommand) {
        let sent = match self {
            Self::One(writer) => writer.try_send(command).is_ok(),
            Self::Many(streams) => streams.send_now(command),
        };
        if !sent {
            tracing::debug!("dropped a message to a client that does not read");
        }
    }

    /// Whether the client reads the session's updates at this moment.
    pub(crate) fn reaches(&self, session: &SessionId) -> bool {
        match self {
            Self::One(writer) => !writer.is_closed(),
            Self::Many(streams) => streams.reaches(session),
        }
    }
}
