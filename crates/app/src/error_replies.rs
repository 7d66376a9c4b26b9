//! Errors as our own clients get them: a code for the program, a sentence for the person.

use engine::{OpenError, Refusal, SendError, StoreError};
use service::ServiceError;
use wire::native::ReplyError;

pub(super) fn wrong(code: &str, message: impl Into<String>) -> ReplyError {
    ReplyError { code: code.to_owned(), message: message.into() }
}

pub(super) fn bad(message: impl Into<String>) -> ReplyError {
    wrong("badRequest", message)
}

pub(super) fn not_found() -> ReplyError {
    wrong("notFound", "no such session; it may have been deleted")
}

pub(super) fn busy(message: impl Into<String>) -> ReplyError {
    wrong("busy", message)
}

pub(super) fn failed(message: impl Into<String>) -> ReplyError {
    wrong("failed", message)
}

/// The reply to a request whose command failed.
pub(super) fn not_done(error: ServiceError) -> ReplyError {
    match error {
        ServiceError::Forbidden(why) => wrong("forbidden", why.to_string()),
        ServiceError::FolderNotOpen(_) => wrong(
            "forbidden",
            "clients may not use this folder; the server's owner can add it with --allow-dir",
        ),
        ServiceError::CwdNotAFolder(_) => bad("no such folder; give the full path of an existing one"),
        ServiceError::Open(error) => not_opened(error),
        ServiceError::Send(error) => not_taken(error),
        ServiceError::Store(error) => not_opened(OpenError::Store(error)),
        ServiceError::NotAFolder(_)
        | ServiceError::RootNotAllowed(_)
        | ServiceError::OutsideSession(_)
        | ServiceError::ParentInPath
        | ServiceError::TooLong(_)
        | ServiceError::NoToolServers
        | ServiceError::ToolServer(_) => bad(error.to_string()),
        ServiceError::Internal => failed(error.to_string()),
    }
}

pub(super) fn not_opened(error: OpenError) -> ReplyError {
    match error {
        OpenError::NotFound(_) => not_found(),
        OpenError::Stopping | OpenError::LimitReached(_) => busy(error.to_string()),
        OpenError::Store(StoreError::BusyElsewhere) => {
            busy("the session is running a turn in another ropewalk process; wait, or stop it there")
        }
        OpenError::Agent(error) => failed(error.to_string()),
        OpenError::Store(error @ StoreError::Busy { .. }) => busy(error.to_string()),
        OpenError::Store(error @ (StoreError::Unavailable { .. } | StoreError::Write { .. })) => {
            failed(error.to_string())
        }
        OpenError::Store(error) => {
            tracing::warn!(%error, "a request met trouble with the store");
            failed("the session store could not be used; the server's log says why")
        }
    }
}

fn not_taken(error: SendError) -> ReplyError {
    match error {
        SendError::Refused(Refusal::QueueFull) => busy(error.to_string()),
        SendError::Refused(Refusal::UnknownAsk(_)) => {
            wrong("answered", "this request was already answered, or does not exist")
        }
        SendError::Closed | SendError::Refused(Refusal::Closing | Refusal::Busy | Refusal::StaleTurn(_)) => {
            busy(format!("{error}; try again"))
        }
        SendError::Refused(_) => bad(error.to_string()),
    }
}
