//! Groups of event kinds, for code that handles only some of them.
//!
//! A dialect and the stored form match every kind of [`Body`]. Code that follows a few kinds (session state, metrics,
//! audit, screens) matches the [`Family`] of an event. A new kind that none of them follows is
//! [`Family::Other`], and only this file has to change for it.

use std::path::Path;
use std::sync::Arc;

use super::{AskRequest, Body, Resolution, Resolver, Stop, ToolChange, ToolEnd, ToolStart, Usage};
use crate::content::{CommandSpec, Content, Opaque, OutputStream, ToolContent};
use crate::ids::{AskId, CallId, MessageId, SessionId};
use crate::settings::SettingSpec;

/// A group of event kinds that are handled together.
#[derive(Debug, Clone, Copy)]
pub enum Family<'a> {
    Turn(TurnEvent<'a>),
    Speech(SpeechEvent<'a>),
    Tool(ToolEvent<'a>),
    Permission(PermissionEvent<'a>),
    Usage(&'a Usage),
    Setup(SetupEvent<'a>),
    Context(ContextEvent<'a>),
    /// Events that are shown and change nothing that others follow.
    Other,
}

/// The start, progress and end of a turn.
#[derive(Debug, Clone, Copy)]
pub enum TurnEvent<'a> {
    Queued { content: &'a [Content] },
    Started,
    UserMessage { content: &'a [Content] },
    CancelRequested { reason: Option<&'a Arc<str>> },
    Ended { stop: Stop, error: Option<&'a Arc<str>> },
}

/// A piece of streamed text.
#[derive(Debug, Clone, Copy)]
pub enum SpeechEvent<'a> {
    Text { message: MessageId, text: &'a Arc<str> },
    Thought { message: MessageId, text: &'a Arc<str> },
    Output { call: &'a CallId, stream: OutputStream, text: &'a Arc<str> },
}

/// The progress of a tool call.
#[derive(Debug, Clone, Copy)]
pub enum ToolEvent<'a> {
    Started(&'a ToolStart),
    Changed(&'a ToolChange),
    Ended(&'a ToolEnd),
}

/// A permission request and its resolution.
#[derive(Debug, Clone, Copy)]
pub enum PermissionEvent<'a> {
    Asked {
        ask: AskId,
        request: &'a AskRequest,
    },
    Resolved {
        ask: AskId,
        call: Option<&'a CallId>,
        resolution: Resolution,
        by: &'a Resolver,
        reply: Option<&'a Arc<str>>,
        exactly: bool,
    },
}

/// A change of the session's settings, title, folder or offers.
#[derive(Debug, Clone, Copy)]
pub enum SetupEvent<'a> {
    Setting { id: &'a Arc<str>, value: &'a Arc<str> },
    Offered { settings: &'a [SettingSpec] },
    Joined { agent: &'a Arc<str>, of: &'a SessionId, extra: Option<&'a Opaque> },
    Commands { commands: &'a [CommandSpec] },
    Title { title: &'a Arc<str> },
    Moved { cwd: &'a Path, from: Option<&'a Path> },
}

/// A change of what the model remembers.
#[derive(Debug, Clone, Copy)]
pub enum ContextEvent<'a> {
    Cleared,
    Compacting { given_up: bool },
    Compacted { summary: &'a Arc<str> },
}

impl Body {
    pub fn family(&self) -> Family<'_> {
        match self {
            Self::TurnQueued { content } => Family::Turn(TurnEvent::Queued { content }),
            Self::TurnStarted => Family::Turn(TurnEvent::Started),
            Self::UserMessage { content } => Family::Turn(TurnEvent::UserMessage { content }),
            Self::CancelRequested { reason } => {
                Family::Turn(TurnEvent::CancelRequested { reason: reason.as_ref() })
            }
            Self::TurnEnded { stop, error } => {
                Family::Turn(TurnEvent::Ended { stop: *stop, error: error.as_ref() })
            }
            Self::Text { message, text } => Family::Speech(SpeechEvent::Text { message: *message, text }),
            Self::Thought { message, text } => {
                Family::Speech(SpeechEvent::Thought { message: *message, text })
            }
            Self::ToolOutput { call, stream, text } => {
                Family::Speech(SpeechEvent::Output { call, stream: *stream, text })
            }
            Self::ToolStarted(start) => Family::Tool(ToolEvent::Started(start)),
            Self::ToolChanged(change) => Family::Tool(ToolEvent::Changed(change)),
            Self::ToolEnded(end) => Family::Tool(ToolEvent::Ended(end)),
            Self::Asked { ask, request } => Family::Permission(PermissionEvent::Asked { ask: *ask, request }),
            Self::Resolved { ask, call, resolution, by, reply, exactly } => {
                Family::Permission(PermissionEvent::Resolved {
                    ask: *ask,
                    call: call.as_ref(),
                    resolution: *resolution,
                    by,
                    reply: reply.as_ref(),
                    exactly: *exactly,
                })
            }
            Self::Usage(usage) => Family::Usage(usage),
            Self::SettingChanged { id, value } => Family::Setup(SetupEvent::Setting { id, value }),
            Self::Offered { settings } => Family::Setup(SetupEvent::Offered { settings }),
            Self::Joined { agent, session: _, of, extra } => {
                Family::Setup(SetupEvent::Joined { agent, of, extra: extra.as_ref() })
            }
            Self::Commands { commands } => Family::Setup(SetupEvent::Commands { commands }),
            Self::Title { title } => Family::Setup(SetupEvent::Title { title }),
            Self::Moved { cwd, from } => Family::Setup(SetupEvent::Moved { cwd, from: from.as_deref() }),
            Self::Cleared => Family::Context(ContextEvent::Cleared),
            Self::Compacting { given_up } => {
                Family::Context(ContextEvent::Compacting { given_up: *given_up })
            }
            Self::Compacted { summary } => Family::Context(ContextEvent::Compacted { summary }),
            Self::Plan { .. }
            | Self::ToolTerminal { .. }
            | Self::FileEdited { .. }
            | Self::FileShown { .. }
            | Self::PolicyBlocked { .. }
            | Self::Notice { .. }
            | Self::Foreign { .. } => Family::Other,
        }
    }

    /// Whether it belongs to how a session is set up, which is no use of it.
    pub fn is_setup(&self) -> bool {
        matches!(
            self,
            Self::SettingChanged { .. }
                | Self::Moved { .. }
                | Self::Commands { .. }
                | Self::Joined { .. }
                | Self::Offered { .. }
                | Self::Usage(_)
        )
    }

    /// Whether a power cut after this was answered must not lose it.
    pub fn must_sync(&self) -> bool {
        match self {
            Self::Resolved { by, .. } => !matches!(by, Resolver::Policy { .. }),
            // These carry a prompt's number or a question's to clients: if such an event were lost, its
            // number would be given to another one.
            Self::TurnQueued { .. }
            | Self::TurnStarted
            | Self::UserMessage { .. }
            | Self::Asked { .. }
            | Self::SettingChanged { .. }
            | Self::Cleared
            | Self::TurnEnded { .. } => true,
            Self::Text { .. }
            | Self::Thought { .. }
            | Self::Plan { .. }
            | Self::ToolStarted(_)
            | Self::ToolOutput { .. }
            | Self::ToolTerminal { .. }
            | Self::ToolChanged(_)
            | Self::Offered { .. }
            | Self::Joined { .. }
            | Self::ToolEnded(_)
            | Self::FileEdited { .. }
            | Self::FileShown { .. }
            | Self::CancelRequested { .. }
            | Self::PolicyBlocked { .. }
            | Self::Usage(_)
            | Self::Commands { .. }
            | Self::Title { .. }
            | Self::Notice { .. }
            | Self::Compacting { .. }
            | Self::Compacted { .. }
            | Self::Moved { .. }
            | Self::Foreign { .. } => false,
        }
    }

    /// Whether this is a piece of a stream, which an outline of the log leaves out.
    pub fn is_streamed(&self) -> bool {
        matches!(self, Self::Text { .. } | Self::Thought { .. } | Self::ToolOutput { .. })
    }

    /// Roughly how many bytes of memory this event holds: what the ring is bounded by.
    pub fn weight(&self) -> usize {
        let big = match self {
            Self::TurnQueued { content } | Self::UserMessage { content } => {
                content.iter().map(Content::weight).sum()
            }
            Self::Text { text, .. } | Self::Thought { text, .. } | Self::ToolOutput { text, .. } => {
                text.len()
            }
            Self::Plan { entries } => entries.iter().map(|e| e.content.len() + 32).sum(),
            Self::ToolStarted(start) => start.input.0.len() + start.title.len() + 128,
            Self::ToolChanged(change) => change.weight(),
            Self::Offered { settings } => settings.iter().map(SettingSpec::weight).sum(),
            Self::ToolEnded(end) => {
                end.content.iter().map(ToolContent::weight).sum::<usize>()
                    + end.raw.as_ref().map_or(0, |r| r.0.len())
            }
            Self::FileEdited { change, .. } => change.weight(),
            Self::Asked { request, .. } => request.weight(),
            Self::CancelRequested { reason } => reason.as_ref().map_or(0, |reason| reason.len()) + 64,
            Self::Resolved { reply, .. } => reply.as_ref().map_or(0, |reply| reply.len()) + 64,
            Self::Notice { text, .. } => text.len(),
            Self::Compacted { summary } => summary.len(),
            Self::Foreign { payload } => payload.0.len(),
            Self::Commands { commands } => commands.len() * 128,
            Self::TurnStarted
            | Self::FileShown { .. }
            | Self::Joined { .. }
            | Self::ToolTerminal { .. }
            | Self::PolicyBlocked { .. }
            | Self::SettingChanged { .. }
            | Self::Usage(_)
            | Self::Title { .. }
            | Self::Cleared
            | Self::Compacting { .. }
            | Self::Moved { .. }
            | Self::TurnEnded { .. } => 64,
        };
        big + 120
    }
}
