//! The metrics of a hub's node.

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct CallLabels {
    outcome: &'static str,
}

/// What came of a request of a person that went to a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MachineCallOutcome {
    Answered,
    /// The machine is not connected.
    Away,
    /// Its connection ended before it answered.
    Cut,
    /// Too many requests wait for it.
    Full,
    /// It did not answer in time.
    Late,
}

impl MachineCallOutcome {
    pub const ALL: [Self; 5] = [Self::Answered, Self::Away, Self::Cut, Self::Full, Self::Late];

    pub fn name(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::Away => "away",
            Self::Cut => "cut",
            Self::Full => "full",
            Self::Late => "late",
        }
    }
}

pub struct HubMetrics {
    registry: Registry,
    pub bridges: Gauge,
    pub machines: Gauge,
    pub browsers: Gauge,
    pub watches: Gauge,
    pub events: Counter,
    pub event_bytes: Counter,
    pub views: Counter,
    pub frames: Counter,
    pub calls: Family<CallLabels, Counter>,
    pub call_seconds: Histogram,
    /// From the arrival of a batch until it was stored.
    pub lag_seconds: Histogram,
    pub store_errors: Counter,
    pub hostile: Counter,
}

impl Default for HubMetrics {
    fn default() -> Self {
        let buckets = || Histogram::new([0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0, 30.0]);
        let mut this = Self {
            registry: Registry::with_prefix("ropewalk_hub"),
            bridges: Gauge::default(),
            machines: Gauge::default(),
            browsers: Gauge::default(),
            watches: Gauge::default(),
            events: Counter::<u64, AtomicU64>::default(),
            event_bytes: Counter::default(),
            views: Counter::default(),
            frames: Counter::default(),
            calls: Family::default(),
            call_seconds: buckets(),
            lag_seconds: buckets(),
            store_errors: Counter::default(),
            hostile: Counter::default(),
        };
        let registry = &mut this.registry;
        registry.register("bridges", "Sockets of bridged sessions", this.bridges.clone());
        registry.register("machines", "Sockets of machines", this.machines.clone());
        registry.register("browsers", "Sockets of people", this.browsers.clone());
        registry.register("watches", "Watched sessions, counted for each watcher", this.watches.clone());
        registry.register("events", "Events that were stored", this.events.clone());
        registry.register("event_bytes", "Bytes of events that were stored", this.event_bytes.clone());
        registry.register("views", "Views that were stored", this.views.clone());
        registry.register("frames", "Stored frames of bridges without a mirror", this.frames.clone());
        registry.register("calls", "Requests of people that were sent to a machine", this.calls.clone());
        registry.register("call_seconds", "Time until a machine's answer", this.call_seconds.clone());
        registry.register(
            "lag_seconds",
            "Time from a batch's arrival until it was stored",
            this.lag_seconds.clone(),
        );
        registry.register(
            "store_errors",
            "Times that the database did not answer",
            this.store_errors.clone(),
        );
        registry.register("hostile", "Connections that were closed for what they sent", this.hostile.clone());
        this
    }
}

impl HubMetrics {
    pub fn render(&self) -> String {
        let mut text = String::new();
        if let Err(error) = prometheus_client::encoding::text::encode(&mut text, &self.registry) {
            tracing::error!(%error, "could not write the metrics");
        }
        text
    }

    pub fn call(&self, outcome: MachineCallOutcome) {
        self.calls.get_or_create(&CallLabels { outcome: outcome.name() }).inc();
    }
}

/// Counts in a gauge until it is dropped.
pub struct GaugeGuard(Gauge);

impl GaugeGuard {
    pub fn new(gauge: &Gauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}
