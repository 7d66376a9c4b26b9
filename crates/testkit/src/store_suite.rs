//! The promises of [`Store`], each as one check that any engine has to pass.
//!
//! An engine runs all of them with one line in its tests, `testkit::store_suite!(make());`, where the
//! expression gives a fresh, empty store and something to keep alive beside it (a directory).
#![expect(clippy::unwrap_used, reason = "a check fails by panicking")]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use engine::{
    Batch, Body, CallId, Claim, Content, Epoch, Event, FileChange, ListQuery, MessageId, NewSession, Origin,
    Page, Principal, Rule, Seq, SessionId, Stop, Store, StoreError, SurfaceId, Timestamp, TurnId,
};

/// One test per promise, against the store that the expression makes.
#[macro_export]
macro_rules! store_suite {
    ($make:expr) => {
        $crate::store_suite! { @checks $make;
            a_created_session_is_found_and_claimed
            an_id_is_given_once
            a_deleted_session_never_comes_back
            a_claim_fences_off_whoever_had_it
            a_refused_append_writes_nothing
            an_empty_append_is_nothing_special
            unknown_sessions_are_said_to_be_unknown
            events_come_back_as_they_were_in_order
            big_content_comes_back
            pages_are_bounded_by_count
            pages_are_bounded_by_bytes_past_the_first_event
            appends_that_race_all_arrive
            the_row_follows_the_events
            lists_show_the_newest_first
            lists_go_on_after_a_cursor
            lists_are_narrowed_to_a_directory
            lists_show_only_what_the_owner_owns
            a_fork_has_the_events_and_leaves_the_source_alone
            a_fork_of_an_empty_session_is_empty
            deletion_says_whether_there_was_something
            renaming_changes_the_title_alone
            a_rule_replaces_the_one_about_the_same_wish
        }
    };
    (@checks $make:expr; $($check:ident)*) => {
        $(
            #[tokio::test]
            async fn $check() {
                let (store, keep) = $make;
                $crate::store_suite::$check(&*store).await;
                drop(store);
                drop(keep);
            }
        )*
    };
}

/// A session like any other, with an id of the test's choice.
pub fn new_session(id: &str) -> NewSession {
    NewSession {
        id: session_id(id),
        owner: Principal::local(),
        cwd: "/work/project".into(),
        roots: vec!["/work/library".into()],
        parent: None,
        source: "acp".into(),
        created_at: Timestamp(1000),
        title: None,
    }
}

pub fn session_id(id: &str) -> SessionId {
    SessionId::parse(id).unwrap()
}

/// An event at a position; its time follows from the position.
pub fn event(seq: u64, body: Body) -> Arc<Event> {
    let at = Timestamp(1000 + i64::try_from(seq).unwrap());
    Arc::new(Event { seq: Seq(seq), at, origin: Origin::Agent, turn: Some(TurnId(1)), body })
}

pub fn text(text: &str) -> Body {
    Body::Text { message: MessageId(1), text: text.into() }
}

/// Appends bodies at the positions from `first`.
pub async fn append(
    store: &dyn Store,
    claim: &Claim,
    first: u64,
    bodies: Vec<Body>,
) -> Result<(), StoreError> {
    let events = (first..).zip(bodies).map(|(seq, body)| event(seq, body)).collect();
    let session = claim.row.id.clone();
    store.append(Batch { session, epoch: claim.epoch, events, sync: false }).await
}

pub async fn texts(store: &dyn Store, id: &str) -> Vec<(u64, String)> {
    let events = store.read(&session_id(id), Seq::START, Page::USUAL).await.unwrap();
    let shown = events.iter().map(|event| match &event.body {
        Body::Text { text, .. } => (event.seq.0, text.to_string()),
        body => (event.seq.0, format!("{body:?}")),
    });
    shown.collect()
}

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
    let new = store.claim(&session_id("s")).await.unwrap();
    assert!(new.epoch > old.epoch);
    assert_eq!(new.next_seq, Seq(3));
    assert!(matches!(append(store, &old, 3, vec![text("old")]).await, Err(StoreError::Fenced)));
    append(store, &new, 3, vec![text("new")]).await.unwrap();
    assert_eq!(texts(store, "s").await, [(1, "a".into()), (2, "b".into()), (3, "new".into())]);
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
    append(store, &claim, 1, Vec::new()).await.unwrap();
    assert_eq!(store.find(&session_id("s")).await.unwrap(), claim.row);
}

pub async fn unknown_sessions_are_said_to_be_unknown(store: &dyn Store) {
    let id = session_id("nobody");
    let gone = |error: Option<StoreError>| assert!(matches!(error, Some(StoreError::NotFound)), "{error:?}");
    gone(store.find(&id).await.err());
    gone(store.claim(&id).await.err());
    gone(store.read(&id, Seq::START, Page::USUAL).await.err());
    gone(store.fork(&id, new_session("s")).await.err());
    gone(store.rename(&id, "title").await.err());
    let batch = Batch { session: id, epoch: Epoch(1), events: vec![event(1, text("a"))], sync: true };
    gone(store.append(batch).await.err());
}

pub async fn events_come_back_as_they_were_in_order(store: &dyn Store) {
    let claim = store.create(new_session("s")).await.unwrap();
    let surface = Origin::Surface { id: SurfaceId(u64::MAX), name: "a \"client\"".into() };
    let change = FileChange { path: "/a/b".into(), before: None, after: Some("new\0\u{1F600}".into()) };
    let bodies = [
        Body::UserMessage { content: vec![Content::text("hello"), Content::text("")] },
        text("line\nline"),
        Body::FileEdited { call: Some(CallId("c".into())), change },
        Body::TurnEnded { stop: Stop::Failed, error: Some("reason".into()) },
    ];
    let mut events: Vec<_> = (1..).zip(bodies).map(|(seq, body)| event(seq, body)).collect();
    let plain =
        Event { seq: Seq(9), at: Timestamp(-5), origin: surface, turn: None, body: Body::CancelRequested };
    events.push(Arc::new(plain));
    for sync in [false, true] {
        let half = if sync { &events[2..] } else { &events[..2] };
        let batch = Batch { session: session_id("s"), epoch: claim.epoch, events: half.to_vec(), sync };
        store.append(batch).await.unwrap();
    }
    assert_eq!(store.read(&session_id("s"), Seq::START, Page::USUAL).await.unwrap(), events);
    assert_eq!(store.read(&session_id("s"), Seq(2), Page::USUAL).await.unwrap(), events[2..]);
    assert_eq!(store.read(&session_id("s"), Seq(5), Page::USUAL).await.unwrap(), events[4..]);
    assert!(store.read(&session_id("s"), Seq(9), Page::USUAL).await.unwrap().is_empty());
}

pub async fn big_content_comes_back(store: &dyn Store) {
    let claim = store.create(new_session("s")).await.unwrap();
    let sizes = [16 * 1024, 16 * 1024 + 1, 3 << 20];
    let bodies: Vec<_> = sizes.iter().map(|size| text(&"ü\"".repeat(size / 3 + 1))).collect();
    append(store, &claim, 1, bodies.clone()).await.unwrap();
    let page = Page { count_max: 10, bytes_max: usize::MAX, outline: false };
    let events = store.read(&session_id("s"), Seq::START, page).await.unwrap();
    assert!(events.iter().map(|event| &event.body).eq(&bodies));
}

async fn hundred(store: &dyn Store) {
    let claim = store.create(new_session("s")).await.unwrap();
    let bodies = (1..=100).map(|number| text(&format!("{number:01000}"))).collect();
    append(store, &claim, 1, bodies).await.unwrap();
}

/// Reads everything in pages, and says how long each was.
async fn page_lengths(store: &dyn Store, page: Page) -> Vec<usize> {
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
        page_lengths(store, Page { count_max: 40, bytes_max: usize::MAX, outline: false }).await,
        [40, 40, 20]
    );
    assert_eq!(
        page_lengths(store, Page { count_max: 100, bytes_max: usize::MAX, outline: false }).await,
        [100]
    );
    assert_eq!(
        page_lengths(store, Page { count_max: usize::MAX, bytes_max: usize::MAX, outline: false }).await,
        [100]
    );
}

pub async fn pages_are_bounded_by_bytes_past_the_first_event(store: &dyn Store) {
    hundred(store).await;
    assert_eq!(
        page_lengths(store, Page { count_max: usize::MAX, bytes_max: 1, outline: false }).await,
        [1; 100]
    );
    let lengths =
        page_lengths(store, Page { count_max: usize::MAX, bytes_max: 20_000, outline: false }).await;
    assert!(lengths.len() > 4 && lengths.iter().all(|length| *length <= 20), "{lengths:?}");
    assert_eq!(lengths.iter().sum::<usize>(), 100);
}

pub async fn appends_that_race_all_arrive(store: &dyn Store) {
    let mut claims = Vec::new();
    for number in 0..8 {
        claims.push(store.create(new_session(&format!("s{number}"))).await.unwrap());
    }
    let stale = Claim { epoch: Epoch(99), ..claims[0].clone() };
    // Made before any is waited for, so that they are queued together.
    for round in 0..20 {
        let mut waiting = Vec::new();
        for claim in claims.iter().chain([&stale]) {
            let events = vec![event(2 * round + 1, text("a")), event(2 * round + 2, text("b"))];
            let session = claim.row.id.clone();
            let sync = round % 5 == 0;
            waiting.push((claim.epoch, store.append(Batch { session, epoch: claim.epoch, events, sync })));
        }
        for (epoch, append) in waiting {
            let appended = append.await;
            if epoch == stale.epoch {
                assert!(matches!(appended, Err(StoreError::Fenced)));
            } else {
                appended.unwrap();
            }
        }
    }
    for claim in &claims {
        let events = store.read(&claim.row.id, Seq::START, Page::USUAL).await.unwrap();
        assert!(events.iter().map(|event| event.seq.0).eq(1..=40));
    }
}

pub async fn the_row_follows_the_events(store: &dyn Store) {
    let id = session_id("s");
    let claim = store.create(new_session("s")).await.unwrap();
    append(store, &claim, 1, vec![Body::TurnStarted, text("a")]).await.unwrap();
    let row = store.find(&id).await.unwrap();
    assert_eq!((row.busy, row.last_seq, row.updated_at), (true, Seq(2), Timestamp(1002)));
    assert_eq!((row.title, row.cwd), (None, PathBuf::from("/work/project")));
    let ended = Body::TurnEnded { stop: Stop::EndTurn, error: None };
    let moved = Body::Moved { cwd: "/elsewhere".into() };
    let titles = ["one", "two"].map(|title| Body::Title { title: title.into() });
    append(store, &claim, 3, vec![moved].into_iter().chain(titles).chain([ended]).collect()).await.unwrap();
    let row = store.find(&id).await.unwrap();
    assert_eq!((row.busy, row.last_seq, row.created_at), (false, Seq(6), Timestamp(1000)));
    assert_eq!((row.title.as_deref(), row.cwd.as_path()), (Some("two"), Path::new("/elsewhere")));
    assert_eq!(store.claim(&id).await.unwrap().row, row);
}

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
    assert_eq!(listed(store, of("/work/project")).await.len(), 5);
    assert!(listed(store, of("/work")).await.is_empty());
    assert_eq!(listed(store, ListQuery { limit: 1, ..of("/work/project") }).await, ["a"]);
}

pub async fn lists_show_only_what_the_owner_owns(store: &dyn Store) {
    five(store).await;
    let other = Principal("other".into());
    store.create(NewSession { owner: other.clone(), ..new_session("x") }).await.unwrap();
    assert_eq!(listed(store, ListQuery::all(other)).await, ["x"]);
    assert_eq!(listed(store, everything()).await.len(), 5);
    assert!(listed(store, ListQuery::all(Principal("loca".into()))).await.is_empty());
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

pub async fn deletion_says_whether_there_was_something(store: &dyn Store) {
    let claim = store.create(new_session("s")).await.unwrap();
    append(store, &claim, 1, vec![text("a")]).await.unwrap();
    assert!(store.delete(&session_id("s")).await.unwrap());
    assert!(!store.delete(&session_id("s")).await.unwrap());
    assert!(!store.delete(&session_id("nobody")).await.unwrap());
    assert!(matches!(store.find(&session_id("s")).await, Err(StoreError::NotFound)));
    let read = store.read(&session_id("s"), Seq::START, Page::USUAL).await;
    assert!(matches!(read, Err(StoreError::NotFound)));
    assert!(listed(store, everything()).await.is_empty());
}

pub async fn renaming_changes_the_title_alone(store: &dyn Store) {
    let claim = store.create(new_session("s")).await.unwrap();
    store.rename(&session_id("s"), "a \"title\"").await.unwrap();
    let row = store.find(&session_id("s")).await.unwrap();
    assert_eq!(row.title.as_deref(), Some("a \"title\""));
    assert_eq!(engine::SessionRow { title: None, ..row }, claim.row);
    append(store, &claim, 1, vec![text("still its owner")]).await.unwrap();
}

pub async fn a_rule_replaces_the_one_about_the_same_wish(store: &dyn Store) {
    let rule = |tool: &str, subject: &str, allow| Rule {
        workspace: "/work/project".into(),
        tool: tool.into(),
        subject: subject.into(),
        allow,
    };
    assert!(store.rules().await.unwrap().is_empty());
    for added in [rule("shell", "ls", true), rule("shell", "rm", true), rule("shell", "ls", false)] {
        store.add_rule(added).await.unwrap();
    }
    let elsewhere = Rule { workspace: "/other".into(), ..rule("shell", "ls", true) };
    store.add_rule(elsewhere.clone()).await.unwrap();
    let rules = store.rules().await.unwrap();
    assert_eq!(rules, [rule("shell", "rm", true), rule("shell", "ls", false), elsewhere]);
}
