//! All readers of a log see the same, however far behind they are and wherever they join.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use proptest::prelude::*;

use super::{Doorbell, EventLog, LogRead, LogReader, RingLimits};
use crate::event::{Body, Event, Origin};
use crate::ids::{MessageId, Principal, Seq, SessionId, Timestamp};
use crate::store::{Claim, EventBatch, NewSession, PageRequest, Store};
use crate::testing::FailingStore;

/// A log whose older part is in the store alone.
struct Writer {
    store: Arc<FailingStore>,
    claim: Claim,
    log: EventLog,
    written: Vec<u64>,
}

impl Writer {
    fn new(old: u64, gap: u64, limits: RingLimits) -> Self {
        let store = Arc::new(FailingStore::default());
        let id = SessionId::parse("s").unwrap();
        let session = NewSession {
            id: id.clone(),
            owner: Principal::local(),
            cwd: "/project".into(),
            roots: Vec::new(),
            parent: None,
            source: "test".into(),
            created_at: Timestamp(0),
            title: None,
        };
        let claim = now(store.inner.create(session)).unwrap();
        let shared: Arc<dyn Store> = Arc::<FailingStore>::clone(&store);
        let first = EventLog::new(id.clone(), Arc::clone(&shared), Seq(1), limits);
        let mut writer = Self { store, claim, log: first, written: Vec::new() };
        writer.write(old, 10);
        writer.log = EventLog::new(id, shared, Seq(old + gap + 1), limits);
        writer
    }

    fn write(&mut self, count: u64, bytes: usize) {
        for _ in 0..count {
            let body = Body::Text { message: MessageId(1), text: "x".repeat(bytes).into() };
            self.written.push(self.log.push(Timestamp(0), Origin::Agent, None, body).0);
        }
        let events = self.log.take_pending();
        now(self.store.inner.append(self.batch(&events))).unwrap();
        self.log.publish(&events);
    }

    fn batch(&self, events: &[Arc<Event>]) -> EventBatch {
        let session = self.claim.row.id.clone();
        EventBatch { session, epoch: self.claim.epoch, events: events.to_vec(), sync: false }
    }

    fn after(&self, cursor: u64) -> Vec<u64> {
        self.written.iter().copied().filter(|seq| *seq > cursor).collect()
    }
}

struct Reading {
    reader: LogReader,
    page: PageRequest,
    joined: u64,
    got: Vec<u64>,
    ended: bool,
}

impl Reading {
    async fn take(&mut self) {
        match self.reader.take(self.page).await.unwrap() {
            LogRead::Events(events) => {
                assert!(!events.is_empty() && events.len() <= self.page.count_max);
                self.got.extend(events.iter().map(|event| event.seq.0));
                assert_eq!(self.reader.cursor().0, *self.got.last().unwrap());
            }
            LogRead::UpToDate => {}
            LogRead::Ended { .. } => self.ended = true,
        }
    }
}

/// A write of so many events of so many bytes, a step of a reader, or a new reader.
#[derive(Debug, Clone)]
enum Step {
    Write(u64, usize),
    Read(usize),
    Join(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => (1..12u64, prop_oneof![Just(1usize), 0..400usize]).prop_map(|(count, bytes)| Step::Write(count, bytes)),
        4 => (0..8usize).prop_map(Step::Read),
        1 => (0..150u64).prop_map(Step::Join),
    ]
}

fn page() -> impl Strategy<Value = PageRequest> {
    (1..20usize, prop_oneof![Just(0usize), 1..3000usize, Just(usize::MAX)])
        .prop_map(|(count_max, bytes_max)| PageRequest { count_max, bytes_max, outline: false })
}

fn limits() -> impl Strategy<Value = RingLimits> {
    (0..20usize, prop_oneof![0..3000usize, Just(usize::MAX)])
        .prop_map(|(events_max, bytes_max)| RingLimits { events_max, bytes_max })
}

/// The outcome of a future that never waits: the memory store's are such.
fn now<T>(future: impl Future<Output = T>) -> T {
    let mut context = Context::from_waker(Waker::noop());
    match std::pin::pin!(future).poll(&mut context) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("it waits"),
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

proptest! {
    #[test]
    fn all_readers_get_exactly_what_is_after_their_cursor(
        (old, gap, limits) in (0..40u64, prop_oneof![Just(0u64), 0..9u64], limits()),
        pages in proptest::collection::vec(page(), 1..8),
        joined in proptest::collection::vec(0..60u64, 1..5),
        steps in proptest::collection::vec(step(), 0..60),
    ) {
        block_on(async move {
            let mut writer = Writer::new(old, gap, limits);
            let mut pages = pages.into_iter().cycle();
            let mut join = |writer: &Writer, cursor| Reading {
                reader: writer.log.shared().reader(Seq(cursor)),
                page: pages.next().unwrap(),
                joined: cursor,
                got: Vec::new(),
                ended: false,
            };
            let mut readers: Vec<_> = joined.into_iter().map(|cursor| join(&writer, cursor)).collect();
            for step in steps {
                match step {
                    Step::Write(count, bytes) => writer.write(count, bytes),
                    Step::Read(at) => {
                        let at = at % readers.len();
                        readers[at].take().await;
                        assert!(!readers[at].ended);
                    }
                    Step::Join(cursor) => readers.push(join(&writer, cursor)),
                }
            }
            writer.log.close(None);
            // Whoever joins after the close gets the same.
            readers.push(join(&writer, 0));
            for reading in &mut readers {
                while !reading.ended {
                    reading.take().await;
                }
                assert_eq!(reading.got, writer.after(reading.joined), "joined at {}", reading.joined);
            }
        });
    }
}

#[test]
fn what_is_written_while_a_reader_stands_at_a_gap_is_not_skipped() {
    block_on(async {
        let limits = RingLimits { events_max: 2, bytes_max: usize::MAX };
        let writer = Writer::new(3, 5, limits);
        let mut reader = writer.log.shared().reader(Seq(3));
        let store = Arc::clone(&writer.store);
        let writer = Arc::new(Mutex::new(writer));
        // The store has nothing for the reader yet; before it says so, more is written than the ring holds.
        let writing = Arc::clone(&writer);
        *store.during_read.lock().unwrap() = Some(Box::new(move || writing.lock().unwrap().write(10, 1)));
        let page = PageRequest { count_max: 4, bytes_max: usize::MAX, outline: false };
        let LogRead::Events(events) = reader.take(page).await.unwrap() else { panic!("there are events") };
        assert_eq!(events.first().unwrap().seq, Seq(9));
        drop(writer);
    });
}

#[test]
fn a_writer_that_is_gone_without_a_word_ends_the_log_with_trouble() {
    block_on(async {
        let writer = Writer::new(0, 0, RingLimits::default());
        let mut reader = writer.log.shared().reader(Seq::START);
        drop(writer);
        let LogRead::Ended { trouble } = reader.take(PageRequest::USUAL).await.unwrap() else {
            panic!("it is over")
        };
        assert!(trouble.unwrap().contains("unexpectedly"));
    });
}

#[test]
fn a_bell_that_rang_before_anybody_waited_is_not_lost() {
    block_on(async {
        let bell = Arc::new(Doorbell::default());
        bell.ring(7);
        bell.ring(8);
        bell.ring(7);
        assert_eq!(bell.wait().await, [7, 8]);
        let rung = Arc::new(AtomicUsize::new(0));
        let waiting = async {
            bell.wait().await;
            rung.fetch_add(1, Ordering::SeqCst);
        };
        tokio::join!(waiting, async { bell.ring(1) });
        assert_eq!(rung.load(Ordering::SeqCst), 1);
    });
}
