//! The stored form of what people and agents say: blocks, file changes, places, plans, commands.

use std::borrow::Cow;

use engine::{Body, CallId, CommandSpec, Content, FileChange, Link, Location, PlanEntry, ToolContent};
use serde::{Deserialize, Serialize};

use super::text::{Place, Str};
use super::word::Word;
use super::{Fetch, Keep, RecordError};

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ContentRecord<'a> {
    #[serde(borrow)]
    Text(Str<'a>),
    Image {
        #[serde(borrow)]
        mime: Str<'a>,
        #[serde(borrow)]
        data: Str<'a>,
        #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
        uri: Option<Str<'a>>,
    },
    Audio {
        #[serde(borrow)]
        mime: Str<'a>,
        #[serde(borrow)]
        data: Str<'a>,
    },
    #[serde(borrow)]
    Link(Box<LinkRecord<'a>>),
    Resource {
        #[serde(borrow)]
        uri: Str<'a>,
        #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
        mime: Option<Str<'a>>,
        #[serde(borrow)]
        text: Str<'a>,
    },
    Binary {
        #[serde(borrow)]
        uri: Str<'a>,
        #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
        mime: Option<Str<'a>>,
        #[serde(borrow)]
        data: Str<'a>,
    },
}

impl<'a> ContentRecord<'a> {
    pub(super) fn of(content: &'a Content, keep: &mut Keep<'_>) -> Self {
        match content {
            Content::Text(text) => Self::Text(Str::of(text, keep)),
            Content::Image { mime, data, uri } => Self::Image {
                mime: Str::of(mime, keep),
                data: Str::of(data, keep),
                uri: Str::of_option(uri.as_ref(), keep),
            },
            Content::Audio { mime, data } => {
                Self::Audio { mime: Str::of(mime, keep), data: Str::of(data, keep) }
            }
            Content::Link(link) => Self::Link(Box::new(LinkRecord::of(link, keep))),
            Content::Resource { uri, mime, text } => Self::Resource {
                uri: Str::of(uri, keep),
                mime: Str::of_option(mime.as_ref(), keep),
                text: Str::of(text, keep),
            },
            Content::Binary { uri, mime, data } => Self::Binary {
                uri: Str::of(uri, keep),
                mime: Str::of_option(mime.as_ref(), keep),
                data: Str::of(data, keep),
            },
        }
    }

    pub(super) fn content(self, fetch: &Fetch<'_>) -> Result<Content, RecordError> {
        Ok(match self {
            Self::Text(text) => Content::Text(text.fetched(fetch)?),
            Self::Image { mime, data, uri } => Content::Image {
                mime: mime.fetched(fetch)?,
                data: data.fetched(fetch)?,
                uri: Str::fetched_option(uri, fetch)?,
            },
            Self::Audio { mime, data } => {
                Content::Audio { mime: mime.fetched(fetch)?, data: data.fetched(fetch)? }
            }
            Self::Link(link) => Content::Link(link.link(fetch)?),
            Self::Resource { uri, mime, text } => Content::Resource {
                uri: uri.fetched(fetch)?,
                mime: Str::fetched_option(mime, fetch)?,
                text: text.fetched(fetch)?,
            },
            Self::Binary { uri, mime, data } => Content::Binary {
                uri: uri.fetched(fetch)?,
                mime: Str::fetched_option(mime, fetch)?,
                data: data.fetched(fetch)?,
            },
        })
    }
}

#[derive(Serialize, Deserialize)]
pub(super) struct LinkRecord<'a> {
    #[serde(borrow)]
    uri: Str<'a>,
    #[serde(borrow)]
    name: Str<'a>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    mime: Option<Str<'a>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    title: Option<Str<'a>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    description: Option<Str<'a>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
}

impl<'a> LinkRecord<'a> {
    fn of(link: &'a Link, keep: &mut Keep<'_>) -> Self {
        Self {
            uri: Str::of(&link.uri, keep),
            name: Str::of(&link.name, keep),
            mime: Str::of_option(link.mime.as_ref(), keep),
            title: Str::of_option(link.title.as_ref(), keep),
            description: Str::of_option(link.description.as_ref(), keep),
            size: link.size_bytes,
        }
    }

    fn link(self, fetch: &Fetch<'_>) -> Result<Link, RecordError> {
        Ok(Link {
            uri: self.uri.fetched(fetch)?,
            name: self.name.fetched(fetch)?,
            mime: Str::fetched_option(self.mime, fetch)?,
            title: Str::fetched_option(self.title, fetch)?,
            description: Str::fetched_option(self.description, fetch)?,
            size_bytes: self.size,
        })
    }
}

#[derive(Serialize, Deserialize)]
pub(super) struct ChangeRecord<'a> {
    #[serde(borrow)]
    path: Place<'a>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    before: Option<Str<'a>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    after: Option<Str<'a>>,
}

impl<'a> ChangeRecord<'a> {
    pub(super) fn of(change: &'a FileChange, keep: &mut Keep<'_>) -> Self {
        Self {
            path: Place::of(&change.path),
            before: Str::of_option(change.before.as_ref(), keep),
            after: Str::of_option(change.after.as_ref(), keep),
        }
    }

    pub(super) fn change(self, fetch: &Fetch<'_>) -> Result<FileChange, RecordError> {
        Ok(FileChange {
            path: self.path.path()?,
            before: Str::fetched_option(self.before, fetch)?,
            after: Str::fetched_option(self.after, fetch)?,
        })
    }
}

#[derive(Serialize, Deserialize)]
pub(super) struct FileEditedRecord<'a> {
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    call: Option<Str<'a>>,
    #[serde(borrow)]
    change: ChangeRecord<'a>,
}

impl<'a> FileEditedRecord<'a> {
    pub(super) fn of(call: Option<&'a CallId>, change: &'a FileChange, keep: &mut Keep<'_>) -> Self {
        Self { call: Str::of_call(call), change: ChangeRecord::of(change, keep) }
    }

    pub(super) fn body(self, fetch: &Fetch<'_>) -> Result<Body, RecordError> {
        Ok(Body::FileEdited { call: Str::call(self.call, fetch)?, change: self.change.change(fetch)? })
    }
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ToolContentRecord<'a> {
    #[serde(borrow)]
    Block(ContentRecord<'a>),
    #[serde(borrow)]
    Diff(ChangeRecord<'a>),
}

impl<'a> ToolContentRecord<'a> {
    pub(super) fn all(contents: &'a [ToolContent], keep: &mut Keep<'_>) -> Vec<Self> {
        let one = |content: &'a ToolContent| match content {
            ToolContent::Block(block) => Self::Block(ContentRecord::of(block, keep)),
            ToolContent::Diff(change) => Self::Diff(ChangeRecord::of(change, keep)),
        };
        contents.iter().map(one).collect()
    }

    pub(super) fn content(self, fetch: &Fetch<'_>) -> Result<ToolContent, RecordError> {
        Ok(match self {
            Self::Block(block) => ToolContent::Block(block.content(fetch)?),
            Self::Diff(change) => ToolContent::Diff(change.change(fetch)?),
        })
    }
}

#[derive(Serialize, Deserialize)]
pub(super) struct LocationRecord<'a> {
    #[serde(borrow)]
    path: Place<'a>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
}

impl<'a> LocationRecord<'a> {
    pub(super) fn of(location: &'a Location) -> Self {
        Self { path: Place::of(&location.path), line: location.line }
    }

    pub(super) fn file_shown(self) -> Result<Body, RecordError> {
        Ok(Body::FileShown { location: self.location()? })
    }

    pub(super) fn location(self) -> Result<Location, RecordError> {
        Ok(Location { path: self.path.path()?, line: self.line })
    }
}

#[derive(Serialize, Deserialize)]
pub(super) struct StepRecord<'a> {
    #[serde(borrow)]
    content: Str<'a>,
    #[serde(borrow)]
    priority: Cow<'a, str>,
    #[serde(borrow)]
    status: Cow<'a, str>,
}

impl<'a> StepRecord<'a> {
    pub(super) fn of(entry: &'a PlanEntry, keep: &mut Keep<'_>) -> Self {
        Self {
            content: Str::of(&entry.content, keep),
            priority: entry.priority.as_str().into(),
            status: entry.status.as_str().into(),
        }
    }

    pub(super) fn entry(self, fetch: &Fetch<'_>) -> Result<PlanEntry, RecordError> {
        Ok(PlanEntry {
            content: self.content.fetched(fetch)?,
            priority: Word::read(&self.priority)?,
            status: Word::read(&self.status)?,
        })
    }
}

#[derive(Serialize, Deserialize)]
pub(super) struct CommandRecord<'a> {
    #[serde(borrow)]
    name: Str<'a>,
    #[serde(borrow)]
    description: Str<'a>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    hint: Option<Str<'a>>,
}

impl<'a> CommandRecord<'a> {
    pub(super) fn of(command: &'a CommandSpec, keep: &mut Keep<'_>) -> Self {
        Self {
            name: Str::of(&command.name, keep),
            description: Str::of(&command.description, keep),
            hint: Str::of_option(command.hint.as_ref(), keep),
        }
    }

    pub(super) fn command(self, fetch: &Fetch<'_>) -> Result<CommandSpec, RecordError> {
        Ok(CommandSpec {
            name: self.name.fetched(fetch)?,
            description: self.description.fetched(fetch)?,
            hint: Str::fetched_option(self.hint, fetch)?,
        })
    }
}
