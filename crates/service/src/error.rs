//! Why a command was not carried out. Each door translates it to its own words and codes.

use std::path::PathBuf;

use engine::{Forbidden, OpenError, SendError, SessionId, StoreError};

#[derive(Debug, Clone, thiserror::Error)]
pub enum ServiceError {
    /// By who they are: see the table in `engine::authority`.
    #[error(transparent)]
    Forbidden(#[from] Forbidden),
    /// The folder is not open to the caller. For callers that may learn nothing about a folder, not even
    /// whether it exists, this is the only answer.
    #[error("this caller has no access to {}", .0.display())]
    FolderNotOpen(PathBuf),
    /// The folder that a session should work in.
    #[error("{} is not a folder", .0.display())]
    CwdNotAFolder(PathBuf),
    /// A further folder of a session, or one that it should move to.
    #[error("{} is not a folder", .0.display())]
    NotAFolder(PathBuf),
    #[error("{} is not one of the additional folders this server allows", .0.display())]
    RootNotAllowed(PathBuf),
    #[error("{} is outside the folders of this session", .0.display())]
    OutsideSession(PathBuf),
    #[error("the path must not contain \"..\"")]
    ParentInPath,
    #[error(transparent)]
    Open(OpenError),
    /// The session did not take it.
    #[error(transparent)]
    Send(SendError),
    #[error(transparent)]
    Store(StoreError),
    /// All of it was wanted, and that is more than one answer may have.
    #[error("the session {0} is too long for one response")]
    TooLong(SessionId),
    #[error("this agent takes no tool servers")]
    NoToolServers,
    /// The tool server is not accepted, with the reason.
    #[error("{0}")]
    ToolServer(String),
    #[error("internal server error; the server keeps running, and its log says more")]
    Internal,
}

impl ServiceError {
    pub(crate) fn not_found(session: &SessionId) -> Self {
        Self::Open(OpenError::NotFound(session.clone()))
    }
}

impl From<OpenError> for ServiceError {
    fn from(error: OpenError) -> Self {
        Self::Open(error)
    }
}

impl From<SendError> for ServiceError {
    fn from(error: SendError) -> Self {
        Self::Send(error)
    }
}
