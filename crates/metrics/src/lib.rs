//! The server's own metrics, counted in the process that does the work.
//!
//! Most numbers come from the sessions' logs ([`Metrics`] is used by a [`engine::Follower`]), so they are the
//! same whichever door a client used. Only what never reaches a log is counted at the doors:
//! connections, messages, refusals, how far readers are behind.
//!
//! **Invariant:** every label has a closed set of values. Nothing that a client or an agent chose freely
//! becomes a label, so nobody can make the server remember ever more series.

mod label_values;
mod log_readers;
mod metrics_follower;
mod process;
mod prometheus_text;
mod request_outcomes;
mod timed_store;

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

use self::label_values::{BY_DOOR_UNKNOWN, KINDS};
pub use self::label_values::{DoorLabel, RejectReason, SessionStateLabel, SpanFate};
pub use self::log_readers::LagReporter;
use self::log_readers::LogReaders;
pub use self::metrics_follower::MetricsFollower;
pub use self::request_outcomes::{DeferredRequest, MessageOutcome, RequestTally, shortened};

/// The content type of [`Metrics::render`]: OpenMetrics, for scrapers that ask for it.
pub const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// The content type of [`Metrics::render_plain`]: the older text format, which every scraper understands.
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
    readers: LogReaders,
    rejected: Family<ReasonLabels, Counter>,
    trace_spans: Family<FateLabels, Counter>,
    process: process::ProcessGauges,
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

/// An open connection, counted until this is dropped.
pub struct ConnectionGuard {
    metrics: Arc<Metrics>,
    door: DoorLabel,
}

impl ConnectionGuard {
    /// Answers of this surface count as answers through this door, also for a while after it has gone.
    pub fn surface(&self, id: SurfaceId) {
        self.metrics.readers.remember(id, self.door);
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.metrics.connections.get_or_create(&DoorLabels { door: self.door.name() }).dec();
    }
}

impl Metrics {
    pub fn new(version: &'static str, started: Timestamp) -> Arc<Self> {
        let mut registry = Registry::default();
        let mut acp_registry = PrefixedRegistry(registry.sub_registry_with_prefix("bernstein_acp"));
        let messages =
            acp_registry.register("messages", "Messages from clients, by outcome", Family::default());
        let active_sessions =
            acp_registry.register("active_sessions", "Sessions in memory", Gauge::default());
        let mut own_registry = PrefixedRegistry(registry.sub_registry_with_prefix("ropewalk"));
        let version = Info::new(VersionLabels { version });
        own_registry.0.register("build", "Running version", version);
        let process = process::ProcessGauges::register(own_registry.0, started);
        let metrics = Self {
            messages,
            active_sessions,
            sessions: own_registry.register("sessions", "Sessions in memory, by state", Family::default()),
            turns: own_registry.register("turns", "Turns that ended, by reason", Family::default()),
            tokens: own_registry.register(
                "tokens",
                "Tokens that models reported, by kind",
                Family::default(),
            ),
            cost: own_registry.register("cost_usd", "US dollars that models reported", Counter::default()),
            asks_pending: own_registry.register(
                "asks_pending",
                "Permission requests that wait for a person",
                Gauge::default(),
            ),
            asks_answered: own_registry.register(
                "asks_answered",
                "Decisions about tool actions, by outcome and by who decided",
                Family::default(),
            ),
            events_appended: own_registry.register(
                "events_appended",
                "Events written to the store",
                Counter::default(),
            ),
            append_failures: own_registry.register(
                "append_failures",
                "Batches of events that the store failed to write",
                Counter::default(),
            ),
            append_seconds: own_registry.register(
                "append_seconds",
                "How long the store took for a batch of events",
                Histogram::new(APPEND_BUCKETS),
            ),
            prompts_waiting: own_registry.register(
                "prompts_waiting",
                "Prompts that wait behind a running turn",
                Gauge::default(),
            ),
            connections: own_registry.register("connections", "Open connections, by door", Family::default()),
            readers: LogReaders::register(own_registry.0),
            rejected: own_registry.register(
                "rejected",
                "Input that was refused, by reason",
                Family::default(),
            ),
            trace_spans: own_registry.register(
                "trace_spans",
                "Trace spans for the collector, by outcome",
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
        let labels = MessageLabels { method: label_values::method(method), outcome: outcome.name() };
        self.messages.get_or_create(&labels).inc();
    }

    /// Something was refused before it could become a call, or instead of becoming one.
    pub fn rejected(&self, reason: RejectReason) {
        self.rejected.get_or_create(&ReasonLabels { reason: reason.name() }).inc();
    }

    /// A connection was opened; it counts until the answer is dropped.
    #[must_use = "the connection counts as closed as soon as this is dropped"]
    pub fn connection(self: &Arc<Self>, door: DoorLabel) -> ConnectionGuard {
        self.connections.get_or_create(&DoorLabels { door: door.name() }).inc();
        ConnectionGuard { metrics: Arc::clone(self), door }
    }

    /// A reader of a log, which says from time to time how far it is behind.
    #[must_use = "the reader counts as gone as soon as this is dropped"]
    pub fn reader(&self) -> LagReporter {
        self.readers.join()
    }

    /// Counts spans on their way to the trace collector.
    pub fn spans(&self, fate: SpanFate, count: u64) {
        self.trace_spans.get_or_create(&FateLabels { fate: fate.name() }).inc_by(count);
    }

    /// The store, with every append measured.
    pub fn timed(self: &Arc<Self>, store: Arc<dyn Store>) -> Arc<dyn Store> {
        Arc::new(timed_store::TimedStore { store, metrics: Arc::clone(self) })
    }

    /// Everything, in the OpenMetrics form ([`OPEN_METRICS`]).
    pub fn render(&self) -> String {
        self.readers.measure();
        self.process.measure();
        let mut out = String::new();
        if prometheus_client::encoding::text::encode(&mut out, &self.registry).is_err() {
            // Writing to a string does not fail; an empty page shows a scraper that something is wrong.
            tracing::error!("could not write the metrics; this is a bug");
            out.clear();
        }
        out
    }

    /// Everything, in the older text form ([`PLAIN_TEXT`]).
    pub fn render_plain(&self) -> String {
        prometheus_text::plain(&self.render())
    }

    fn appended(&self, events: usize, took: Duration, written: bool) {
        self.append_seconds.observe(took.as_secs_f64());
        if written {
            self.events_appended.inc_by(u64::try_from(events).unwrap_or(u64::MAX));
        } else {
            self.append_failures.inc();
        }
    }

    fn session_is(&self, state: SessionStateLabel) -> Gauge {
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
            Resolver::Surface { id, .. } => {
                self.readers.door_of(*id).map_or(BY_DOOR_UNKNOWN, DoorLabel::name)
            }
        };
        let labels = AnswerLabels { decision: resolution.as_str(), by };
        self.asks_answered.get_or_create(&labels).inc();
    }

    /// Counters start at 0 instead of being absent: only then does a rate include the first occurrence.
    fn begin_at_zero(&self) {
        let outcomes = MessageOutcome::ALL.map(MessageOutcome::name);
        for outcome in outcomes {
            drop(self.messages.get_or_create(&MessageLabels { method: label_values::UNKNOWN, outcome }));
        }
        for state in SessionStateLabel::ALL {
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
        for door in DoorLabel::ALL.map(DoorLabel::name) {
            drop(self.connections.get_or_create(&DoorLabels { door }));
        }
        for reason in RejectReason::ALL.map(RejectReason::name) {
            drop(self.rejected.get_or_create(&ReasonLabels { reason }));
        }
        for fate in SpanFate::ALL.map(SpanFate::name) {
            drop(self.trace_spans.get_or_create(&FateLabels { fate }));
        }
    }
}

/// Registers the metrics of one prefix.
struct PrefixedRegistry<'a>(&'a mut Registry);

impl PrefixedRegistry<'_> {
    fn register<M: Metric + Clone>(&mut self, name: &str, help: &str, metric: M) -> M {
        self.0.register(name, help, metric.clone());
        metric
    }
}
