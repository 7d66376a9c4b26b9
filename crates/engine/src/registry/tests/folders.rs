//! Sessions in folders of another program, and ids of a client's own kind.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::backend::BoxFuture;
use crate::event::Origin;
use crate::ids::{SessionId, Timestamp};
use crate::registry::imported_history::whole;
use crate::registry::{FolderEntry, FolderSession, HistoryPiece, OpenError, SessionFolders};
use crate::store::{SessionRow, StoreError};

/// Folders by their names, with the time of each; those without a history cannot be read.
#[derive(Default)]
struct Folders {
    there: Mutex<BTreeMap<SessionId, i64>>,
    described: AtomicUsize,
    broken: Mutex<bool>,
}

impl SessionFolders for Folders {
    fn entries(&self) -> BoxFuture<'_, Vec<FolderEntry>> {
        let there = self.there.lock().unwrap();
        let entry = |(id, at): (&SessionId, &i64)| FolderEntry { id: id.clone(), updated_at: Timestamp(*at) };
        Box::pin(std::future::ready(there.iter().map(entry).collect()))
    }

    fn has(&self, id: &SessionId) -> BoxFuture<'_, bool> {
        Box::pin(std::future::ready(self.there.lock().unwrap().contains_key(id)))
    }

    fn describe(&self, entries: Vec<FolderEntry>) -> BoxFuture<'_, Vec<SessionRow>> {
        self.described.fetch_add(entries.len(), Ordering::SeqCst);
        let readable = entries.into_iter().filter(|entry| !entry.id.as_str().ends_with("corrupt"));
        Box::pin(std::future::ready(readable.map(row).collect()))
    }

    fn read(&self, id: &SessionId) -> BoxFuture<'_, Result<Option<FolderSession>, String>> {
        let found = self.there.lock().unwrap().contains_key(id).then(|| {
            let history = if *self.broken.lock().unwrap() { broken() } else { whole(history()) };
            let (cwd, title, parent) = (Some("/home/project".into()), Some("an old one".into()), None);
            FolderSession { cwd, title, parent, created_at: Timestamp(5), history }
        });
        Box::pin(std::future::ready(Ok(found)))
    }
}

fn row(entry: FolderEntry) -> SessionRow {
    SessionRow {
        id: entry.id,
        owner: Principal("somebody".into()),
        cwd: "/home/project".into(),
        roots: Vec::new(),
        parent: None,
        source: "ferret".into(),
        title: None,
        created_at: entry.updated_at,
        updated_at: entry.updated_at,
        busy: false,
        last_seq: Seq::START,
    }
}

fn history() -> Vec<Event> {
    let body = |body| Event {
        seq: Seq::START,
        at: Timestamp(6),
        origin: Origin::Engine,
        turn: Some(TurnId(1)),
        body,
        relayed: None,
    };
    vec![body(Body::TurnStarted), body(Body::TurnEnded { stop: Stop::EndTurn, error: None })]
}

fn broken() -> crate::History {
    let (sender, pieces) = tokio::sync::mpsc::channel(2);
    sender.try_send(HistoryPiece::Events(history())).unwrap();
    sender.try_send(HistoryPiece::Failed("the disk broke".into())).unwrap();
    pieces
}

fn id(text: &str) -> SessionId {
    SessionId::parse(text).unwrap()
}

fn fixture(names: &[(&str, i64)]) -> (TestRegistry, Arc<Folders>) {
    let folders = Arc::new(Folders::default());
    folders.there.lock().unwrap().extend(names.iter().map(|(name, at)| (id(name), *at)));
    let store = Arc::new(FailingStore::default());
    let parts =
        RegistryParts::new(Arc::<FailingStore>::clone(&store), ScriptedBackend::new(), TestClock::new());
    let parts = RegistryParts { folders: Some(Arc::<Folders>::clone(&folders)), ..parts };
    (TestRegistry { store, registry: Registry::new(parts) }, folders)
}

async fn listed(fixture: &TestRegistry, query: ListQuery) -> Vec<String> {
    let listed = fixture.registry.list_with_folders(query, "ferret-").await.unwrap();
    assert!(listed.iter().all(|listed| listed.row.owner == me()));
    listed.iter().map(|listed| listed.row.id.to_string()).collect()
}

async fn take_in(fixture: &TestRegistry, name: &str) -> Result<SessionHandle, OpenError> {
    let found = fixture.registry.folder(&id(name)).await?.unwrap();
    fixture.registry.take_in(&id(name), new_session(), found).await
}

#[tokio::test]
async fn folders_are_listed_among_the_sessions_page_by_page() {
    let names =
        [("ferret-a", 10), ("ferret-b", 30), ("ferret-corrupt", 25), ("otter-c", 40), ("ferret-d", 20)];
    let (fixture, folders) = fixture(&names);
    let all = ListQuery::all(me());
    assert_eq!(listed(&fixture, all.clone()).await, ["ferret-b", "ferret-d", "ferret-a"]);
    let first = listed(&fixture, ListQuery { limit: 2, ..all.clone() }).await;
    assert_eq!(first, ["ferret-b", "ferret-d"]);
    let before = Some((Timestamp(20), id("ferret-d")));
    assert_eq!(listed(&fixture, ListQuery { limit: 2, before, ..all.clone() }).await, ["ferret-a"]);
    let elsewhere = ListQuery { cwd: Some("/elsewhere".into()), ..all.clone() };
    assert!(listed(&fixture, elsewhere).await.is_empty());
    // Sessions of ours are newer than any of them: a full page needs nothing of a folder.
    let ours = fixture.create().await;
    folders.described.store(0, Ordering::SeqCst);
    assert_eq!(listed(&fixture, ListQuery { limit: 1, ..all }).await, [ours.id().to_string()]);
    assert_eq!(folders.described.load(Ordering::SeqCst), 0);
    fixture.registry.shutdown().await;
}

#[tokio::test]
async fn a_session_is_taken_in_once_under_its_own_id_and_does_not_come_back_when_deleted() {
    let (fixture, _) = fixture(&[("ferret-a", 10)]);
    let handle = take_in(&fixture, "ferret-a").await.unwrap();
    let row = fixture.registry.row(&me(), handle.id()).await.unwrap();
    assert_eq!((row.id.as_str(), row.title.as_deref()), ("ferret-a", Some("an old one")));
    assert_eq!((row.created_at, row.last_seq), (Timestamp(5), Seq(2)));
    assert!(fixture.registry.folder(handle.id()).await.unwrap().is_none());
    assert_eq!(listed(&fixture, ListQuery::all(me())).await, ["ferret-a"]);
    assert!(fixture.registry.delete(&me(), handle.id()).await.unwrap());
    assert!(listed(&fixture, ListQuery::all(me())).await.is_empty());
    assert!(fixture.registry.folder(&id("ferret-a")).await.unwrap().is_none());
    fixture.registry.shutdown().await;
}

#[tokio::test]
async fn whoever_takes_in_the_same_session_at_once_gets_the_same_one() {
    let (fixture, _) = fixture(&[("ferret-a", 10)]);
    let found = fixture.registry.folder(&id("ferret-a")).await.unwrap().unwrap();
    let first = take_in(&fixture, "ferret-a").await.unwrap();
    let second = fixture.registry.take_in(&id("ferret-a"), new_session(), found).await.unwrap();
    assert_eq!(first.id(), second.id());
    assert_eq!(fixture.live().await, 1);
    fixture.registry.shutdown().await;
}

#[tokio::test]
async fn what_breaks_off_is_not_taken_in_and_can_be_tried_again() {
    let (fixture, folders) = fixture(&[("ferret-a", 10)]);
    *folders.broken.lock().unwrap() = true;
    let broken = take_in(&fixture, "ferret-a").await.map(drop).unwrap_err();
    assert!(matches!(&broken, OpenError::Store(StoreError::Write { reason }) if reason == "the disk broke"));
    assert!(fixture.registry.list(ListQuery::all(me())).await.unwrap().is_empty());
    *folders.broken.lock().unwrap() = false;
    take_in(&fixture, "ferret-a").await.unwrap();
    fixture.registry.shutdown().await;
}

/// C2: an id that is taken, by a session of ours, a deleted one or a folder, is not given again.
#[tokio::test]
async fn a_taken_id_is_replaced_by_another() {
    static MADE: AtomicUsize = AtomicUsize::new(0);
    fn make(at: Timestamp) -> SessionId {
        assert_ne!(at, Timestamp(0));
        id(&format!("ferret-{}", MADE.fetch_add(1, Ordering::SeqCst)))
    }
    let (fixture, _) = fixture(&[("ferret-2", 10)]);
    let first = fixture.registry.create_with_id(new_session(), make).await.unwrap();
    let second = fixture.registry.create_with_id(new_session(), make).await.unwrap();
    fixture.registry.delete(&me(), first.id()).await.unwrap();
    MADE.store(0, Ordering::SeqCst);
    let third = fixture.registry.create_with_id(new_session(), make).await.unwrap();
    let copy = fixture.registry.fork_with_id(third.id(), new_session(), make).await.unwrap();
    let ids = [first, second, third, copy].map(|handle| handle.id().to_string());
    assert_eq!(ids, ["ferret-0", "ferret-1", "ferret-3", "ferret-4"]);
    fn stuck(_: Timestamp) -> SessionId {
        id("ferret-2")
    }
    let refused = fixture.registry.create_with_id(new_session(), stuck).await.map(drop).unwrap_err();
    assert!(matches!(refused, OpenError::Store(StoreError::Exists)));
    fixture.registry.shutdown().await;
}
