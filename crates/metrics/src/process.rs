//! Metrics about this process, from the operating system.

use std::path::Path;

use engine::Timestamp;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

const STATUS: &str = "/proc/self/status";
const OPEN_FILES: &str = "/proc/self/fd";

pub(super) struct ProcessGauges {
    resident_memory: Gauge,
    threads: Gauge,
    open_files: Gauge,
}

impl ProcessGauges {
    pub(super) fn register(registry: &mut Registry, started: Timestamp) -> Self {
        let gauge = |registry: &mut Registry, name: &str, help: &str| {
            let gauge = Gauge::default();
            registry.register(name, help, gauge.clone());
            gauge
        };
        let start = gauge(registry, "process_start_time_seconds", "Start time of the process, in Unix time");
        start.set(started.0 / 1000);
        Self {
            resident_memory: gauge(
                registry,
                "process_resident_memory_bytes",
                "Memory of the process; 0 if the system does not report it",
            ),
            threads: gauge(registry, "process_threads", "Threads; 0 if the system does not report them"),
            open_files: gauge(
                registry,
                "process_open_files",
                "Open files and sockets; 0 if the system does not report them",
            ),
        }
    }

    /// Looks again. These are reads from the kernel's memory, quick enough for a scrape.
    pub(super) fn measure(&self) {
        let status = std::fs::read_to_string(STATUS).unwrap_or_default();
        self.resident_memory.set(field(&status, "VmRSS:").saturating_mul(1024));
        self.threads.set(field(&status, "Threads:"));
        self.open_files.set(entries(Path::new(OPEN_FILES)));
    }
}

/// The number behind a name in `/proc/self/status`.
fn field(status: &str, name: &str) -> i64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|line| line.split_whitespace().next()).and_then(|number| number.parse().ok()).unwrap_or(0)
}

fn entries(folder: &Path) -> i64 {
    // Looking opens the folder itself, which is then one of the entries.
    let count = std::fs::read_dir(folder).map_or(0, |entries| entries.count().saturating_sub(1));
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fact_that_is_not_there_is_zero() {
        let status = "Name:\tropewalk\nVmRSS:\t   10204 kB\nThreads:\t7\n";
        assert_eq!(field(status, "VmRSS:"), 10204);
        assert_eq!(field(status, "Threads:"), 7);
        assert_eq!(field(status, "VmSwap:"), 0);
        assert_eq!(field("VmRSS:\tmany\n", "VmRSS:"), 0);
        assert_eq!(entries(Path::new("/there/is/no/such/folder")), 0);
    }
}
