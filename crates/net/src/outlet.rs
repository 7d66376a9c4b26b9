//! Where the outcomes of calls go: to the one writer of a connection, or to that of its many streams
//! which the outcome belongs to.

use tokio::sync::mpsc;

use crate::writer::Command;

#[derive(Clone)]
pub(crate) enum Outlet {
    One(mpsc::Sender<Command>),
}

impl Outlet {
    /// A writer that is gone took the client with it.
    pub(crate) async fn send(&self, command: Command) {
        match self {
            Self::One(writer) => drop(writer.send(command).await),
        }
    }
}
