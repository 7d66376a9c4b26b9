//! The thread that writes: gathers what is queued for a moment, appends it as one batch, answers.
//!
//! A follower that is told of a failure reads its session's log again later, so nothing is kept for it
//! here. What stands in no log is kept, a bounded number of entries, until it can be written.

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use engine::Clock;
use tokio::sync::mpsc::error::TryRecvError;
use tokio::sync::{mpsc, oneshot};

use super::chain::{Chain, Draft, When};
use super::key::Key;
use super::row::Entry;
use super::{AuditError, AuditTrouble};

/// How long a batch waits for company: a sync costs the same for one row and for a hundred.
const LINGER: Duration = Duration::from_millis(20);
/// Rows in one batch.
const BATCH_ROWS_MAX: usize = 4096;
/// Entries that stand in no log and wait for a disk that can be written.
const KEPT_MAX: usize = 1024;
/// While something could not be written: how often it is tried again if nobody asks.
const TRY_EVERY: Duration = Duration::from_secs(1);
/// How often a failure that goes on is told.
const TELL_EVERY: Duration = Duration::from_secs(60);

pub(super) type Answer<T> = oneshot::Sender<Result<T, AuditError>>;

pub(super) enum Job {
    /// Rows of a session, and how far its log was read for them.
    Rows {
        session: String,
        drafts: Vec<Draft>,
        seen: u64,
        urgent: bool,
        answer: Answer<()>,
    },
    Record {
        entry: Entry,
        answer: Option<Answer<()>>,
    },
    Cursor {
        session: String,
        answer: Answer<Option<u64>>,
    },
}

pub(super) struct Writer {
    pub folder: PathBuf,
    pub key: Option<Key>,
    pub key_path: PathBuf,
    pub clock: Arc<dyn Clock>,
    pub retention_days: u32,
    pub trouble: Arc<Mutex<Option<AuditTrouble>>>,
    /// Rows were found to be missing since this process began.
    pub rewound: Arc<AtomicBool>,
}

/// The thread's state between two batches.
struct Desk {
    writer: Writer,
    chain: Option<Chain>,
    kept: VecDeque<Draft>,
    told: Option<Instant>,
}

impl Writer {
    /// Serves the queue until nobody can write to it any more.
    pub fn run(self, mut jobs: mpsc::Receiver<Job>) {
        let mut desk = Desk { writer: self, chain: None, kept: VecDeque::new(), told: None };
        loop {
            let first = if desk.is_in_trouble() {
                soon(&mut jobs)
            } else {
                jobs.blocking_recv().ok_or(Silence::Ended)
            };
            match first {
                Ok(first) => desk.serve(gather(first, &mut jobs)),
                Err(Silence::Lasts) => desk.try_again(),
                Err(Silence::Ended) => break,
            }
        }
        if !desk.kept.is_empty() {
            desk.serve(Vec::new());
        }
        if let Some(chain) = &mut desk.chain {
            chain.save_cursors();
        }
    }
}

/// Why there is no job.
enum Silence {
    Lasts,
    /// Nobody can ask any more.
    Ended,
}

/// The next job, if there is one soon.
fn soon(jobs: &mut mpsc::Receiver<Job>) -> Result<Job, Silence> {
    let began = Instant::now();
    loop {
        match jobs.try_recv() {
            Ok(job) => return Ok(job),
            Err(TryRecvError::Disconnected) => return Err(Silence::Ended),
            Err(TryRecvError::Empty) if began.elapsed() >= TRY_EVERY => return Err(Silence::Lasts),
            Err(TryRecvError::Empty) => std::thread::sleep(LINGER),
        }
    }
}

/// The first job and what comes soon after. Nobody who waits for an answer to begin, or who is leaving,
/// is kept waiting for others.
fn gather(first: Job, jobs: &mut mpsc::Receiver<Job>) -> Vec<Job> {
    let hurried = |job: &Job| match job {
        Job::Rows { urgent, .. } => *urgent,
        Job::Record { answer, .. } => answer.is_some(),
        Job::Cursor { .. } => true,
    };
    let rows = |job: &Job| if let Job::Rows { drafts, .. } = job { drafts.len() } else { 1 };
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

impl Desk {
    fn serve(&mut self, batch: Vec<Job>) {
        let mut drafts: Vec<Draft> = self.kept.drain(..).collect();
        let mut records = drafts.len();
        for job in &batch {
            match job {
                Job::Rows { drafts: rows, .. } => drafts.extend(rows.iter().cloned()),
                Job::Record { entry, .. } => {
                    drafts.push(Draft { entry: entry.clone().bounded(), when: When::Always });
                }
                Job::Cursor { .. } => {}
            }
        }
        let written = if drafts.is_empty() { Ok(()) } else { self.append(&drafts) };
        records += batch.iter().filter(|job| matches!(job, Job::Record { .. })).count();
        if !drafts.is_empty() {
            self.tell(written.as_ref().err());
        }
        if written.is_err() && records > 0 {
            self.keep(drafts);
        }
        let outcome = written.map_err(AuditError::from);
        for job in batch {
            self.answer(job, &outcome);
        }
    }

    fn is_in_trouble(&self) -> bool {
        self.told.is_some()
    }

    /// Writes what is kept; if nothing is, finds out whether it could.
    fn try_again(&mut self) {
        if !self.kept.is_empty() {
            return self.serve(Vec::new());
        }
        let now = self.writer.clock.now();
        let looked = self.chain().and_then(|chain| chain.cursor(now, ""));
        self.note_rewound();
        self.tell(looked.as_ref().err());
    }

    fn append(&mut self, drafts: &[Draft]) -> io::Result<()> {
        let now = self.writer.clock.now();
        self.chain()?.append(now, drafts)?;
        self.note_rewound();
        Ok(())
    }

    fn note_rewound(&self) {
        if self.chain.as_ref().is_some_and(Chain::was_rewound) {
            self.writer.rewound.store(true, Ordering::Relaxed);
        }
    }

    fn chain(&mut self) -> io::Result<&mut Chain> {
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
                None => key.insert(Key::load_or_create(key_path, folder).map_err(io::Error::other)?).clone(),
            };
            self.chain = Some(Chain::open(folder, key, *retention_days)?);
        }
        self.chain.as_mut().ok_or_else(|| io::Error::other("the chain is not open"))
    }

    fn answer(&mut self, job: Job, outcome: &Result<(), AuditError>) {
        // Whoever does not wait for an answer any more has no use for it.
        match job {
            Job::Rows { session, seen, answer, .. } => {
                if let (Ok(()), Some(chain)) = (outcome, &mut self.chain) {
                    chain.saw(&session, seen);
                }
                drop(answer.send(outcome.clone()));
            }
            Job::Record { answer, .. } => drop(answer.map(|answer| answer.send(outcome.clone()))),
            Job::Cursor { session, answer } => {
                let now = self.writer.clock.now();
                let found = self.chain().and_then(|chain| chain.cursor(now, &session));
                self.note_rewound();
                self.tell(found.as_ref().err());
                drop(answer.send(found.map_err(AuditError::from)));
            }
        }
    }

    /// Keeps what nobody else has.
    fn keep(&mut self, drafts: Vec<Draft>) {
        self.kept.extend(drafts.into_iter().filter(|draft| draft.when == When::Always));
        let lost = self.kept.len().saturating_sub(KEPT_MAX);
        if lost > 0 {
            tracing::error!(lost, "entries of the audit were given up");
            self.kept.drain(..lost);
        }
    }

    /// Says loudly that the audit cannot be written, and that it can again.
    fn tell(&mut self, error: Option<&io::Error>) {
        let mut trouble = self.writer.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        match error {
            Some(error) => {
                if self.told.is_none_or(|told| told.elapsed() > TELL_EVERY) {
                    let folder = self.writer.folder.display();
                    tracing::error!(%error, %folder, "the audit cannot be written; work goes on, and rows follow when it can");
                    self.told = Some(Instant::now());
                }
                let full = format!("{}: {error}", self.writer.folder.display());
                // What others say may have paths in it; what is said of a lock has none.
                let brief = match error.kind() {
                    io::ErrorKind::WouldBlock => error.to_string(),
                    _ => "the server's log says why".to_owned(),
                };
                *trouble = Some(AuditTrouble { full, brief });
            }
            None if self.told.take().is_some() => {
                tracing::warn!("the audit can be written again");
                *trouble = None;
            }
            None => {}
        }
    }
}
