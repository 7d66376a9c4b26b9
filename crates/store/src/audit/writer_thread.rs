//! The audit's writer thread: it collects queued jobs for a moment, appends them as one batch, and replies.
//!
//! A follower that gets an error reads its session's log again later, so nothing is kept for it
//! here. Entries that are in no log are kept, a bounded number of them, until they can be written.

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use engine::Clock;
use tokio::sync::mpsc::error::TryRecvError;
use tokio::sync::{mpsc, oneshot};

use super::chain_writer::{ChainWriter, RowCondition, RowDraft};
use super::key::AuditKey;
use super::row::AuditEntry;
use super::{AuditError, AuditTrouble};

/// How long a batch waits for company: a sync costs the same for one row and for a hundred.
const LINGER: Duration = Duration::from_millis(20);
/// Rows in one batch.
const BATCH_ROWS_MAX: usize = 4096;
/// Entries that are in no log and wait until the disk can be written.
const KEPT_MAX: usize = 1024;
/// While writing fails: how often it is tried again if there are no jobs.
const TRY_EVERY: Duration = Duration::from_secs(1);
/// How often a lasting failure is reported.
const TELL_EVERY: Duration = Duration::from_secs(60);

pub(super) type AuditReply<T> = oneshot::Sender<Result<T, AuditError>>;

pub(super) enum AuditJob {
    /// Rows of a session, and how far its log was read for them.
    Rows {
        session: String,
        drafts: Vec<RowDraft>,
        seen: u64,
        urgent: bool,
        answer: AuditReply<()>,
    },
    Record {
        entry: AuditEntry,
        answer: Option<AuditReply<()>>,
    },
    Cursor {
        session: String,
        answer: AuditReply<Option<u64>>,
    },
}

pub(super) struct Writer {
    pub folder: PathBuf,
    pub key: Option<AuditKey>,
    pub key_path: PathBuf,
    pub clock: Arc<dyn Clock>,
    pub retention_days: u32,
    pub trouble: Arc<Mutex<Option<AuditTrouble>>>,
    /// Rows were found to be missing since this process began.
    pub rewound: Arc<AtomicBool>,
}

/// The thread's state between two batches.
struct WriterState {
    writer: Writer,
    chain: Option<ChainWriter>,
    kept: VecDeque<RowDraft>,
    last_reported: Option<Instant>,
}

impl Writer {
    /// Serves the queue until it is closed.
    pub fn run(self, mut jobs: mpsc::Receiver<AuditJob>) {
        let mut state = WriterState { writer: self, chain: None, kept: VecDeque::new(), last_reported: None };
        loop {
            let first = if state.is_failing() {
                next_job_soon(&mut jobs)
            } else {
                jobs.blocking_recv().ok_or(QueueSilence::Ended)
            };
            match first {
                Ok(first) => state.serve(gather(first, &mut jobs)),
                Err(QueueSilence::Lasts) => state.try_again(),
                Err(QueueSilence::Ended) => break,
            }
        }
        if !state.kept.is_empty() {
            state.serve(Vec::new());
        }
        if let Some(chain) = &mut state.chain {
            chain.save_cursors();
        }
    }
}

/// Why there is no job.
enum QueueSilence {
    Lasts,
    /// The queue is closed.
    Ended,
}

/// The next job, if there is one soon.
fn next_job_soon(jobs: &mut mpsc::Receiver<AuditJob>) -> Result<AuditJob, QueueSilence> {
    let began = Instant::now();
    loop {
        match jobs.try_recv() {
            Ok(job) => return Ok(job),
            Err(TryRecvError::Disconnected) => return Err(QueueSilence::Ended),
            Err(TryRecvError::Empty) if began.elapsed() >= TRY_EVERY => return Err(QueueSilence::Lasts),
            Err(TryRecvError::Empty) => std::thread::sleep(LINGER),
        }
    }
}

/// The first job and those that come soon after. Jobs that somebody waits for are not delayed.
fn gather(first: AuditJob, jobs: &mut mpsc::Receiver<AuditJob>) -> Vec<AuditJob> {
    let hurried = |job: &AuditJob| match job {
        AuditJob::Rows { urgent, .. } => *urgent,
        AuditJob::Record { answer, .. } => answer.is_some(),
        AuditJob::Cursor { .. } => true,
    };
    let rows = |job: &AuditJob| if let AuditJob::Rows { drafts, .. } = job { drafts.len() } else { 1 };
    if !hurried(&first) {
        std::thread::sleep(LINGER);
    }
    let mut count = rows(&first);
    let mut batch = vec![first];
    while count < BATCH_ROWS_MAX
        && let Ok(job) = jobs.try_recv()
    {
        count += rows(&job);
        batch.push(job);
    }
    batch
}

impl WriterState {
    fn serve(&mut self, batch: Vec<AuditJob>) {
        let mut drafts: Vec<RowDraft> = self.kept.drain(..).collect();
        let mut records = drafts.len();
        for job in &batch {
            match job {
                AuditJob::Rows { drafts: rows, .. } => drafts.extend(rows.iter().cloned()),
                AuditJob::Record { entry, .. } => {
                    drafts.push(RowDraft { entry: entry.clone().bounded(), when: RowCondition::Always });
                }
                AuditJob::Cursor { .. } => {}
            }
        }
        let written = if drafts.is_empty() { Ok(()) } else { self.append(&drafts) };
        records += batch.iter().filter(|job| matches!(job, AuditJob::Record { .. })).count();
        if !drafts.is_empty() {
            self.note_outcome(written.as_ref().err());
        }
        if written.is_err() && records > 0 {
            self.keep(drafts);
        }
        let outcome = written.map_err(AuditError::from);
        for job in batch {
            self.answer(job, &outcome);
        }
    }

    fn is_failing(&self) -> bool {
        self.last_reported.is_some()
    }

    /// Writes the kept entries; if there are none, finds out whether writing works.
    fn try_again(&mut self) {
        if !self.kept.is_empty() {
            return self.serve(Vec::new());
        }
        let now = self.writer.clock.now();
        let looked = self.chain().and_then(|chain| chain.cursor(now, ""));
        self.note_rewound();
        self.note_outcome(looked.as_ref().err());
    }

    fn append(&mut self, drafts: &[RowDraft]) -> io::Result<()> {
        let now = self.writer.clock.now();
        self.chain()?.append(now, drafts)?;
        self.note_rewound();
        Ok(())
    }

    fn note_rewound(&self) {
        if self.chain.as_ref().is_some_and(ChainWriter::was_rewound) {
            self.writer.rewound.store(true, Ordering::Relaxed);
        }
    }

    fn chain(&mut self) -> io::Result<&mut ChainWriter> {
        // Where another folder is by now, that one is opened; where there is none, none is made.
        if self.chain.as_ref().is_some_and(|chain| chain.is_in_place().is_err())
            && self.writer.folder.exists()
        {
            self.chain = None;
        }
        if self.chain.is_none() {
            let Writer { folder, key, key_path, retention_days, .. } = &mut self.writer;
            let key = match key {
                Some(key) => key.clone(),
                None => {
                    key.insert(AuditKey::load_or_create(key_path, folder).map_err(io::Error::other)?).clone()
                }
            };
            self.chain = Some(ChainWriter::open(folder, key, *retention_days)?);
        }
        self.chain.as_mut().ok_or_else(|| io::Error::other("the chain is not open"))
    }

    fn answer(&mut self, job: AuditJob, outcome: &Result<(), AuditError>) {
        // A caller that does not wait any more does not need the answer.
        match job {
            AuditJob::Rows { session, seen, answer, .. } => {
                if let (Ok(()), Some(chain)) = (outcome, &mut self.chain) {
                    chain.note_read(&session, seen);
                }
                drop(answer.send(outcome.clone()));
            }
            AuditJob::Record { answer, .. } => drop(answer.map(|answer| answer.send(outcome.clone()))),
            AuditJob::Cursor { session, answer } => {
                let now = self.writer.clock.now();
                let found = self.chain().and_then(|chain| chain.cursor(now, &session));
                self.note_rewound();
                self.note_outcome(found.as_ref().err());
                drop(answer.send(found.map_err(AuditError::from)));
            }
        }
    }

    /// Keeps the entries that are stored nowhere else.
    fn keep(&mut self, drafts: Vec<RowDraft>) {
        self.kept.extend(drafts.into_iter().filter(|draft| draft.when == RowCondition::Always));
        let lost = self.kept.len().saturating_sub(KEPT_MAX);
        if lost > 0 {
            tracing::error!(lost, "audit entries were dropped");
            self.kept.drain(..lost);
        }
    }

    /// Says loudly that the audit cannot be written, and that it can again.
    fn note_outcome(&mut self, error: Option<&io::Error>) {
        let mut trouble = self.writer.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        match error {
            Some(error) => {
                if self.last_reported.is_none_or(|last_reported| last_reported.elapsed() > TELL_EVERY) {
                    let folder = self.writer.folder.display();
                    tracing::error!(%error, %folder, "could not write the audit; sessions continue, and the rows are written when it works again");
                    self.last_reported = Some(Instant::now());
                }
                let full = format!("{}: {error}", self.writer.folder.display());
                // Other errors may contain paths; those of a lock contain none.
                let brief = match error.kind() {
                    io::ErrorKind::WouldBlock => error.to_string(),
                    _ => "the server's log says why".to_owned(),
                };
                *trouble = Some(AuditTrouble { full, brief });
            }
            None if self.last_reported.take().is_some() => {
                tracing::warn!("the audit can be written again");
                *trouble = None;
            }
            None => {}
        }
    }
}
