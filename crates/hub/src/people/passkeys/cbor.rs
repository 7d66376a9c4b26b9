//! The part of CBOR (RFC 8949) that authenticators write: integers, bytes, text, lists, maps and a few simple values, of
//! definite length. Anything deeper or larger than authenticators write is refused.

/// Nesting of lists and maps.
const DEPTH_MAX: usize = 8;
/// Values in all.
const VALUES_MAX: usize = 512;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Cbor<'a> {
    Int(i64),
    Bytes(&'a [u8]),
    Text(&'a str),
    List(Vec<Cbor<'a>>),
    Map(Vec<(Cbor<'a>, Cbor<'a>)>),
    /// A boolean, null or float: never used here.
    Plain,
}

impl<'a> Cbor<'a> {
    /// The first value of these bytes, and what follows it.
    pub(super) fn read(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let mut reader = Reader { rest: bytes, left: VALUES_MAX };
        let value = reader.value(0)?;
        Some((value, reader.rest))
    }

    /// The value of a map's key. A duplicate key counts as missing, because it is ambiguous.
    pub(super) fn get(&self, key: &Cbor<'_>) -> Option<&Cbor<'a>> {
        let Self::Map(entries) = self else { return None };
        let mut found = entries.iter().filter(|(known, _)| known == key);
        let first = found.next();
        first.filter(|_| found.next().is_none()).map(|(_, value)| value)
    }

    pub(super) fn int(&self) -> Option<i64> {
        if let Self::Int(number) = self { Some(*number) } else { None }
    }

    pub(super) fn bytes(&self) -> Option<&'a [u8]> {
        if let Self::Bytes(bytes) = self { Some(bytes) } else { None }
    }
}

struct Reader<'a> {
    rest: &'a [u8],
    left: usize,
}

impl<'a> Reader<'a> {
    fn value(&mut self, depth: usize) -> Option<Cbor<'a>> {
        self.left = self.left.checked_sub(1)?;
        let head = *self.take(1)?.first()?;
        let (kind, short) = (head >> 5, head & 31);
        if kind == 7 {
            return self.plain(short);
        }
        let number = self.number(short)?;
        match kind {
            0 => i64::try_from(number).ok().map(Cbor::Int),
            1 => i64::try_from(number).ok().map(|number| Cbor::Int(-1 - number)),
            2 => self.take(usize::try_from(number).ok()?).map(Cbor::Bytes),
            3 => std::str::from_utf8(self.take(usize::try_from(number).ok()?)?).ok().map(Cbor::Text),
            4 if depth < DEPTH_MAX => {
                (0..number).map(|_| self.value(depth + 1)).collect::<Option<_>>().map(Cbor::List)
            }
            5 if depth < DEPTH_MAX => {
                let entry = |_| Some((self.value(depth + 1)?, self.value(depth + 1)?));
                (0..number).map(entry).collect::<Option<_>>().map(Cbor::Map)
            }
            // Tags, and whatever is too deep.
            _ => None,
        }
    }

    fn plain(&mut self, short: u8) -> Option<Cbor<'a>> {
        let bytes = match short {
            0..=23 => 0,
            24 => 1,
            25 => 2,
            26 => 4,
            27 => 8,
            _ => return None,
        };
        self.take(bytes).map(|_| Cbor::Plain)
    }

    fn number(&mut self, short: u8) -> Option<u64> {
        let bytes = match short {
            0..=23 => return Some(u64::from(short)),
            24 => 1,
            25 => 2,
            26 => 4,
            27 => 8,
            // An indefinite length.
            _ => return None,
        };
        Some(self.take(bytes)?.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(taken)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(bytes: &[u8]) -> Option<Cbor<'_>> {
        Cbor::read(bytes).map(|(value, _)| value)
    }

    #[test]
    fn the_values_of_the_standard_are_read() {
        assert_eq!(read(&[0x18, 0x64]), Some(Cbor::Int(100)));
        assert_eq!(read(&[0x38, 0x63]), Some(Cbor::Int(-100)));
        assert_eq!(read(&[0x1b, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]), Some(Cbor::Int(i64::MAX)));
        assert_eq!(read(b"\x44\x01\x02\x03\x04"), Some(Cbor::Bytes(&[1, 2, 3, 4])));
        assert_eq!(read(b"\x64IETF"), Some(Cbor::Text("IETF")));
        assert_eq!(read(b"\x82\x01\xf5"), Some(Cbor::List(vec![Cbor::Int(1), Cbor::Plain])));
        let map = read(b"\xa2\x01\x02\x03\x04").unwrap();
        assert_eq!(map.get(&Cbor::Int(3)).and_then(Cbor::int), Some(4));
        assert_eq!(map.get(&Cbor::Int(2)), None);
        assert_eq!(Cbor::read(b"\x01rest").unwrap().1, b"rest");
    }

    #[test]
    fn what_no_authenticator_writes_is_refused() {
        let deep = [&[0x81; 9][..], &[0]].concat();
        let many = [&[0x9a, 0, 0, 2, 1][..], &[0; 513]].concat();
        for bad in [
            &[][..],
            &[0x44, 1, 2, 3],
            &[0x62, 0xff, 0xff],
            &[0x5f, 0x41, 0, 0xff],
            &[0xc0, 0],
            &[0x1b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
            &[0x9b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
            &[0xbb, 0, 0, 0, 1, 0, 0, 0, 0, 1],
            &[0xff],
            &deep,
            &many,
        ] {
            assert_eq!(read(bad), None, "{bad:02x?}");
        }
        assert_eq!(read(b"\xa2\x01\x02\x01\x04").unwrap().get(&Cbor::Int(1)), None, "the same key twice");
    }

    proptest! {
        #[test]
        fn no_bytes_break_the_reader(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            if let Some((_, rest)) = Cbor::read(&bytes) {
                prop_assert!(rest.len() < bytes.len());
            }
        }

        #[test]
        fn bytes_that_begin_like_lists_and_maps_break_nothing_either(
            heads in proptest::collection::vec(0x80_u8..=0xbf, 0..64),
            tail in proptest::collection::vec(any::<u8>(), 0..64),
        ) {
            drop(Cbor::read(&[heads, tail].concat()));
        }
    }
}
