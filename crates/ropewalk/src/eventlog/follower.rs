//! Writes every session of this process in chimera's form too (`--eventlog`): one more reader of each log, with a
//! position of its own. Sessions never wait for it, and go on where it cannot write.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use engine::{BoxFuture, Follower, MODEL, Seq, SessionHandle, SessionId, SessionRow, StoreError};
use tokio::task::spawn_blocking;

use super::writer::{Described, FolderWriter};
use crate::terminal;

/// How long it waits before it tries again to write.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// The folder that all sessions are written below.
pub struct EventLog {
    shared: Arc<Shared>,
}

struct Shared {
    root: PathBuf,
    /// Somebody was told that it cannot be written.
    told: AtomicBool,
}

#[derive(Debug, thiserror::Error)]
enum WriteError {
    #[error("{0}")]
    Folder(#[from] io::Error),
    #[error("{0}")]
    Log(#[from] StoreError),
    #[error("writing it broke; this is a bug")]
    Broke,
}

impl EventLog {
    pub fn new(root: PathBuf) -> Self {
        Self { shared: Arc::new(Shared { root, told: AtomicBool::new(false) }) }
    }
}

impl Follower for EventLog {
    fn follow(&self, session: SessionHandle) -> BoxFuture<'static, ()> {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            while let Err(error) = shared.write(&session).await {
                shared.tell(&error);
                if session.is_closed() {
                    // The log has everything: the next process that is to write it goes on here.
                    return;
                }
                tokio::time::sleep(RETRY_AFTER).await;
            }
        })
    }

    /// What was written is the person's copy.
    fn deleted(&self, _: &SessionId) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }
}

impl Shared {
    /// Reads the session's log until it ends.
    async fn write(&self, session: &SessionHandle) -> Result<(), WriteError> {
        let (root, row, known) = (self.root.clone(), described(session).row, session.birth().opened_after);
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
            say(&format!("the event log in {} is written again", self.root.display()));
        }
    }

    /// Once, until it works again.
    fn tell(&self, error: &WriteError) {
        if !self.told.swap(true, Ordering::Relaxed) {
            let root = self.root.display();
            say(&format!("the event log in {root} cannot be written: {error}; sessions go on and are saved"));
        }
    }
}

/// On standard error, unless the terminal client has the screen: then there is no log either.
fn say(text: &str) {
    if tracing::dispatcher::has_been_set() {
        let warning = terminal::stderr_paint().warn("ropewalk: warning:");
        terminal::say(&format!("{warning} {}", terminal::harmless(text)));
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, WriteError> {
    Ok(spawn_blocking(work).await.map_err(|_| WriteError::Broke)??)
}

/// The session as lists show it.
fn described(session: &SessionHandle) -> Described {
    let (birth, snapshot) = (session.birth(), session.snapshot());
    let model = snapshot.settings.get(MODEL);
    let row = SessionRow {
        id: session.id().clone(),
        owner: session.owner().clone(),
        cwd: (*snapshot.cwd).clone(),
        roots: session.roots().to_vec(),
        parent: birth.parent.clone(),
        source: Arc::clone(&birth.source),
        title: snapshot.title.clone(),
        created_at: birth.created_at,
        updated_at: snapshot.updated_at,
        busy: snapshot.busy,
        last_seq: birth.opened_after,
    };
    Described { row, model: (!model.is_empty()).then(|| model.into()) }
}
