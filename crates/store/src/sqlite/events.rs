//! Reading the events of one session from a file that may be damaged.
//!
//! Normally this is one query. Every row is compared with its checksum, and each position between two rows must be
//! accounted for: either it was never assigned (the next row says so), or its event is lost. Where a row is damaged, or a
//! page cannot be read, the positions after the last good row are tried one by one until there is a good row again.
//!
//! **Invariant:** the returned items ascend and account for every position up to the last one: each is an event as it was
//! written, or a range that is reported as damaged.
//! **Invariant:** the same damage is reported at the same position, wherever the reader started.

use engine::{
    Body, DAMAGE_NOTICE, Event, NoticeLevel, Origin, PageRequest, Seq, SessionId, Timestamp, TurnId,
};
use rusqlite::{CachedStatement, Connection, OptionalExtension, Row};
use wire::record::{self, EventLoss};

use super::blob::BlobReader;
use super::checksum::{EventColumns, StateColumns};
use super::session_row::{signed, unsigned};

/// The columns that [`EventRow::of`] reads, in its order.
pub(super) const EVENT_COLUMNS: &str = "seq, at, turn, origin, kind, version, body, skipped, checksum";

/// Ranges of damaged positions are split at multiples of this, so that a reader is never blocked for long.
const RANGE_MAX: u64 = 4096;
/// So many positions without an event are the end of the log, whatever its row says: a power cut skips fewer.
const MISSES_MAX: u64 = 1 << 18;

const ABSENT: &str = "it is not where it should be";

/// What is stored at a position, or in a range of positions.
#[derive(Debug)]
pub(super) enum LogItem {
    Event(Event),
    Damaged(DamagedRange),
}

/// Positions whose events are lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DamagedRange {
    pub(super) from: u64,
    pub(super) upto: u64,
    pub(super) reason: String,
    /// The kinds of events that may be lost.
    pub(super) loss: EventLoss,
}

/// The log of one session, as its row describes it.
#[derive(Debug, Clone, Copy)]
pub(super) struct SessionLog {
    pub(super) key: i64,
    /// The last position that has an event; zero if that is not known.
    pub(super) last: u64,
    /// Up to here events have no checksum, and positions may be missing.
    pub(super) unchecked: u64,
}

impl SessionLog {
    pub(super) fn of(state: &StateColumns) -> Self {
        Self { key: state.key, last: unsigned(state.written_seq), unchecked: unsigned(state.unchecked_seq) }
    }
}

/// A page of the log after this position.
pub(super) fn read_page(
    connection: &Connection,
    log: SessionLog,
    after: u64,
    page: PageRequest,
) -> Result<Vec<LogItem>, rusqlite::Error> {
    let mut reading = PageReader {
        connection,
        log,
        page,
        at: after,
        items: Vec::new(),
        bytes: 0,
        one_by_one: !page.outline,
    };
    loop {
        match reading.run_query()? {
            QueryEnd::Full => return Ok(reading.items),
            QueryEnd::Again => {}
            QueryEnd::Exhausted => {
                reading.finish();
                return Ok(reading.items);
            }
            QueryEnd::Stuck => {
                if reading.try_each()? {
                    return Ok(reading.items);
                }
            }
        }
    }
}

/// Why the query stopped.
enum QueryEnd {
    Full,
    Exhausted,
    /// A row is missing somewhere, so every position has to be checked.
    Again,
    /// The next row is damaged, or cannot be read.
    Stuck,
}

struct PageReader<'c> {
    connection: &'c Connection,
    log: SessionLog,
    page: PageRequest,
    /// Everything up to here is accounted for.
    at: u64,
    items: Vec<LogItem>,
    bytes: usize,
    /// Every row is checked, also those that an outline leaves out: one is missing somewhere.
    one_by_one: bool,
}

impl PageReader<'_> {
    fn is_full(&self) -> bool {
        self.items.len() >= self.page.count_max
            || (self.bytes >= self.page.bytes_max && !self.items.is_empty())
    }

    fn run_query(&mut self) -> Result<QueryEnd, rusqlite::Error> {
        let connection = self.connection;
        let mut select = connection.prepare_cached(&format!(
            "SELECT {EVENT_COLUMNS} FROM acp_session_events WHERE session = ?1 AND seq > ?2
             AND NOT (?4 AND kind IN ('text', 'thought', 'tool_output')) ORDER BY seq LIMIT ?3"
        ))?;
        let (start, before) = (self.at, (self.items.len(), self.bytes));
        let skims = self.page.outline && !self.one_by_one;
        let wanted = match self.page.outline && self.one_by_one {
            true => usize::MAX,
            false => self.page.count_max.saturating_sub(self.items.len()),
        };
        let limit = i64::try_from(wanted).unwrap_or(i64::MAX);
        let Ok(mut rows) = select.query((self.log.key, signed(self.at), limit, skims)) else {
            return Ok(QueryEnd::Stuck);
        };
        let fetcher = BlobReader::new(connection);
        let mut count = 0;
        loop {
            let row = match if self.is_full() { Ok(None) } else { rows.next() } {
                Ok(Some(row)) => row,
                Ok(None) => {
                    let end =
                        if count < wanted && !self.is_full() { QueryEnd::Exhausted } else { QueryEnd::Full };
                    if skims && !self.is_accounted_for(start, &end) {
                        self.items.truncate(before.0);
                        (self.at, self.bytes, self.one_by_one) = (start, before.1, true);
                        return Ok(QueryEnd::Again);
                    }
                    return Ok(end);
                }
                Err(_) => return Ok(QueryEnd::Stuck),
            };
            count += 1;
            let Ok(read) = EventRow::of(row, &self.log, &fetcher) else { return Ok(QueryEnd::Stuck) };
            let seq = read.event.seq.0;
            // A row that is out of order was found by a page that is not what it was.
            if seq <= self.at || (!skims && self.first_missing(&read).is_some()) {
                return Ok(QueryEnd::Stuck);
            }
            match self.page.outline && read.event.body.is_streamed() {
                true => self.at = seq,
                false => self.push(read.event),
            }
        }
    }

    /// Whether the rows that an outline leaves out exist: each accounts for itself and for the unassigned
    /// positions before it.
    fn is_accounted_for(&self, start: u64, end: &QueryEnd) -> bool {
        let first = start.max(self.log.unchecked);
        let upto = if matches!(end, QueryEnd::Exhausted) { self.log.last.max(self.at) } else { self.at };
        if upto <= first {
            return true;
        }
        let count = "SELECT count(*) + coalesce(sum(min(coalesce(skipped, 0), seq - 1 - ?2)), 0)
             FROM acp_session_events WHERE session = ?1 AND seq > ?2 AND seq <= ?3";
        let counted = self.connection.prepare_cached(count).and_then(|mut count| {
            count.query_row((self.log.key, signed(first), signed(upto)), |row| row.get::<_, i64>(0))
        });
        counted.is_ok_and(|counted| unsigned(counted) == upto - first)
    }

    /// The first position after the last good row that should have an event and has none.
    fn first_missing(&self, read: &EventRow) -> Option<u64> {
        let first = self.at.max(self.log.unchecked) + 1;
        (first + read.skipped < read.event.seq.0).then_some(first)
    }

    fn push(&mut self, event: Event) {
        self.at = event.seq.0;
        self.bytes += event.weight();
        self.items.push(LogItem::Event(event));
    }

    fn push_damaged(&mut self, damage: DamagedRange) {
        self.at = self.at.max(damage.upto);
        self.bytes += 256;
        self.items.push(LogItem::Damaged(damage));
    }

    /// Tries positions one by one until a good row comes after a damaged one. Says whether the page ends here.
    fn try_each(&mut self) -> Result<bool, rusqlite::Error> {
        let connection = self.connection;
        let mut select = connection.prepare_cached(&format!(
            "SELECT {EVENT_COLUMNS} FROM acp_session_events WHERE session = ?1 AND seq = ?2"
        ))?;
        let fetcher = BlobReader::new(connection);
        let mut missing = MissingRange::default();
        let mut seq = self.at;
        let mut last_good = seq;
        let mut passed_over = false;
        loop {
            seq += 1;
            if seq > self.log.last || seq - last_good > MISSES_MAX {
                missing.report_up_to(self, seq - 1);
                return Ok(true);
            }
            match self.try_one(&mut select, seq, &fetcher) {
                RowProbe::Good(read) => {
                    last_good = seq;
                    let was_missing = missing.count() > 0 || passed_over;
                    missing.report_up_to(self, seq - 1 - read.skipped.min(seq - 1));
                    let streamed = self.page.outline && read.event.body.is_streamed();
                    if was_missing || self.is_full() {
                        // The query continues, and finds this row again.
                        self.at = self.at.max(seq - 1);
                        return Ok(self.is_full());
                    }
                    match streamed {
                        true => self.at = seq,
                        false => self.push(read.event),
                    }
                }
                // An outline leaves out damaged events of these kinds, too.
                RowProbe::Bad { kind: Some(kind), .. } if self.page.outline && is_streamed(&kind) => {
                    passed_over = true;
                }
                RowProbe::Bad { reason, kind } => {
                    missing.note(seq, reason, kind.map_or(EventLoss::ANY, |kind| EventLoss::of(&kind)));
                }
                RowProbe::Absent if seq > self.log.unchecked => match self.event_after_gap(seq, &fetcher) {
                    // These positions were never assigned: continue with the event after them.
                    Some(next) => (seq, last_good) = (next - 1, next - 1),
                    None => missing.note(seq, ABSENT.to_owned(), EventLoss::ANY),
                },
                RowProbe::Absent => {}
            }
            if seq.is_multiple_of(RANGE_MAX) && missing.count() > 0 {
                missing.report_up_to(self, seq);
                if self.is_full() {
                    return Ok(true);
                }
            }
        }
    }

    /// The next event, if this position and all up to that event were never assigned.
    fn event_after_gap(&self, seq: u64, fetcher: &BlobReader<'_>) -> Option<u64> {
        let select = format!(
            "SELECT {EVENT_COLUMNS} FROM acp_session_events WHERE session = ?1 AND seq > ?2 ORDER BY seq LIMIT 1"
        );
        let mut select = self.connection.prepare_cached(&select).ok()?;
        let read = |row: &Row<'_>| Ok(EventRow::of(row, &self.log, fetcher));
        let next = select.query_row((self.log.key, signed(seq)), read).ok()?.ok()?;
        let position = next.event.seq.0;
        (position > seq && position.saturating_sub(next.skipped) <= seq).then_some(position)
    }

    fn try_one(&self, select: &mut CachedStatement<'_>, seq: u64, fetcher: &BlobReader<'_>) -> RowProbe {
        let kind = |row: &Row<'_>| row.get::<_, String>(4).ok();
        let found = select.query_row((self.log.key, signed(seq)), |row| {
            Ok(EventRow::of(row, &self.log, fetcher).map_err(|reason| (reason, kind(row))))
        });
        let bad = |reason: String| RowProbe::Bad { reason, kind: None };
        match found.optional() {
            Ok(Some(Ok(read))) if read.event.seq.0 == seq => RowProbe::Good(Box::new(read)),
            Ok(Some(Ok(_))) => bad("another event is in its place".to_owned()),
            Ok(Some(Err((reason, kind)))) => RowProbe::Bad { reason, kind },
            Ok(None) => RowProbe::Absent,
            Err(error) => bad(error.to_string()),
        }
    }

    /// The query found nothing more. Positions that the log should still have are lost.
    fn finish(&mut self) {
        let mut from = self.at.max(self.log.unchecked) + 1;
        while self.one_by_one && from <= self.log.last && !self.is_full() {
            let upto = from.next_multiple_of(RANGE_MAX).min(self.log.last);
            self.push_damaged(DamagedRange { from, upto, reason: ABSENT.to_owned(), loss: EventLoss::ANY });
            from = upto + 1;
        }
    }
}

enum RowProbe {
    Good(Box<EventRow>),
    Bad {
        reason: String,
        /// As far as it can be read.
        kind: Option<String>,
    },
    Absent,
}

/// Whether an outline leaves out events of this kind.
fn is_streamed(kind: &str) -> bool {
    matches!(kind, "text" | "thought" | "tool_output")
}

/// Consecutive positions without a good event.
#[derive(Default)]
struct MissingRange {
    range: Option<(u64, u64)>,
    reason: String,
    loss: EventLoss,
}

impl MissingRange {
    fn count(&self) -> u64 {
        self.range.map_or(0, |(from, upto)| upto + 1 - from)
    }

    fn note(&mut self, seq: u64, reason: String, loss: EventLoss) {
        match &mut self.range {
            Some((_, upto)) => {
                *upto = seq;
                self.loss = self.loss.and(loss);
            }
            None => (self.range, self.reason, self.loss) = (Some((seq, seq)), reason, loss),
        }
    }

    /// Reports what is missing up to `end`; positions after that were never assigned.
    fn report_up_to(&mut self, reading: &mut PageReader<'_>, end: u64) {
        if let Some((from, upto)) = self.range.take()
            && from <= end
        {
            let (reason, loss) = (self.reason.clone(), self.loss);
            reading.push_damaged(DamagedRange { from, upto: upto.min(end), reason, loss });
        }
    }
}

/// A row whose checksum is correct.
pub(super) struct EventRow {
    pub(super) event: Event,
    pub(super) skipped: u64,
}

impl EventRow {
    /// The error says what is wrong with the row.
    pub(super) fn of(row: &Row<'_>, log: &SessionLog, fetcher: &BlobReader<'_>) -> Result<Self, String> {
        let columns = columns_of(row, log.key).map_err(|error| error.to_string())?;
        verify(row, &columns, log)?;
        let said = |error: record::RecordError| error.to_string();
        let text = |bytes| std::str::from_utf8(bytes).map_err(|error| error.to_string());
        let version = u32::try_from(columns.version).unwrap_or(u32::MAX);
        text(columns.body)?;
        let event = Event {
            seq: Seq(unsigned(columns.seq)),
            at: Timestamp(columns.at),
            origin: record::decode_origin(columns.origin).map_err(said)?,
            turn: columns.turn.map(|turn| TurnId(unsigned(turn))),
            body: record::decode(text(columns.kind)?, version, columns.body, &|hash| fetcher.fetch(hash))
                .map_err(said)?,
            relayed: record::decode_relayed(columns.body, &|hash| fetcher.fetch(hash)).map_err(said)?,
        };
        Ok(Self { event, skipped: unsigned(columns.skipped) })
    }
}

pub(super) fn columns_of<'r>(row: &'r Row<'_>, session: i64) -> rusqlite::Result<EventColumns<'r>> {
    let bytes = |index| Ok::<_, rusqlite::Error>(row.get_ref(index)?.as_bytes()?);
    Ok(EventColumns {
        session,
        seq: row.get(0)?,
        at: row.get(1)?,
        turn: row.get(2)?,
        origin: bytes(3)?,
        kind: bytes(4)?,
        version: row.get(5)?,
        body: bytes(6)?,
        skipped: row.get::<_, Option<i64>>(7)?.unwrap_or_default(),
    })
}

/// Compares a row with its checksum. One without is as good as it looks if it was written before there were any.
pub(super) fn verify(row: &Row<'_>, columns: &EventColumns<'_>, log: &SessionLog) -> Result<(), String> {
    match row.get::<_, Option<i64>>(8).map_err(|error| error.to_string())? {
        Some(checksum) if checksum == columns.checksum() => Ok(()),
        None if unsigned(columns.seq) <= log.unchecked => Ok(()),
        Some(_) | None => Err("its checksum does not match".to_owned()),
    }
}

/// Position and time of the last row that is as it was written.
pub(super) fn last_sound(connection: &Connection, log: &SessionLog) -> Option<(i64, i64)> {
    let select = format!(
        "SELECT {EVENT_COLUMNS} FROM acp_session_events WHERE session = ?1 ORDER BY seq DESC LIMIT {RANGE_MAX}"
    );
    let mut select = connection.prepare_cached(&select).ok()?;
    let mut rows = select.query([log.key]).ok()?;
    while let Ok(Some(row)) = rows.next() {
        if let Ok(columns) = columns_of(row, log.key)
            && verify(row, &columns, log).is_ok()
        {
            return Some((columns.seq, columns.at));
        }
    }
    None
}

/// The notice in the place of events that cannot be read.
pub(super) fn notice_of_damage(id: &SessionId, damage: &DamagedRange, at: Timestamp) -> Event {
    let DamagedRange { from, upto, reason, loss } = damage;
    tracing::error!(%id, from, upto, reason, "a part of a session is damaged");
    let which = if from == upto { format!("event {from}") } else { format!("events {from} to {upto}") };
    let text = format!(
        "{DAMAGE_NOTICE} and cannot be shown ({which}: {reason}). The rest is \
         complete.{} `ropewalk doctor --store --deep` lists all damage; `ropewalk sessions salvage` looks for more of it.",
        loss.sentence()
    );
    let level = if loss.decides { NoticeLevel::Damage } else { NoticeLevel::Error };
    Event {
        seq: Seq(*upto),
        at,
        origin: Origin::Engine,
        turn: None,
        body: Body::Notice { level, text: text.into() },
        relayed: None,
    }
}
