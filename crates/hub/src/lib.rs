//! The remote side of a bridge.
//!
//! A hub understands nothing of what it keeps. A machine replicates its sessions (`wire::tunnel`): the log, and
//! what our own clients show of it. People read these mirrors, and what they ask goes to the machine as it is.
//! So a hub can show and ask, and can widen nothing; and it makes no difference to it whether it can read.
//!
//! Everything that must outlive a process is in one database (`store::sql`), so any number of hubs on the same one
//! are one hub: whoever holds a machine's socket, all of them see the same mirrors and find the way to it.

pub mod guest;
pub mod people;
