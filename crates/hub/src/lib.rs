//! The remote side of a bridge.
//!
//! A hub understands nothing of what it keeps. A machine replicates its sessions (`wire::tunnel`): the log, and
//! what our own clients show of it. People read these mirrors, and what they ask goes to the machine as it is.
//! So a hub can show and ask, and can widen nothing; and it makes no difference to it whether it can read.
//!
//! Everything that must outlive a process is in one database (`store::sql`), so any number of hubs on the same one
//! are one hub: whoever holds a machine's socket, all of them see the same mirrors and find the way to it.
//!
//! ```text
//! bridge ── /ws/ID ─────────> mirror (taking, keeping) ──> database ──> feed (views), shelf (cards) ──> browsers
//!        <─ /ws/machine/ID ── machines <── calls (or mail to the node that has the socket) <─────────── browsers
//! ```

pub mod audit;
mod bridge;
mod browser;
mod calls;
mod door;
pub mod export;
mod feed;
mod frames;
pub mod guest;
mod hub;
mod ids;
mod machines;
mod metrics;
mod mirror;
pub mod people;
mod polls;
mod reaper;
mod schema;
mod shelf;
mod socket;
mod topics;
mod welcome;

pub use door::{Front, router};
pub use hub::{Hub, HubOptions, HubParts};
pub use ids::{MachineId, NodeId};
pub use schema::{forget, forget_person};
