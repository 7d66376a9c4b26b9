//! Measures hubs under load and prints the result as JSON.
//!
//! `hub --product PROGRAM --scratch DIR [--hubs N] [--store URL] [--bus URL] [--sessions N] [--browsers N] [--quick]`
//!
//! For each pace, all sessions stream at once for a while: events per second that were acknowledged, the delay from a
//! bridge to a browser, the processor time of the hubs. What is a goal and whether it is met is not decided here.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use ropewalk_bench::hub::cluster::Hubs;
use ropewalk_bench::hub::crowd::{Bridge, Browser, Score};
use ropewalk_bench::hub::people::{Person, sign_in};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio_util::task::TaskTracker;

/// Sessions of one person.
const SESSIONS_EACH: usize = 50;
/// Between two batches of one session.
const PACES_MS: [u64; 5] = [10_000, 4_000, 2_000, 1_000, 500];
const WARM: Duration = Duration::from_secs(4);
const LONG: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_secs(6);

fn main() -> anyhow::Result<()> {
    let options = Options::parse(std::env::args().skip(1))?;
    let report = Runtime::new()?.block_on(measure(&options))?;
    println!("{}", serde_json::to_string_pretty(&report)?);
    Ok(())
}

struct Options {
    product: PathBuf,
    scratch: PathBuf,
    hubs: usize,
    sessions: usize,
    browsers: usize,
    quick: bool,
    more: Vec<String>,
}

impl Options {
    fn parse(mut arguments: impl Iterator<Item = String>) -> anyhow::Result<Self> {
        let (mut product, mut scratch) = (None, None);
        let (mut hubs, mut sessions, mut browsers, mut quick, mut more) =
            (1, 1_000, 2_000, false, Vec::new());
        while let Some(flag) = arguments.next() {
            let mut value = || arguments.next().with_context(|| format!("{flag} needs a value"));
            match flag.as_str() {
                "--product" => product = Some(PathBuf::from(value()?)),
                "--scratch" => scratch = Some(PathBuf::from(value()?)),
                "--hubs" => hubs = value()?.parse()?,
                "--sessions" => sessions = value()?.parse()?,
                "--browsers" => browsers = value()?.parse()?,
                "--store" | "--bus" => more.extend([flag.clone(), value()?]),
                "--quick" => quick = true,
                _ => bail!("hub does not know the argument {flag}"),
            }
        }
        let product = product.context("--product is missing")?;
        let scratch = scratch.context("--scratch is missing")?;
        Ok(Self { product, scratch, hubs, sessions, browsers, quick, more })
    }
}

async fn measure(options: &Options) -> anyhow::Result<Value> {
    let hubs = Hubs::start(&options.product, &options.scratch, options.hubs, &options.more)?;
    let people = sign_in(&hubs, options.sessions.div_ceil(SESSIONS_EACH)).await?;
    let (empty_kb, tasks, score) = (hubs.memory_kb(), TaskTracker::new(), Arc::new(Score::default()));
    let owner =
        |session: usize| -> anyhow::Result<&Person> { people.get(session / SESSIONS_EACH).context("nobody") };
    let (pace, paces) = watch::channel(Some(Duration::from_secs(3_600)));
    let started = Instant::now();
    for number in 0..options.sessions {
        let bridge = Bridge::attach(&hubs, owner(number)?, number).await?;
        drop(tasks.spawn(bridge.run(Arc::clone(&score), paces.clone())));
    }
    let attached_s = started.elapsed().as_secs_f64();
    tokio::time::sleep(WARM).await;
    let bridged_kb = hubs.memory_kb();
    let (over, ends) = watch::channel(false);
    for number in 0..options.browsers {
        let session = number % options.sessions;
        // Browsers of one session come to different hubs.
        let browser =
            Browser::watch(&hubs, &owner(session)?.cookie, number / options.sessions + session, session)
                .await?;
        drop(tasks.spawn(browser.run(Arc::clone(&score), ends.clone())));
    }
    tokio::time::sleep(WARM).await;
    let watched_kb = hubs.memory_kb();
    let mut steps = Vec::new();
    for every in PACES_MS {
        steps.push(step(options, &hubs, &score, &pace, every).await);
    }
    pace.send_replace(None);
    over.send_replace(true);
    tasks.close();
    tasks.wait().await;
    Ok(json!({
        "hubs": options.hubs, "sessions": options.sessions, "browsers": options.browsers, "quick": options.quick,
        "attached_s": attached_s, "empty_kb": empty_kb, "bridged_kb": bridged_kb, "watched_kb": watched_kb,
        "after_kb": hubs.memory_kb(), "lost": score.lost.load(Ordering::Relaxed), "steps": steps,
    }))
}

async fn step(
    options: &Options,
    hubs: &Hubs,
    score: &Score,
    pace: &watch::Sender<Option<Duration>>,
    every_ms: u64,
) -> Value {
    pace.send_replace(Some(Duration::from_millis(every_ms)));
    tokio::time::sleep(WARM).await;
    let count = || {
        let numbers = [&score.events, &score.acknowledged, &score.views];
        numbers.map(|number| number.load(Ordering::Relaxed))
    };
    let (before, cpu, started) = (count(), hubs.cpu_s(), Instant::now());
    score.counting.send_replace(true);
    tokio::time::sleep(if options.quick { SHORT } else { LONG }).await;
    score.counting.send_replace(false);
    let (after, time) = (count(), started.elapsed().as_secs_f64());
    let rate = |at: usize| (after[at] - before[at]) as f64 / time;
    let delays =
        std::mem::take(&mut *score.delays_ms.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
    json!({
        "every_ms": every_ms, "events_per_s": rate(0), "acks_per_s": rate(1), "views_per_s": rate(2),
        "cpu": (hubs.cpu_s() - cpu) / time, "p50_ms": delays.median(), "p99_ms": delays.percentile(99.0),
    })
}
