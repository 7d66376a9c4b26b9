//! The readers of logs, how far they are behind, and through which door each surface connected.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use engine::SurfaceId;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::DoorLabel;

/// Surfaces whose door is remembered. An answer is read from the log, perhaps after its connection has
/// closed; far fewer surfaces than this come and go meanwhile.
const SURFACES_MAX: usize = 4096;

/// How far a reader of a log is behind. It counts as gone when this is dropped.
pub struct LagReporter {
    behind: Arc<AtomicU64>,
}

impl LagReporter {
    /// Events that are in the log and not yet read.
    pub fn set(&self, behind: u64) {
        self.behind.store(behind, Ordering::Relaxed);
    }
}

pub(super) struct LogReaders {
    count: Gauge,
    lag: Family<LagLabels, Gauge>,
    lags: Mutex<Vec<Weak<AtomicU64>>>,
    surfaces: Mutex<SurfaceDoors>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LagLabels {
    of: &'static str,
}

#[derive(Default)]
struct SurfaceDoors {
    doors: HashMap<SurfaceId, DoorLabel>,
    /// Oldest first.
    order: VecDeque<SurfaceId>,
}

impl LogReaders {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let (count, lag) = (Gauge::default(), Family::default());
        registry.register("readers", "Readers of logs for clients", count.clone());
        let help = "Events that readers have not read yet: of the slowest reader, and of all together";
        registry.register("readers_lag_events", help, lag.clone());
        Self { count, lag, lags: Mutex::default(), surfaces: Mutex::default() }
    }

    pub(super) fn join(&self) -> LagReporter {
        let behind = Arc::new(AtomicU64::new(0));
        let mut lags = self.lags();
        // Looking for those that left only when the list would have to grow keeps this cheap.
        if lags.len() == lags.capacity() {
            lags.retain(|lag| lag.strong_count() > 0);
        }
        lags.push(Arc::downgrade(&behind));
        LagReporter { behind }
    }

    /// Brings the gauges in line with what the readers say of themselves.
    pub(super) fn measure(&self) {
        let mut lags = self.lags();
        lags.retain(|lag| lag.strong_count() > 0);
        let (mut max, mut sum, mut count) = (0_u64, 0_u64, 0_u64);
        for behind in lags.iter().filter_map(Weak::upgrade) {
            let behind = behind.load(Ordering::Relaxed);
            max = max.max(behind);
            sum = sum.saturating_add(behind);
            count += 1;
        }
        drop(lags);
        let gauge = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        self.count.set(gauge(count));
        self.lag.get_or_create(&LagLabels { of: "max" }).set(gauge(max));
        self.lag.get_or_create(&LagLabels { of: "sum" }).set(gauge(sum));
    }

    pub(super) fn remember(&self, surface: SurfaceId, door: DoorLabel) {
        let mut surfaces = self.surfaces.lock().unwrap_or_else(PoisonError::into_inner);
        if surfaces.doors.insert(surface, door).is_none() {
            surfaces.order.push_back(surface);
        }
        if surfaces.order.len() > SURFACES_MAX
            && let Some(oldest) = surfaces.order.pop_front()
        {
            surfaces.doors.remove(&oldest);
        }
    }

    pub(super) fn door_of(&self, surface: SurfaceId) -> Option<DoorLabel> {
        self.surfaces.lock().unwrap_or_else(PoisonError::into_inner).doors.get(&surface).copied()
    }

    fn lags(&self) -> MutexGuard<'_, Vec<Weak<AtomicU64>>> {
        self.lags.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_that_come_and_go_take_no_more_room_than_those_that_are_there() {
        let readers = LogReaders::register(&mut Registry::default());
        let stays = readers.join();
        for _ in 0..10_000 {
            drop(readers.join());
        }
        assert!(readers.lags().capacity() < 64);
        stays.set(3);
        readers.measure();
        assert_eq!(readers.count.get(), 1);
    }

    #[test]
    fn the_doors_of_surfaces_are_remembered_up_to_a_limit() {
        let readers = LogReaders::register(&mut Registry::default());
        let last = u64::try_from(SURFACES_MAX).unwrap();
        for id in 0..=last {
            readers.remember(SurfaceId(id), DoorLabel::Sse);
        }
        assert_eq!(readers.door_of(SurfaceId(0)), None);
        assert_eq!(readers.door_of(SurfaceId(1)), Some(DoorLabel::Sse));
        assert_eq!(readers.door_of(SurfaceId(last)), Some(DoorLabel::Sse));
        assert_eq!(readers.surfaces.lock().unwrap().doors.len(), SURFACES_MAX);
    }
}
