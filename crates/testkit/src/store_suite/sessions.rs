//! Creating, claiming, copying, renaming and deleting sessions.
#![expect(clippy::unwrap_used, reason = "a check fails by panicking")]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use engine::{
    Body, BoxFuture, Claim, Epoch, Event, EventBatch, EventSource, ListQuery, NewSession, PageRequest,
    Principal, Seq, SessionRow, Stop, Store, StoreError, Timestamp, TurnId,
};

use super::{append, event, new_session, session_id, text, texts};

pub async fn a_created_session_is_found_and_claimed(store: &dyn Store) {
    let new = NewSession { parent: Some(session_id("p")), title: Some("first".into()), ..new_session("s") };
    let claim = store.create(new.clone()).await.unwrap();
    assert_eq!(claim.next_seq, Seq(1));
    assert_eq!(store.find(&new.id).await.unwrap(), claim.row);
    let row = claim.row;
    assert_eq!((row.id, row.owner, row.cwd, row.roots), (new.id, new.owner, new.cwd, new.roots));
    assert_eq!((row.parent, row.source, row.title), (new.parent, new.source, new.title));
    assert_eq!((row.created_at, row.updated_at), (new.created_at, new.created_at));
    assert_eq!((row.busy, row.last_seq), (false, Seq::START));
}

pub async fn an_id_is_given_once(store: &dyn Store) {
    store.create(new_session("s")).await.unwrap();
    store.create(new_session("other")).await.unwrap();
    assert!(matches!(store.create(new_session("s")).await, Err(StoreError::Exists)));
    assert!(matches!(store.fork(&session_id("other"), new_session("s")).await, Err(StoreError::Exists)));
}

pub async fn a_deleted_session_never_comes_back(store: &dyn Store) {
    let claim = store.create(new_session("s")).await.unwrap();
    store.create(new_session("other")).await.unwrap();
    assert!(store.delete(&session_id("s")).await.unwrap());
    assert!(matches!(store.create(new_session("s")).await, Err(StoreError::Exists)));
    assert!(matches!(store.fork(&session_id("other"), new_session("s")).await, Err(StoreError::Exists)));
    assert!(matches!(store.claim(&session_id("s")).await, Err(StoreError::NotFound)));
    assert!(matches!(append(store, &claim, 1, vec![text("late")]).await, Err(StoreError::NotFound)));
}

pub async fn a_claim_fences_off_whoever_had_it(store: &dyn Store) {
    let old = store.create(new_session("s")).await.unwrap();
    append(store, &old, 1, vec![text("a"), text("b")]).await.unwrap();
    let id = session_id("s");
    assert!(store.owns(&id, old.epoch).await.unwrap());
    let new = store.claim(&id).await.unwrap();
    assert!(new.epoch > old.epoch);
    assert!(!store.owns(&id, old.epoch).await.unwrap());
    assert!(store.owns(&id, new.epoch).await.unwrap());
    assert_eq!(new.next_seq, Seq(3));
    assert!(matches!(append(store, &old, 3, vec![text("old")]).await, Err(StoreError::Fenced)));
    append(store, &new, 3, vec![text("new")]).await.unwrap();
    assert_eq!(texts(store, "s").await, [(1, "a".into()), (2, "b".into()), (3, "new".into())]);
}

/// Until the turn that started has ended nobody else may take the session.
pub async fn a_queued_turn_that_ends_leaves_the_running_one_running(store: &dyn Store) {
    let claim = store.create(new_session("s")).await.unwrap();
    let ended = || Body::TurnEnded { stop: Stop::Cancelled, error: None };
    append(store, &claim, 1, vec![Body::TurnStarted]).await.unwrap();
    let withdrawn = Arc::new(Event { turn: Some(TurnId(2)), ..(*event(2, ended())).clone() });
    let batch =
        EventBatch { session: session_id("s"), epoch: claim.epoch, events: vec![withdrawn], sync: true };
    store.append(batch).await.unwrap();
    assert!(store.find(&session_id("s")).await.unwrap().busy, "turn 1 goes on");
    append(store, &claim, 3, vec![ended()]).await.unwrap();
    assert!(!store.find(&session_id("s")).await.unwrap().busy);
    // Who claims it anew has ended what was left before.
    append(store, &claim, 4, vec![Body::TurnStarted]).await.unwrap();
    let claim = store.claim(&session_id("s")).await.unwrap();
    let left = Arc::new(Event { turn: Some(TurnId(3)), ..(*event(claim.next_seq.0, ended())).clone() });
    let batch = EventBatch { session: session_id("s"), epoch: claim.epoch, events: vec![left], sync: true };
    store.append(batch).await.unwrap();
    assert!(!store.find(&session_id("s")).await.unwrap().busy);
}

pub async fn a_refused_append_writes_nothing(store: &dyn Store) {
    let claim = store.create(new_session("s")).await.unwrap();
    let before = store.find(&session_id("s")).await.unwrap();
    let stranger = Claim { epoch: Epoch(claim.epoch.0 + 7), ..claim };
    let refused =
        append(store, &stranger, 1, vec![Body::TurnStarted, Body::Title { title: "t".into() }]).await;
    assert!(matches!(refused, Err(StoreError::Fenced)));
    assert_eq!(store.find(&session_id("s")).await.unwrap(), before);
    assert!(texts(store, "s").await.is_empty());
}

pub async fn an_empty_append_is_nothing_special(store: &dyn Store) {
    let claim = store.create(new_session("s")).await.unwrap();
    for sync in [false, true] {
        let session = session_id("s");
        store.append(EventBatch { session, epoch: claim.epoch, events: Vec::new(), sync }).await.unwrap();
    }
    assert_eq!(store.find(&session_id("s")).await.unwrap(), claim.row);
}

pub async fn unknown_sessions_are_said_to_be_unknown(store: &dyn Store) {
    let id = session_id("nobody");
    let gone = |error: Option<StoreError>| assert!(matches!(error, Some(StoreError::NotFound)), "{error:?}");
    gone(store.find(&id).await.err());
    gone(store.claim(&id).await.err());
    gone(store.owns(&id, Epoch(1)).await.err());
    gone(store.read(&id, Seq::START, PageRequest::USUAL).await.err());
    gone(store.fork(&id, new_session("s")).await.err());
    gone(store.rename(&id, "title").await.err());
    let batch = EventBatch { session: id, epoch: Epoch(1), events: vec![event(1, text("a"))], sync: true };
    gone(store.append(batch).await.err());
}

pub async fn the_row_follows_the_events(store: &dyn Store) {
    let id = session_id("s");
    let claim = store.create(new_session("s")).await.unwrap();
    append(store, &claim, 1, vec![Body::TurnStarted, text("a")]).await.unwrap();
    let row = store.find(&id).await.unwrap();
    assert_eq!((row.busy, row.last_seq, row.updated_at), (true, Seq(2), Timestamp(1002)));
    assert_eq!((row.title, row.cwd), (None, PathBuf::from("/home/project")));
    let ended = Body::TurnEnded { stop: Stop::EndTurn, error: None };
    let moved = Body::Moved { cwd: "/elsewhere".into(), from: None };
    let titles = ["one", "two"].map(|title| Body::Title { title: title.into() });
    append(store, &claim, 3, vec![moved].into_iter().chain(titles).chain([ended]).collect()).await.unwrap();
    let row = store.find(&id).await.unwrap();
    assert_eq!((row.busy, row.last_seq, row.created_at), (false, Seq(6), Timestamp(1000)));
    assert_eq!((row.title.as_deref(), row.cwd.as_path()), (Some("two"), Path::new("/elsewhere")));
    assert_eq!(store.claim(&id).await.unwrap().row, row);
}

pub async fn a_fork_has_the_events_and_leaves_the_source_alone(store: &dyn Store) {
    let source = store.create(new_session("s")).await.unwrap();
    let big = "x".repeat(50_000);
    append(store, &source, 1, vec![Body::TurnStarted, text("a"), text(&big)]).await.unwrap();
    let before = store.find(&session_id("s")).await.unwrap();
    let new = NewSession { parent: Some(session_id("s")), cwd: "/copy".into(), ..new_session("f") };
    let fork = store.fork(&session_id("s"), new).await.unwrap();
    assert_eq!((fork.next_seq, fork.row.last_seq, fork.row.busy), (Seq(4), Seq(3), false));
    assert_eq!((fork.row.parent.clone(), fork.row.cwd.clone()), (Some(session_id("s")), "/copy".into()));
    assert_eq!(texts(store, "f").await, texts(store, "s").await);
    append(store, &fork, 4, vec![text("only here")]).await.unwrap();
    assert_eq!(store.find(&session_id("s")).await.unwrap(), before);
    assert_eq!(texts(store, "s").await.len(), 3);
    append(store, &source, 4, vec![text("only there")]).await.unwrap();
    assert!(store.delete(&session_id("s")).await.unwrap());
    let left = texts(store, "f").await;
    assert_eq!((left.len(), &left[2].1, &left[3].1), (4, &big, &"only here".to_owned()));
}

pub async fn a_fork_of_an_empty_session_is_empty(store: &dyn Store) {
    store.create(new_session("s")).await.unwrap();
    let fork = store.fork(&session_id("s"), new_session("f")).await.unwrap();
    assert_eq!(fork.next_seq, Seq(1));
    assert!(texts(store, "f").await.is_empty());
}

pub async fn an_import_is_a_session_like_any_other(store: &dyn Store) {
    let mut events: Vec<_> = (1..=2000).map(|seq| event(seq, text("a"))).collect();
    events[0] = event(1, Body::Title { title: "inside".into() });
    events[1] = event(2, Body::TurnStarted);
    events[2] = event(3, Body::Moved { cwd: "/elsewhere".into(), from: None });
    let new = NewSession { title: Some("outside".into()), ..new_session("i") };
    let claim = store.import(new.clone(), events.clone()).await.unwrap();
    assert_eq!((claim.next_seq, claim.row.last_seq, claim.row.busy), (Seq(2001), Seq(2000), true));
    assert_eq!((claim.row.title.as_deref(), claim.row.updated_at), (Some("outside"), events[1999].at));
    assert_eq!(claim.row.cwd, new.cwd);
    assert_eq!(store.find(&new.id).await.unwrap(), claim.row);
    assert_eq!(store.list(ListQuery::all(Principal::local())).await.unwrap().len(), 1);
    let mut read = Vec::new();
    while read.len() < events.len() {
        read.extend(store.read(&new.id, Seq(read.len() as u64), PageRequest::USUAL).await.unwrap());
    }
    assert_eq!(read, events);
    append(store, &claim, 2001, vec![text("and on")]).await.unwrap();
    assert!(matches!(store.import(new, Vec::new()).await, Err(StoreError::Exists)));
    let untitled = store.import(new_session("u"), vec![Arc::clone(&events[0])]).await.unwrap();
    assert_eq!(untitled.row.title.as_deref(), Some("inside"));
    assert_eq!(store.import(new_session("e"), Vec::new()).await.unwrap().next_seq, Seq(1));
}

/// Gives one piece, then breaks.
struct Breaks(Vec<Arc<Event>>);

impl EventSource for Breaks {
    fn next(&mut self) -> BoxFuture<'_, Result<Vec<Arc<Event>>, String>> {
        let piece = std::mem::take(&mut self.0);
        Box::pin(std::future::ready(if piece.is_empty() { Err("it broke".into()) } else { Ok(piece) }))
    }
}

pub async fn an_import_that_came_to_nothing_leaves_its_id_free(store: &dyn Store) {
    let ids = || vec![session_id("i"), session_id("made"), session_id("gone")];
    assert_eq!(store.unused(ids()).await.unwrap(), ids());
    store.create(new_session("made")).await.unwrap();
    store.create(new_session("gone")).await.unwrap();
    store.delete(&session_id("gone")).await.unwrap();
    let source = Breaks(vec![event(1, text("a"))]);
    let broken = store.import_from(new_session("i"), Box::new(source)).await;
    assert!(matches!(&broken, Err(StoreError::Write { reason }) if reason == "it broke"), "{broken:?}");
    assert!(matches!(store.find(&session_id("i")).await, Err(StoreError::NotFound)));
    assert_eq!(store.unused(ids()).await.unwrap(), [session_id("i")]);
    store.import(new_session("i"), vec![event(1, text("b"))]).await.unwrap();
    assert_eq!(texts(store, "i").await, [(1, "b".into())]);
    assert!(store.unused(ids()).await.unwrap().is_empty());
}

pub async fn deletion_says_whether_there_was_something(store: &dyn Store) {
    let claim = store.create(new_session("s")).await.unwrap();
    append(store, &claim, 1, vec![text("a")]).await.unwrap();
    assert!(store.delete(&session_id("s")).await.unwrap());
    assert!(!store.delete(&session_id("s")).await.unwrap());
    assert!(!store.delete(&session_id("nobody")).await.unwrap());
    assert!(matches!(store.find(&session_id("s")).await, Err(StoreError::NotFound)));
    let read = store.read(&session_id("s"), Seq::START, PageRequest::USUAL).await;
    assert!(matches!(read, Err(StoreError::NotFound)));
    assert!(store.list(ListQuery::all(Principal::local())).await.unwrap().is_empty());
}

pub async fn renaming_changes_the_title_alone(store: &dyn Store) {
    let claim = store.create(new_session("s")).await.unwrap();
    store.rename(&session_id("s"), "a \"title\"").await.unwrap();
    let row = store.find(&session_id("s")).await.unwrap();
    assert_eq!(row.title.as_deref(), Some("a \"title\""));
    assert_eq!(SessionRow { title: None, ..row }, claim.row);
    append(store, &claim, 1, vec![text("still its owner")]).await.unwrap();
}
