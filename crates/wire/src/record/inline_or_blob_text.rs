//! Strings and paths in a record: a string is stored inline or as the hash of a blob; a path is a string, or
//! its bytes in hexadecimal if they are not Unicode.

use std::borrow::Cow;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use engine::CallId;
use serde::de::{Error as _, IgnoredAny, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{GetBlob, PutBlob, RecordError};

const BLOB: &str = "blob";
const BYTES: &str = "bytes";

pub(super) enum StoredText<'a> {
    Inline(Cow<'a, str>),
    Blob { hash: String },
}

impl<'a> StoredText<'a> {
    pub(super) fn inline(text: &'a str) -> Self {
        Self::Inline(Cow::Borrowed(text))
    }

    pub(super) fn of(text: &'a str, keep: &mut PutBlob<'_>) -> Self {
        match keep(text) {
            Some(hash) => Self::Blob { hash },
            None => Self::inline(text),
        }
    }

    pub(super) fn of_option(text: Option<&'a Arc<str>>, keep: &mut PutBlob<'_>) -> Option<Self> {
        text.map(|text| Self::of(text, keep))
    }

    pub(super) fn fetched(self, fetch: &GetBlob<'_>) -> Result<Arc<str>, RecordError> {
        match self {
            Self::Inline(text) => Ok(text.into()),
            Self::Blob { hash } => fetch(&hash).ok_or(RecordError::MissingBlob { hash }),
        }
    }

    pub(super) fn fetched_option(
        text: Option<Self>,
        fetch: &GetBlob<'_>,
    ) -> Result<Option<Arc<str>>, RecordError> {
        text.map(|text| text.fetched(fetch)).transpose()
    }
}

/// Call ids are short, so they are always stored inline.
impl<'a> StoredText<'a> {
    pub(super) fn of_call(call: Option<&'a CallId>) -> Option<Self> {
        call.map(|call| Self::inline(&call.0))
    }

    pub(super) fn call(call: Option<Self>, fetch: &GetBlob<'_>) -> Result<Option<CallId>, RecordError> {
        Ok(Self::fetched_option(call, fetch)?.map(CallId))
    }
}

impl Serialize for StoredText<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Inline(text) => serializer.serialize_str(text),
            Self::Blob { hash } => one_field(serializer, BLOB, hash),
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for StoredText<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(match deserializer.deserialize_any(TextOrField { field: BLOB })? {
            TextOr::Text(text) => Self::Inline(text),
            TextOr::Field(hash) => Self::Blob { hash },
        })
    }
}

pub(super) enum StoredPath<'a> {
    Text(Cow<'a, str>),
    Hex(String),
}

impl<'a> StoredPath<'a> {
    pub(super) fn of(path: &'a Path) -> Self {
        match path.to_str() {
            Some(text) => Self::Text(Cow::Borrowed(text)),
            None => Self::Hex(hex(path.as_os_str().as_encoded_bytes())),
        }
    }

    pub(super) fn of_option(path: Option<&'a PathBuf>) -> Option<Self> {
        path.map(|path| Self::of(path))
    }

    pub(super) fn path(self) -> Result<PathBuf, RecordError> {
        match self {
            Self::Text(text) => Ok(PathBuf::from(text.into_owned())),
            Self::Hex(digits) => unhex(&digits).and_then(path_of_bytes).ok_or(RecordError::BadPath),
        }
    }

    pub(super) fn path_option(place: Option<Self>) -> Result<Option<PathBuf>, RecordError> {
        place.map(Self::path).transpose()
    }
}

impl Serialize for StoredPath<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Text(text) => serializer.serialize_str(text),
            Self::Hex(digits) => one_field(serializer, BYTES, digits),
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for StoredPath<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(match deserializer.deserialize_any(TextOrField { field: BYTES })? {
            TextOr::Text(text) => Self::Text(text),
            TextOr::Field(digits) => Self::Hex(digits),
        })
    }
}

fn one_field<S: Serializer>(serializer: S, field: &str, value: &str) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(1))?;
    map.serialize_entry(field, value)?;
    map.end()
}

/// A string, or an object with one string in a known field.
enum TextOr<'a> {
    Text(Cow<'a, str>),
    Field(String),
}

struct TextOrField {
    field: &'static str,
}

impl<'de> Visitor<'de> for TextOrField {
    type Value = TextOr<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a string or an object with the field {:?}", self.field)
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(TextOr::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(TextOr::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_string<E>(self, text: String) -> Result<Self::Value, E> {
        Ok(TextOr::Text(Cow::Owned(text)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some(key) = map.next_key::<Cow<'de, str>>()? {
            if key == self.field {
                found = Some(map.next_value()?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        found.map(TextOr::Field).ok_or_else(|| A::Error::missing_field(self.field))
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(digits: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|value| u8::try_from(value).ok());
    let pairs = digits.as_bytes().chunks(2);
    pairs.map(|pair| Some(digit(*pair.first()?)? << 4 | digit(*pair.get(1)?)?)).collect()
}

#[cfg(unix)]
fn path_of_bytes(bytes: Vec<u8>) -> Option<PathBuf> {
    use std::os::unix::ffi::OsStringExt;
    Some(std::ffi::OsString::from_vec(bytes).into())
}

/// On other platforms the bytes of a path that is not Unicode have no defined meaning.
#[cfg(not(unix))]
fn path_of_bytes(bytes: Vec<u8>) -> Option<PathBuf> {
    String::from_utf8(bytes).ok().map(PathBuf::from)
}
