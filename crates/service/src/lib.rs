//! What a caller can do to sessions: one method per command, the same for every door.
//!
//! A door (standard input, `/acp`, REST, our own clients, the bridge) decodes a request, says who sends it, calls a
//! method here and encodes what comes back. Who may do what, which folders are open to whom, how long an answer may
//! be and what becomes of a session that left memory in this very moment is decided here, once.
//!
//! **Invariant:** no door opens, makes, changes or deletes a session in another way.

mod bridge_statuses;
mod caller;
mod error;
mod folder_access;
mod new_sessions;
mod service;
mod service_rules;
mod session_text;
mod update_numbers;

pub use bridge_statuses::{BridgeStatuses, REMOTE_UNNAMED, remote_name};
pub use caller::Caller;
pub use error::ServiceError;
pub use service::{NewSessionOptions, Service};
pub use service_rules::{LIST_MAX, ServiceRules};
pub use session_text::{SessionText, SessionTextError};
pub use update_numbers::{OTTER, UpdateCounting, UpdateNumbers, UpdatesStart};
