//! The stored form of an event: in the store's rows, in exports and in imports.
//!
//! An event's kind and format version are stored beside its body (in a column, or in a field of an export
//! line), so that a reader can refuse unknown ones before it parses anything. The body is a JSON object.
//! Unknown fields are ignored, so a later version can add some; a change of meaning needs a new [`VERSION`].
//!
//! Any string may be stored elsewhere: if the caller's `keep` returns a content hash, the JSON has
//! `{"blob":"<hash>"}` in its place, and `fetch` loads it.
//!
//! **Invariant:** `decode(kind(b), VERSION, encode(b)) == b` for every body whose cost is a finite number;
//! any other cost is stored as zero.
//! **Invariant:** encoding text and thoughts allocates nothing beyond the output.

mod body;
mod content;
mod enum_words;
mod external;
mod inline_or_blob_text;
mod message;
mod tool;
mod unreadable_event;

use std::path::PathBuf;
use std::sync::Arc;

use engine::{Body, CallId, Event, Opaque, Origin, SurfaceId};
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use self::body::kind;
pub use self::unreadable_event::EventLoss;

use self::inline_or_blob_text::{StoredPath, StoredText};

/// The format that [`encode`] writes. [`decode`] reads this one and all earlier ones.
pub const VERSION: u32 = 1;

/// May store a string elsewhere, and then returns its hash.
pub type PutBlob<'k> = dyn FnMut(&str) -> Option<String> + 'k;
/// Loads a string by its hash.
pub type GetBlob<'k> = dyn Fn(&str) -> Option<Arc<str>> + 'k;

#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    #[error("unknown kind of event {kind:?}")]
    UnknownKind { kind: String },
    #[error("the event has format {found}, but this version reads formats up to {VERSION}")]
    Newer { found: u32 },
    #[error("{word:?} is not a known {field}")]
    UnknownWord { field: &'static str, word: String },
    #[error("the content {hash} is missing")]
    MissingBlob { hash: String },
    #[error("{field} {number} is too high")]
    TooHigh { field: &'static str, number: u64 },
    #[error("its time is not between the years 1970 and 9999")]
    BadTime,
    #[error("the path is malformed")]
    BadPath,
    #[error("the event is malformed")]
    Malformed(#[from] serde_json::Error),
}

/// The kinds of bodies that are a session's set-up ([`Body::is_setup`]), for stores that only look at kinds.
pub const SETUP_KINDS: [&str; 6] = ["setting_changed", "moved", "commands", "joined", "offered", "usage"];

/// Appends the body's JSON to `out`. Fails only if a body should ever hold something that JSON cannot
/// express.
pub fn encode(body: &Body, keep: &mut PutBlob<'_>, out: &mut Vec<u8>) -> Result<(), RecordError> {
    body::encode(body, keep, out)
}

/// The same for a whole event: with an external agent's verbatim update, if it has one.
pub fn encode_event(event: &Event, keep: &mut PutBlob<'_>, out: &mut Vec<u8>) -> Result<(), RecordError> {
    body::encode(&event.body, keep, out)?;
    match &event.relayed {
        Some(relayed) => external::add_relayed(relayed, keep, out),
        None => Ok(()),
    }
}

/// The JSON of a whole event, with all text inline.
pub(crate) fn event_value(event: &Event) -> Result<Value, RecordError> {
    let mut value = Value::Null;
    body::encode(&event.body, &mut |_| None, &mut value)?;
    if let Some(relayed) = &event.relayed {
        external::set_relayed(relayed, &mut value);
    }
    Ok(value)
}

/// The verbatim update of an external agent, which is stored beside the body.
pub fn decode_relayed(bytes: &[u8], fetch: &GetBlob<'_>) -> Result<Option<Opaque>, RecordError> {
    external::relayed(bytes, fetch)
}

pub fn decode(kind: &str, version: u32, bytes: &[u8], fetch: &GetBlob<'_>) -> Result<Body, RecordError> {
    if version > VERSION {
        return Err(RecordError::Newer { found: version });
    }
    body::decode(kind, bytes, fetch)
}

/// The stored form of an event's origin.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum OriginRecord<'a> {
    Engine,
    Agent,
    Task {
        #[serde(borrow)]
        call: StoredText<'a>,
    },
    Surface {
        id: u64,
        #[serde(borrow)]
        name: StoredText<'a>,
        #[serde(default, borrow, skip_serializing_if = "Option::is_none")]
        request: Option<StoredText<'a>>,
        #[serde(default, borrow, skip_serializing_if = "Option::is_none")]
        bridge: Option<BridgeRecord<'a>>,
    },
}

impl<'a> OriginRecord<'a> {
    fn of(origin: &'a Origin) -> Self {
        match origin {
            Origin::Engine => Self::Engine,
            Origin::Agent => Self::Agent,
            Origin::Task { call } => Self::Task { call: StoredText::inline(&call.0) },
            Origin::Surface { id, name, request, remote } => Self::Surface {
                id: id.0,
                name: StoredText::inline(name),
                request: request.as_deref().map(StoredText::inline),
                bridge: remote.as_deref().map(BridgeRecord::of),
            },
        }
    }
}

/// The origin of an event that came over a bridge, in the form of ferret's event log.
#[derive(Serialize, Deserialize)]
struct BridgeRecord<'a> {
    #[serde(default, borrow)]
    origin: Option<StoredText<'a>>,
    #[serde(borrow)]
    remote_user: StoredText<'a>,
}

impl<'a> BridgeRecord<'a> {
    fn of(user: &'a str) -> Self {
        Self { origin: Some(StoredText::inline(BRIDGE)), remote_user: StoredText::inline(user) }
    }

    fn user(self) -> Result<Arc<str>, RecordError> {
        self.remote_user.fetched(&|_| None)
    }
}

/// The origin of everything that has a `bridge`.
const BRIDGE: &str = "bridge";

/// The most common origin, written out so that neither direction has to parse it.
const AGENT: &[u8] = b"\"agent\"";

pub fn encode_origin(origin: &Origin, out: &mut Vec<u8>) -> Result<(), RecordError> {
    if *origin == Origin::Agent {
        out.extend_from_slice(AGENT);
        return Ok(());
    }
    Ok(serde_json::to_writer(out, &OriginRecord::of(origin))?)
}

pub(crate) fn origin_value(origin: &Origin) -> Result<Value, RecordError> {
    Ok(serde_json::to_value(OriginRecord::of(origin))?)
}

pub fn decode_origin(bytes: &[u8]) -> Result<Origin, RecordError> {
    if bytes == AGENT {
        return Ok(Origin::Agent);
    }
    Ok(match serde_json::from_slice(bytes)? {
        OriginRecord::Engine => Origin::Engine,
        OriginRecord::Agent => Origin::Agent,
        OriginRecord::Task { call } => Origin::Task { call: CallId(call.fetched(&|_| None)?) },
        OriginRecord::Surface { id, name, request, bridge } => Origin::Surface {
            id: SurfaceId(id),
            name: name.fetched(&|_| None)?,
            request: request.map(|request| request.fetched(&|_| None)).transpose()?,
            remote: bridge.map(BridgeRecord::user).transpose()?,
        },
    })
}

/// A list of paths as a JSON array; paths that are not Unicode are preserved, too.
pub fn encode_paths(paths: &[PathBuf]) -> Result<String, RecordError> {
    let places: Vec<_> = paths.iter().map(|path| StoredPath::of(path)).collect();
    Ok(serde_json::to_string(&places)?)
}

pub fn decode_paths(json: &str) -> Result<Vec<PathBuf>, RecordError> {
    let places: Vec<StoredPath<'_>> = serde_json::from_str(json)?;
    places.into_iter().map(StoredPath::path).collect()
}
