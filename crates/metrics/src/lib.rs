//! What the server counts of itself, in the process that does the work.
//!
//! Most numbers are read from the sessions' logs ([`Metrics`] is a [`engine::Follower`]), so they are the
//! same whichever door somebody came through. Only what never reaches a log is counted at the doors:
//! connections, messages, refusals, how far readers are behind.
//!
//! **Invariant:** every label has a closed set of values. Nothing that a client or an agent chose freely
//! becomes a label, so nobody can make the server remember ever more series.

mod log;
mod message;
mod process;
mod readers;
mod text;
mod timed;
mod words;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use engine::{Resolution, Resolver, Stop, Store, SurfaceId, Timestamp, Usage};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Metric, Registry};

pub use self::log::Counting;
pub use self::message::{Deferred, MessageOutcome, Tally, shortened};
pub use self::readers::LagHandle;
use self::readers::Readers;
use self::words::{BY_DOOR_UNKNOWN, KINDS};
pub use self::words::{Door, Reason, SessionState, Spans};

/// What [`Metrics::render`] writes: OpenMetrics, for scrapers that ask for it.
pub const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// What [`Metrics::render_plain`] writes: the older text form, which everything understands.
pub const PLAIN_TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// From a write that only reaches the page cache to a disk that is in trouble.
const APPEND_BUCKETS: [f64; 12] =
    [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 2.0, 10.0];
/// More tokens than any model call has. An agent that reports more must not make the sum wrap around.
const TOKENS_MAX: u64 = 1 << 40;
/// More dollars than any model call costs.
const COST_MAX: f64 = 1e6;

pub struct Metrics {
    registry: Registry,
    messages: Family<MessageLabels, Counter>,
    active_sessions: Gauge,
    sessions: Family<StateLabels, Gauge>,
    turns: Family<StopLabels, Counter>,
    tokens: Family<KindLabels, Counter>,
    cost: Counter<f64, AtomicU64>,
    asks_pending: Gauge,
    asks_answered: Family<AnswerLabels, Counter>,
    events_appended: Counter,
    append_failures: Counter,
    append_seconds: Histogram,
    prompts_waiting: Gauge,
    connections: Family<DoorLabels, Gauge>,
    readers: Readers,
    rejected: Family<ReasonLabels, Counter>,
    trace_spans: Family<FateLabels, Counter>,
    process: process::Facts,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct MessageLabels {
    method: &'static str,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabels {
    state: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StopLabels {
    stop: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabels {
    kind: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AnswerLabels {
    decision: &'static str,
    by: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DoorLabels {
    door: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabels {
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FateLabels {
    fate: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct VersionLabels {
    version: &'static str,
}

/// A connection that is open: counted until this is dropped.
pub struct Guard {
    metrics: Arc<Metrics>,
    door: Door,
}

impl Guard {
    /// Answers of this surface count as answers through this door, also for a while after it has gone.
    pub fn surface(&self, id: SurfaceId) {
        self.metrics.readers.remember(id, self.door);
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.metrics.connections.get_or_create(&DoorLabels { door: self.door.name() }).dec();
    }
}

impl Metrics {
    pub fn new(version: &'static str, started: Timestamp) -> Arc<Self> {
        let mut registry = Registry::default();
        let mut acp = Shelf(registry.sub_registry_with_prefix("bernstein_acp"));
        let messages = acp.keep("messages", "Messages of clients, by what came of them", Family::default());
        let active_sessions = acp.keep("active_sessions", "Sessions in memory", Gauge::default());
        let mut ours = Shelf(registry.sub_registry_with_prefix("ropewalk"));
        let version = Info::new(VersionLabels { version });
        ours.0.register("build", "The version that runs", version);
        let process = process::Facts::register(ours.0, started);
        let metrics = Self {
            messages,
            active_sessions,
            sessions: ours.keep("sessions", "Sessions in memory, by what they do", Family::default()),
            turns: ours.keep("turns", "Turns that ended, by why", Family::default()),
            tokens: ours.keep("tokens", "Tokens that models reported, by kind", Family::default()),
            cost: ours.keep("cost_usd", "US dollars that models reported", Counter::default()),
            asks_pending: ours.keep("asks_pending", "Questions that wait for a person", Gauge::default()),
            asks_answered: ours.keep(
                "asks_answered",
                "Wishes of tools that were decided, by how and by whom",
                Family::default(),
            ),
            events_appended: ours.keep("events_appended", "Events written to the store", Counter::default()),
            append_failures: ours.keep(
                "append_failures",
                "Batches of events that the store did not take",
                Counter::default(),
            ),
            append_seconds: ours.keep(
                "append_seconds",
                "How long the store took for a batch of events",
                Histogram::new(APPEND_BUCKETS),
            ),
            prompts_waiting: ours.keep(
                "prompts_waiting",
                "Prompts that wait behind a running turn",
                Gauge::default(),
            ),
            connections: ours.keep("connections", "Open connections, by door", Family::default()),
            readers: Readers::register(ours.0),
            rejected: ours.keep("rejected", "Input that was refused, by why", Family::default()),
            trace_spans: ours.keep(
                "trace_spans",
                "Spans for the collector of traces, by fate",
                Family::default(),
            ),
            process,
            registry,
        };
        metrics.begin_at_zero();
        Arc::new(metrics)
    }

    /// A message of a client was dealt with. A method that no dialect has counts as `unknown`.
    pub fn message(&self, method: &str, outcome: MessageOutcome) {
        let labels = MessageLabels { method: words::method(method), outcome: outcome.name() };
        self.messages.get_or_create(&labels).inc();
    }

    /// Something was refused before it could become a call, or instead of becoming one.
    pub fn rejected(&self, reason: Reason) {
        self.rejected.get_or_create(&ReasonLabels { reason: reason.name() }).inc();
    }

    /// A connection was opened; it counts until the answer is dropped.
    #[must_use = "the connection counts as closed as soon as this is dropped"]
    pub fn connection(self: &Arc<Self>, door: Door) -> Guard {
        self.connections.get_or_create(&DoorLabels { door: door.name() }).inc();
        Guard { metrics: Arc::clone(self), door }
    }

    /// A reader of a log, which says from time to time how far it is behind.
    #[must_use = "the reader counts as gone as soon as this is dropped"]
    pub fn reader(&self) -> LagHandle {
        self.readers.join()
    }

    /// What became of spans on their way to the collector of traces.
    pub fn spans(&self, fate: Spans, count: u64) {
        self.trace_spans.get_or_create(&FateLabels { fate: fate.name() }).inc_by(count);
    }

    /// The store, with every append measured.
    pub fn timed(self: &Arc<Self>, store: Arc<dyn Store>) -> Arc<dyn Store> {
        Arc::new(timed::Timed { store, metrics: Arc::clone(self) })
    }

    /// Everything, in the OpenMetrics form ([`OPEN_METRICS`]).
    pub fn render(&self) -> String {
        self.readers.measure();
        self.process.measure();
        let mut out = String::new();
        if prometheus_client::encoding::text::encode(&mut out, &self.registry).is_err() {
            // Writing to a string does not fail; an empty page tells a scraper that something is wrong.
            tracing::error!("the metrics cannot be written down; this is a bug");
            out.clear();
        }
        out
    }

    /// Everything, in the older text form ([`PLAIN_TEXT`]).
    pub fn render_plain(&self) -> String {
        text::plain(&self.render())
    }

    fn appended(&self, events: usize, took: Duration, written: bool) {
        self.append_seconds.observe(took.as_secs_f64());
        if written {
            self.events_appended.inc_by(u64::try_from(events).unwrap_or(u64::MAX));
        } else {
            self.append_failures.inc();
        }
    }

    fn session_is(&self, state: SessionState) -> Gauge {
        self.sessions.get_or_create_owned(&StateLabels { state: state.name() })
    }

    fn turn_ended(&self, stop: Stop) {
        self.turns.get_or_create(&StopLabels { stop: stop.as_str() }).inc();
    }

    fn used(&self, usage: &Usage) {
        let tokens = [usage.input, usage.output, usage.cache_read, usage.cache_write, usage.reasoning];
        for (kind, tokens) in KINDS.into_iter().zip(tokens) {
            self.tokens.get_or_create(&KindLabels { kind }).inc_by(tokens.min(TOKENS_MAX));
        }
        // A counter cannot go down, and an agent may report anything.
        if usage.cost_usd > 0.0 {
            self.cost.inc_by(usage.cost_usd.min(COST_MAX));
        }
    }

    fn decided(&self, resolution: Resolution, by: &Resolver) {
        let by = match by {
            Resolver::Policy { .. } => "policy",
            Resolver::Rule { .. } => "rule",
            Resolver::Engine => "engine",
            Resolver::Surface { id, .. } => self.readers.door_of(*id).map_or(BY_DOOR_UNKNOWN, Door::name),
        };
        let labels = AnswerLabels { decision: resolution.as_str(), by };
        self.asks_answered.get_or_create(&labels).inc();
    }

    /// What has not happened yet is 0 and not absent: only so does a rate see the first time.
    fn begin_at_zero(&self) {
        let outcomes = MessageOutcome::ALL.map(MessageOutcome::name);
        for outcome in outcomes {
            drop(self.messages.get_or_create(&MessageLabels { method: words::UNKNOWN, outcome }));
        }
        for state in SessionState::ALL {
            drop(self.session_is(state));
        }
        for stop in Stop::ALL.iter().map(|stop| stop.as_str()) {
            drop(self.turns.get_or_create(&StopLabels { stop }));
        }
        for kind in KINDS {
            drop(self.tokens.get_or_create(&KindLabels { kind }));
        }
        for decision in Resolution::ALL.iter().map(|resolution| resolution.as_str()) {
            drop(self.asks_answered.get_or_create(&AnswerLabels { decision, by: BY_DOOR_UNKNOWN }));
        }
        for door in Door::ALL.map(Door::name) {
            drop(self.connections.get_or_create(&DoorLabels { door }));
        }
        for reason in Reason::ALL.map(Reason::name) {
            drop(self.rejected.get_or_create(&ReasonLabels { reason }));
        }
        for fate in Spans::ALL.map(Spans::name) {
            drop(self.trace_spans.get_or_create(&FateLabels { fate }));
        }
    }
}

/// Where metrics of one prefix are put.
struct Shelf<'a>(&'a mut Registry);

impl Shelf<'_> {
    fn keep<M: Metric + Clone>(&mut self, name: &str, help: &str, metric: M) -> M {
        self.0.register(name, help, metric.clone());
        metric
    }
}
