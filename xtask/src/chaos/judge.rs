//! Compares what each client has seen with the log and with a reader that was never cut.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::bail;
use serde_json::Value;

use super::clients::Follower;
use super::clients::official::{Posted, Remote};
use super::server::Server;
use super::view::View;
use super::{Sent, named};

/// How long the last frames may take once nothing is cut any more.
const SETTLE_MAX: Duration = Duration::from_secs(20);
/// A second look this much later finds what came once too often.
const SECOND_LOOK: Duration = Duration::from_millis(60);

pub struct Judge {
    pub session: String,
    pub kills: bool,
}

impl Judge {
    /// Waits until every view is complete, and fails with the first difference that stays.
    pub fn settle(
        &self,
        server: &Server,
        remote: &Remote,
        sent: &[Sent],
        followers: &[Follower],
        uncut: &Follower,
    ) -> anyhow::Result<()> {
        let deadline = Instant::now() + SETTLE_MAX;
        let mut looks = 0;
        loop {
            for (name, follower) in named(followers).chain([(uncut.name, uncut)]) {
                if let Some(fault) = follower.shared.lock().faults.first() {
                    bail!("{name}: {fault}");
                }
            }
            // Whatever was asked last is answered, so that the turn can end.
            remote.allow_all()?;
            let events = server.export(&self.session)?;
            let difference = self.difference(&events, remote, sent, followers, uncut)?;
            match difference {
                None if looks > 0 => return Ok(()),
                None => {
                    looks += 1;
                    std::thread::sleep(SECOND_LOOK);
                }
                Some(difference) if Instant::now() > deadline || looks > 0 => {
                    bail!("{difference}\nthe log has {} events", events.len())
                }
                Some(_) => std::thread::sleep(SECOND_LOOK),
            }
        }
    }

    fn difference(
        &self,
        events: &[Value],
        remote: &Remote,
        sent: &[Sent],
        followers: &[Follower],
        uncut: &Follower,
    ) -> anyhow::Result<Option<String>> {
        if let Some(gap) = gap(events) {
            bail!("the log has a gap or a double at {gap}");
        }
        let log = View::of_log(events)?;
        let whole = uncut.shared.lock().view.clone();
        for (name, follower) in named(followers).chain([(uncut.name, uncut)]) {
            let view = follower.shared.lock().view.clone();
            let (mut logged, mut shown) = (log.as_logged(), view.as_logged());
            if follower.prompts {
                logged.users.clear();
                shown.users.clear();
            }
            if let Some(difference) = shown.difference(&logged) {
                return Ok(Some(format!("{name} and the log differ in {difference}")));
            }
            if let Some(difference) = view.without_own().difference(&whole.without_own()) {
                return Ok(Some(format!("{name} and the {} differ in {difference}", uncut.name)));
            }
        }
        Ok(self.answers(events, remote, sent).or_else(|| questions(&log, followers)))
    }

    /// Every prompt that is in the log was answered once, and none that is not.
    fn answers(&self, events: &[Value], remote: &Remote, sent: &[Sent]) -> Option<String> {
        let logged = requests(events, remote.surface);
        let seen = remote.shared.lock();
        for Sent { id, prompt, posted } in sent {
            let answers = seen.view.answers.get(&id.to_string()).map_or(0, Vec::len);
            let due = if *prompt {
                logged.contains(id)
            } else {
                // What changes a setting is answered by this process or by none.
                *posted == Posted::Accepted && !self.kills
            };
            if answers > 1 || (due && answers == 0) {
                return Some(format!("request {id} ({posted:?}) was answered {answers} times"));
            }
            // A prompt that was accepted is in the log, or was refused on the stream.
            if *prompt && !due && *posted == Posted::Accepted && answers == 0 {
                return Some(format!("the prompt {id} was accepted and is not in the log"));
            }
        }
        None
    }
}

/// The worker's requests that came as far as the log.
fn requests(events: &[Value], surface: u64) -> BTreeSet<u64> {
    let of_surface = |event: &&Value| event["origin"]["surface"]["id"] == surface;
    let request = |event: &Value| event["origin"]["surface"]["request"].as_str()?.parse().ok();
    events.iter().filter(of_surface).filter_map(request).collect()
}

/// Whoever can come back is asked once and told once that the question is settled.
fn questions(log: &View, followers: &[Follower]) -> Option<String> {
    for (name, follower) in named(followers).filter(|(name, _)| ["worker", "watcher"].contains(name)) {
        let seen = follower.shared.lock();
        let asked = seen.view.asks.keys().eq(log.asks.keys());
        // The one that answers is not told of its own answer.
        let settled = seen.view.asks.values().all(|withdrawn| match follower.prompts {
            true => *withdrawn <= 1,
            false => *withdrawn == 1,
        });
        if !asked || !settled {
            return Some(format!("{name} saw the questions {:?} of {:?}", seen.view.asks, log.asks.keys()));
        }
    }
    None
}

/// Positions are dense.
fn gap(events: &[Value]) -> Option<u64> {
    (1..).zip(events).find(|(expected, event)| event["seq"] != *expected).map(|(expected, _)| expected)
}
