//! The audit: who did what, when and where, in a chain of signed rows that cannot be changed unnoticed.
//!
//! The audit follows each session's log like any other reader, with a cursor of its own. So the rows are the
//! same whichever door a client used, and auditing delays nobody: the log is its buffer. A thread of its own
//! writes the files, in batches.
//!
//! **Invariant:** an event that belongs in the audit gets exactly one row, whichever process is killed when.
//! **Invariant:** no row contains the text of a prompt or of an answer.

mod archive;
mod canonical_json;
mod chain_files;
mod chain_head;
mod chain_writer;
mod entry_builder;
mod key;
mod lock;
mod row;
mod session_auditor;
mod unverified_rows;
mod verify;
mod writer_thread;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use engine::{BoxFuture, Clock, ListQuery, Principal, Seq, SessionId, Settings, Store, Timestamp};
use sha2::{Digest, Sha256};
use tokio::sync::{mpsc, oneshot, watch};

pub use self::chain_head::{ChainHead, ChainHeadError};
use self::chain_writer::ChainWriter;
pub use self::key::{AuditKey, AuditKeyError, marks};
pub use self::row::{AuditEntry, AuditRow, GENESIS};
pub use self::unverified_rows::{ChainLine, archive, last_positions, rows};
pub use self::verify::{BrokenRow, MissingRows, TornRow, VerifyError, VerifyReport, seal, verify};
use self::writer_thread::{AuditJob, Writer};

/// Days after which a day's file is compressed.
pub const RETENTION_DAYS: u32 = 90;
/// Jobs that may wait for the thread. Past that, followers wait, and the logs hold what they will read.
const QUEUE_MAX: usize = 256;

/// How long a reader waits for rows that are still to be written.
const WRITTEN_WITHIN: Duration = Duration::from_secs(5);

/// The parts of an audit.
pub struct AuditParts {
    /// The folder of the chain.
    pub folder: PathBuf,
    /// None if it could not be made yet. It is tried again when there is something to write.
    pub key: Option<AuditKey>,
    /// Where the key is, or is to be.
    pub key_path: PathBuf,
    pub store: Arc<dyn Store>,
    pub clock: Arc<dyn Clock>,
    /// The settings of a new session; its log has the changes.
    pub settings: Settings,
    /// The sandbox mode of this process.
    pub sandbox: Arc<str>,
    pub retention_days: u32,
}

/// The writing end of the chain, for one process.
pub struct Audit {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// State shared by the audit's followers and its handle.
struct Shared {
    /// Taken when the audit ends.
    queue: Mutex<Option<mpsc::Sender<AuditJob>>>,
    trouble: Arc<Mutex<Option<AuditTrouble>>>,
    rewound: Arc<AtomicBool>,
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    settings: Settings,
    sandbox: Arc<str>,
    /// How far the rows about the sessions in memory are written, by the positions in their logs.
    written: watch::Sender<BTreeMap<SessionId, Seq>>,
}

/// Why the audit cannot be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditTrouble {
    /// With the path.
    pub full: String,
    /// For those who may not know paths.
    pub brief: String,
}

#[derive(Debug, Clone, thiserror::Error)]
pub enum AuditError {
    #[error("could not write the audit: {0}")]
    Locked(String),
    #[error("could not write the audit: {0}")]
    Unwritable(String),
    #[error("the audit has ended")]
    Ended,
}

impl Audit {
    /// Returns at once; the chain is opened in the background.
    pub fn start(parts: AuditParts) -> Arc<Self> {
        let (queue, jobs) = mpsc::channel(QUEUE_MAX);
        let (trouble, rewound) = (Arc::default(), Arc::<AtomicBool>::default());
        let writer = Writer {
            folder: parts.folder,
            key: parts.key,
            key_path: parts.key_path,
            clock: Arc::clone(&parts.clock),
            retention_days: parts.retention_days,
            trouble: Arc::clone(&trouble),
            rewound: Arc::clone(&rewound),
        };
        let thread = std::thread::Builder::new().name("audit".into()).spawn(move || writer.run(jobs));
        if let Err(error) = &thread {
            tracing::error!(%error, "could not start the audit thread; nothing is audited");
        }
        let shared = Shared {
            queue: Mutex::new(Some(queue)),
            trouble,
            rewound,
            store: parts.store,
            clock: parts.clock,
            settings: parts.settings,
            sandbox: parts.sandbox,
            written: watch::Sender::default(),
        };
        Arc::new(Self { shared: Arc::new(shared), thread: thread.ok() })
    }

    /// Writes an entry that is in no session's log. Completes when it is on the disk.
    pub fn record(&self, entry: AuditEntry) -> BoxFuture<'static, Result<(), AuditError>> {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            let (answer, answered) = oneshot::channel();
            shared.send(AuditJob::Record { entry, answer: Some(answer) }).await?;
            answered.await.map_err(|_| AuditError::Ended)?
        })
    }

    /// The same without waiting for the disk.
    pub fn post(&self, entry: AuditEntry) -> BoxFuture<'static, ()> {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            if let Err(error) = shared.send(AuditJob::Record { entry, answer: None }).await {
                tracing::error!(%error, "an event was not audited");
            }
        })
    }

    /// Whether something could be written at this moment.
    pub async fn check(&self) -> Result<(), AuditError> {
        self.shared.cursor("").await.map(drop)
    }

    /// Waits until the rows about a session in memory are written up to this position in its log. If that
    /// takes too long, because the audit cannot be written, the reader finds only the rows that were written
    /// before.
    pub async fn wait_written(&self, session: &SessionId, upto: Seq) {
        let mut written = self.shared.written.subscribe();
        let reached = written.wait_for(|written| written.get(session).is_some_and(|at| *at >= upto));
        if tokio::time::timeout(WRITTEN_WITHIN, reached).await.is_err() {
            tracing::warn!(%session, "the audit is read before all rows about the session are written");
        }
    }

    /// Why the audit cannot be written at present.
    pub fn trouble(&self) -> Option<AuditTrouble> {
        self.shared.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether this process found that rows are missing.
    pub fn was_rewound(&self) -> bool {
        self.shared.rewound.load(Ordering::Relaxed)
    }

    /// Reads what a killed process left unread in the sessions' logs. Sessions that are running, or were
    /// active after `before`, have a follower, which knows more about them. In a store that other machines
    /// use too (`shared`), only sessions that this audit already has rows about are read: the others have
    /// audits of their own.
    pub async fn catch_up(&self, owner: Principal, before: Timestamp, shared: bool) {
        let rows = match self.shared.store.list(ListQuery::all(owner)).await {
            Ok(rows) => rows,
            Err(error) => {
                return tracing::warn!(%error, "the audit could not check for sessions that it missed");
            }
        };
        for row in rows.into_iter().filter(|row| row.updated_at < before && !row.busy) {
            if shared && !matches!(self.shared.cursor(row.id.as_str()).await, Ok(Some(_))) {
                continue;
            }
            if let Err(error) = session_auditor::catch_up(&self.shared, &row, &self.shared.store).await {
                tracing::error!(session = %row.id, %error, "the audit could not catch up on a session");
            }
        }
    }
}

/// Waits until everything that was handed over is written.
impl Drop for Audit {
    fn drop(&mut self) {
        drop(self.shared.queue.lock().unwrap_or_else(PoisonError::into_inner).take());
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the audit's thread ended by a panic");
        }
    }
}

impl From<io::Error> for AuditError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::WouldBlock => Self::Locked(error.to_string()),
            _ => Self::Unwritable(error.to_string()),
        }
    }
}

impl Shared {
    /// How far the chain has come in a session's log; none if it knows nothing of the session.
    async fn cursor(&self, session: &str) -> Result<Option<u64>, AuditError> {
        let (answer, answered) = oneshot::channel();
        self.send(AuditJob::Cursor { session: session.to_owned(), answer }).await?;
        answered.await.map_err(|_| AuditError::Ended)?
    }

    async fn send(&self, job: AuditJob) -> Result<(), AuditError> {
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner).clone();
        queue.ok_or(AuditError::Ended)?.send(job).await.map_err(|_| AuditError::Ended)
    }
}

/// Writes a row that acknowledges that the chain was cut. A row before it reports what is missing at this
/// moment.
pub fn acknowledge(folder: &Path, key: &AuditKey, now: Timestamp, reason: &str) -> io::Result<()> {
    ChainWriter::open(folder, key.clone(), RETENTION_DAYS)?
        .append(now, &[chain_writer::acknowledgement(now, "local", reason)])
}

fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text
}
