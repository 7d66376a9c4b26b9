//! Skips text in which no encoding of a known value can begin, so that almost none is read byte by byte.
//!
//! An encoded value has at least eight bytes. So one of the four-byte runs among its first seven bytes begins at a
//! multiple of four, whatever offset the search starts at. The text is compared only there, by a hash, with all such
//! runs of all encoded values.

use super::encodings::EncodedForm;
use super::escapes::EscapeKind;
use super::known_values::BYTES_MIN;

/// The distance between the offsets at which the text is checked.
const STRIDE: usize = 4;
const HASH_BITS: u32 = 13;
/// The bytes that all escapes begin with.
const ESCAPES: [u8; 4] = [b'%', b'\\', b'\n', b'\r'];

pub(super) struct Prefilter {
    /// For each hash of four bytes: whether they stand near the beginning of an encoded value.
    runs: Box<[bool; 1 << HASH_BITS]>,
    /// For each pair of bytes: whether an encoded value or an escape begins with it.
    pairs: Box<[bool; 1 << 16]>,
}

impl Prefilter {
    pub(super) fn new(forms: &[EncodedForm]) -> Self {
        let mut runs = Box::new([false; 1 << HASH_BITS]);
        let mut pairs = Box::new([false; 1 << 16]);
        for form in forms {
            form.text.windows(STRIDE).take(STRIDE).for_each(|run| runs[hash(run)] = true);
            form.text.windows(2).take(1).for_each(|pair| pairs[pair_index(pair)] = true);
            for first in form.text.iter().take(1) {
                ESCAPES.into_iter().for_each(|escape| pairs[pair_index(&[*first, escape])] = true);
            }
        }
        for first in 0..=u8::MAX {
            // Line ends are left out only where a form has begun.
            if matches!(EscapeKind::of(first), Some(EscapeKind::Percent | EscapeKind::Json)) {
                (0..=u8::MAX).for_each(|second| pairs[pair_index(&[first, second])] = true);
            }
        }
        Self { runs, pairs }
    }

    /// The next offset at which an encoded value or an escape may begin.
    pub(super) fn skip(&self, bytes: &[u8], from: usize, escapes: &mut NextEscapes) -> usize {
        let mut from = from;
        loop {
            let rest = bytes.get(from..).unwrap_or_default();
            let escape = escapes.after(bytes, from);
            // What stands before an escape may be the beginning of the same form.
            let plain = escape - from;
            let looked = rest[..plain].chunks_exact(STRIDE).position(|run| self.runs[hash(run)]);
            let begins = looked.map(|index| (index * STRIDE).saturating_sub(STRIDE - 1));
            let begins = begins.unwrap_or(plain).min(plain.saturating_sub(BYTES_MIN - 1));
            let pair =
                rest[begins..].windows(2).take(BYTES_MIN).position(|pair| self.pairs[pair_index(pair)]);
            if let Some(pair) = pair {
                return from + begins + pair;
            }
            // Of what the last byte begins nothing is known yet.
            let passed = begins + rest.len().saturating_sub(begins + 1).min(BYTES_MIN);
            from += passed;
            if passed + 1 >= rest.len() {
                return from;
            }
        }
    }
}

/// The offsets of the next escapes of a text, as far as they were searched for. Line ends are searched for
/// separately: there are many of them, and few of the others.
#[derive(Default)]
pub(super) struct NextEscapes {
    line_end: Option<usize>,
    other: Option<usize>,
}

impl NextEscapes {
    /// The first escape from here on, or the end of the text.
    fn after(&mut self, bytes: &[u8], from: usize) -> usize {
        let rest = bytes.get(from..).unwrap_or_default();
        let next = |known: &mut Option<usize>, find: &dyn Fn(&[u8]) -> Option<usize>| match known {
            Some(at) if *at >= from => *at,
            _ => *known.insert(from + find(rest).unwrap_or(rest.len())),
        };
        let other = next(&mut self.other, &|rest| memchr::memchr3(b'%', b'\\', b'\r', rest));
        other.min(next(&mut self.line_end, &|rest| memchr::memchr(b'\n', rest)))
    }
}

fn pair_index(pair: &[u8]) -> usize {
    usize::from(u16::from_be_bytes([pair[0], pair[1]]))
}

/// Four bytes, spread evenly.
fn hash(run: &[u8]) -> usize {
    let number = u32::from_le_bytes([run[0], run[1], run[2], run[3]]);
    (number.wrapping_mul(0x9E37_79B1) >> (u32::BITS - HASH_BITS)) as usize
}
