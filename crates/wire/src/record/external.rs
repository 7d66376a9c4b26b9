//! The stored form of what only sessions of external agents have: the agent's own session, the settings it
//! offers, its permission requests, its updates of a running call, and its verbatim updates.

use std::borrow::Cow;
use std::sync::Arc;

use engine::{
    AskOption, Body, CallId, Choice, ForeignAsk, Location, Opaque, SessionId, SettingSpec, ToolChange,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::content::{LocationRecord, ToolContentRecord};
use super::enum_words::Word;
use super::inline_or_blob_text::StoredText;
use super::tool::{contents, locations};
use super::{GetBlob, PutBlob, RecordError};

#[derive(Serialize, Deserialize)]
pub(super) struct JoinedRecord<'a> {
    #[serde(borrow)]
    agent: StoredText<'a>,
    #[serde(borrow)]
    session: StoredText<'a>,
    #[serde(borrow)]
    of: Cow<'a, str>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    extra: Option<StoredText<'a>>,
}

impl<'a> JoinedRecord<'a> {
    pub(super) fn of(
        [agent, session]: [&'a str; 2],
        of: &'a SessionId,
        extra: Option<&'a Opaque>,
        keep: &mut PutBlob<'_>,
    ) -> Self {
        let extra = extra.map(|extra| StoredText::of(&extra.0, keep));
        Self {
            agent: StoredText::inline(agent),
            session: StoredText::inline(session),
            of: of.as_str().into(),
            extra,
        }
    }

    pub(super) fn body(self, fetch: &GetBlob<'_>) -> Result<Body, RecordError> {
        let of = SessionId::parse(&self.of)
            .map_err(|_| RecordError::UnknownWord { field: "session", word: self.of.into_owned() })?;
        let extra = self.extra.map(|extra| extra.fetched(fetch).map(Opaque)).transpose()?;
        let (agent, session) = (self.agent.fetched(fetch)?, self.session.fetched(fetch)?);
        Ok(Body::Joined { agent, session, of, extra })
    }
}

#[derive(Serialize, Deserialize)]
pub(super) struct OfferedRecord<'a> {
    #[serde(borrow)]
    settings: Vec<SpecRecord<'a>>,
}

#[derive(Serialize, Deserialize)]
struct SpecRecord<'a> {
    #[serde(borrow)]
    id: StoredText<'a>,
    #[serde(borrow)]
    name: StoredText<'a>,
    #[serde(borrow)]
    description: StoredText<'a>,
    #[serde(borrow)]
    category: Cow<'a, str>,
    #[serde(borrow)]
    choices: Vec<[StoredText<'a>; 3]>,
    #[serde(borrow)]
    default: StoredText<'a>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    words: Option<StoredText<'a>>,
}

impl<'a> OfferedRecord<'a> {
    pub(super) fn of(settings: &'a [SettingSpec], keep: &mut PutBlob<'_>) -> Self {
        Self { settings: settings.iter().map(|spec| SpecRecord::of(spec, keep)).collect() }
    }

    pub(super) fn body(self, fetch: &GetBlob<'_>) -> Result<Body, RecordError> {
        let settings = self.settings.into_iter().map(|spec| spec.spec(fetch));
        Ok(Body::Offered { settings: settings.collect::<Result<_, _>>()? })
    }
}

impl<'a> SpecRecord<'a> {
    fn of(spec: &'a SettingSpec, keep: &mut PutBlob<'_>) -> Self {
        let mut text = |text: &'a Arc<str>| StoredText::of(text, keep);
        let choices = spec.choices.iter();
        let choices = choices.map(|choice| [&choice.value, &choice.name, &choice.description].map(&mut text));
        let choices = choices.collect();
        Self {
            id: text(&spec.id),
            name: text(&spec.name),
            description: text(&spec.description),
            category: spec.category.as_str().into(),
            choices,
            default: text(&spec.default),
            words: spec.words.as_ref().map(|words| text(&words.0)),
        }
    }

    fn spec(self, fetch: &GetBlob<'_>) -> Result<SettingSpec, RecordError> {
        let choice = |[value, name, description]: [StoredText<'a>; 3]| {
            Ok(Choice {
                value: value.fetched(fetch)?,
                name: name.fetched(fetch)?,
                description: description.fetched(fetch)?,
            })
        };
        Ok(SettingSpec {
            id: self.id.fetched(fetch)?,
            name: self.name.fetched(fetch)?,
            description: self.description.fetched(fetch)?,
            category: Word::read(&self.category)?,
            choices: self.choices.into_iter().map(choice).collect::<Result<_, RecordError>>()?,
            default: self.default.fetched(fetch)?,
            words: self.words.map(|words| words.fetched(fetch).map(Opaque)).transpose()?,
        })
    }
}

#[derive(Serialize, Deserialize)]
pub(super) struct ForeignAskRecord<'a> {
    /// The option's id, its text, and its meaning.
    #[serde(borrow)]
    options: Vec<(StoredText<'a>, StoredText<'a>, Cow<'a, str>)>,
    #[serde(borrow)]
    params: StoredText<'a>,
}

impl<'a> ForeignAskRecord<'a> {
    pub(super) fn of(ask: &'a ForeignAsk, keep: &mut PutBlob<'_>) -> Self {
        let option = |option: &'a AskOption| {
            (
                StoredText::inline(&option.id),
                StoredText::inline(&option.name),
                Cow::from(option.means.as_str()),
            )
        };
        Self {
            options: ask.options.iter().map(option).collect(),
            params: StoredText::of(&ask.params.0, keep),
        }
    }

    pub(super) fn ask(self, fetch: &GetBlob<'_>) -> Result<Box<ForeignAsk>, RecordError> {
        let option = |(id, name, means): (StoredText<'a>, StoredText<'a>, Cow<'a, str>)| {
            Ok(AskOption { id: id.fetched(fetch)?, name: name.fetched(fetch)?, means: Word::read(&means)? })
        };
        Ok(Box::new(ForeignAsk {
            options: self.options.into_iter().map(option).collect::<Result<_, RecordError>>()?,
            params: Opaque(self.params.fetched(fetch)?),
        }))
    }
}

#[derive(Serialize, Deserialize)]
pub(super) struct ToolChangeRecord<'a> {
    #[serde(borrow)]
    call: StoredText<'a>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    title: Option<StoredText<'a>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    kind: Option<Cow<'a, str>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    locations: Option<Vec<LocationRecord<'a>>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    input: Option<StoredText<'a>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    content: Option<Vec<ToolContentRecord<'a>>>,
}

impl<'a> ToolChangeRecord<'a> {
    pub(super) fn of(change: &'a ToolChange, keep: &mut PutBlob<'_>) -> Self {
        let places = |locations: &'a Vec<Location>| locations.iter().map(LocationRecord::of).collect();
        Self {
            call: StoredText::inline(&change.call.0),
            title: StoredText::of_option(change.title.as_ref(), keep),
            kind: change.kind.map(|kind| kind.as_str().into()),
            locations: change.locations.as_ref().map(places),
            input: change.input.as_ref().map(|input| StoredText::of(&input.0, keep)),
            content: change.content.as_ref().map(|content| ToolContentRecord::all(content, keep)),
        }
    }

    pub(super) fn body(self, fetch: &GetBlob<'_>) -> Result<Body, RecordError> {
        Ok(Body::ToolChanged(Box::new(ToolChange {
            call: CallId(self.call.fetched(fetch)?),
            title: StoredText::fetched_option(self.title, fetch)?,
            kind: self.kind.map(|kind| Word::read(&kind)).transpose()?,
            locations: self.locations.map(locations).transpose()?,
            input: StoredText::fetched_option(self.input, fetch)?.map(Opaque),
            content: self.content.map(|content| contents(content, fetch)).transpose()?,
        })))
    }
}

/// The one field that may be added to any body.
const RELAYED: &str = "\"relayed\":";
const RELAYED_FIELD: &str = "relayed";

#[derive(Deserialize)]
struct RelayedRecord<'a> {
    #[serde(borrow, default)]
    relayed: Option<StoredText<'a>>,
}

/// Inserts the agent's verbatim update into the object at the end of `out`.
pub(super) fn add_relayed(
    relayed: &Opaque,
    keep: &mut PutBlob<'_>,
    out: &mut Vec<u8>,
) -> Result<(), RecordError> {
    out.pop();
    if out.last() != Some(&b'{') {
        out.push(b',');
    }
    out.extend_from_slice(RELAYED.as_bytes());
    serde_json::to_writer(&mut *out, &StoredText::of(&relayed.0, keep))?;
    out.push(b'}');
    Ok(())
}

/// The same for a body that is not text yet.
pub(super) fn set_relayed(relayed: &Opaque, body: &mut Value) {
    body[RELAYED_FIELD] = (&*relayed.0).into();
}

pub(super) fn relayed(bytes: &[u8], fetch: &GetBlob<'_>) -> Result<Option<Opaque>, RecordError> {
    // Few events have one, and searching for the key is cheaper than parsing twice.
    if !bytes.windows(RELAYED.len()).any(|window| window == RELAYED.as_bytes()) {
        return Ok(None);
    }
    let record: RelayedRecord<'_> = serde_json::from_slice(bytes)?;
    Ok(StoredText::fetched_option(record.relayed, fetch)?.map(Opaque))
}
