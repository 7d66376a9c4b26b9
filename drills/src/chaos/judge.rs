//! Compares what each client received with the log, and with a reader whose connection was never cut.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::bail;
use serde_json::Value;

use super::SentRequest;
use super::clients::Follower;
use super::clients::official::{PostOutcome, Remote};
use super::clients::rest::{Frames, Reader};
use super::proxy::locked;
use super::server::Server;
use super::view::View;

/// How long the last frames may take once nothing is cut any more.
const SETTLE_MAX: Duration = Duration::from_secs(20);
/// A second look this much later finds what came once too often.
const SECOND_LOOK: Duration = Duration::from_millis(60);

pub struct Judge {
    pub session: String,
    pub kills: bool,
}

/// Everybody who has seen something of the session.
pub struct SessionClients<'a> {
    pub remote: &'a Remote,
    pub sent: &'a [SentRequest],
    pub followers: &'a [Follower],
    pub rest: &'a Reader,
    pub uncut: &'a Follower,
}

impl<'a> SessionClients<'a> {
    fn all(&self) -> impl Iterator<Item = &'a Follower> {
        self.followers.iter().chain([self.uncut])
    }
}

impl Judge {
    /// Waits until every view is complete, and fails with the first difference that stays.
    pub fn settle(&self, server: &Server, seen: &SessionClients<'_>) -> anyhow::Result<()> {
        let deadline = Instant::now() + SETTLE_MAX;
        let mut looks = 0;
        loop {
            let clients = seen.all().map(|follower| (follower.name, &follower.shared));
            for (name, shared) in clients.chain([("rest", &seen.rest.shared)]) {
                if let Some(fault) = shared.lock().faults.first() {
                    bail!("{name}: {fault}");
                }
            }
            // Whatever was asked last is answered, so that the turn can end.
            seen.remote.allow_all()?;
            let events = server.export(&self.session)?;
            let mut difference = self.difference(&events, seen)?;
            if difference.is_none() {
                difference = frames_differ(server, &self.session, seen.rest, &events)?;
            }
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

    fn difference(&self, events: &[Value], seen: &SessionClients<'_>) -> anyhow::Result<Option<String>> {
        if let Some(gap) = gap(events) {
            bail!("the log has a gap or a double at {gap}");
        }
        let log = View::of_log(events)?;
        let whole = seen.uncut.shared.lock().view.clone();
        for follower in seen.all() {
            let name = follower.name;
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
                return Ok(Some(format!("{name} and the {} differ in {difference}", seen.uncut.name)));
            }
        }
        let answers = self.answers(events, seen.remote, seen.sent);
        Ok(answers.or_else(|| questions(&log, seen.followers)))
    }

    /// Every prompt that is in the log was answered once, and none that is not.
    fn answers(&self, events: &[Value], remote: &Remote, sent: &[SentRequest]) -> Option<String> {
        let logged = requests(events, remote.surface);
        let seen = remote.shared.lock();
        for SentRequest { id, prompt, posted } in sent {
            let answers = seen.view.answers.get(&id.to_string()).map_or(0, Vec::len);
            let due = if *prompt {
                logged.contains(id)
            } else {
                // What changes a setting is answered by this process or by none.
                *posted == PostOutcome::Accepted && !self.kills
            };
            if answers > 1 || (due && answers == 0) {
                return Some(format!("request {id} ({posted:?}) was answered {answers} times"));
            }
            // A prompt that was accepted is in the log, or was refused on the stream.
            if *prompt && !due && *posted == PostOutcome::Accepted && answers == 0 {
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
    for follower in followers.iter().filter(|follower| ["worker", "watcher"].contains(&follower.name)) {
        let name = follower.name;
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

/// Numbered frames are the same for whoever was cut as for whoever comes now, and say what the log says.
fn frames_differ(
    server: &Server,
    session: &str,
    rest: &Reader,
    events: &[Value],
) -> anyhow::Result<Option<String>> {
    let kept = locked(&rest.frames).clone();
    let text: String = events
        .iter()
        .filter(|event| event["event_type"] == "text")
        .filter_map(|event| event["payload"]["text"].as_str())
        .collect();
    if kept.text() != text {
        return Ok(Some(format!("rest has {} bytes of text, the log {}", kept.text().len(), text.len())));
    }
    let all = Frames::all(&server.web(server.address), session)?;
    Ok(kept.difference(&all).map(|difference| format!("rest and a later reader differ in {difference}")))
}

/// Positions are dense.
fn gap(events: &[Value]) -> Option<u64> {
    (1..).zip(events).find(|(expected, event)| event["seq"] != *expected).map(|(expected, _)| expected)
}
