//! One session and many that read it over HTTP, beside a plain broadcast of the same frames.
//!
//! Both servers are processes of their own, so that their memory can be told apart from the readers'.

pub mod reference;
pub mod served;
pub mod socket;
pub mod wire;

use std::path::Path;
use std::time::Instant;

use anyhow::Context;
use tokio::task::JoinSet;

use self::reference::Reference;
use self::served::Served;
use self::wire::{Reading, Received};

/// In the last update of a turn that streams text, and nowhere else.
pub const LAST: &[u8] = br#""sessionUpdate":"usage_update""#;

/// One measurement of one server.
pub struct Broadcast {
    /// Until the last reader had everything.
    pub seconds: f64,
    pub peak_kb: u64,
    /// What the first reader was sent.
    pub frames: Vec<usize>,
}

/// A turn of so many chunks, read by so many.
pub async fn product(binary: &Path, home: &Path, readers: usize, chunks: u64) -> anyhow::Result<Broadcast> {
    let served = Served::start(binary, home).await?;
    let driver = served.driver().await?;
    let mut reading = Vec::new();
    for _ in 0..readers {
        reading.push(served.reader(&driver.session).await?);
    }
    let start = Instant::now();
    driver.prompt(&format!("stream {chunks}")).await?;
    let received = all(reading).await?;
    finish(start, &received, served.peak_kb()?)
}

/// The same frames, made before the clock runs.
pub async fn broadcast(readers: usize, frames: &[usize]) -> anyhow::Result<Broadcast> {
    let reference = Reference::start().await?;
    reference.prepare(frames, readers).await?;
    let mut reading = Vec::new();
    for _ in 0..readers {
        reading.push(reference.reader().await?);
    }
    let start = Instant::now();
    reference.go().await?;
    let received = all(reading).await?;
    finish(start, &received, reference.peak_kb()?)
}

async fn all(reading: Vec<Reading>) -> anyhow::Result<Vec<Received>> {
    let mut tasks = JoinSet::new();
    for (number, reading) in reading.into_iter().enumerate() {
        tasks.spawn(reading.until(LAST, number == 0));
    }
    tasks.join_all().await.into_iter().collect()
}

fn finish(start: Instant, received: &[Received], peak_kb: u64) -> anyhow::Result<Broadcast> {
    let last = received.iter().map(|one| one.at).max().context("nobody read")?;
    let kept = received.iter().find_map(|one| one.kept.as_deref()).context("nobody kept what was read")?;
    Ok(Broadcast { seconds: (last - start).as_secs_f64(), peak_kb, frames: wire::frames(kept) })
}
