//! The journal of an agent that is another program: everything it says is noted before it is heard.
//!
//! What comes is judged and written by a task of its own, so that no session waits for a disk. The way there
//! is short: who cannot be written as fast as it talks is read more slowly. What cannot be written ends the
//! journal and nothing else.
//!
//! **Invariant:** without a journal nothing here is called.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use engine::Redactor;
use tokio::sync::mpsc;
use tokio_util::task::TaskTracker;
use wire::upstream::journal::{Asked, Inbound, Scribe};
use wire::{Frame, FrameBuffer};

/// Frames on their way to the file. Each may be as long as a frame may be.
const UNWRITTEN_MAX: usize = 8;

/// Writes a line; false if it cannot, after which it is asked no more.
type WriteLine = Box<dyn FnMut(&str) -> bool + Send>;

pub struct Journal {
    /// None when nothing more is noted.
    way: Mutex<Option<mpsc::Sender<Note>>>,
    writer: Mutex<Option<Writer>>,
    processes: AtomicU32,
}

impl Journal {
    /// Begins the journal of an agent. `write` gets one line after the other, without their ends; it says
    /// itself why it cannot, where it cannot.
    pub fn begin(
        agent: &str,
        redactor: Arc<dyn Redactor>,
        mut write: impl FnMut(&str) -> bool + Send + 'static,
    ) -> Self {
        let (scribe, head) = Scribe::begin(agent);
        let (way, notes) = mpsc::channel(UNWRITTEN_MAX);
        let well = write(&head);
        let writer = Writer { scribe, notes, redactor, write: Box::new(write), well };
        Self { way: Mutex::new(Some(way)), writer: Mutex::new(Some(writer)), processes: AtomicU32::new(0) }
    }

    /// For one more program of the agent.
    pub(super) fn notes(&self, tasks: &TaskTracker) -> Option<Notes> {
        let way = self.way().clone()?;
        // Made where there may be no runtime yet, so the first program brings it to life.
        if let Some(writer) = self.writer().take() {
            drop(tasks.spawn_blocking(move || writer.write()));
        }
        Some(Notes { process: self.processes.fetch_add(1, Ordering::Relaxed) + 1, way })
    }

    /// When those who are heard have said their last, the journal ends.
    pub(super) fn close(&self) {
        *self.way() = None;
        // No program was ever started.
        if let Some(writer) = self.writer().take() {
            writer.finish();
        }
    }

    fn writer(&self) -> MutexGuard<'_, Option<Writer>> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn way(&self) -> MutexGuard<'_, Option<mpsc::Sender<Note>>> {
        self.way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The way from one program to the journal.
#[derive(Debug, Clone)]
pub struct Notes {
    process: u32,
    way: mpsc::Sender<Note>,
}

#[derive(Debug)]
struct Note {
    process: u32,
    frame: Inbound,
    answers: Option<Asked>,
}

impl Notes {
    /// Notes a frame that was just cut from the buffer. Waits while the journal is behind.
    pub(super) async fn take(
        &self,
        frame: &Frame,
        buffer: &FrameBuffer,
        answers: impl FnOnce(&[u8]) -> Option<Asked>,
    ) {
        let (frame, answers) = match frame {
            Frame::Line(line) => (Inbound::Line(line.clone()), answers(line)),
            Frame::TooLong { .. } => {
                let dropped = buffer.dropped();
                let sha256 = dropped.sha256.unwrap_or_default();
                let sha256 = sha256.iter().map(|byte| format!("{byte:02x}")).collect();
                (Inbound::TooLong { bytes: dropped.bytes, sha256 }, None)
            }
        };
        // A journal that has ended takes no more.
        self.way.send(Note { process: self.process, frame, answers }).await.ok();
    }
}

struct Writer {
    scribe: Scribe,
    notes: mpsc::Receiver<Note>,
    redactor: Arc<dyn Redactor>,
    write: WriteLine,
    /// Everything so far could be written.
    well: bool,
}

impl Writer {
    /// Writes until nobody can say anything more.
    fn write(mut self) {
        while self.well
            && let Some(Note { process, frame, answers }) = self.notes.blocking_recv()
        {
            let line = self.scribe.take(process, frame, answers, &*self.redactor);
            self.well = (self.write)(&line);
        }
        self.finish();
    }

    fn finish(mut self) {
        if self.well {
            (self.write)(&self.scribe.end());
        }
    }
}

#[cfg(test)]
mod tests;
