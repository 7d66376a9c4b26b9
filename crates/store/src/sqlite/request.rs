//! What the two threads are asked, and how a failure of SQLite is told to the one who asked.

use std::sync::Arc;

use engine::{
    Batch, Claim, Epoch, Event, ListQuery, NewSession, Page, Seq, SessionId, SessionRow, StoreError,
};
use tokio::sync::oneshot;

use super::unfinished::{PIECE, Step};

pub(super) type Answer<T> = oneshot::Sender<Result<T, StoreError>>;

pub(super) enum Write {
    Create {
        session: NewSession,
        answer: Answer<Claim>,
    },
    Claim {
        id: SessionId,
        answer: Answer<Claim>,
    },
    Release {
        id: SessionId,
        epoch: Epoch,
        answer: Answer<()>,
    },
    Append {
        batch: Batch,
        answer: Answer<()>,
    },
    /// A piece of an import or a fork.
    Unseen(Step),
    Delete {
        id: SessionId,
        answer: Answer<bool>,
    },
    Rename {
        id: SessionId,
        title: String,
        answer: Answer<()>,
    },
    /// Looks whether anything can be written.
    Check {
        answer: Answer<()>,
    },
}

impl Write {
    pub(super) fn refuse(self, error: StoreError) {
        match self {
            Self::Create { answer, .. } | Self::Claim { answer, .. } => reply(answer, Err(error)),
            Self::Unseen(step) => step.refuse(error),
            Self::Release { answer, .. }
            | Self::Append { answer, .. }
            | Self::Rename { answer, .. }
            | Self::Check { answer } => reply(answer, Err(error)),
            Self::Delete { answer, .. } => reply(answer, Err(error)),
        }
    }

    /// Answers a check.
    pub(super) fn approve(self) {
        if let Self::Check { answer } = self {
            reply(answer, Ok(()));
        }
    }

    /// How many events it writes: groups are bounded by this too.
    pub(super) fn weight(&self) -> usize {
        match self {
            Self::Append { batch, .. } => batch.events.len(),
            Self::Unseen(Step::Write { .. } | Step::Copy { .. }) => PIECE,
            Self::Unseen(Step::Begin { .. } | Step::Finish { .. } | Step::Abandon { .. }) => 1,
            Self::Create { .. }
            | Self::Claim { .. }
            | Self::Release { .. }
            | Self::Delete { .. }
            | Self::Rename { .. }
            | Self::Check { .. } => 1,
        }
    }
}

impl Step {
    fn refuse(self, error: StoreError) {
        match self {
            Self::Begin { answer, .. } => reply(answer, Err(error)),
            Self::Write { answer, .. } => reply(answer, Err(error)),
            Self::Copy { answer, .. } => reply(answer, Err(error)),
            Self::Finish { answer, .. } => reply(answer, Err(error)),
            Self::Abandon { .. } => {}
        }
    }
}

pub(super) enum Read {
    Events { id: SessionId, after: Seq, page: Page, answer: Answer<Vec<Arc<Event>>> },
    Session { id: SessionId, answer: Answer<SessionRow> },
    Owns { id: SessionId, epoch: Epoch, answer: Answer<bool> },
    Sessions { query: ListQuery, answer: Answer<Vec<SessionRow>> },
    Unused { ids: Vec<SessionId>, answer: Answer<Vec<SessionId>> },
    NeverUsed { ids: Vec<SessionId>, answer: Answer<Vec<SessionId>> },
    Lineage { answer: Answer<Option<Arc<str>>> },
}

impl Read {
    pub(super) fn refuse(self, error: StoreError) {
        match self {
            Self::Events { answer, .. } => reply(answer, Err(error)),
            Self::Session { answer, .. } => reply(answer, Err(error)),
            Self::Owns { answer, .. } => reply(answer, Err(error)),
            Self::Sessions { answer, .. } => reply(answer, Err(error)),
            Self::Unused { answer, .. } => reply(answer, Err(error)),
            Self::NeverUsed { answer, .. } => reply(answer, Err(error)),
            Self::Lineage { answer } => reply(answer, Err(error)),
        }
    }
}

/// The one who asked may have gone; what was asked for is done all the same.
pub(super) fn reply<T>(answer: Answer<T>, outcome: Result<T, StoreError>) {
    drop(answer.send(outcome));
}

/// Why a request failed inside a transaction.
pub(super) enum Failure {
    /// This request alone is refused, and it has written nothing.
    Refused(StoreError),
    /// The whole transaction is lost.
    Lost(Loss),
}

pub(super) struct Loss {
    pub(super) reason: String,
    /// What SQLite said, where it was SQLite.
    pub(super) error: Option<rusqlite::Error>,
    /// Another process holds the lock, and nothing was begun.
    pub(super) busy: bool,
    /// The disk itself failed: what it holds is not known any more, and trying again would only
    /// hide that.
    pub(super) disk: bool,
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Refused(error)
    }
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        Self::Lost(error.into())
    }
}

impl From<rusqlite::Error> for Loss {
    fn from(error: rusqlite::Error) -> Self {
        let disk = error.sqlite_error_code() == Some(rusqlite::ErrorCode::SystemIoFailure);
        let busy = error.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy);
        Self { reason: error.to_string(), error: Some(error), busy, disk }
    }
}

impl From<wire::record::RecordError> for Failure {
    fn from(error: wire::record::RecordError) -> Self {
        Self::Refused(StoreError::Write { reason: error.to_string() })
    }
}

pub(super) fn damaged(error: &impl std::fmt::Display) -> StoreError {
    StoreError::Damaged { reason: error.to_string() }
}
