//! An agent's responses to our requests.

use std::sync::Arc;

use engine::{ForeignGreeting, Greeting, Opaque, Stop, Usage};
use serde_json::value::RawValue;

use super::raw_json::{Fields, verbatim};
use super::session_facts::UsageMeter;
use super::settings::SettingOffers;

const SESSION_ID_BYTES_MAX: usize = 512;
const AUTH_METHODS_MAX: usize = 32;
/// Limit for the members of a response that we do not know.
const EXTRA_BYTES_MAX: usize = 256 << 10;
/// Limit for one member of the `initialize` response, which every client gets.
const GREETING_BYTES_MAX: usize = 64 << 10;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadResponse {
    #[error("the agent's answer does not follow the protocol")]
    Malformed,
    #[error(
        "the agent speaks version {found} of the protocol, and version 1 is needed; try another version of the agent"
    )]
    OtherVersion { found: u64 },
}

/// Optional capabilities of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AgentAbilities {
    pub load: bool,
    pub resume: bool,
    pub fork: bool,
    pub close: bool,
    pub images: bool,
    pub audio: bool,
    /// Prompts may contain embedded resources.
    pub embedded: bool,
    /// Tool servers may be reached over HTTP.
    pub http: bool,
    pub sse: bool,
    pub additional_directories: bool,
}

/// A session that an agent opened.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OpenedSession {
    /// The agent's own session id. Responses to load and resume often omit it.
    pub session: Option<Arc<str>>,
    pub offers: SettingOffers,
    /// The other members of the response.
    pub extra: Option<Opaque>,
}

/// How a prompt's turn ended.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PromptResult {
    pub stop: Stop,
    /// The tokens of the turn, if the agent reports them.
    pub usage: Option<Usage>,
}

/// Decodes the response to `initialize`.
pub fn initialize_response(result: &RawValue) -> Result<(Greeting, AgentAbilities), BadResponse> {
    let fields = Fields::of(result).ok_or(BadResponse::Malformed)?;
    match fields.number("protocolVersion") {
        Some(1_u64) => {}
        Some(found) => return Err(BadResponse::OtherVersion { found }),
        None => return Err(BadResponse::Malformed),
    }
    let abilities =
        fields.object("agentCapabilities").map(|abilities| read_abilities(&abilities)).unwrap_or_default();
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
        images: abilities.images,
        audio: abilities.audio,
        embedded: abilities.embedded,
        // Every agent can start tool servers that are programs.
        servers: true,
        foreign: Some(Box::new(foreign)),
    };
    Ok((greeting, abilities))
}

fn read_abilities(abilities: &Fields<'_>) -> AgentAbilities {
    let flag = |group: &str, name: &str| {
        abilities.object(group).and_then(|group| group.number::<bool>(name)).unwrap_or_default()
    };
    // A session capability is present if it is an object, whatever is in it.
    let session =
        |name: &str| abilities.object("sessionCapabilities").and_then(|group| group.object(name)).is_some();
    AgentAbilities {
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

/// Decodes the response to `session/new`, `session/fork`, `session/load` or `session/resume`.
pub fn session_response(result: &RawValue) -> OpenedSession {
    let Some(fields) = Fields::of(result) else { return OpenedSession::default() };
    let fits = |id: &String| !id.is_empty() && id.len() <= SESSION_ID_BYTES_MAX;
    let session = fields.text("sessionId").filter(fits).map(Into::into);
    OpenedSession {
        session,
        offers: SettingOffers::read(&fields),
        extra: other_fields(result, &["sessionId", "modes", "configOptions"]),
    }
}

/// The members of a response besides these, if there are any.
pub(super) fn other_fields(result: &RawValue, known: &[&str]) -> Option<Opaque> {
    let mut fields: serde_json::Map<String, serde_json::Value> = serde_json::from_str(result.get()).ok()?;
    fields.retain(|name, _| !known.contains(&name.as_str()));
    let text = serde_json::Value::Object(fields).to_string();
    (text.len() > 2 && text.len() <= EXTRA_BYTES_MAX).then(|| Opaque(text.into()))
}

/// Decodes the response to `session/prompt`. See also [`super::UpdateTranslator::prompt_result`], which
/// knows how full the context is.
pub fn prompt_response(result: &RawValue) -> PromptResult {
    prompt_result(result, &UsageMeter::default())
}

/// A missing or unknown stop reason counts as a normal end.
pub(super) fn prompt_result(result: &RawValue, meter: &UsageMeter) -> PromptResult {
    let fields = Fields::of(result);
    let reason = fields.as_ref().and_then(|fields| fields.text("stopReason"));
    let stop = match reason.as_deref() {
        Some("max_tokens") => Stop::MaxTokens,
        Some("max_turn_requests") => Stop::MaxTurnRequests,
        Some("refusal") => Stop::Refusal,
        Some("cancelled") => Stop::Cancelled,
        Some(_) | None => Stop::EndTurn,
    };
    PromptResult { stop, usage: fields.and_then(|fields| meter.tokens(&fields)) }
}
