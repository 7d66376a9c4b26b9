//! The hall: who can come in besides the programs of this machine, and as what.
//!
//! Devices, the invitations with which new ones knock, and what they are told when nobody looks.

use std::sync::Arc;

use engine::Principal;
use wire::native::{Answered, Request, Role, Wrong};

/// Somebody who uses our own clients.
#[derive(Debug, Clone)]
pub struct Visitor {
    pub principal: Principal,
    /// What others are shown: `terminal`, or the name of a device.
    pub name: Arc<str>,
    pub role: Role,
    /// The device it came in by, if it was one.
    pub device: Option<Arc<str>>,
}

#[derive(Default)]
pub struct Hall {}

impl Hall {
    /// Answers the requests that are about devices and pushes. What they take was looked at before.
    pub async fn answer(&self, _visitor: &Visitor, _request: Request) -> Result<Answered, Wrong> {
        Err(Wrong { code: "badRequest".into(), message: "this server has no devices".into() })
    }
}
