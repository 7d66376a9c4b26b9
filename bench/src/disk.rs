//! What one durable write costs on the disk the agents store to.
//!
//! An agent that acknowledges a turn only when it is on disk cannot be faster than this, so the
//! cost is measured in the same rounds and printed beside the turn's.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::time::Instant;

use crate::stats::{Samples, micros};

const PAGE_BYTES: usize = 4096;

/// Appends a page and waits for the disk, `count` times.
pub fn append_and_sync(dir: &Path, count: usize) -> anyhow::Result<Samples> {
    let path = dir.join("fdatasync.probe");
    let mut file = OpenOptions::new().create(true).append(true).open(&path)?;
    let page = [b'x'; PAGE_BYTES];
    let mut samples = Samples::default();
    for _ in 0..count {
        let start = Instant::now();
        file.write_all(&page)?;
        file.sync_data()?;
        samples.push(micros(start.elapsed()));
    }
    std::fs::remove_file(path)?;
    Ok(samples)
}
