//! The pages of a SQLite file, read without SQLite: so they can be read whatever else of the file is damaged.
//!
//! The format is described at <https://www.sqlite.org/fileformat2.html>. Nothing here trusts a length or a page
//! number that it reads.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

const USUAL_PAGE: usize = 4096;
const MAGIC: &[u8] = b"SQLite format 3\0";
/// No row of ours comes near this.
const PAYLOAD_MAX: usize = 256 << 20;
const WAL_HEADER: usize = 32;
const FRAME_HEADER: usize = 24;

/// A value of a record.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Field {
    Null,
    Integer(i64),
    Real(f64),
    Text(Vec<u8>),
    Blob(Vec<u8>),
}

impl Field {
    pub(super) fn integer(&self) -> Option<i64> {
        if let Self::Integer(number) = self { Some(*number) } else { None }
    }

    pub(super) fn text(&self) -> Option<&str> {
        if let Self::Text(bytes) = self { std::str::from_utf8(bytes).ok() } else { None }
    }
}

/// A cell of a page: a row of a table, or an entry of an index.
#[derive(Debug)]
pub(super) struct Cell {
    /// Of a row of a table that has them.
    pub(super) rowid: Option<i64>,
    pub(super) fields: Vec<Field>,
}

pub(super) struct DatabasePages {
    file: File,
    size: usize,
    usable: usize,
    count: u32,
    /// Pages that the write-ahead log has in a newer version.
    newer: HashMap<u32, Vec<u8>>,
}

impl DatabasePages {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let mut file = File::open(path)?;
        let mut header = [0; 100];
        let length = file.metadata()?.len();
        if length >= 100 {
            file.read_exact(&mut header)?;
        }
        let (size, reserved) = if header.starts_with(MAGIC) { sizes(&header) } else { (USUAL_PAGE, 0) };
        let mut wal = path.as_os_str().to_owned();
        wal.push("-wal");
        let newer = std::fs::read(wal).map(|log| committed(&log, size)).unwrap_or_default();
        let pages = length.div_ceil(size as u64);
        let count = u32::try_from(pages).unwrap_or(u32::MAX).max(newer.keys().copied().max().unwrap_or(0));
        Ok(Self { file, size, usable: size - reserved, count, newer })
    }

    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// A page; what the file lacks of it is zero.
    fn page(&mut self, number: u32) -> Option<Vec<u8>> {
        if number == 0 || number > self.count {
            return None;
        }
        if let Some(page) = self.newer.get(&number) {
            return Some(page.clone());
        }
        let mut page = Vec::with_capacity(self.size);
        self.file.seek(SeekFrom::Start((u64::from(number) - 1) * self.size as u64)).ok()?;
        (&mut self.file).take(self.size as u64).read_to_end(&mut page).ok()?;
        page.resize(self.size, 0);
        Some(page)
    }

    /// The cells of a page that can be read, and the pages below it.
    pub(super) fn cells(&mut self, number: u32) -> (Vec<Cell>, Vec<u32>) {
        let Some(page) = self.page(number) else { return (Vec::new(), Vec::new()) };
        let start = if number == 1 { 100 } else { 0 };
        let Some(kind) = page.get(start).copied().and_then(Kind::of) else { return (Vec::new(), Vec::new()) };
        let header = start + if kind.is_interior() { 12 } else { 8 };
        let count = number16(&page, start + 3).unwrap_or(0);
        let mut below = Vec::new();
        let mut cells = Vec::new();
        for index in 0..count.min((self.size - header) / 2) {
            let Some(at) = number16(&page, header + 2 * index) else { break };
            if kind.is_interior() {
                below.extend(number32(&page, at));
            }
            cells.extend(self.cell(&page, at, kind));
        }
        if kind.is_interior() {
            below.extend(number32(&page, start + 8));
        }
        (cells, below)
    }

    fn cell(&mut self, page: &[u8], mut at: usize, kind: Kind) -> Option<Cell> {
        if at < 8 || kind == Kind::TableInterior {
            return None;
        }
        at += if kind.is_interior() { 4 } else { 0 };
        let (length, used) = varint(page.get(at..)?)?;
        at += used;
        let mut rowid = None;
        if kind == Kind::TableLeaf {
            let (number, used) = varint(page.get(at..)?)?;
            (rowid, at) = (Some(number), at + used);
        }
        let payload = self.payload(page, at, usize::try_from(length).ok()?, kind)?;
        Some(Cell { rowid, fields: record(&payload)? })
    }

    /// The content of a cell: in its page, and in the overflow pages.
    fn payload(&mut self, page: &[u8], at: usize, length: usize, kind: Kind) -> Option<Vec<u8>> {
        if length == 0 || length > PAYLOAD_MAX {
            return None;
        }
        let usable = self.usable;
        let most = if kind == Kind::TableLeaf { usable - 35 } else { (usable - 12) * 64 / 255 - 23 };
        if length <= most {
            return page.get(at..at + length).map(<[u8]>::to_vec);
        }
        let least = (usable - 12) * 32 / 255 - 23;
        let spread = least + (length - least) % (usable - 4);
        let here = if spread <= most { spread } else { least };
        let mut payload = page.get(at..at + here)?.to_vec();
        let mut next = number32(page, at + here)?;
        while payload.len() < length {
            let more = self.page(next)?;
            let wanted = (length - payload.len()).min(usable - 4);
            payload.extend_from_slice(more.get(4..4 + wanted)?);
            next = number32(&more, 0)?;
        }
        Some(payload)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    IndexInterior,
    TableInterior,
    IndexLeaf,
    TableLeaf,
}

impl Kind {
    fn of(byte: u8) -> Option<Self> {
        match byte {
            2 => Some(Self::IndexInterior),
            5 => Some(Self::TableInterior),
            10 => Some(Self::IndexLeaf),
            13 => Some(Self::TableLeaf),
            _ => None,
        }
    }

    fn is_interior(self) -> bool {
        matches!(self, Self::IndexInterior | Self::TableInterior)
    }
}

fn sizes(header: &[u8; 100]) -> (usize, usize) {
    let size = match u16::from_be_bytes([header[16], header[17]]) {
        1 => 65536,
        size => usize::from(size),
    };
    let sound = size.is_power_of_two() && (512..=65536).contains(&size);
    // Ours have none.
    let reserved = usize::from(header[20]);
    (
        if sound { size } else { USUAL_PAGE },
        if reserved < 32 && reserved.is_multiple_of(2) { reserved } else { 0 },
    )
}

/// The newest form of each page in the part of the log that was committed.
fn committed(log: &[u8], size: usize) -> HashMap<u32, Vec<u8>> {
    let mut pages = HashMap::new();
    let mut waiting = HashMap::new();
    let Some(header) = log.get(..WAL_HEADER) else { return pages };
    let little = number32(header, 0) == Some(0x377f_0682);
    let salt = &header[16..24];
    let mut sum = checksum(&header[..24], (0, 0), little);
    let mut at = WAL_HEADER;
    while let Some(frame) = log.get(at..at + FRAME_HEADER + size) {
        sum = checksum(&frame[..8], sum, little);
        sum = checksum(&frame[FRAME_HEADER..], sum, little);
        let sound = (number32(frame, 16), number32(frame, 20)) == (Some(sum.0), Some(sum.1));
        if !sound || &frame[8..16] != salt {
            break;
        }
        if let Some(number) = number32(frame, 0) {
            waiting.insert(number, frame[FRAME_HEADER..].to_vec());
        }
        // The last frame of a transaction says how large the file is after it.
        if number32(frame, 4).is_some_and(|pages| pages > 0) {
            pages.extend(waiting.drain());
        }
        at += FRAME_HEADER + size;
    }
    pages
}

fn checksum(bytes: &[u8], (mut a, mut b): (u32, u32), little: bool) -> (u32, u32) {
    let word = |bytes: &[u8]| {
        let word: [u8; 4] = bytes.try_into().unwrap_or_default();
        if little { u32::from_le_bytes(word) } else { u32::from_be_bytes(word) }
    };
    for pair in bytes.chunks_exact(8) {
        a = a.wrapping_add(word(&pair[..4])).wrapping_add(b);
        b = b.wrapping_add(word(&pair[4..])).wrapping_add(a);
    }
    (a, b)
}

fn number16(bytes: &[u8], at: usize) -> Option<usize> {
    let bytes = bytes.get(at..at + 2)?;
    Some(usize::from(u16::from_be_bytes([bytes[0], bytes[1]])))
}

fn number32(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().ok().map(u32::from_be_bytes)
}

fn varint(bytes: &[u8]) -> Option<(i64, usize)> {
    let mut value: u64 = 0;
    for (index, byte) in bytes.iter().copied().enumerate().take(9) {
        if index == 8 {
            return Some((((value << 8) | u64::from(byte)).cast_signed(), 9));
        }
        value = (value << 7) | u64::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            return Some((value.cast_signed(), index + 1));
        }
    }
    None
}

fn record(payload: &[u8]) -> Option<Vec<Field>> {
    let (header, mut at) = varint(payload)?;
    let header = usize::try_from(header).ok().filter(|header| *header <= payload.len())?;
    let mut body = header;
    let mut fields = Vec::new();
    while at < header {
        let (kind, used) = varint(&payload[at..header])?;
        at += used;
        let length = match kind {
            0 | 8 | 9 => 0,
            1..=4 => usize::try_from(kind).ok()?,
            5 => 6,
            6 | 7 => 8,
            kind if kind >= 12 => usize::try_from((kind - 12) / 2).ok()?,
            _ => return None,
        };
        let bytes = payload.get(body..body.checked_add(length)?)?;
        body += length;
        fields.push(field(kind, bytes));
    }
    (body == payload.len()).then_some(fields)
}

fn field(kind: i64, bytes: &[u8]) -> Field {
    match kind {
        0 => Field::Null,
        8 => Field::Integer(0),
        9 => Field::Integer(1),
        7 => Field::Real(f64::from_be_bytes(bytes.try_into().unwrap_or_default())),
        1..=6 => {
            let negative = bytes.first().is_some_and(|byte| byte & 0x80 != 0);
            let start = if negative { u64::MAX } else { 0 };
            let number = bytes.iter().fold(start, |number, byte| (number << 8) | u64::from(*byte));
            Field::Integer(number.cast_signed())
        }
        kind if kind % 2 == 1 => Field::Text(bytes.to_vec()),
        _ => Field::Blob(bytes.to_vec()),
    }
}
