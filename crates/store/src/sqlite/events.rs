//! Reading the events of one session from a file that may be damaged.
//!
//! The usual way is one query. Every row that it gives is compared with its checksum, and each position between two
//! rows must be accounted for: it was never given (the row after it says so), or its event is gone. Where a row is not what it was, or a page
//! cannot be read, the positions after the last good row are tried one by one until there is a good row again.
//!
//! **Invariant:** what is given ascends, and stands for every position up to its last: an event that is as it was
//! written, or a range that is said to be damaged.
//! **Invariant:** the same damage is told at the same position, whoever reads from wherever.

use engine::{Body, DAMAGE_NOTICE, Event, NoticeLevel, Origin, Page, Seq, SessionId, Timestamp, TurnId};
use rusqlite::{CachedStatement, Connection, OptionalExtension, Row};
use wire::record::{self, Loss};

use super::blob::Fetcher;
use super::checksum::{EventColumns, StateColumns};
use super::row::{signed, unsigned};

/// The columns that [`Read::of`] reads, in its order.
pub(super) const EVENT_COLUMNS: &str = "seq, at, turn, origin, kind, version, body, skipped, checksum";

/// A range of damaged positions ends where a multiple of this does, so that a reader is never kept for long.
const RANGE_MAX: u64 = 4096;
/// So many positions without an event are the end of the log, whatever its row says: a power cut skips fewer.
const MISSES_MAX: u64 = 1 << 18;

const ABSENT: &str = "it is not where it should be";

/// What stands at a position, or in a range of them.
#[derive(Debug)]
pub(super) enum Item {
    Event(Event),
    Damaged(Damage),
}

/// Positions whose events are lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Damage {
    pub(super) from: u64,
    pub(super) upto: u64,
    pub(super) reason: String,
    /// What they may have said.
    pub(super) loss: Loss,
}

/// The log of one session, as its row describes it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Log {
    pub(super) key: i64,
    /// The last position that has an event; zero if that is not known.
    pub(super) last: u64,
    /// Up to here events have no checksum, and positions may be missing.
    pub(super) unchecked: u64,
}

impl Log {
    pub(super) fn of(state: &StateColumns) -> Self {
        Self { key: state.key, last: unsigned(state.written_seq), unchecked: unsigned(state.unchecked_seq) }
    }
}

/// A page of the log after this position.
pub(super) fn read_page(
    connection: &Connection,
    log: Log,
    after: u64,
    page: Page,
) -> Result<Vec<Item>, rusqlite::Error> {
    let mut reading =
        Reading { connection, log, page, at: after, items: Vec::new(), bytes: 0, one_by_one: !page.outline };
    loop {
        match reading.run_query()? {
            End::Full => return Ok(reading.items),
            End::Again => {}
            End::Exhausted => {
                reading.finish();
                return Ok(reading.items);
            }
            End::Stuck => {
                if reading.try_each()? {
                    return Ok(reading.items);
                }
            }
        }
    }
}

/// Why the query stopped.
enum End {
    Full,
    Exhausted,
    /// A row is missing somewhere, so all of them have to be looked at.
    Again,
    /// The next row is damaged, or cannot be read.
    Stuck,
}

struct Reading<'c> {
    connection: &'c Connection,
    log: Log,
    page: Page,
    /// Everything up to here is accounted for.
    at: u64,
    items: Vec<Item>,
    bytes: usize,
    /// Every row is looked at, also those that an outline leaves out: one is missing somewhere.
    one_by_one: bool,
}

impl Reading<'_> {
    fn is_full(&self) -> bool {
        self.items.len() >= self.page.count_max
            || (self.bytes >= self.page.bytes_max && !self.items.is_empty())
    }

    fn run_query(&mut self) -> Result<End, rusqlite::Error> {
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
            return Ok(End::Stuck);
        };
        let fetcher = Fetcher::new(connection);
        let mut count = 0;
        loop {
            let row = match if self.is_full() { Ok(None) } else { rows.next() } {
                Ok(Some(row)) => row,
                Ok(None) => {
                    let end = if count < wanted && !self.is_full() { End::Exhausted } else { End::Full };
                    if skims && !self.is_accounted_for(start, &end) {
                        self.items.truncate(before.0);
                        (self.at, self.bytes, self.one_by_one) = (start, before.1, true);
                        return Ok(End::Again);
                    }
                    return Ok(end);
                }
                Err(_) => return Ok(End::Stuck),
            };
            count += 1;
            let Ok(read) = Read::of(row, &self.log, &fetcher) else { return Ok(End::Stuck) };
            let seq = read.event.seq.0;
            // A row that is out of order was found by a page that is not what it was.
            if seq <= self.at || (!skims && self.first_missing(&read).is_some()) {
                return Ok(End::Stuck);
            }
            match self.page.outline && read.event.body.is_streamed() {
                true => self.at = seq,
                false => self.push(read.event),
            }
        }
    }

    /// Whether the rows that an outline leaves out are there: each stands for itself and for the positions before it
    /// that nobody was given.
    fn is_accounted_for(&self, start: u64, end: &End) -> bool {
        let first = start.max(self.log.unchecked);
        let upto = if matches!(end, End::Exhausted) { self.log.last.max(self.at) } else { self.at };
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
    fn first_missing(&self, read: &Read) -> Option<u64> {
        let first = self.at.max(self.log.unchecked) + 1;
        (first + read.skipped < read.event.seq.0).then_some(first)
    }

    fn push(&mut self, event: Event) {
        self.at = event.seq.0;
        self.bytes += event.weight();
        self.items.push(Item::Event(event));
    }

    fn push_damaged(&mut self, damage: Damage) {
        self.at = self.at.max(damage.upto);
        self.bytes += 256;
        self.items.push(Item::Damaged(damage));
    }

    /// Tries positions one by one until a good row comes after a damaged one. Says whether the page ends here.
    fn try_each(&mut self) -> Result<bool, rusqlite::Error> {
        let connection = self.connection;
        let mut select = connection.prepare_cached(&format!(
            "SELECT {EVENT_COLUMNS} FROM acp_session_events WHERE session = ?1 AND seq = ?2"
        ))?;
        let fetcher = Fetcher::new(connection);
        let mut missing = Missing::default();
        let mut seq = self.at;
        let mut last_good = seq;
        let mut passed_over = false;
        loop {
            seq += 1;
            if seq > self.log.last || seq - last_good > MISSES_MAX {
                missing.tell(self, seq - 1);
                return Ok(true);
            }
            match self.try_one(&mut select, seq, &fetcher) {
                Tried::Good(read) => {
                    last_good = seq;
                    let was_missing = missing.count() > 0 || passed_over;
                    missing.tell(self, seq - 1 - read.skipped.min(seq - 1));
                    let streamed = self.page.outline && read.event.body.is_streamed();
                    if was_missing || self.is_full() {
                        // The query goes on, and finds this row once more.
                        self.at = self.at.max(seq - 1);
                        return Ok(self.is_full());
                    }
                    match streamed {
                        true => self.at = seq,
                        false => self.push(read.event),
                    }
                }
                // What an outline leaves out is left out of it damaged, too.
                Tried::Bad { kind: Some(kind), .. } if self.page.outline && is_streamed(&kind) => {
                    passed_over = true;
                }
                Tried::Bad { reason, kind } => {
                    missing.note(seq, reason, kind.map_or(Loss::ANY, |kind| Loss::of(&kind)));
                }
                Tried::Absent if seq > self.log.unchecked => match self.end_of_gap(seq, &fetcher) {
                    // Nobody was given these: on to the event after them.
                    Some(next) => (seq, last_good) = (next - 1, next - 1),
                    None => missing.note(seq, ABSENT.to_owned(), Loss::ANY),
                },
                Tried::Absent => {}
            }
            if seq.is_multiple_of(RANGE_MAX) && missing.count() > 0 {
                missing.tell(self, seq);
                if self.is_full() {
                    return Ok(true);
                }
            }
        }
    }

    /// The next event, if this position and all up to that event were never given to one.
    fn end_of_gap(&self, seq: u64, fetcher: &Fetcher<'_>) -> Option<u64> {
        let select = format!(
            "SELECT {EVENT_COLUMNS} FROM acp_session_events WHERE session = ?1 AND seq > ?2 ORDER BY seq LIMIT 1"
        );
        let mut select = self.connection.prepare_cached(&select).ok()?;
        let read = |row: &Row<'_>| Ok(Read::of(row, &self.log, fetcher));
        let next = select.query_row((self.log.key, signed(seq)), read).ok()?.ok()?;
        let position = next.event.seq.0;
        (position > seq && position.saturating_sub(next.skipped) <= seq).then_some(position)
    }

    fn try_one(&self, select: &mut CachedStatement<'_>, seq: u64, fetcher: &Fetcher<'_>) -> Tried {
        let kind = |row: &Row<'_>| row.get::<_, String>(4).ok();
        let found = select.query_row((self.log.key, signed(seq)), |row| {
            Ok(Read::of(row, &self.log, fetcher).map_err(|reason| (reason, kind(row))))
        });
        let bad = |reason: String| Tried::Bad { reason, kind: None };
        match found.optional() {
            Ok(Some(Ok(read))) if read.event.seq.0 == seq => Tried::Good(Box::new(read)),
            Ok(Some(Ok(_))) => bad("another event stands in its place".to_owned()),
            Ok(Some(Err((reason, kind)))) => Tried::Bad { reason, kind },
            Ok(None) => Tried::Absent,
            Err(error) => bad(error.to_string()),
        }
    }

    /// The query found nothing more. What the log should still have is gone.
    fn finish(&mut self) {
        let mut from = self.at.max(self.log.unchecked) + 1;
        while self.one_by_one && from <= self.log.last && !self.is_full() {
            let upto = from.next_multiple_of(RANGE_MAX).min(self.log.last);
            self.push_damaged(Damage { from, upto, reason: ABSENT.to_owned(), loss: Loss::ANY });
            from = upto + 1;
        }
    }
}

enum Tried {
    Good(Box<Read>),
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

/// Positions in a row that have no good event.
#[derive(Default)]
struct Missing {
    range: Option<(u64, u64)>,
    reason: String,
    loss: Loss,
}

impl Missing {
    fn count(&self) -> u64 {
        self.range.map_or(0, |(from, upto)| upto + 1 - from)
    }

    fn note(&mut self, seq: u64, reason: String, loss: Loss) {
        match &mut self.range {
            Some((_, upto)) => {
                *upto = seq;
                self.loss = self.loss.and(loss);
            }
            None => (self.range, self.reason, self.loss) = (Some((seq, seq)), reason, loss),
        }
    }

    /// What is missing up to `end`; positions after that were never given.
    fn tell(&mut self, reading: &mut Reading<'_>, end: u64) {
        if let Some((from, upto)) = self.range.take()
            && from <= end
        {
            let (reason, loss) = (self.reason.clone(), self.loss);
            reading.push_damaged(Damage { from, upto: upto.min(end), reason, loss });
        }
    }
}

/// A row that is as it was written.
pub(super) struct Read {
    pub(super) event: Event,
    pub(super) skipped: u64,
}

impl Read {
    /// The error says what is wrong with the row.
    pub(super) fn of(row: &Row<'_>, log: &Log, fetcher: &Fetcher<'_>) -> Result<Self, String> {
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
pub(super) fn verify(row: &Row<'_>, columns: &EventColumns<'_>, log: &Log) -> Result<(), String> {
    match row.get::<_, Option<i64>>(8).map_err(|error| error.to_string())? {
        Some(checksum) if checksum == columns.checksum() => Ok(()),
        None if unsigned(columns.seq) <= log.unchecked => Ok(()),
        Some(_) | None => Err("its checksum does not match".to_owned()),
    }
}

/// Position and time of the last row that is as it was written.
pub(super) fn last_sound(connection: &Connection, log: &Log) -> Option<(i64, i64)> {
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

/// What stands in the place of events that cannot be read, so that whoever reads the session is told.
pub(super) fn notice_of_damage(id: &SessionId, damage: &Damage, at: Timestamp) -> Event {
    let Damage { from, upto, reason, loss } = damage;
    tracing::error!(%id, from, upto, reason, "a part of a session is damaged");
    let which = if from == upto { format!("event {from}") } else { format!("events {from} to {upto}") };
    let text = format!(
        "{DAMAGE_NOTICE} and cannot be shown ({which}: {reason}). The rest is \
         complete.{} `ropewalk doctor --store --deep` lists all damage; `ropewalk sessions salvage` looks for more of it.",
        loss.told()
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
