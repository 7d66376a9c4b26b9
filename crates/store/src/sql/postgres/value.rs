//! Conversion between our SQL values and PostgreSQL's wire format.

use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};
use tokio_util::bytes::{BufMut, BytesMut};

use crate::sql::SqlValue;

type ConversionError = Box<dyn std::error::Error + Sync + Send>;

impl SqlValue {
    /// The type of a value for PostgreSQL. The type of a null has to be inferred.
    pub(super) fn wire_type(&self) -> Type {
        match self {
            Self::Null => Type::UNKNOWN,
            Self::Int(_) => Type::INT8,
            Self::Text(_) => Type::TEXT,
            Self::Bytes(_) => Type::BYTEA,
        }
    }

    /// Whether the value fits where a prepared statement has this type.
    pub(super) fn fits(&self, kind: &Type) -> bool {
        matches!(self, Self::Null) || self.wire_type() == *kind
    }
}

impl ToSql for SqlValue {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, ConversionError> {
        match self {
            Self::Null => return Ok(IsNull::Yes),
            Self::Int(number) => out.put_i64(*number),
            Self::Text(text) => out.put_slice(text.as_bytes()),
            Self::Bytes(bytes) => out.put_slice(bytes),
        }
        Ok(IsNull::No)
    }

    /// Looked at before, where it can be said which statement it is ([`SqlValue::fits`]).
    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

impl<'a> FromSql<'a> for SqlValue {
    fn from_sql(kind: &Type, raw: &'a [u8]) -> Result<Self, ConversionError> {
        Ok(match *kind {
            Type::INT8 => Self::Int(i64::from_sql(kind, raw)?),
            Type::INT4 => Self::Int(i32::from_sql(kind, raw)?.into()),
            Type::INT2 => Self::Int(i16::from_sql(kind, raw)?.into()),
            Type::BOOL => Self::Int(bool::from_sql(kind, raw)?.into()),
            Type::NUMERIC => Self::Int(whole(raw).ok_or("a number that is not whole, or too big")?),
            Type::BYTEA => Self::Bytes(raw.into()),
            Type::TEXT | Type::VARCHAR | Type::BPCHAR | Type::NAME | Type::UNKNOWN => {
                Self::Text(std::str::from_utf8(raw)?.into())
            }
            _ => return Err(format!("a column of type {kind} is not read").into()),
        })
    }

    fn from_sql_null(_: &Type) -> Result<Self, ConversionError> {
        Ok(Self::Null)
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

/// A sum of `BIGINT`s is a `NUMERIC`: a count of digits to the base 10,000, the weight of the first, a sign, the
/// digits after the point that are shown, and the digits.
fn whole(raw: &[u8]) -> Option<i64> {
    let mut words = raw.chunks_exact(2).map(|word| i16::from_be_bytes([word[0], word[1]]));
    let (count, weight, sign, _) = (words.next()?, words.next()?, words.next()?, words.next()?);
    let negative = match sign {
        0 => false,
        0x4000 => true,
        _ => return None,
    };
    let mut number: i64 = 0;
    for place in 0..=weight {
        let digit = if place < count { words.next()? } else { 0 };
        number = number.checked_mul(10_000)?.checked_add(digit.into())?;
    }
    words.next().is_none().then_some(if negative { -number } else { number })
}

#[cfg(test)]
mod tests {
    use super::whole;

    #[test]
    fn sums_are_read_if_they_are_whole() {
        let read =
            |words: &[i16]| whole(&words.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<_>>());
        assert_eq!(read(&[0, 0, 0, 0]), Some(0));
        assert_eq!(read(&[1, 0, 0x4000, 0, 7]), Some(-7));
        assert_eq!(read(&[2, 1, 0, 0, 12, 34]), Some(120_034));
        assert_eq!(read(&[1, 2, 0, 0, 3]), Some(300_000_000));
        assert_eq!(read(&[1, -1, 0, 1, 5000]), None, "a half");
        assert_eq!(read(&[1, 9, 0, 0, 1]), None, "too big");
        assert_eq!(read(&[5, 4, 0, 0, 1]), None, "cut off");
        assert_eq!(whole(&[1]), None);
    }
}
