//! Writes every session of this process in chimera's format too (`--eventlog`), as a follower of each log with its own
//! position. Sessions never wait for it, and continue if it cannot write.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use engine::{BoxFuture, Follower, MODEL, Seq, SessionHandle, SessionId, SessionRow, StoreError};
use tokio::task::spawn_blocking;

use super::folder_writer::{FolderWriter, SessionMeta};
use crate::output;

/// Pause before it retries after an error.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// The folder below which all sessions are written.
pub struct EventLogWriter {
    shared: Arc<Shared>,
}

struct Shared {
    root: PathBuf,
    /// Whether the current failure was reported.
    told: AtomicBool,
}

#[derive(Debug, thiserror::Error)]
enum WriteError {
    #[error("{0}")]
    Folder(#[from] io::Error),
    #[error("{0}")]
    Log(#[from] StoreError),
    #[error("writing it failed; this is a bug")]
    Broke,
}

impl EventLogWriter {
    pub fn new(root: PathBuf) -> Self {
        Self { shared: Arc::new(Shared { root, told: AtomicBool::new(false) }) }
    }
}

impl Follower for EventLogWriter {
    fn follow(&self, session: SessionHandle) -> BoxFuture<'static, ()> {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            while let Err(error) = shared.write(&session).await {
                shared.report(&error);
                if session.is_closed() {
                    // The log has everything: the next process continues here.
                    return;
                }
                tokio::time::sleep(RETRY_AFTER).await;
            }
        })
    }

    /// Keeps the written copy, which belongs to the person.
    fn deleted(&self, _: &SessionId) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }
}

impl Shared {
    /// Writes the session's log until it ends.
    async fn write(&self, session: &SessionHandle) -> Result<(), WriteError> {
        let (root, row, known) = (self.root.clone(), described(session).row, session.origin().opened_after);
        let mut writer = blocking(move || FolderWriter::open(&root, &row, known)).await?;
        let mut reader = session.read(Seq::START);
        while let Some(events) = reader.next().await? {
            let now = described(session);
            let write = move || writer.write(&now, &events).map(|()| writer);
            writer = blocking(write).await?;
            self.works();
        }
        let now = described(session);
        blocking(move || writer.finish(&now)).await
    }

    fn works(&self) {
        if self.told.swap(false, Ordering::Relaxed) {
            warn(&format!("writing to the event log in {} works again", self.root.display()));
        }
    }

    /// Reports an error once, until writing works again.
    fn report(&self, error: &WriteError) {
        if !self.told.swap(true, Ordering::Relaxed) {
            let root = self.root.display();
            warn(&format!(
                "could not write the event log in {root}: {error}; sessions continue and are saved"
            ));
        }
    }
}

/// Prints a warning on standard error, unless the terminal client uses the screen.
fn warn(text: &str) {
    if tracing::dispatcher::has_been_set() {
        let warning = output::stderr_paint().warn("ropewalk: warning:");
        output::say(&format!("{warning} {}", output::harmless(text)));
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, WriteError> {
    Ok(spawn_blocking(work).await.map_err(|_| WriteError::Broke)??)
}

/// The metadata of the session.
fn described(session: &SessionHandle) -> SessionMeta {
    let (origin, snapshot) = (session.origin(), session.snapshot());
    let model = snapshot.settings.get(MODEL);
    let row = SessionRow {
        id: session.id().clone(),
        owner: session.owner().clone(),
        cwd: (*snapshot.cwd).clone(),
        roots: session.roots().to_vec(),
        parent: origin.parent.clone(),
        source: Arc::clone(&origin.source),
        title: snapshot.title.clone(),
        created_at: origin.created_at,
        updated_at: snapshot.updated_at,
        busy: snapshot.busy,
        last_seq: origin.opened_after,
    };
    SessionMeta { row, model: (!model.is_empty()).then(|| model.into()) }
}
