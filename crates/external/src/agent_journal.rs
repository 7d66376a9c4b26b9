//! Records the journal of an external agent: everything it sends is recorded before it is processed.
//!
//! A separate task redacts and writes the frames, so that no session waits for the disk. Its queue is short:
//! if writing cannot keep up, the agent's output is read more slowly. A write error ends the journal and
//! nothing else.
//!
//! **Invariant:** without a journal, none of this code runs.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use engine::Redactor;
use tokio::sync::mpsc;
use tokio_util::task::TaskTracker;
use wire::external_agent::journal::{JournalWriter, JournaledRequest, RawAgentFrame};
use wire::{Frame, FrameBuffer};

/// Frames that wait to be written. Each may be as long as the frame limit allows.
const UNWRITTEN_MAX: usize = 8;

/// Writes a line. After it has returned false it is not called again.
type WriteLine = Box<dyn FnMut(&str) -> bool + Send>;

pub struct AgentJournal {
    /// `None` when nothing more is recorded.
    sender: Mutex<Option<mpsc::Sender<JournalFrame>>>,
    writer: Mutex<Option<Writer>>,
    processes: AtomicU32,
}

impl AgentJournal {
    /// Begins the journal of an agent. `write` gets the lines one by one, without line ends, and reports its
    /// own errors.
    pub fn begin(
        agent: &str,
        redactor: Arc<dyn Redactor>,
        mut write: impl FnMut(&str) -> bool + Send + 'static,
    ) -> Self {
        let (scribe, head) = JournalWriter::begin(agent);
        let (sender, notes) = mpsc::channel(UNWRITTEN_MAX);
        let write_ok = write(&head);
        let writer = Writer { scribe, notes, redactor, write: Box::new(write), write_ok };
        Self {
            sender: Mutex::new(Some(sender)),
            writer: Mutex::new(Some(writer)),
            processes: AtomicU32::new(0),
        }
    }

    /// The sender for one more process of the agent.
    pub(super) fn notes(&self, tasks: &TaskTracker) -> Option<JournalSender> {
        let sender = self.sender().clone()?;
        // The journal may be created without a runtime, so the first process starts the writer.
        if let Some(writer) = self.writer().take() {
            drop(tasks.spawn_blocking(move || writer.write()));
        }
        Some(JournalSender { process: self.processes.fetch_add(1, Ordering::Relaxed) + 1, sender })
    }

    /// Ends the journal as soon as all its processes have ended.
    pub(super) fn close(&self) {
        *self.sender() = None;
        // No process was ever started.
        if let Some(writer) = self.writer().take() {
            writer.finish();
        }
    }

    fn writer(&self) -> MutexGuard<'_, Option<Writer>> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sender(&self) -> MutexGuard<'_, Option<mpsc::Sender<JournalFrame>>> {
        self.sender.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Records the frames of one process in the journal.
#[derive(Debug, Clone)]
pub struct JournalSender {
    process: u32,
    sender: mpsc::Sender<JournalFrame>,
}

#[derive(Debug)]
struct JournalFrame {
    process: u32,
    frame: RawAgentFrame,
    answers: Option<JournaledRequest>,
}

impl JournalSender {
    /// Records a frame that was just taken from the buffer. Waits while the queue is full.
    pub(super) async fn take(
        &self,
        frame: &Frame,
        buffer: &FrameBuffer,
        answers: impl FnOnce(&[u8]) -> Option<JournaledRequest>,
    ) {
        let (frame, answers) = match frame {
            Frame::Line(line) => (RawAgentFrame::Line(line.clone()), answers(line)),
            Frame::TooLong { .. } => {
                let dropped = buffer.dropped();
                let sha256 = dropped.sha256.unwrap_or_default();
                let sha256 = sha256.iter().map(|byte| format!("{byte:02x}")).collect();
                (RawAgentFrame::TooLong { bytes: dropped.bytes, sha256 }, None)
            }
        };
        // A journal that has ended ignores further frames.
        self.sender.send(JournalFrame { process: self.process, frame, answers }).await.ok();
    }
}

struct Writer {
    scribe: JournalWriter,
    notes: mpsc::Receiver<JournalFrame>,
    redactor: Arc<dyn Redactor>,
    write: WriteLine,
    /// Every write so far has succeeded.
    write_ok: bool,
}

impl Writer {
    /// Writes until all senders are dropped.
    fn write(mut self) {
        while self.write_ok
            && let Some(JournalFrame { process, frame, answers }) = self.notes.blocking_recv()
        {
            let line = self.scribe.record(process, frame, answers, &*self.redactor);
            self.write_ok = (self.write)(&line);
        }
        self.finish();
    }

    fn finish(mut self) {
        if self.write_ok {
            (self.write)(&self.scribe.end());
        }
    }
}

#[cfg(test)]
mod tests;
