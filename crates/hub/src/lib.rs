//! The remote side of a bridge.
//!
//! A hub does not interpret what it stores. A machine replicates its sessions (`wire::tunnel`): the log, and the views
//! that our own clients show. People read these mirrors, and their requests are forwarded to the machine unchanged.
//! So a hub can show sessions and forward requests, but cannot grant more rights; and it works the same on sealed contents.
//!
//! Everything that must outlive a process is in one database (`store::sql`), so any number of processes on one database
//! are one hub: whichever node has a machine's socket, all nodes see the same mirrors and can reach the machine.
//!
//! ```text
//! bridge ── /ws/ID ─────────> mirror (intake, statements) ──> database ──> feed, session_list ──> browsers
//!        <─ /ws/machine/ID ── machine_sockets <── machine_calls (or mail to the node that has the socket) <── browsers
//! ```

pub mod audit;
pub mod authenticator;
mod bridge_routes;
mod browser_connection;
mod frame_relay;
mod hub;
mod hub_tables;
mod ids;
mod long_polls;
mod machine_calls;
mod machine_sockets;
mod metrics;
mod mirror;
mod node_upkeep;
pub mod people;
mod people_facade;
mod router;
pub mod session_export;
mod session_list;
mod topics;
mod view_feed;
mod websocket_queues;

pub use hub::{Hub, HubOptions, HubParts};
pub use hub_tables::{forget, forget_person};
pub use ids::{MachineId, NodeId};
pub use metrics::{HubMetrics, MachineCallOutcome};
pub use router::{RouterOptions, router};
