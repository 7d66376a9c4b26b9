//! Checksums over what a row says, so that a bit that flipped on the disk is found when the row is read.
//!
//! They guard against accidents, not against somebody who can write the file: SipHash-1-3 with a key of zeros,
//! 64 bits. Its form is part of the file's layout and never changes within one.
//!
//! Each field goes in with its length or its presence, so that no two different rows have the same bytes.

use std::hash::Hasher;

use rusqlite::types::ValueRef;
use siphasher::sip::SipHasher13;

struct Sum(SipHasher13);

impl Sum {
    /// The number distinguishes checksums of different kinds of rows.
    fn new(kind: u8) -> Self {
        let mut sum = SipHasher13::new();
        sum.write(&[kind]);
        Self(sum)
    }

    fn numbers<const COUNT: usize>(&mut self, numbers: [i64; COUNT]) {
        for number in numbers {
            self.0.write(&number.to_le_bytes());
        }
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.numbers([i64::try_from(bytes.len()).unwrap_or(i64::MAX)]);
        self.0.write(bytes);
    }

    fn value(&mut self, value: ValueRef<'_>) {
        match value {
            ValueRef::Null => self.0.write(&[0]),
            ValueRef::Integer(number) => {
                self.0.write(&[1]);
                self.numbers([number]);
            }
            ValueRef::Real(number) => {
                self.0.write(&[2]);
                self.0.write(&number.to_le_bytes());
            }
            ValueRef::Text(bytes) => {
                self.0.write(&[3]);
                self.bytes(bytes);
            }
            ValueRef::Blob(bytes) => {
                self.0.write(&[4]);
                self.bytes(bytes);
            }
        }
    }

    fn finish(self) -> i64 {
        i64::from_le_bytes(self.0.finish().to_le_bytes())
    }
}

/// All columns of an event's row. Big strings are in the body by their hash, which is verified when they are
/// fetched.
pub(super) struct EventColumns<'a> {
    pub(super) session: i64,
    pub(super) seq: i64,
    pub(super) at: i64,
    pub(super) turn: Option<i64>,
    pub(super) origin: &'a [u8],
    pub(super) kind: &'a [u8],
    pub(super) version: i64,
    pub(super) body: &'a [u8],
    /// Positions before this one that have no event.
    pub(super) skipped: i64,
}

impl EventColumns<'_> {
    pub(super) fn checksum(&self) -> i64 {
        let mut sum = Sum::new(1);
        let turn = self.turn.unwrap_or_default();
        let has_turn = i64::from(self.turn.is_some());
        sum.numbers([self.session, self.seq, self.at, has_turn, turn, self.version, self.skipped]);
        sum.bytes(self.origin);
        sum.bytes(self.kind);
        sum.bytes(self.body);
        sum.finish()
    }
}

/// The columns of a session's row that change with every append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StateColumns {
    pub(super) key: i64,
    pub(super) updated_at: i64,
    pub(super) busy: bool,
    /// The last position that was assigned, or skipped for good.
    pub(super) last_seq: i64,
    /// The last position that has an event.
    pub(super) written_seq: i64,
    pub(super) reserved_seq: i64,
    pub(super) epoch: i64,
    pub(super) unchecked_seq: i64,
}

impl StateColumns {
    pub(super) fn checksum(&self) -> i64 {
        let mut sum = Sum::new(2);
        sum.numbers([self.key, self.updated_at, i64::from(self.busy), self.last_seq]);
        sum.numbers([self.reserved_seq, self.epoch, self.unchecked_seq, self.written_seq]);
        sum.finish()
    }
}

/// The name of a store's history.
pub(super) fn lineage(name: &[u8]) -> i64 {
    let mut sum = Sum::new(4);
    sum.bytes(name);
    sum.finish()
}

/// The columns of a session's row that seldom change: [`super::session_row::DESCRIPTION_COLUMNS`].
pub(super) fn description(key: i64, columns: &[ValueRef<'_>]) -> i64 {
    let mut sum = Sum::new(3);
    sum.numbers([key]);
    for column in columns {
        sum.value(*column);
    }
    sum.finish()
}
