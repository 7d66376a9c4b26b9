//! Other people's agents: programs that speak the official protocol, behind our sessions.
//!
//! A [`Process`] is such a program, a [`Peer`] the conversation with it, a [`Desk`] what it may have done
//! by us.

mod crew;
mod desk;
mod external;
mod journal;
mod peer;
mod pool;
mod process;
mod seat;

pub use desk::{Counter, Desk, DeskSpec, Grant};
pub use external::{External, ExternalConfig, Folders, Patience, Place};
pub use journal::{Journal, Notes};
pub use peer::{Answered, Ears, Ending, Heard, Noise, Peer, PeerError, PeerLimits, Remote, Terms};
pub use process::{Launch, LaunchError, Process, ProcessEnd, ProcessNews, environment};
pub use seat::OutputLimits;
