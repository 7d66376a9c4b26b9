//! What an agent answers to its client's requests.

use std::sync::Arc;

use engine::{ForeignGreeting, Greeting, Opaque, Stop, Usage};
use serde_json::value::RawValue;

use super::facts::Meter;
use super::raw::{Fields, verbatim};
use super::settings::Offers;

const SESSION_ID_BYTES_MAX: usize = 512;
const AUTH_METHODS_MAX: usize = 32;
/// What an answer says that we have no word for.
const EXTRA_BYTES_MAX: usize = 256 << 10;
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
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Opened {
    /// The agent's own name for it. One that is brought back is often not named again.
    pub session: Option<Arc<str>>,
    pub offers: Offers,
    /// What else it said.
    pub extra: Option<Opaque>,
}

/// How a turn ended.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ended {
    pub stop: Stop,
    /// The tokens that it took, if the agent says so.
    pub usage: Option<Usage>,
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
        meta: object("_meta"),
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

/// The answer to `session/new`, `session/fork`, `session/load` or `session/resume`.
pub fn opened(result: &RawValue) -> Opened {
    let Some(fields) = Fields::of(result) else { return Opened::default() };
    let fits = |id: &String| !id.is_empty() && id.len() <= SESSION_ID_BYTES_MAX;
    let session = fields.text("sessionId").filter(fits).map(Into::into);
    Opened {
        session,
        offers: Offers::read(&fields),
        extra: besides(result, &["sessionId", "modes", "configOptions"]),
    }
}

/// What an answer says besides these fields, if that is something.
pub(super) fn besides(result: &RawValue, known: &[&str]) -> Option<Opaque> {
    let mut fields: serde_json::Map<String, serde_json::Value> = serde_json::from_str(result.get()).ok()?;
    fields.retain(|name, _| !known.contains(&name.as_str()));
    let text = serde_json::Value::Object(fields).to_string();
    (text.len() > 2 && text.len() <= EXTRA_BYTES_MAX).then(|| Opaque(text.into()))
}

/// The answer to `session/prompt`. See also [`super::Hearing::ended`], which knows where the context stands.
pub fn ended(result: &RawValue) -> Ended {
    end(result, &Meter::default())
}

/// An agent that gives no reason, or one that is not known, has ended like any other.
pub(super) fn end(result: &RawValue, meter: &Meter) -> Ended {
    let fields = Fields::of(result);
    let reason = fields.as_ref().and_then(|fields| fields.text("stopReason"));
    let stop = match reason.as_deref() {
        Some("max_tokens") => Stop::MaxTokens,
        Some("max_turn_requests") => Stop::MaxTurnRequests,
        Some("refusal") => Stop::Refusal,
        Some("cancelled") => Stop::Cancelled,
        Some(_) | None => Stop::EndTurn,
    };
    Ended { stop, usage: fields.and_then(|fields| meter.tokens(&fields)) }
}
