//! Imports whose events come in pieces: they are written as they arrive and become visible with the last one.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::sync::Arc;

use engine::{
    Body, Event, HistoryPiece, ListQuery, MessageId, NewSessionRequest, OpenError, Origin, PageRequest,
    Principal, Registry, RegistryParts, Seq, SessionHandle, Stop, SystemClock, Timestamp,
};
use rusqlite::Connection;
use store::{Options, SqliteStore};
use testkit::Turns;
use tokio::sync::mpsc;

const PIECE: usize = 100;

fn open_registry(path: &Path) -> Arc<Registry> {
    let store = Arc::new(SqliteStore::open(path.to_owned(), Options::default()));
    let backend = Arc::new(Turns::new(|_, _| async { Ok(Stop::EndTurn) }));
    Registry::new(RegistryParts::new(store, backend, Arc::new(SystemClock)))
}

fn piece() -> Vec<Event> {
    let event = |number: usize| Event {
        seq: Seq::START,
        at: Timestamp(1),
        origin: Origin::Agent,
        turn: None,
        body: Body::Text { message: MessageId(1), text: format!("said {number}").into() },
        relayed: None,
    };
    (0..PIECE).map(event).collect()
}

type Pieces = mpsc::Sender<HistoryPiece>;

/// Begins an import of which `send` sends the pieces.
async fn import(
    registry: &Arc<Registry>,
    path: &Path,
    send: impl AsyncFnOnce(Pieces),
) -> Result<SessionHandle, OpenError> {
    let (sender, history) = mpsc::channel(1);
    let request = NewSessionRequest::new(Principal::local(), path.parent().unwrap().to_owned(), "import");
    let (imported, ()) = tokio::join!(registry.import_from(request, None, history), send(sender));
    imported
}

fn stored(path: &Path) -> usize {
    let connection = Connection::open(path).unwrap();
    let count: i64 =
        connection.query_row("SELECT count(*) FROM acp_session_events", [], |row| row.get(0)).unwrap();
    usize::try_from(count).unwrap()
}

async fn listed(registry: &Registry) -> usize {
    registry.list(ListQuery::all(Principal::local())).await.unwrap().len()
}

#[tokio::test]
async fn the_pieces_of_an_import_are_written_as_they_come_and_seen_at_the_end() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sessions.db");
    let registry = open_registry(&path);
    let session = import(&registry, &path, async |pieces| {
        for sent in 1..=20 {
            pieces.send(HistoryPiece::Events(piece())).await.unwrap();
            // One may wait, and one may be on its way.
            assert!(sent <= 2 || stored(&path) >= (sent - 2) * PIECE, "after {sent} pieces");
            assert_eq!(listed(&registry).await, 0);
        }
        pieces.send(HistoryPiece::End).await.unwrap();
    })
    .await
    .unwrap();
    let mut read = 0;
    while let Some(last) =
        registry.read(&Principal::local(), session.id(), Seq(read), PageRequest::USUAL).await.unwrap().last()
    {
        read = last.seq.0;
    }
    assert_eq!(read, 20 * PIECE as u64);
    drop(session);
    registry.shutdown().await;
}

#[tokio::test]
async fn a_source_that_fails_leaves_no_session() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sessions.db");
    let registry = open_registry(&path);
    let failed = import(&registry, &path, async |pieces| {
        pieces.send(HistoryPiece::Events(piece())).await.unwrap();
        pieces.send(HistoryPiece::Failed("the file ends in the middle".to_owned())).await.unwrap();
    })
    .await;
    assert!(failed.is_err_and(|error| error.to_string().contains("ends in the middle")));
    assert_eq!(listed(&registry).await, 0);
    registry.shutdown().await;
}

/// A reader that panics says nothing more.
#[tokio::test]
async fn a_source_that_dies_leaves_no_session() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sessions.db");
    let registry = open_registry(&path);
    for sent in [0, 1, 3] {
        let failed = import(&registry, &path, async |pieces| {
            let reader = tokio::task::spawn_blocking(move || {
                for _ in 0..sent {
                    pieces.blocking_send(HistoryPiece::Events(piece())).unwrap();
                }
                panic!("the reader dies after {sent} pieces");
            });
            assert!(reader.await.unwrap_err().is_panic());
        })
        .await;
        assert!(
            failed.is_err_and(|error| error.to_string().contains("stopped before the last one")),
            "{sent}"
        );
        assert_eq!(listed(&registry).await, 0);
    }
    registry.shutdown().await;
    drop(registry);
    // What was written of it is swept by the next process.
    let registry = open_registry(&path);
    assert_eq!(listed(&registry).await, 0);
    registry.shutdown().await;
}
