//! Web Push of this server: its key, which push services it may reach, and the task that sends.

use std::sync::Arc;

use access::devices::Devices;
use access::devices::push::{self, Push, PushAddressPolicy, PushParts, PushSender, Vapid};
use engine::{Follower, SystemClock};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::cli_error::CliError;
use crate::config::Config;
use crate::{output, paths};

/// If set to 1, pushes may go to this machine and without TLS: for tests with their own push service.
const LOOPBACK: &str = "ROPEWALK_PUSH_LOOPBACK";
/// The contact that push services are given unless the settings name one. Some reject pushes without a contact; this
/// address belongs to nobody.
const CONTACT: &str = "mailto:ropewalk@example.com";

pub struct Pushes {
    push: Arc<Push>,
    office: Option<PushSender>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Pushes {
    /// `None` if there is no key: everything else works without pushes.
    pub fn prepare(config: &Config) -> Result<Option<Self>, CliError> {
        let contact = config.push_contact.as_deref().unwrap_or(CONTACT);
        let vapid = match Vapid::load_or_create(&paths::push_key()?, contact) {
            Ok(vapid) => vapid,
            Err(error) => {
                let why = std::error::Error::source(&error).map(|why| format!(": {why}")).unwrap_or_default();
                output::say(&format!("notifications are off: {error}{why}"));
                return Ok(None);
            }
        };
        let loopback = paths::variable(LOOPBACK).is_some_and(|value| value == "1");
        let reach = PushAddressPolicy { allows: agent::is_public, loopback };
        let (push, office) = push::open(PushParts { vapid, allowed: reach, clock: Arc::new(SystemClock) });
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        Ok(Some(Self { push, office: Some(office), tasks, stop }))
    }

    pub fn follower(&self) -> Arc<dyn Follower> {
        Arc::clone(&self.push) as Arc<dyn Follower>
    }

    /// Starts sending pushes to these devices. Must be called on the runtime.
    pub fn start(mut self, hall: &Arc<Devices>) -> Self {
        hall.set_push(Arc::clone(&self.push));
        if let Some(office) = self.office.take() {
            drop(self.tasks.spawn(office.run(Arc::clone(hall), self.stop.clone())));
        }
        self
    }

    /// Sends what is left, within a limit. Called after all sessions have ended.
    pub async fn finish(self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}
