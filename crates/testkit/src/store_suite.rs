//! The promises of [`Store`], each as one check that any engine has to pass.
//!
//! An engine runs all of them with one line in its tests, `testkit::store_suite!(make());`, where the
//! expression gives a fresh, empty store and something to keep alive beside it (a directory).
#![expect(clippy::unwrap_used, reason = "a check fails by panicking")]

mod events;
mod lists;
mod sessions;

use std::sync::Arc;

use engine::{
    Body, Claim, Event, EventBatch, MessageId, NewSession, Origin, PageRequest, Principal, Seq, SessionId,
    Store, StoreError, Timestamp, TurnId,
};

pub use events::*;
pub use lists::*;
pub use sessions::*;

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
            an_outline_leaves_out_what_was_streamed
            appends_that_race_all_arrive
            the_row_follows_the_events
            a_queued_turn_that_ends_leaves_the_running_one_running
            lists_show_the_newest_first
            lists_go_on_after_a_cursor
            lists_are_narrowed_to_a_directory
            lists_show_only_what_the_owner_owns
            what_was_only_set_up_was_never_used
            a_fork_has_the_events_and_leaves_the_source_alone
            a_fork_of_an_empty_session_is_empty
            an_import_is_a_session_like_any_other
            an_import_that_came_to_nothing_leaves_its_id_free
            deletion_says_whether_there_was_something
            renaming_changes_the_title_alone
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
        cwd: "/home/project".into(),
        roots: vec!["/home/library".into()],
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
    Arc::new(Event { seq: Seq(seq), at, origin: Origin::Agent, turn: Some(TurnId(1)), body, relayed: None })
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
    store.append(EventBatch { session, epoch: claim.epoch, events, sync: false }).await
}

pub async fn texts(store: &dyn Store, id: &str) -> Vec<(u64, String)> {
    let events = store.read(&session_id(id), Seq::START, PageRequest::USUAL).await.unwrap();
    let shown = events.iter().map(|event| match &event.body {
        Body::Text { text, .. } => (event.seq.0, text.to_string()),
        body => (event.seq.0, format!("{body:?}")),
    });
    shown.collect()
}
