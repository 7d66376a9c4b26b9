//! Web Push of this server: its key, how far it reaches, and the task that sends.

use std::sync::Arc;

use access::devices::Devices;
use access::devices::push::{self, Office, Push, PushParts, Reach, Vapid};
use engine::{Follower, SystemClock};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::Config;
use crate::trouble::Trouble;
use crate::{paths, terminal};

/// Set to 1, pushes may go to this machine and without TLS: for tests with a push service of their own.
const LOOPBACK: &str = "ROPEWALK_PUSH_LOOPBACK";
/// Whom push services may write to about our pushes, unless the settings name somebody. Some refuse
/// pushes without an address; what is at this one is nobody.
const CONTACT: &str = "mailto:ropewalk@example.com";

pub struct Pushes {
    push: Arc<Push>,
    office: Option<Office>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Pushes {
    /// Nothing, where no key can be had: everything else works without pushes.
    pub fn prepare(config: &Config) -> Result<Option<Self>, Trouble> {
        let contact = config.push_contact.as_deref().unwrap_or(CONTACT);
        let vapid = match Vapid::load_or_create(&paths::push_key()?, contact) {
            Ok(vapid) => vapid,
            Err(error) => {
                let why = std::error::Error::source(&error).map(|why| format!(": {why}")).unwrap_or_default();
                terminal::say(&format!("there are no notifications: {error}{why}"));
                return Ok(None);
            }
        };
        let loopback = paths::variable(LOOPBACK).is_some_and(|value| value == "1");
        let reach = Reach { allows: agent::is_public, loopback };
        let (push, office) = push::open(PushParts { vapid, reach, clock: Arc::new(SystemClock) });
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        Ok(Some(Self { push, office: Some(office), tasks, stop }))
    }

    pub fn follower(&self) -> Arc<dyn Follower> {
        Arc::clone(&self.push) as Arc<dyn Follower>
    }

    /// From here on pushes are sent to the devices of this hall. Called on the runtime.
    pub fn start(mut self, hall: &Arc<Devices>) -> Self {
        hall.pushes_by(Arc::clone(&self.push));
        if let Some(office) = self.office.take() {
            drop(self.tasks.spawn(office.run(Arc::clone(hall), self.stop.clone())));
        }
        self
    }

    /// Sends what is left, within bounds. Called when no session has anything more to say.
    pub async fn finish(self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}
