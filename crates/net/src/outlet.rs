//! Where the outcomes of calls go: to the one writer of a connection, or to that of its many streams
//! which the outcome belongs to.

use std::sync::Arc;

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
}
