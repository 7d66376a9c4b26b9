//! The REST surface: `GET /session/<id>/events`, whose ids count from 1 and mean the same frame for ever.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde_json::Value;

use super::super::http_client::{HttpClient, NextEvent, SseEvents};
use super::{QUIET_MAX, RETRY, Shared};

/// Every frame with its number.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Frames(BTreeMap<u64, (String, String)>);

/// A client that keeps every frame as it is.
pub struct Reader {
    pub shared: Shared,
    pub frames: Arc<Mutex<Frames>>,
    thread: std::thread::JoinHandle<()>,
}

impl Reader {
    pub fn follow(web: &HttpClient, session: &str) -> Self {
        let (shared, frames) = (Shared::default(), Arc::<Mutex<Frames>>::default());
        let (of_thread, kept) = (shared.clone(), Arc::clone(&frames));
        let (web, path) = (web.clone(), format!("/session/{session}/events"));
        let thread = std::thread::spawn(move || {
            while !of_thread.stopped() {
                if let Err(error) = read(&web, &path, &of_thread, &kept) {
                    of_thread.fault(format!("{error:#}"));
                    return;
                }
                std::thread::sleep(RETRY);
            }
        });
        Self { shared, frames, thread }
    }

    pub fn finish(self) {
        self.shared.stop();
        // A client that panicked has left its frames unfinished, which was judged before.
        drop(self.thread.join());
    }
}

impl Frames {
    /// Everything that is there when nothing has come for a moment.
    pub fn all(web: &HttpClient, session: &str) -> anyhow::Result<Self> {
        let answer = web.get(&format!("/session/{session}/events"))?;
        ensure!(answer.status == 200, "the events were refused with {}", answer.status);
        let mut events = SseEvents::of(answer);
        let mut frames = Self::default();
        let mut heard = Instant::now();
        while heard.elapsed() < Duration::from_millis(150) {
            if let NextEvent::Event(event) = events.next()? {
                heard = Instant::now();
                frames.take(event.id.as_deref(), event.event, event.data)?;
            }
        }
        Ok(frames)
    }

    /// What was said in them.
    pub fn text(&self) -> String {
        let chunk = |(_, data): &(String, String)| {
            let data: Value = serde_json::from_str(data).unwrap_or_default();
            (data["type"] == "assistant_chunk").then(|| data["data"]["text"].as_str().map(str::to_owned))?
        };
        self.0.values().filter_map(chunk).collect()
    }

    /// The first frame that two readers have not in common.
    pub fn difference(&self, other: &Self) -> Option<String> {
        let numbers = self.0.keys().chain(other.0.keys());
        let mut differing = numbers.filter(|number| self.0.get(number) != other.0.get(number));
        let number = differing.next()?;
        Some(format!("frame {number}:\n  {:?}\n  {:?}", self.0.get(number), other.0.get(number)))
    }

    fn last(&self) -> u64 {
        self.0.keys().next_back().copied().unwrap_or(0)
    }

    fn take(&mut self, id: Option<&str>, event: Option<String>, data: String) -> anyhow::Result<()> {
        let number: u64 = id.context("an event without an id")?.parse()?;
        ensure!(number == self.last() + 1, "event {number} came after event {}", self.last());
        self.0.insert(number, (event.unwrap_or_default(), data));
        Ok(())
    }
}

fn read(web: &HttpClient, path: &str, shared: &Shared, kept: &Mutex<Frames>) -> anyhow::Result<()> {
    let last = super::locked(kept).last();
    let web = if last > 0 { web.with("last-event-id", &last.to_string()) } else { web.clone() };
    let Ok(answer) = web.get(path) else { return Ok(()) };
    match answer.status {
        200 => {}
        503 => return Ok(()),
        status => anyhow::bail!("the events after {last} were refused with {status}: {:?}", answer.text()),
    }
    shared.lock().connections += 1;
    let mut events = SseEvents::of(answer);
    let mut heard = Instant::now();
    while !shared.stopped() {
        match events.next()? {
            NextEvent::Event(event) => {
                heard = Instant::now();
                super::locked(kept).take(event.id.as_deref(), event.event, event.data)?;
                shared.lock().frames += 1;
            }
            NextEvent::Quiet if heard.elapsed() > QUIET_MAX => return Ok(()),
            NextEvent::Quiet => {}
            NextEvent::Over => return Ok(()),
        }
    }
    Ok(())
}
