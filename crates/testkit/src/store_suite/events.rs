//! What is appended is what is read.
#![expect(clippy::unwrap_used, reason = "a check fails by panicking")]

use std::sync::Arc;
use std::task::Poll;

use engine::{
    Body, BoxFuture, CallId, Claim, Content, Epoch, Event, EventBatch, FileChange, Origin, PageRequest, Seq,
    Stop, Store, StoreError, SurfaceId, Timestamp,
};

use super::{append, event, new_session, session_id, text};

pub async fn events_come_back_as_they_were_in_order(store: &dyn Store) {
    let claim = store.create(new_session("s")).await.unwrap();
    let surface = Origin::Surface {
        id: SurfaceId(u64::MAX),
        name: "a \"client\"".into(),
        request: Some("\"7\"".into()),
        remote: Some("dev".into()),
    };
    let change = FileChange { path: "/a/b".into(), before: None, after: Some("new\0\u{1F600}".into()) };
    let bodies = [
        Body::UserMessage { content: vec![Content::text("hello"), Content::text("")] },
        text("line\nline"),
        Body::FileEdited { call: Some(CallId("c".into())), change },
        Body::TurnEnded { stop: Stop::Failed, error: Some("reason".into()) },
    ];
    let mut events: Vec<_> = (1..).zip(bodies).map(|(seq, body)| event(seq, body)).collect();
    let plain = Event {
        seq: Seq(9),
        at: Timestamp(-5),
        origin: surface,
        turn: None,
        body: Body::CancelRequested { reason: None },
        relayed: None,
    };
    events.push(Arc::new(plain));
    for sync in [false, true] {
        let half = if sync { &events[2..] } else { &events[..2] };
        let batch = EventBatch { session: session_id("s"), epoch: claim.epoch, events: half.to_vec(), sync };
        store.append(batch).await.unwrap();
    }
    assert_eq!(store.read(&session_id("s"), Seq::START, PageRequest::USUAL).await.unwrap(), events);
    assert_eq!(store.read(&session_id("s"), Seq(2), PageRequest::USUAL).await.unwrap(), events[2..]);
    assert_eq!(store.read(&session_id("s"), Seq(5), PageRequest::USUAL).await.unwrap(), events[4..]);
    assert!(store.read(&session_id("s"), Seq(9), PageRequest::USUAL).await.unwrap().is_empty());
}

pub async fn big_content_comes_back(store: &dyn Store) {
    let claim = store.create(new_session("s")).await.unwrap();
    let sizes = [16 * 1024, 16 * 1024 + 1, 3 << 20];
    let bodies: Vec<_> = sizes.iter().map(|size| text(&"ü\"".repeat(size / 3 + 1))).collect();
    append(store, &claim, 1, bodies.clone()).await.unwrap();
    let page = PageRequest { count_max: 10, bytes_max: usize::MAX, outline: false };
    let events = store.read(&session_id("s"), Seq::START, page).await.unwrap();
    assert!(events.iter().map(|event| &event.body).eq(&bodies));
}

/// Waits for all of them together, so that a store finds them in its queue side by side.
async fn all_at_once<T>(mut waiting: Vec<BoxFuture<'_, T>>) -> Vec<T> {
    let mut done: Vec<Option<T>> = waiting.iter().map(|_| None).collect();
    std::future::poll_fn(|context| {
        for (future, done) in waiting.iter_mut().zip(&mut done) {
            if done.is_none()
                && let Poll::Ready(value) = future.as_mut().poll(context)
            {
                *done = Some(value);
            }
        }
        if done.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    done.into_iter().flatten().collect()
}

async fn hundred(store: &dyn Store) {
    let claim = store.create(new_session("s")).await.unwrap();
    let bodies = (1..=100).map(|number| text(&format!("{number:01000}"))).collect();
    append(store, &claim, 1, bodies).await.unwrap();
}

/// Reads everything in pages, and says how long each was.
async fn page_lengths(store: &dyn Store, page: PageRequest) -> Vec<usize> {
    let (mut after, mut lengths) = (Seq::START, Vec::new());
    loop {
        let events = store.read(&session_id("s"), after, page).await.unwrap();
        let Some(last) = events.last() else { return lengths };
        assert!(events.iter().zip(after.0 + 1..).all(|(event, seq)| event.seq.0 == seq));
        after = last.seq;
        lengths.push(events.len());
    }
}

pub async fn pages_are_bounded_by_count(store: &dyn Store) {
    hundred(store).await;
    assert_eq!(
        page_lengths(store, PageRequest { count_max: 40, bytes_max: usize::MAX, outline: false }).await,
        [40, 40, 20]
    );
    assert_eq!(
        page_lengths(store, PageRequest { count_max: 100, bytes_max: usize::MAX, outline: false }).await,
        [100]
    );
    assert_eq!(
        page_lengths(store, PageRequest { count_max: usize::MAX, bytes_max: usize::MAX, outline: false })
            .await,
        [100]
    );
}

pub async fn pages_are_bounded_by_bytes_past_the_first_event(store: &dyn Store) {
    hundred(store).await;
    assert_eq!(
        page_lengths(store, PageRequest { count_max: usize::MAX, bytes_max: 1, outline: false }).await,
        [1; 100]
    );
    let lengths =
        page_lengths(store, PageRequest { count_max: usize::MAX, bytes_max: 20_000, outline: false }).await;
    assert!(lengths.len() > 4 && lengths.iter().all(|length| *length <= 20), "{lengths:?}");
    assert_eq!(lengths.iter().sum::<usize>(), 100);
}

pub async fn an_outline_leaves_out_what_was_streamed(store: &dyn Store) {
    let claim = store.create(new_session("s")).await.unwrap();
    let bodies = vec![
        Body::TurnStarted,
        text("a"),
        text("b"),
        Body::CancelRequested { reason: None },
        text("c"),
        Body::Cleared,
    ];
    append(store, &claim, 1, bodies).await.unwrap();
    let page = PageRequest { count_max: 2, ..PageRequest::OUTLINE };
    let first = store.read(&claim.row.id, Seq::START, page).await.unwrap();
    assert_eq!(first.iter().map(|event| event.seq.0).collect::<Vec<_>>(), [1, 4]);
    let rest = store.read(&claim.row.id, Seq(4), page).await.unwrap();
    assert_eq!(rest.iter().map(|event| event.seq.0).collect::<Vec<_>>(), [6]);
}

pub async fn appends_that_race_all_arrive(store: &dyn Store) {
    let mut claims = Vec::new();
    for number in 0..8 {
        claims.push(store.create(new_session(&format!("s{number}"))).await.unwrap());
    }
    let stale = Claim { epoch: Epoch(99), ..claims[0].clone() };
    for round in 0..20 {
        let everybody = claims.iter().chain([&stale]);
        let appends = everybody.map(|claim| {
            let events = vec![event(2 * round + 1, text("a")), event(2 * round + 2, text("b"))];
            let session = claim.row.id.clone();
            store.append(EventBatch { session, epoch: claim.epoch, events, sync: round % 5 == 0 })
        });
        let mut outcomes = all_at_once(appends.collect()).await;
        assert!(matches!(outcomes.pop(), Some(Err(StoreError::Fenced))));
        assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    }
    for claim in &claims {
        let events = store.read(&claim.row.id, Seq::START, PageRequest::USUAL).await.unwrap();
        assert!(events.iter().map(|event| event.seq.0).eq(1..=40));
    }
}
