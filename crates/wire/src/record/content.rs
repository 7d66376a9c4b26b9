//! The stored form of content: blocks, file changes, locations, plans, commands.

use std::borrow::Cow;

use engine::{
    Body, CallId, CommandSpec, Content, FileChange, Location, PlanEntry, ResourceLink, ToolContent,
};
use serde::{Deserialize, Serialize};

use super::enum_words::Word;
use super::inline_or_blob_text::{StoredPath, StoredText};
use super::{GetBlob, PutBlob, RecordError};

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ContentRecord<'a> {
    #[serde(borrow)]
    Text(StoredText<'a>),
    Image {
        #[serde(borrow)]
        mime: StoredText<'a>,
        #[serde(borrow)]
        data: StoredText<'a>,
        #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
        uri: Option<StoredText<'a>>,
    },
    Audio {
        #[serde(borrow)]
        mime: StoredText<'a>,
        #[serde(borrow)]
        data: StoredText<'a>,
    },
    #[serde(borrow)]
    Link(Box<LinkRecord<'a>>),
    Resource {
        #[serde(borrow)]
        uri: StoredText<'a>,
        #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
        mime: Option<StoredText<'a>>,
        #[serde(borrow)]
        text: StoredText<'a>,
    },
    Binary {
        #[serde(borrow)]
        uri: StoredText<'a>,
        #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
        mime: Option<StoredText<'a>>,
        #[serde(borrow)]
        data: StoredText<'a>,
    },
}

impl<'a> ContentRecord<'a> {
    pub(super) fn of(content: &'a Content, keep: &mut PutBlob<'_>) -> Self {
        match content {
            Content::Text(text) => Self::Text(StoredText::of(text, keep)),
            Content::Image { mime, data, uri } => Self::Image {
                mime: StoredText::of(mime, keep),
                data: StoredText::of(data, keep),
                uri: StoredText::of_option(uri.as_ref(), keep),
            },
            Content::Audio { mime, data } => {
                Self::Audio { mime: StoredText::of(mime, keep), data: StoredText::of(data, keep) }
            }
            Content::Link(link) => Self::Link(Box::new(LinkRecord::of(link, keep))),
            Content::Resource { uri, mime, text } => Self::Resource {
                uri: StoredText::of(uri, keep),
                mime: StoredText::of_option(mime.as_ref(), keep),
                text: StoredText::of(text, keep),
            },
            Content::Binary { uri, mime, data } => Self::Binary {
                uri: StoredText::of(uri, keep),
                mime: StoredText::of_option(mime.as_ref(), keep),
                data: StoredText::of(data, keep),
            },
        }
    }

    pub(super) fn content(self, fetch: &GetBlob<'_>) -> Result<Content, RecordError> {
        Ok(match self {
            Self::Text(text) => Content::Text(text.fetched(fetch)?),
            Self::Image { mime, data, uri } => Content::Image {
                mime: mime.fetched(fetch)?,
                data: data.fetched(fetch)?,
                uri: StoredText::fetched_option(uri, fetch)?,
            },
            Self::Audio { mime, data } => {
                Content::Audio { mime: mime.fetched(fetch)?, data: data.fetched(fetch)? }
            }
            Self::Link(link) => Content::Link(link.link(fetch)?),
            Self::Resource { uri, mime, text } => Content::Resource {
                uri: uri.fetched(fetch)?,
                mime: StoredText::fetched_option(mime, fetch)?,
                text: text.fetched(fetch)?,
            },
            Self::Binary { uri, mime, data } => Content::Binary {
                uri: uri.fetched(fetch)?,
                mime: StoredText::fetched_option(mime, fetch)?,
                data: data.fetched(fetch)?,
            },
        })
    }
}

#[derive(Serialize, Deserialize)]
pub(super) struct LinkRecord<'a> {
    #[serde(borrow)]
    uri: StoredText<'a>,
    #[serde(borrow)]
    name: StoredText<'a>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    mime: Option<StoredText<'a>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    title: Option<StoredText<'a>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    description: Option<StoredText<'a>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
}

impl<'a> LinkRecord<'a> {
    fn of(link: &'a ResourceLink, keep: &mut PutBlob<'_>) -> Self {
        Self {
            uri: StoredText::of(&link.uri, keep),
            name: StoredText::of(&link.name, keep),
            mime: StoredText::of_option(link.mime.as_ref(), keep),
            title: StoredText::of_option(link.title.as_ref(), keep),
            description: StoredText::of_option(link.description.as_ref(), keep),
            size: link.size_bytes,
        }
    }

    fn link(self, fetch: &GetBlob<'_>) -> Result<ResourceLink, RecordError> {
        Ok(ResourceLink {
            uri: self.uri.fetched(fetch)?,
            name: self.name.fetched(fetch)?,
            mime: StoredText::fetched_option(self.mime, fetch)?,
            title: StoredText::fetched_option(self.title, fetch)?,
            description: StoredText::fetched_option(self.description, fetch)?,
            size_bytes: self.size,
        })
    }
}

#[derive(Serialize, Deserialize)]
pub(super) struct ChangeRecord<'a> {
    #[serde(borrow)]
    path: StoredPath<'a>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    before: Option<StoredText<'a>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    after: Option<StoredText<'a>>,
}

impl<'a> ChangeRecord<'a> {
    pub(super) fn of(change: &'a FileChange, keep: &mut PutBlob<'_>) -> Self {
        Self {
            path: StoredPath::of(&change.path),
            before: StoredText::of_option(change.before.as_ref(), keep),
            after: StoredText::of_option(change.after.as_ref(), keep),
        }
    }

    pub(super) fn change(self, fetch: &GetBlob<'_>) -> Result<FileChange, RecordError> {
        Ok(FileChange {
            path: self.path.path()?,
            before: StoredText::fetched_option(self.before, fetch)?,
            after: StoredText::fetched_option(self.after, fetch)?,
        })
    }
}

#[derive(Serialize, Deserialize)]
pub(super) struct FileEditedRecord<'a> {
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    call: Option<StoredText<'a>>,
    #[serde(borrow)]
    change: ChangeRecord<'a>,
}

impl<'a> FileEditedRecord<'a> {
    pub(super) fn of(call: Option<&'a CallId>, change: &'a FileChange, keep: &mut PutBlob<'_>) -> Self {
        Self { call: StoredText::of_call(call), change: ChangeRecord::of(change, keep) }
    }

    pub(super) fn body(self, fetch: &GetBlob<'_>) -> Result<Body, RecordError> {
        Ok(Body::FileEdited { call: StoredText::call(self.call, fetch)?, change: self.change.change(fetch)? })
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
    pub(super) fn all(contents: &'a [ToolContent], keep: &mut PutBlob<'_>) -> Vec<Self> {
        let one = |content: &'a ToolContent| match content {
            ToolContent::Block(block) => Self::Block(ContentRecord::of(block, keep)),
            ToolContent::Diff(change) => Self::Diff(ChangeRecord::of(change, keep)),
        };
        contents.iter().map(one).collect()
    }

    pub(super) fn content(self, fetch: &GetBlob<'_>) -> Result<ToolContent, RecordError> {
        Ok(match self {
            Self::Block(block) => ToolContent::Block(block.content(fetch)?),
            Self::Diff(change) => ToolContent::Diff(change.change(fetch)?),
        })
    }
}

#[derive(Serialize, Deserialize)]
pub(super) struct LocationRecord<'a> {
    #[serde(borrow)]
    path: StoredPath<'a>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
}

impl<'a> LocationRecord<'a> {
    pub(super) fn of(location: &'a Location) -> Self {
        Self { path: StoredPath::of(&location.path), line: location.line }
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
    content: StoredText<'a>,
    #[serde(borrow)]
    priority: Cow<'a, str>,
    #[serde(borrow)]
    status: Cow<'a, str>,
}

impl<'a> StepRecord<'a> {
    pub(super) fn of(entry: &'a PlanEntry, keep: &mut PutBlob<'_>) -> Self {
        Self {
            content: StoredText::of(&entry.content, keep),
            priority: entry.priority.as_str().into(),
            status: entry.status.as_str().into(),
        }
    }

    pub(super) fn entry(self, fetch: &GetBlob<'_>) -> Result<PlanEntry, RecordError> {
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
    name: StoredText<'a>,
    #[serde(borrow)]
    description: StoredText<'a>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    hint: Option<StoredText<'a>>,
}

impl<'a> CommandRecord<'a> {
    pub(super) fn of(command: &'a CommandSpec, keep: &mut PutBlob<'_>) -> Self {
        Self {
            name: StoredText::of(&command.name, keep),
            description: StoredText::of(&command.description, keep),
            hint: StoredText::of_option(command.hint.as_ref(), keep),
        }
    }

    pub(super) fn command(self, fetch: &GetBlob<'_>) -> Result<CommandSpec, RecordError> {
        Ok(CommandSpec {
            name: self.name.fetched(fetch)?,
            description: self.description.fetched(fetch)?,
            hint: StoredText::fetched_option(self.hint, fetch)?,
        })
    }
}
