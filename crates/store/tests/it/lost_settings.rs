//! A session whose log lost a change of its settings continues with the stricter setting and reports it.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::sync::Arc;

use engine::{
    APPROVAL, Body, Event, Input, MODE, NewSessionRequest, PageRequest, Principal, Registry, RegistryParts,
    Sender, Seq, SessionHandle, SessionId, Stop, SurfaceId, SystemClock,
};
use store::{Options, SqliteStore};
use testkit::Turns;

/// A process with the store at this path.
fn open_registry(path: &Path) -> Arc<Registry> {
    let store = Arc::new(SqliteStore::open(path.to_owned(), Options::default()));
    let backend = Arc::new(Turns::new(|_, _| async { Ok(Stop::EndTurn) }));
    Registry::new(RegistryParts::new(store, backend, Arc::new(SystemClock)))
}

fn request(path: &Path) -> NewSessionRequest {
    NewSessionRequest::new(Principal::local(), path.parent().unwrap().to_owned(), "test")
}

async fn choose(session: &SessionHandle, id: &str, value: &str) {
    let by = Sender::owner(SurfaceId(1), "owner");
    session.send(Input::Change { by, id: id.into(), value: value.into() }).await.unwrap();
}

async fn open(registry: &Registry, id: &SessionId) -> SessionHandle {
    registry.open(&Principal::local(), id).await.unwrap()
}

fn settings(session: &SessionHandle) -> (String, String) {
    let snapshot = session.snapshot();
    (snapshot.settings.get(APPROVAL).to_owned(), snapshot.settings.get(MODE).to_owned())
}

fn strict() -> (String, String) {
    ("strict".to_owned(), "ask".to_owned())
}

/// How often the session says that it became stricter.
async fn warnings(registry: &Registry, id: &SessionId) -> usize {
    let events: Vec<Arc<Event>> =
        registry.read(&Principal::local(), id, Seq::START, PageRequest::USUAL).await.unwrap();
    let says = |event: &&Arc<Event>| matches!(&event.body, Body::Notice { text, .. } if text.contains("the stricter values apply"));
    events.iter().filter(says).count()
}

/// A session that was at full access and then narrowed to reading and asking.
async fn narrowed(path: &Path) -> SessionId {
    let registry = open_registry(path);
    let session = registry.create(request(path)).await.unwrap();
    choose(&session, APPROVAL, "full").await;
    choose(&session, APPROVAL, "suggest").await;
    let id = session.id().clone();
    drop(session);
    registry.shutdown().await;
    id
}

/// Changes one byte of the file where this stands, or of every place where it stands.
fn flip(path: &Path, text: &str) {
    let mut bytes = std::fs::read(path).unwrap();
    let places: Vec<_> =
        bytes.windows(text.len()).enumerate().filter(|(_, found)| *found == text.as_bytes()).collect();
    let places: Vec<usize> = places.into_iter().map(|(at, _)| at).collect();
    assert!(!places.is_empty(), "{text} stands in the file");
    for at in places {
        bytes[at] ^= 1;
    }
    std::fs::write(path, bytes).unwrap();
}

#[tokio::test]
async fn a_damaged_change_of_approval_leaves_the_stricter_and_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sessions.db");
    let id = narrowed(&path).await;
    flip(&path, "suggest");

    let registry = open_registry(&path);
    let session = open(&registry, &id).await;
    assert_eq!(settings(&session), strict());
    assert_eq!(warnings(&registry, &id).await, 1);
    choose(&session, APPROVAL, "auto").await;
    drop(session);
    registry.shutdown().await;

    // What somebody chose after that holds, and nothing is said twice.
    let registry = open_registry(&path);
    let session = open(&registry, &id).await;
    assert_eq!(settings(&session), ("auto".to_owned(), "ask".to_owned()));
    assert_eq!(warnings(&registry, &id).await, 1);
    drop(session);
    registry.shutdown().await;
}

#[tokio::test]
async fn a_copy_of_a_damaged_session_is_as_strict() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sessions.db");
    let id = narrowed(&path).await;
    flip(&path, "suggest");
    let registry = open_registry(&path);
    let copy = registry.fork(&id, request(&path)).await.unwrap();
    assert_eq!(settings(&copy), strict());
    drop(copy);
    registry.shutdown().await;
}

#[tokio::test]
async fn what_is_salvaged_is_as_strict() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sessions.db");
    let id = narrowed(&path).await;
    flip(&path, "suggest");
    let into = directory.path().join("saved.db");
    store::salvage(&path, &into).unwrap();
    let registry = open_registry(&into);
    let session = open(&registry, &id).await;
    assert_eq!(settings(&session), strict());
    drop(session);
    registry.shutdown().await;
}

#[tokio::test]
async fn a_salvaged_session_whose_entry_is_lost_may_lack_its_end() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sessions.db");
    let id = narrowed(&path).await;
    // The pages with the entry of the session, and with them how many events it had.
    let mut bytes = std::fs::read(&path).unwrap();
    for page in bytes.chunks_mut(4096) {
        if page.windows(id.as_str().len()).any(|found| found == id.as_str().as_bytes()) {
            page.fill(0xa5);
        }
    }
    std::fs::write(&path, bytes).unwrap();
    let into = directory.path().join("saved.db");
    let saved = store::salvage(&path, &into).unwrap();
    let registry = open_registry(&into);
    let session = open(&registry, &SessionId::parse(&saved[0].id).unwrap()).await;
    assert_eq!(settings(&session).0, "strict", "{saved:?}");
    drop(session);
    registry.shutdown().await;
}

#[tokio::test]
async fn an_import_that_lacks_a_setting_is_as_strict() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sessions.db");
    let registry = open_registry(&path);
    let file = r#"{"schema":"ropewalk.session/1","session":{},"events":[
        {"event_type":"turn_started","turn":1,"payload":{}},
        {"event_type":"setting_changed","payload":{"id":"mode","value":7}},
        {"event_type":"turn_ended","turn":1,"payload":{"stop":"end_turn"}}]}"#;
    let imported = wire::session_archive::decode(file).unwrap();
    assert!(imported.warnings[0].contains("event 1 is left out"), "{:?}", imported.warnings);
    let session = registry.import(request(&path), None, imported.events).await.unwrap();
    assert_eq!(settings(&session), strict());
    drop(session);
    registry.shutdown().await;
}
