//! What an agent answers to its client's requests.

use std::sync::Arc;

use engine::{ForeignGreeting, Greeting, Opaque, Stop};
use serde_json::value::RawValue;

use super::raw::{Fields, verbatim};
use super::settings::Offers;

const SESSION_ID_BYTES_MAX: usize = 512;
const AUTH_METHODS_MAX: usize = 32;
/// One piece of a greeting. It goes to every client.
const GREETING_BYTES_MAX: usize = 64 << 10;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadAnswer {
    #[error("the agent's answer cannot be understood: it is not what the protocol says")]
    Malformed,
    #[error("the agent speaks version {found} of the protocol and not 1; another version of it may")]
    OtherVersion { found: u64 },
}

/// What an agent can do that not all can.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Can {
    pub load: bool,
    pub resume: bool,
    pub fork: bool,
    pub close: bool,
    pub images: bool,
    pub audio: bool,
    /// Prompts may hold what a file says.
    pub embedded: bool,
    /// Tool servers that are reached by their address.
    pub http: bool,
    pub sse: bool,
    pub additional_directories: bool,
}

/// A session that an agent has opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opened {
    /// The agent's own name for it.
    pub session: Arc<str>,
    pub offers: Offers,
}

/// The answer to `initialize`.
pub fn greeted(result: &RawValue) -> Result<(Greeting, Can), BadAnswer> {
    let fields = Fields::of(result).ok_or(BadAnswer::Malformed)?;
    match fields.number("protocolVersion") {
        Some(1_u64) => {}
        Some(found) => return Err(BadAnswer::OtherVersion { found }),
        None => return Err(BadAnswer::Malformed),
    }
    let can = fields.object("agentCapabilities").map(|abilities| can(&abilities)).unwrap_or_default();
    let small = |raw: &&RawValue| raw.get().len() <= GREETING_BYTES_MAX;
    let object = |name| fields.get(name).filter(small).filter(|raw| Fields::of(raw).is_some()).map(verbatim);
    let methods = fields.list("authMethods", AUTH_METHODS_MAX).unwrap_or_default();
    let foreign = ForeignGreeting {
        agent: object("agentInfo"),
        auth_methods: methods.into_iter().filter(small).map(verbatim).collect(),
        capabilities: object("agentCapabilities").unwrap_or_else(|| Opaque("{}".into())),
    };
    let greeting = Greeting {
        images: can.images,
        audio: can.audio,
        embedded: can.embedded,
        // Every agent starts servers that are programs.
        servers: true,
        foreign: Some(Box::new(foreign)),
    };
    Ok((greeting, can))
}

fn can(abilities: &Fields<'_>) -> Can {
    let flag = |group: &str, name: &str| {
        abilities.object(group).and_then(|group| group.number::<bool>(name)).unwrap_or_default()
    };
    // An ability of sessions is there if it is an object, whatever is in it.
    let session =
        |name: &str| abilities.object("sessionCapabilities").and_then(|group| group.object(name)).is_some();
    Can {
        load: abilities.number("loadSession").unwrap_or_default(),
        resume: session("resume"),
        fork: session("fork"),
        close: session("close"),
        images: flag("promptCapabilities", "image"),
        audio: flag("promptCapabilities", "audio"),
        embedded: flag("promptCapabilities", "embeddedContext"),
        http: flag("mcpCapabilities", "http"),
        sse: flag("mcpCapabilities", "sse"),
        additional_directories: session("additionalDirectories"),
    }
}

/// The answer to `session/new` or `session/fork`. For `session/load` and `session/resume`, whose answers name
/// no session, see [`Offers::of`].
pub fn opened(result: &RawValue) -> Result<Opened, BadAnswer> {
    let fields = Fields::of(result).ok_or(BadAnswer::Malformed)?;
    let fits = |id: &String| !id.is_empty() && id.len() <= SESSION_ID_BYTES_MAX;
    let session = fields.text("sessionId").filter(fits).ok_or(BadAnswer::Malformed)?;
    Ok(Opened { session: session.into(), offers: Offers::read(&fields) })
}

/// How a turn ended. A reason that is not known is an end like any other.
pub(super) fn stop(fields: &Fields<'_>) -> Result<Stop, BadAnswer> {
    Ok(match fields.text("stopReason").ok_or(BadAnswer::Malformed)?.as_str() {
        "max_tokens" => Stop::MaxTokens,
        "max_turn_requests" => Stop::MaxTurnRequests,
        "refusal" => Stop::Refusal,
        "cancelled" => Stop::Cancelled,
        _ => Stop::EndTurn,
    })
}
