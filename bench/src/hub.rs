//! Load on hubs: bridged sessions that stream, and browsers that watch them.
//!
//! Every bridge is a socket of the tunnel, every browser one of the web app's, all real; only the agent and the
//! page are missing. What a bridge sends carries the time, so each browser knows how long it was on its way.

pub mod cluster;
pub mod crowd;
pub mod people;
pub mod wire;
