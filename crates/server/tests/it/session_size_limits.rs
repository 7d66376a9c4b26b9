//! Whoever reads a whole session: memory does not grow with the session.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::{Arc, Mutex, Weak};

use engine::{
    Body, Claim, Epoch, Event, EventBatch, ListQuery, MemoryStore, MessageId, NewSession, NewSessionRequest,
    Origin, PageRequest, Principal, Registry, RegistryParts, Seq, SessionId, SessionRow, Store, StoreResult,
    SystemClock, Timestamp, TurnId,
};
use serde_json::{Value, json};
use service::SessionText;
use testkit::server::{Setup, run};
use wire::session_export_writer::DocumentFormat;

/// A store that knows how many of the events that it gave out are still held by somebody.
#[derive(Default)]
struct Counting {
    inner: MemoryStore,
    given: Mutex<Given>,
}

#[derive(Default)]
struct Given {
    alive: Vec<Weak<Event>>,
    most: usize,
}

impl Store for Counting {
    fn create(&self, session: NewSession) -> StoreResult<'_, Claim> {
        self.inner.create(session)
    }

    fn claim(&self, id: &SessionId) -> StoreResult<'_, Claim> {
        self.inner.claim(id)
    }

    fn owns(&self, id: &SessionId, epoch: Epoch) -> StoreResult<'_, bool> {
        self.inner.owns(id, epoch)
    }

    fn release(&self, id: &SessionId, epoch: Epoch) -> StoreResult<'_, ()> {
        self.inner.release(id, epoch)
    }

    fn append(&self, batch: EventBatch) -> StoreResult<'_, ()> {
        self.inner.append(batch)
    }

    fn read(&self, id: &SessionId, after: Seq, page: PageRequest) -> StoreResult<'_, Vec<Arc<Event>>> {
        let id = id.clone();
        Box::pin(async move {
            let read = self.inner.read(&id, after, page).await?;
            // Copies, so that the store's own hold on them does not count.
            let read: Vec<_> = read.iter().map(|event| Arc::new(Event::clone(event))).collect();
            let mut given = self.given.lock().unwrap();
            given.alive.retain(|event| event.strong_count() > 0);
            given.alive.extend(read.iter().map(Arc::downgrade));
            given.most = given.most.max(given.alive.len());
            Ok(read)
        })
    }

    fn find(&self, id: &SessionId) -> StoreResult<'_, SessionRow> {
        self.inner.find(id)
    }

    fn unused(&self, ids: Vec<SessionId>) -> StoreResult<'_, Vec<SessionId>> {
        self.inner.unused(ids)
    }

    fn list(&self, query: ListQuery) -> StoreResult<'_, Vec<SessionRow>> {
        self.inner.list(query)
    }

    fn fork(&self, source: &SessionId, session: NewSession) -> StoreResult<'_, Claim> {
        self.inner.fork(source, session)
    }

    fn import(&self, session: NewSession, events: Vec<Arc<Event>>) -> StoreResult<'_, Claim> {
        self.inner.import(session, events)
    }

    fn delete(&self, id: &SessionId) -> StoreResult<'_, bool> {
        self.inner.delete(id)
    }

    fn rename(&self, id: &SessionId, title: &str) -> StoreResult<'_, ()> {
        self.inner.rename(id, title)
    }
}

fn wish() -> NewSessionRequest {
    NewSessionRequest::new(Principal::local(), "/".into(), "import")
}

/// D5.
#[tokio::test]
async fn a_session_is_written_in_every_form_with_two_pages_of_it_in_memory() {
    let store = Arc::new(Counting::default());
    let backend = Arc::new(agent::Agent::new(agent::AgentConfig::offline()));
    let parts = RegistryParts::new(Arc::clone(&store) as Arc<dyn Store>, backend, Arc::new(SystemClock));
    let registry = Registry::new(parts);
    let events = testkit::long_log(20_000, None);
    let count = events.len();
    let handle = registry.import(wish(), None, events).await.unwrap();
    let id = handle.id().clone();
    drop(handle);
    for form in [
        DocumentFormat::Json { pretty: true },
        DocumentFormat::Json { pretty: false },
        DocumentFormat::Chimera,
        DocumentFormat::Markdown,
        DocumentFormat::Html,
        DocumentFormat::Plain { full: true },
        DocumentFormat::Messages,
    ] {
        *store.given.lock().unwrap() = Given::default();
        let row = registry.row(&Principal::local(), &id).await.unwrap();
        let mut text = SessionText::open(&registry, &Principal::local(), row, form).await.unwrap();
        let (mut bytes, mut largest) = (0, 0);
        while let Some(piece) = text.next().await.unwrap() {
            bytes += piece.len();
            largest = largest.max(piece.len());
        }
        let most = store.given.lock().unwrap().most;
        assert!(most <= 2 * PageRequest::USUAL.count_max, "{form:?} held {most} events");
        assert!(bytes > 10 * count && largest < bytes / 8, "{form:?}: {largest} of {bytes} bytes at once");
        assert_eq!(text.events(), count as u64, "{form:?}");
    }
    registry.shutdown().await;
}

fn texts(count: usize, bytes: usize) -> Vec<Event> {
    let text: Arc<str> = "x".repeat(bytes).into();
    let event = |number: usize| Event {
        seq: Seq(number as u64 + 1),
        at: Timestamp(1_600_000_000_000),
        origin: Origin::Agent,
        turn: Some(TurnId(1)),
        body: Body::Text { message: MessageId(number as u64), text: Arc::clone(&text) },
        relayed: None,
    };
    (0..count).map(event).collect()
}

/// D5: a reply is one frame.
#[tokio::test]
async fn a_session_that_is_too_long_for_one_reply_is_refused_and_read_in_parts() {
    run(Setup::offline(), async |server| {
        let handle = server.registry().import(wish(), None, texts(66, 1 << 20)).await.unwrap();
        let id = handle.id().to_string();
        drop(handle);
        let mut client = server.client().await;
        let refused = client.refused("_session/get", json!({ "session_id": id })).await;
        assert_eq!(refused.code, -32600);
        for word in ["64 MiB", "limit", "after", "next", "ropewalk sessions export"] {
            assert!(refused.message.contains(word), "{word}: {}", refused.message);
        }
        let refused = client.refused("_session/export", json!({ "session_id": id, "limit": 0 })).await;
        assert_eq!(refused.code, -32602);
        let (mut seqs, mut replies, mut after) = (Vec::new(), 0, json!(0));
        while !after.is_null() {
            let part = client.call("_session/export", json!({ "session_id": id, "after": after })).await;
            let events = part["events"].as_array().unwrap();
            seqs.extend(events.iter().map(|event| event["seq"].as_u64().unwrap()));
            after = part["next"].clone();
            replies += 1;
        }
        assert_eq!(seqs, (1..=66).collect::<Vec<_>>());
        assert_eq!(replies, 2);
    })
    .await;
}

#[tokio::test]
async fn a_part_has_as_many_events_as_were_wanted_and_says_where_to_go_on() {
    run(Setup::offline(), async |server| {
        let handle = server.registry().import(wish(), None, texts(5, 10)).await.unwrap();
        let id = handle.id().to_string();
        drop(handle);
        let mut client = server.client().await;
        let mut part = async |after: Value, limit: Value| {
            let params = json!({ "session_id": id, "after": after, "limit": limit });
            let part = client.call("_session/get", params).await;
            let seqs: Vec<_> =
                part["events"].as_array().unwrap().iter().map(|event| event["seq"].clone()).collect();
            (Value::Array(seqs), part.get("next").cloned())
        };
        let null = Value::Null;
        assert_eq!(part(null.clone(), json!(2)).await, (json!([1, 2]), Some(json!(2))));
        assert_eq!(part(json!(2), json!(2)).await, (json!([3, 4]), Some(json!(4))));
        assert_eq!(part(json!(4), json!(2)).await, (json!([5]), None));
        assert_eq!(part(json!(3), json!(2)).await, (json!([4, 5]), None));
        assert_eq!(part(json!(9), null.clone()).await, (json!([]), None));
        assert_eq!(part(null.clone(), null).await, (json!([1, 2, 3, 4, 5]), None));
    })
    .await;
}
