//! Where the outcomes of calls go: to the one writer of a connection, or to that of its many streams
//! which the outcome belongs to.

use std::sync::Arc;

use engine::SessionId;
use tokio::sync::mpsc;

use crate::http::Streams;
use crate::writer::Command;

#[derive(Clone)]
pub(crate) enum Outlet {
    One(mpsc::Sender<Command>),
    Many(Arc<Streams>),
}

impl Outlet {
    /// A writer that is gone took the client with it.
    pub(crate) async fn send(&self, command: Command) {
        match self {
            Self::One(writer) => drop(writer.send(command).await),
            Self::Many(streams) => streams.send(command).await,
        }
    }

    /// The same without waiting. A client that has so much to read is told no more.
    pub(crate) fn send_now(&self, command: Command) {
        let sent = match self {
            Self::One(writer) => writer.try_send(command).is_ok(),
            Self::Many(streams) => streams.send_now(command),
        };
        if !sent {
            tracing::debug!("a client that does not read was not told something");
        }
    }

    /// Whether somebody reads what is written about the session at this moment.
    pub(crate) fn reaches(&self, session: &SessionId) -> bool {
        match self {
            Self::One(writer) => !writer.is_closed(),
            Self::Many(streams) => streams.reaches(session),
        }
    }
}
