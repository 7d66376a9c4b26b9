//! An agent's JSON, read member by member; each member keeps its original text.
//!
//! The official types would drop unknown members, and refuse a whole update for one unknown word in it.

use std::borrow::Cow;
use std::collections::hash_map::DefaultHasher;
use std::fmt;
use std::hash::Hasher;
use std::sync::Arc;

use engine::Opaque;
use serde::de::{DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::session_facts::{EXTENSION, PROMPT_ANSWER};

/// Objects with more members are not read.
const FIELDS_MAX: usize = 256;

/// The members of an object, in order.
pub(super) struct Fields<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'a> Fields<'a> {
    /// `None` if it is not an object.
    pub(super) fn of(raw: &'a RawValue) -> Option<Self> {
        serde_json::from_str(raw.get()).ok()
    }

    /// A member that is present and not null. The last one of a name counts.
    pub(super) fn get(&self, name: &str) -> Option<&'a RawValue> {
        let found = self.0.iter().rev().find(|(own, _)| own == name);
        found.map(|(_, raw)| *raw).filter(|raw| raw.get() != "null")
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &'a RawValue)> {
        self.0.iter().map(|(name, raw)| (name.as_ref(), *raw))
    }

    pub(super) fn text(&self, name: &str) -> Option<String> {
        self.get(name).and_then(text).map(|(text, _)| text)
    }

    /// The first of the named members that is a text.
    pub(super) fn text_of(&self, names: &[&str]) -> Option<String> {
        names.iter().find_map(|name| self.text(name))
    }

    pub(super) fn number<T: for<'n> Deserialize<'n>>(&self, name: &str) -> Option<T> {
        serde_json::from_str(self.get(name)?.get()).ok()
    }

    pub(super) fn object(&self, name: &str) -> Option<Fields<'a>> {
        self.get(name).and_then(Fields::of)
    }

    pub(super) fn list(&self, name: &str, items_max: usize) -> Option<Vec<&'a RawValue>> {
        list(self.get(name)?, items_max)
    }

    /// Whether the object has no members but these. Null counts as absent.
    pub(super) fn has_only(&self, names: &[&str]) -> bool {
        self.0.iter().all(|(name, raw)| names.contains(&name.as_ref()) || raw.get() == "null")
    }

    /// The object as text, without one of its members.
    pub(super) fn without(&self, name: &str) -> String {
        let mut out = String::from("{");
        for (own, raw) in self.0.iter().filter(|(own, _)| own != name) {
            if out.len() > 1 {
                out.push(',');
            }
            out.push_str(&serde_json::Value::from(own.as_ref()).to_string());
            out.push(':');
            out.push_str(raw.get());
        }
        out.push('}');
        out
    }
}

/// The object at the end of a path of members.
pub(super) fn nested_object<'a>(fields: &Fields<'a>, path: &[&str]) -> Option<Fields<'a>> {
    let (first, rest) = path.split_first()?;
    let inner = fields.object(first)?;
    if rest.is_empty() { Some(inner) } else { nested_object(&inner, rest) }
}

/// The items of a list, at most `items_max` of them.
pub(super) fn list(raw: &RawValue, items_max: usize) -> Option<Vec<&RawValue>> {
    let mut deserializer = serde_json::Deserializer::from_str(raw.get());
    Items(items_max).deserialize(&mut deserializer).ok()
}

/// A text, and whether it has half a surrogate pair: programs that count in UTF-16 cut texts inside a
/// character.
pub(super) fn text(raw: &RawValue) -> Option<(String, bool)> {
    let mut deserializer = serde_json::Deserializer::from_str(raw.get());
    let bytes = deserializer.deserialize_bytes(Bytes).ok()?;
    Some(match String::from_utf8(bytes) {
        Ok(text) => (text, false),
        Err(error) => (String::from_utf8_lossy(error.as_bytes()).into_owned(), true),
    })
}

/// The original text. If it begins like a payload that only we write, a leading space marks it as the
/// agent's.
pub(super) fn verbatim(raw: &RawValue) -> Opaque {
    let ours = [EXTENSION, PROMPT_ANSWER].iter().any(|begin| raw.get().starts_with(begin));
    if ours { Opaque(format!(" {}", raw.get()).into()) } else { Opaque(raw.get().into()) }
}

/// The beginning of a text that is too long.
pub(super) fn shortened(mut text: String, bytes_max: usize) -> Arc<str> {
    if text.len() > bytes_max {
        text.truncate(text.floor_char_boundary(bytes_max));
        text.push('…');
    }
    text.into()
}

/// JSON that is too long becomes the beginning of its text.
pub(super) fn shortened_json(raw: &RawValue, bytes_max: usize) -> Opaque {
    if raw.get().len() <= bytes_max {
        return verbatim(raw);
    }
    let beginning = shortened(raw.get().to_owned(), bytes_max / 2);
    Opaque(serde_json::Value::from(&*beginning).to_string().into())
}

pub(super) fn digest(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}

impl<'de: 'a, 'a> Deserialize<'de> for Fields<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Members).map(Fields)
    }
}

struct Members;

impl<'de> Visitor<'de> for Members {
    type Value = Vec<(Cow<'de, str>, &'de RawValue)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        #[derive(Deserialize)]
        struct Name<'a>(#[serde(borrow)] Cow<'a, str>);
        let mut members = Vec::new();
        while let Some((Name(name), raw)) = map.next_entry::<Name<'de>, &'de RawValue>()? {
            if members.len() == FIELDS_MAX {
                return Err(A::Error::custom("too many members"));
            }
            members.push((name, raw));
        }
        Ok(members)
    }
}

struct Items(usize);

impl<'de> DeserializeSeed<'de> for Items {
    type Value = Vec<&'de RawValue>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Items {
    type Value = Vec<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let mut kept = Vec::new();
        while kept.len() < self.0 {
            match items.next_element()? {
                Some(item) => kept.push(item),
                None => return Ok(kept),
            }
        }
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(kept)
    }
}

struct Bytes;

impl Visitor<'_> for Bytes {
    type Value = Vec<u8>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(text.as_bytes().to_vec())
    }

    fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Self::Value, E> {
        Ok(bytes.to_vec())
    }

    fn visit_byte_buf<E: Error>(self, bytes: Vec<u8>) -> Result<Self::Value, E> {
        Ok(bytes)
    }
}
