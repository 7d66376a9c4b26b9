//! The stored form of tool calls and permission requests.

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::Arc;

use engine::{
    AskId, AskRequest, Body, CallId, Exit, Location, Opaque, OutputStream, Question, Resolution, Resolver,
    Standing, SurfaceId, TerminalId, ToolContent, ToolEnd, ToolStart,
};
use serde::{Deserialize, Serialize};

use super::content::{LocationRecord, ToolContentRecord};
use super::enum_words::Word;
use super::external::ForeignAskRecord;
use super::inline_or_blob_text::{StoredPath, StoredText};
use super::{BridgeRecord, GetBlob, PutBlob, RecordError};

#[derive(Serialize, Deserialize)]
pub(super) struct ToolStartRecord<'a> {
    #[serde(borrow)]
    call: StoredText<'a>,
    #[serde(borrow)]
    tool: StoredText<'a>,
    #[serde(borrow)]
    title: StoredText<'a>,
    #[serde(borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow, default, skip_serializing_if = "Vec::is_empty")]
    locations: Vec<LocationRecord<'a>>,
    #[serde(borrow)]
    input: StoredText<'a>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    client_terminal: Option<u64>,
}

impl<'a> ToolStartRecord<'a> {
    pub(super) fn of(start: &'a ToolStart, keep: &mut PutBlob<'_>) -> Self {
        Self {
            call: StoredText::inline(&start.call.0),
            tool: StoredText::of(&start.tool, keep),
            title: StoredText::of(&start.title, keep),
            kind: start.kind.as_str().into(),
            locations: start.locations.iter().map(LocationRecord::of).collect(),
            input: StoredText::of(&start.input.0, keep),
            client_terminal: start.client_terminal.map(|surface| surface.0),
        }
    }

    pub(super) fn body(self, fetch: &GetBlob<'_>) -> Result<Body, RecordError> {
        Ok(Body::ToolStarted(Box::new(ToolStart {
            call: CallId(self.call.fetched(fetch)?),
            tool: self.tool.fetched(fetch)?,
            title: self.title.fetched(fetch)?,
            kind: Word::read(&self.kind)?,
            locations: locations(self.locations)?,
            input: Opaque(self.input.fetched(fetch)?),
            client_terminal: self.client_terminal.map(SurfaceId),
        })))
    }
}

#[derive(Serialize, Deserialize)]
pub(super) struct ToolEndRecord<'a> {
    #[serde(borrow)]
    call: StoredText<'a>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    failed: bool,
    #[serde(borrow, default, skip_serializing_if = "Vec::is_empty")]
    content: Vec<ToolContentRecord<'a>>,
    #[serde(borrow, default, skip_serializing_if = "Vec::is_empty")]
    locations: Vec<LocationRecord<'a>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    raw: Option<StoredText<'a>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    exit: Option<ExitRecord<'a>>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    plain_text: bool,
    elapsed_ms: u64,
}

#[derive(Serialize, Deserialize)]
struct ExitRecord<'a> {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    code: Option<i32>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    signal: Option<StoredText<'a>>,
}

impl<'a> ToolEndRecord<'a> {
    pub(super) fn of(end: &'a ToolEnd, keep: &mut PutBlob<'_>) -> Self {
        let exit = end.exit.as_ref().map(|exit| ExitRecord {
            code: exit.code,
            signal: StoredText::of_option(exit.signal.as_ref(), keep),
        });
        Self {
            call: StoredText::inline(&end.call.0),
            failed: end.failed,
            content: ToolContentRecord::all(&end.content, keep),
            locations: end.locations.iter().map(LocationRecord::of).collect(),
            raw: end.raw.as_ref().map(|raw| StoredText::of(&raw.0, keep)),
            exit,
            plain_text: end.plain_text,
            elapsed_ms: end.elapsed_ms,
        }
    }

    pub(super) fn body(self, fetch: &GetBlob<'_>) -> Result<Body, RecordError> {
        let exit = match self.exit {
            Some(exit) => {
                Some(Exit { code: exit.code, signal: StoredText::fetched_option(exit.signal, fetch)? })
            }
            None => None,
        };
        Ok(Body::ToolEnded(Box::new(ToolEnd {
            call: CallId(self.call.fetched(fetch)?),
            failed: self.failed,
            content: contents(self.content, fetch)?,
            locations: locations(self.locations)?,
            raw: StoredText::fetched_option(self.raw, fetch)?.map(Opaque),
            exit,
            plain_text: self.plain_text,
            elapsed_ms: self.elapsed_ms,
        })))
    }
}

#[derive(Serialize, Deserialize)]
struct AskRecord<'a> {
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    call: Option<StoredText<'a>>,
    #[serde(borrow)]
    tool: StoredText<'a>,
    #[serde(borrow)]
    title: StoredText<'a>,
    #[serde(borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    class: Cow<'a, str>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    path: Option<StoredPath<'a>>,
    #[serde(borrow)]
    subject: StoredText<'a>,
    #[serde(borrow)]
    input: StoredText<'a>,
    #[serde(borrow)]
    risk: Cow<'a, str>,
    #[serde(borrow)]
    reason: StoredText<'a>,
    #[serde(borrow, default, skip_serializing_if = "Vec::is_empty")]
    preview: Vec<ToolContentRecord<'a>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    question: Option<QuestionRecord<'a>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    foreign: Option<ForeignAskRecord<'a>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    consent: Option<StoredText<'a>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    rule: Option<StoredText<'a>>,
}

#[derive(Serialize, Deserialize)]
struct QuestionRecord<'a> {
    #[serde(borrow)]
    text: StoredText<'a>,
    #[serde(borrow, default, skip_serializing_if = "Vec::is_empty")]
    choices: Vec<StoredText<'a>>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    free_text: bool,
}

impl<'a> QuestionRecord<'a> {
    fn of(question: &'a Question, keep: &mut PutBlob<'_>) -> Self {
        Self {
            text: StoredText::of(&question.text, keep),
            choices: question.choices.iter().map(|choice| StoredText::of(choice, keep)).collect(),
            free_text: question.free_text,
        }
    }

    fn question(self, fetch: &GetBlob<'_>) -> Result<Question, RecordError> {
        let choices = self.choices.into_iter().map(|choice| choice.fetched(fetch));
        Ok(Question {
            text: self.text.fetched(fetch)?,
            choices: choices.collect::<Result<_, _>>()?,
            free_text: self.free_text,
        })
    }
}

impl<'a> AskRecord<'a> {
    fn of(request: &'a AskRequest, keep: &mut PutBlob<'_>) -> Self {
        Self {
            call: StoredText::of_call(request.call.as_ref()),
            tool: StoredText::of(&request.tool, keep),
            title: StoredText::of(&request.title, keep),
            kind: request.kind.as_str().into(),
            class: request.class.as_str().into(),
            path: StoredPath::of_option(request.path.as_ref()),
            subject: StoredText::of(&request.subject, keep),
            input: StoredText::of(&request.input.0, keep),
            risk: request.risk.as_str().into(),
            reason: StoredText::of(&request.reason, keep),
            preview: ToolContentRecord::all(&request.preview, keep),
            question: request.question.as_ref().map(|question| QuestionRecord::of(question, keep)),
            foreign: request.foreign.as_deref().map(|foreign| ForeignAskRecord::of(foreign, keep)),
            consent: request.consent.as_ref().map(|consent| StoredText::of(consent, keep)),
            rule: request.rule.as_ref().map(|rule| StoredText::of(rule, keep)),
        }
    }

    fn request(self, fetch: &GetBlob<'_>) -> Result<AskRequest, RecordError> {
        Ok(AskRequest {
            call: StoredText::call(self.call, fetch)?,
            tool: self.tool.fetched(fetch)?,
            title: self.title.fetched(fetch)?,
            kind: Word::read(&self.kind)?,
            class: Word::read(&self.class)?,
            path: StoredPath::path_option(self.path)?,
            subject: self.subject.fetched(fetch)?,
            input: Opaque(self.input.fetched(fetch)?),
            risk: Word::read(&self.risk)?,
            reason: self.reason.fetched(fetch)?,
            preview: contents(self.preview, fetch)?,
            question: self.question.map(|question| question.question(fetch)).transpose()?,
            foreign: self.foreign.map(|foreign| foreign.ask(fetch)).transpose()?,
            consent: self.consent.map(|consent| consent.fetched(fetch)).transpose()?,
            rule: self.rule.map(|rule| rule.fetched(fetch)).transpose()?,
        })
    }
}

#[derive(Serialize, Deserialize)]
pub(super) struct AskedRecord<'a> {
    ask: u64,
    #[serde(borrow)]
    request: AskRecord<'a>,
}

impl<'a> AskedRecord<'a> {
    pub(super) fn of(ask: AskId, request: &'a AskRequest, keep: &mut PutBlob<'_>) -> Self {
        Self { ask: ask.0, request: AskRecord::of(request, keep) }
    }

    pub(super) fn body(self, fetch: &GetBlob<'_>) -> Result<Body, RecordError> {
        Ok(Body::Asked { ask: AskId(self.ask), request: Box::new(self.request.request(fetch)?) })
    }
}

#[derive(Serialize, Deserialize)]
pub(super) struct ResolvedRecord<'a> {
    ask: u64,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    call: Option<StoredText<'a>>,
    #[serde(borrow)]
    resolution: Cow<'a, str>,
    #[serde(borrow)]
    by: ResolverRecord<'a>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    reply: Option<StoredText<'a>>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    exactly: bool,
}

impl<'a> ResolvedRecord<'a> {
    pub(super) fn of(
        (ask, call): (AskId, Option<&'a CallId>),
        resolution: Resolution,
        by: &'a Resolver,
        reply: Option<&'a Arc<str>>,
        keep: &mut PutBlob<'_>,
    ) -> Self {
        let resolution = resolution.as_str().into();
        let by = ResolverRecord::of(by, keep);
        let (call, reply) = (StoredText::of_call(call), StoredText::of_option(reply, keep));
        Self { ask: ask.0, call, resolution, by, reply, exactly: false }
    }

    /// Whether an answer for good is about exactly these arguments. Older logs do not have the field.
    pub(super) fn exactly(self, exactly: bool) -> Self {
        Self { exactly, ..self }
    }

    pub(super) fn body(self, fetch: &GetBlob<'_>) -> Result<Body, RecordError> {
        Ok(Body::Resolved {
            ask: AskId(self.ask),
            call: StoredText::call(self.call, fetch)?,
            resolution: Word::read(&self.resolution)?,
            by: self.by.resolver(fetch)?,
            reply: StoredText::fetched_option(self.reply, fetch)?,
            exactly: self.exactly,
        })
    }
}

#[derive(Serialize, Deserialize)]
pub(super) struct PolicyBlockedRecord<'a> {
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    call: Option<StoredText<'a>>,
    #[serde(borrow)]
    tool: StoredText<'a>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    path: Option<StoredPath<'a>>,
    #[serde(borrow)]
    mode: StoredText<'a>,
    #[serde(borrow)]
    reason: StoredText<'a>,
}

impl<'a> PolicyBlockedRecord<'a> {
    /// `words` are the tool, the mode and the reason.
    pub(super) fn of(
        call: Option<&'a CallId>,
        path: Option<&'a PathBuf>,
        words: [&'a Arc<str>; 3],
        keep: &mut PutBlob<'_>,
    ) -> Self {
        let [tool, mode, reason] = words.map(|text| StoredText::of(text, keep));
        Self { call: StoredText::of_call(call), tool, path: StoredPath::of_option(path), mode, reason }
    }

    pub(super) fn body(self, fetch: &GetBlob<'_>) -> Result<Body, RecordError> {
        Ok(Body::PolicyBlocked {
            call: StoredText::call(self.call, fetch)?,
            tool: self.tool.fetched(fetch)?,
            path: StoredPath::path_option(self.path)?,
            mode: self.mode.fetched(fetch)?,
            reason: self.reason.fetched(fetch)?,
        })
    }
}

#[derive(Serialize, Deserialize)]
pub(super) struct ToolOutputRecord<'a> {
    #[serde(borrow)]
    call: StoredText<'a>,
    #[serde(borrow)]
    stream: Cow<'a, str>,
    #[serde(borrow)]
    text: StoredText<'a>,
}

impl<'a> ToolOutputRecord<'a> {
    pub(super) fn of(call: &'a CallId, stream: OutputStream, text: &'a str, keep: &mut PutBlob<'_>) -> Self {
        Self {
            call: StoredText::inline(&call.0),
            stream: stream.as_str().into(),
            text: StoredText::of(text, keep),
        }
    }

    pub(super) fn body(self, fetch: &GetBlob<'_>) -> Result<Body, RecordError> {
        Ok(Body::ToolOutput {
            call: CallId(self.call.fetched(fetch)?),
            stream: Word::read(&self.stream)?,
            text: self.text.fetched(fetch)?,
        })
    }
}

#[derive(Serialize, Deserialize)]
pub(super) struct ToolTerminalRecord<'a> {
    #[serde(borrow)]
    call: StoredText<'a>,
    #[serde(borrow)]
    terminal: StoredText<'a>,
    surface: u64,
}

impl<'a> ToolTerminalRecord<'a> {
    pub(super) fn of(call: &'a CallId, terminal: &'a TerminalId, surface: SurfaceId) -> Self {
        Self {
            call: StoredText::inline(&call.0),
            terminal: StoredText::inline(&terminal.0),
            surface: surface.0,
        }
    }

    pub(super) fn body(self, fetch: &GetBlob<'_>) -> Result<Body, RecordError> {
        Ok(Body::ToolTerminal {
            call: CallId(self.call.fetched(fetch)?),
            terminal: TerminalId(self.terminal.fetched(fetch)?),
            surface: SurfaceId(self.surface),
        })
    }
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ResolverRecord<'a> {
    Policy {
        #[serde(borrow)]
        reason: StoredText<'a>,
    },
    Rule {
        #[serde(borrow)]
        reason: StoredText<'a>,
    },
    Surface {
        id: u64,
        #[serde(borrow)]
        name: StoredText<'a>,
        #[serde(default, borrow, skip_serializing_if = "Option::is_none")]
        bridge: Option<BridgeRecord<'a>>,
        /// Absent in logs of earlier versions.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        owner: Option<bool>,
    },
    Engine,
}

impl<'a> ResolverRecord<'a> {
    fn of(resolver: &'a Resolver, keep: &mut PutBlob<'_>) -> Self {
        match resolver {
            Resolver::Policy { reason } => Self::Policy { reason: StoredText::of(reason, keep) },
            Resolver::Rule { reason } => Self::Rule { reason: StoredText::of(reason, keep) },
            Resolver::Surface { id, name, remote, standing } => Self::Surface {
                id: id.0,
                name: StoredText::of(name, keep),
                bridge: remote.as_deref().map(BridgeRecord::of),
                owner: match standing {
                    Standing::OwnerAtMachine => Some(true),
                    Standing::Other => Some(false),
                    Standing::Unknown => None,
                },
            },
            Resolver::Engine => Self::Engine,
        }
    }

    fn resolver(self, fetch: &GetBlob<'_>) -> Result<Resolver, RecordError> {
        Ok(match self {
            Self::Policy { reason } => Resolver::Policy { reason: reason.fetched(fetch)? },
            Self::Rule { reason } => Resolver::Rule { reason: reason.fetched(fetch)? },
            Self::Surface { id, name, bridge, owner } => Resolver::Surface {
                id: SurfaceId(id),
                name: name.fetched(fetch)?,
                remote: bridge.map(BridgeRecord::user).transpose()?,
                standing: owner.map_or(Standing::Unknown, Standing::owner_if),
            },
            Self::Engine => Resolver::Engine,
        })
    }
}

pub(super) fn locations(records: Vec<LocationRecord<'_>>) -> Result<Vec<Location>, RecordError> {
    records.into_iter().map(LocationRecord::location).collect()
}

pub(super) fn contents(
    records: Vec<ToolContentRecord<'_>>,
    fetch: &GetBlob<'_>,
) -> Result<Vec<ToolContent>, RecordError> {
    records.into_iter().map(|record| record.content(fetch)).collect()
}
