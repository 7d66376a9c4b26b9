//! Listing sessions: order, cursor, directory, owner.
#![expect(clippy::unwrap_used, reason = "a check fails by panicking")]

use std::sync::Arc;

use engine::{Body, Event, EventBatch, ListQuery, NewSession, Principal, Store, Timestamp};

use super::{append, event, new_session, session_id, text};

async fn listed(store: &dyn Store, query: ListQuery) -> Vec<String> {
    store.list(query).await.unwrap().into_iter().map(|row| row.id.to_string()).collect()
}

/// Sessions `a` to `e`: `b` and `c` were active at the same time, `a` last.
async fn five(store: &dyn Store) {
    for (id, at) in [("a", 10), ("b", 40), ("c", 40), ("d", 20), ("e", 30)] {
        store.create(NewSession { created_at: Timestamp(at), ..new_session(id) }).await.unwrap();
    }
    let claim = store.claim(&session_id("a")).await.unwrap();
    append(store, &claim, 1, vec![text("activity")]).await.unwrap();
}

fn everything() -> ListQuery {
    ListQuery::all(Principal::local())
}

pub async fn lists_show_the_newest_first(store: &dyn Store) {
    assert!(listed(store, everything()).await.is_empty());
    five(store).await;
    assert_eq!(listed(store, everything()).await, ["a", "c", "b", "e", "d"]);
    assert_eq!(listed(store, ListQuery { limit: 2, ..everything() }).await, ["a", "c"]);
    assert!(listed(store, ListQuery { limit: 0, ..everything() }).await.is_empty());
}

pub async fn lists_go_on_after_a_cursor(store: &dyn Store) {
    five(store).await;
    let mut query = ListQuery { limit: 2, ..everything() };
    let mut pages = Vec::new();
    loop {
        let rows = store.list(query.clone()).await.unwrap();
        let Some(last) = rows.last() else { break };
        query.before = Some((last.updated_at, last.id.clone()));
        pages.push(rows.iter().map(|row| row.id.to_string()).collect::<Vec<_>>());
    }
    assert_eq!(pages, [vec!["a", "c"], vec!["b", "e"], vec!["d"]]);
}

pub async fn lists_are_narrowed_to_a_directory(store: &dyn Store) {
    five(store).await;
    store.create(NewSession { cwd: "/other".into(), ..new_session("x") }).await.unwrap();
    let of = |cwd: &str| ListQuery { cwd: Some(cwd.into()), ..everything() };
    assert_eq!(listed(store, of("/other")).await, ["x"]);
    assert_eq!(listed(store, of("/other/")).await, ["x"]);
    assert_eq!(listed(store, of("/home/project")).await.len(), 5);
    assert!(listed(store, of("/home")).await.is_empty());
    assert_eq!(listed(store, ListQuery { limit: 1, ..of("/home/project") }).await, ["a"]);
}

pub async fn lists_show_only_what_the_owner_owns(store: &dyn Store) {
    five(store).await;
    let other = Principal("other".into());
    store.create(NewSession { owner: other.clone(), ..new_session("x") }).await.unwrap();
    assert_eq!(listed(store, ListQuery::all(other)).await, ["x"]);
    assert_eq!(listed(store, everything()).await.len(), 5);
    assert!(listed(store, ListQuery::all(Principal("loca".into()))).await.is_empty());
}

pub async fn what_was_only_set_up_was_never_used(store: &dyn Store) {
    let set = || Body::SettingChanged { id: "approval".into(), value: "suggest".into() };
    for (id, bodies) in [
        ("empty", Vec::new()),
        ("set", vec![set(), Body::Moved { cwd: "/other".into(), from: None }]),
        ("said", vec![set(), text("hello")]),
        ("queued", vec![set(), Body::TurnStarted]),
    ] {
        let claim = store.create(new_session(id)).await.unwrap();
        let outside = |(seq, body)| Arc::new(Event { turn: None, ..(*event(seq, body)).clone() });
        let events = (1..).zip(bodies).map(outside).collect();
        let session = claim.row.id.clone();
        store.append(EventBatch { session, epoch: claim.epoch, events, sync: false }).await.unwrap();
    }
    store.import(new_session("imported"), vec![event(1, text("hello"))]).await.unwrap();
    store.fork(&session_id("set"), new_session("forked")).await.unwrap();
    store.create(new_session("gone")).await.unwrap();
    store.delete(&session_id("gone")).await.unwrap();
    let all = ["empty", "set", "said", "queued", "imported", "forked", "gone", "nobody"];
    let found = store.never_used(all.map(session_id).to_vec()).await.unwrap();
    assert_eq!(found, ["empty", "set", "forked"].map(session_id));
}
