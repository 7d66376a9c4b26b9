//! What all sessions have spent on a day, in one small file per day that every process appends to.
//!
//! A record is one short append, so processes need no lock, and a kill in the middle of one loses only that
//! record. To compute the sum, only the part that was added since the last time is read.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use engine::Clock;

const DAY_MS: i64 = 86_400_000;
/// Older files are deleted.
const RETENTION_DAYS: i64 = 62;
/// A longer file was not written by us.
const BYTES_MAX: u64 = 64 << 20;

pub struct DailySpending {
    folder: PathBuf,
    clock: Arc<dyn Clock>,
    day_total: Mutex<DayTotal>,
}

impl std::fmt::Debug for DailySpending {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Spending").field("folder", &self.folder).finish_non_exhaustive()
    }
}

/// How far a day's file has been read, and the sum up to there.
#[derive(Debug, Default, Clone, Copy)]
struct DayTotal {
    day: i64,
    bytes: u64,
    usd: f64,
}

impl DailySpending {
    /// `folder` is created when something is spent.
    pub fn new(folder: PathBuf, clock: Arc<dyn Clock>) -> Self {
        Self { folder, clock, day_total: Mutex::default() }
    }

    /// Records that an amount was spent now.
    pub fn add(&self, usd: f64) -> io::Result<()> {
        let day = self.day();
        let path = self.file(day);
        if !path.exists() {
            fs::create_dir_all(&self.folder)?;
            self.forget(day);
        }
        let mut file = OpenOptions::new().append(true).create(true).open(path)?;
        file.write_all(format!("+{usd}\n").as_bytes())
    }

    /// What was spent since midnight.
    pub fn today(&self) -> io::Result<f64> {
        let day = self.day();
        let mut day_total = self.day_total.lock().unwrap_or_else(PoisonError::into_inner);
        if day_total.day != day {
            *day_total = DayTotal { day, ..DayTotal::default() };
        }
        let mut file = match File::open(self.file(day)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0.0),
            file => file?,
        };
        let length = file.metadata()?.len();
        if length < day_total.bytes {
            *day_total = DayTotal { day, ..DayTotal::default() };
        }
        if length > BYTES_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the record of today is too large"));
        }
        file.seek(SeekFrom::Start(day_total.bytes))?;
        let mut text = Vec::new();
        file.take(length - day_total.bytes).read_to_end(&mut text)?;
        // The last line may not be complete yet.
        let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        day_total.usd += sum(&text[..whole]);
        day_total.bytes += u64::try_from(whole).unwrap_or(0);
        Ok(day_total.usd)
    }

    fn day(&self) -> i64 {
        self.clock.now().0.div_euclid(DAY_MS)
    }

    /// Named by the days since 1970.
    fn file(&self, day: i64) -> PathBuf {
        self.folder.join(day.to_string())
    }

    fn forget(&self, today: i64) {
        let old = |path: &Path| {
            let day =
                path.file_name().and_then(|name| name.to_str()).and_then(|name| name.parse::<i64>().ok());
            day.is_some_and(|day| day < today - RETENTION_DAYS)
        };
        let Ok(entries) = fs::read_dir(&self.folder) else { return };
        for path in entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| old(path)) {
            if let Err(error) = fs::remove_file(&path) {
                tracing::debug!(%error, "an old record of spending stays");
            }
        }
    }
}

/// A record that was cut off by a kill ends where the next one's `+` begins.
fn sum(records: &[u8]) -> f64 {
    let text = String::from_utf8_lossy(records);
    let amounts = text.split(['+', '\n']).filter_map(|amount| amount.parse::<f64>().ok());
    amounts.filter(|usd| usd.is_finite() && *usd > 0.0).sum()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering};

    use engine::Timestamp;

    use super::*;

    struct TestClock(AtomicI64);

    impl Clock for TestClock {
        fn now(&self) -> Timestamp {
            Timestamp(self.0.load(Ordering::Relaxed))
        }
    }

    #[test]
    fn a_day_is_summed_up_over_processes_and_the_next_begins_at_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let clock = Arc::new(TestClock(AtomicI64::new(100 * DAY_MS + 5)));
        let open = || DailySpending::new(folder.path().join("spending"), Arc::<TestClock>::clone(&clock));
        let (one, other) = (open(), open());
        assert_eq!(one.today().unwrap(), 0.0);
        one.add(0.5).unwrap();
        other.add(0.25).unwrap();
        assert_eq!(one.today().unwrap(), 0.75);
        // Killed in the middle of a record.
        let mut file = OpenOptions::new().append(true).open(folder.path().join("spending/100")).unwrap();
        file.write_all(b"+0.0").unwrap();
        assert_eq!(other.today().unwrap(), 0.75);
        other.add(1.0).unwrap();
        assert_eq!((one.today().unwrap(), other.today().unwrap()), (1.75, 1.75));
        file.write_all(b"nonsense\n+inf\n+NaN\n+-3\n+1e999\n\xff\n").unwrap();
        assert_eq!(one.today().unwrap(), 1.75);
        clock.0.store(101 * DAY_MS, Ordering::Relaxed);
        assert_eq!(one.today().unwrap(), 0.0);
        clock.0.store(200 * DAY_MS, Ordering::Relaxed);
        one.add(2.0).unwrap();
        assert_eq!(one.today().unwrap(), 2.0);
        assert!(!folder.path().join("spending/100").exists());
    }
}
