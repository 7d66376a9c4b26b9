//! The frames that a connection has sent, numbered, for any number of readers.
//!
//! The last frames are kept, so that a reader that reconnects continues where it was. The frames that nobody has
//! read yet are bounded: a connection whose client reads nothing waits.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

use axum::body::Bytes;
use tokio::sync::{mpsc, watch};

use super::streams::locked;
use crate::frame_batch::FrameBatch;

const FRAMES_MAX: usize = 1024;
const BYTES_MAX: usize = 4 << 20;

pub(super) struct Outbox {
    ring: Mutex<FrameRing>,
    /// The number of the last frame.
    last: watch::Sender<u64>,
    /// The number of the last frame that some reader has taken.
    taken: watch::Sender<u64>,
    closed: watch::Sender<bool>,
}

#[derive(Default)]
struct FrameRing {
    frames: VecDeque<(u64, Bytes)>,
    bytes: usize,
}

/// A reader asked for frames that are kept no longer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooOld;

impl Outbox {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            ring: Mutex::default(),
            last: watch::Sender::new(0),
            taken: watch::Sender::new(0),
            closed: watch::Sender::new(false),
        })
    }

    /// Collects frames until the connection ends.
    pub(super) async fn fill(self: Arc<Self>, mut batches: mpsc::Receiver<FrameBatch>) {
        while let Some(batch) = batches.recv().await {
            for frame in batch.frames() {
                self.push(Bytes::copy_from_slice(frame)).await;
            }
            if self.is_closed() {
                return;
            }
        }
        self.close();
    }

    pub(super) fn last(&self) -> u64 {
        *self.last.borrow()
    }

    pub(super) fn taken(&self) -> u64 {
        *self.taken.borrow()
    }

    pub(super) fn is_closed(&self) -> bool {
        *self.closed.borrow()
    }

    /// Ends all waiting, for frames and for readers.
    pub(super) fn close(&self) {
        self.closed.send_replace(true);
    }

    async fn push(&self, frame: Bytes) {
        let (mut taken, mut closed) = (self.taken.subscribe(), self.closed.subscribe());
        loop {
            let untaken = usize::try_from(self.last() - *taken.borrow_and_update()).unwrap_or(usize::MAX);
            let full = untaken >= FRAMES_MAX || (untaken > 0 && self.lock().bytes >= BYTES_MAX);
            if !full || self.is_closed() {
                break;
            }
            // Both senders are ours and live as long as this.
            tokio::select! {
                changed = taken.changed() => drop(changed),
                changed = closed.changed() => drop(changed),
            }
        }
        let number = self.last() + 1;
        let mut ring = self.lock();
        ring.bytes += frame.len();
        ring.frames.push_back((number, frame));
        let seen = self.taken();
        while ring.frames.len() > FRAMES_MAX || ring.bytes > BYTES_MAX {
            match ring.frames.pop_front_if(|(number, _)| *number <= seen) {
                Some((_, oldest)) => ring.bytes -= oldest.len(),
                None => break,
            }
        }
        drop(ring);
        self.last.send_replace(number);
    }

    /// Waits for what comes after the number. `None`: nothing more will come.
    pub(super) async fn after(&self, number: u64) -> Result<Option<Vec<(u64, Bytes)>>, TooOld> {
        let mut last = self.last.subscribe();
        let mut closed = self.closed.subscribe();
        loop {
            let newest = *last.borrow_and_update();
            let over = *closed.borrow_and_update();
            if newest > number {
                return self.frames_after(number).map(Some);
            }
            if over {
                return Ok(None);
            }
            // Both senders are ours and live as long as this.
            tokio::select! {
                changed = last.changed() => drop(changed),
                changed = closed.changed() => drop(changed),
            }
        }
    }

    pub(super) fn can_serve(&self, number: u64) -> bool {
        let oldest = self.lock().frames.front().map_or(self.last() + 1, |(oldest, _)| *oldest);
        number <= self.last() && number + 1 >= oldest
    }

    /// A reader has everything up to this number.
    pub(super) fn took(&self, number: u64) {
        self.taken.send_if_modified(|taken| {
            let more = *taken < number;
            *taken = (*taken).max(number);
            more
        });
    }

    fn frames_after(&self, number: u64) -> Result<Vec<(u64, Bytes)>, TooOld> {
        if !self.can_serve(number) {
            return Err(TooOld);
        }
        let ring = self.lock();
        Ok(ring.frames.iter().filter(|(at, _)| *at > number).cloned().collect())
    }

    fn lock(&self) -> MutexGuard<'_, FrameRing> {
        locked(&self.ring)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(texts: &[&str]) -> FrameBatch {
        FrameBatch {
            bytes: texts.iter().flat_map(|text| format!("{text}\n").into_bytes()).collect(),
            marks: Vec::new(),
        }
    }

    #[tokio::test]
    async fn a_reader_that_comes_back_goes_on_where_it_was() {
        let outbox = Outbox::new();
        let (sender, batches) = mpsc::channel(1);
        let filling = tokio_util::task::TaskTracker::new();
        drop(filling.spawn(Arc::clone(&outbox).fill(batches)));
        sender.send(batch(&["a", "b", "c"])).await.unwrap();
        while outbox.last() < 3 {
            outbox.after(outbox.last()).await.unwrap();
        }
        let seen = outbox.after(1).await.unwrap().unwrap();
        assert_eq!(seen.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [2, 3]);
        drop(sender);
        assert_eq!(outbox.after(3).await, Ok(None));
        assert!(!outbox.can_serve(4));
    }

    #[tokio::test]
    async fn what_nobody_takes_is_bounded() {
        let outbox = Outbox::new();
        let (sender, batches) = mpsc::channel(1);
        let filling = tokio_util::task::TaskTracker::new();
        drop(filling.spawn(Arc::clone(&outbox).fill(batches)));
        let many: Vec<_> = (0..2 * FRAMES_MAX).map(|number| number.to_string()).collect();
        let many: Vec<_> = many.iter().map(String::as_str).collect();
        sender.send(batch(&many)).await.unwrap();
        let mut number = 0;
        while number < 2 * u64::try_from(FRAMES_MAX).unwrap() {
            let frames = outbox.after(number).await.unwrap().unwrap();
            assert!(frames.len() <= FRAMES_MAX);
            for (at, frame) in frames {
                number += 1;
                assert_eq!((at, frame), (number, (number - 1).to_string().into()));
            }
            outbox.took(number);
        }
        assert_eq!(outbox.after(0).await, Err(TooOld));
    }
}
