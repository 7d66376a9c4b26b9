//! The requests to the two threads, and how a failure of SQLite is reported to the caller.

use std::sync::Arc;

use engine::{
    Claim, Epoch, Event, EventBatch, ListQuery, NewSession, PageRequest, Seq, SessionId, SessionRow,
    StoreError,
};
use tokio::sync::oneshot;

use super::imports_and_forks::{PIECE, SessionCopyStep};

pub(super) type ReplySender<T> = oneshot::Sender<Result<T, StoreError>>;

pub(super) enum WriteRequest {
    Create {
        session: NewSession,
        answer: ReplySender<Claim>,
    },
    Claim {
        id: SessionId,
        answer: ReplySender<Claim>,
    },
    Release {
        id: SessionId,
        epoch: Epoch,
        answer: ReplySender<()>,
    },
    Append {
        batch: EventBatch,
        answer: ReplySender<()>,
    },
    /// A piece of an import or a fork.
    Unfinished(SessionCopyStep),
    Delete {
        id: SessionId,
        answer: ReplySender<bool>,
    },
    Rename {
        id: SessionId,
        title: String,
        answer: ReplySender<()>,
    },
    /// Looks whether anything can be written.
    Check {
        answer: ReplySender<()>,
    },
}

impl WriteRequest {
    pub(super) fn refuse(self, error: StoreError) {
        match self {
            Self::Create { answer, .. } | Self::Claim { answer, .. } => reply(answer, Err(error)),
            Self::Unfinished(step) => step.refuse(error),
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
            Self::Unfinished(SessionCopyStep::Write { .. } | SessionCopyStep::Copy { .. }) => PIECE,
            Self::Unfinished(
                SessionCopyStep::Begin { .. }
                | SessionCopyStep::Finish { .. }
                | SessionCopyStep::Abandon { .. },
            ) => 1,
            Self::Create { .. }
            | Self::Claim { .. }
            | Self::Release { .. }
            | Self::Delete { .. }
            | Self::Rename { .. }
            | Self::Check { .. } => 1,
        }
    }
}

impl SessionCopyStep {
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

pub(super) enum ReadRequest {
    Events { id: SessionId, after: Seq, page: PageRequest, answer: ReplySender<Vec<Arc<Event>>> },
    Session { id: SessionId, answer: ReplySender<SessionRow> },
    Owns { id: SessionId, epoch: Epoch, answer: ReplySender<bool> },
    Sessions { query: ListQuery, answer: ReplySender<Vec<SessionRow>> },
    Unused { ids: Vec<SessionId>, answer: ReplySender<Vec<SessionId>> },
    NeverUsed { ids: Vec<SessionId>, answer: ReplySender<Vec<SessionId>> },
    Lineage { answer: ReplySender<Option<Arc<str>>> },
}

impl ReadRequest {
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

/// The caller may be gone; the request was carried out all the same.
pub(super) fn reply<T>(answer: ReplySender<T>, outcome: Result<T, StoreError>) {
    drop(answer.send(outcome));
}

/// Why a request failed inside a transaction.
pub(super) enum RequestFailure {
    /// This request alone is refused, and it has written nothing.
    Refused(StoreError),
    /// The whole transaction is lost.
    Lost(TransactionLoss),
}

pub(super) struct TransactionLoss {
    pub(super) reason: String,
    /// SQLite's error, if it came from SQLite.
    pub(super) error: Option<rusqlite::Error>,
    /// Another process holds the lock, and nothing was begun.
    pub(super) busy: bool,
    /// The disk itself failed: what it holds is not known any more, and trying again would only
    /// hide that.
    pub(super) disk: bool,
}

impl From<StoreError> for RequestFailure {
    fn from(error: StoreError) -> Self {
        Self::Refused(error)
    }
}

impl From<rusqlite::Error> for RequestFailure {
    fn from(error: rusqlite::Error) -> Self {
        Self::Lost(error.into())
    }
}

impl From<rusqlite::Error> for TransactionLoss {
    fn from(error: rusqlite::Error) -> Self {
        let disk = error.sqlite_error_code() == Some(rusqlite::ErrorCode::SystemIoFailure);
        let busy = error.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy);
        Self { reason: error.to_string(), error: Some(error), busy, disk }
    }
}

impl From<wire::record::RecordError> for RequestFailure {
    fn from(error: wire::record::RecordError) -> Self {
        Self::Refused(StoreError::Write { reason: error.to_string() })
    }
}

pub(super) fn damaged(error: &impl std::fmt::Display) -> StoreError {
    StoreError::Damaged { reason: error.to_string() }
}
