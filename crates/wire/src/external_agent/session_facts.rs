//! What an agent reports about the session as a whole: plan, commands, title, cost.

use std::sync::Arc;

use engine::{Body, CommandSpec, NewEvent, NoticeLevel, Opaque, PlanEntry, Priority, StepStatus, Usage};
use serde_json::value::RawValue;

use super::raw_json::{Fields, nested_object, shortened, verbatim};
use super::responses::other_fields;

const ENTRIES_MAX: usize = 256;
const ENTRY_BYTES_MAX: usize = 4 << 10;
const COMMANDS_MAX: usize = 512;
const NAME_BYTES_MAX: usize = 128;
const DESCRIPTION_BYTES_MAX: usize = 1 << 10;
const TITLE_BYTES_MAX: usize = 512;
const NOTICE_BYTES_MAX: usize = 16 << 10;
/// The beginning of a payload that is a custom notification. No update has a member of this name.
pub(crate) const EXTENSION: &str = "{\"method\":";
/// The beginning of a payload with the members of a prompt's response besides the stop reason.
pub(crate) const PROMPT_ANSWER: &str = "{\"result\":";
/// A larger amount, in US dollars, is a mistake.
const COST_USD_MAX: f64 = 1e9;

pub(super) fn plan(fields: &Fields<'_>, words: &RawValue) -> Option<NewEvent> {
    let entries: Vec<_> = fields.list("entries", ENTRIES_MAX)?;
    let mut whole = fields.has_only(&["sessionUpdate", "entries"]);
    let mut read = |raw: &RawValue| {
        let entry = Fields::of(raw)?;
        let (priority, status) = (entry.text("priority"), entry.text("status"));
        let (priority, status) = (priority.as_deref(), status.as_deref());
        let content = entry.text("content")?;
        whole &= content.len() <= ENTRY_BYTES_MAX
            && matches!(priority, Some("high" | "medium" | "low"))
            && matches!(status, Some("pending" | "in_progress" | "completed"))
            && entry.has_only(&["content", "priority", "status"]);
        Some(PlanEntry {
            content: shortened(content, ENTRY_BYTES_MAX),
            priority: match priority {
                Some("high") => Priority::High,
                Some("low") => Priority::Low,
                _ => Priority::Medium,
            },
            status: match status {
                Some("completed") => StepStatus::Completed,
                Some("in_progress") => StepStatus::InProgress,
                _ => StepStatus::Pending,
            },
        })
    };
    let count = entries.len();
    let entries: Vec<_> = entries.into_iter().filter_map(&mut read).collect();
    let whole = whole && entries.len() == count && count < ENTRIES_MAX;
    Some(NewEvent { body: Body::Plan { entries }, relayed: (!whole).then(|| verbatim(words)) })
}

pub(super) fn commands(fields: &Fields<'_>, words: &RawValue) -> Option<NewEvent> {
    let listed = fields.list("availableCommands", COMMANDS_MAX)?;
    let mut whole = fields.has_only(&["sessionUpdate", "availableCommands"]) && listed.len() < COMMANDS_MAX;
    let count = listed.len();
    let mut read = |raw: &RawValue| {
        let command = Fields::of(raw)?;
        let input = command.object("input");
        let name = command.text("name").filter(|name| !name.is_empty() && name.len() <= NAME_BYTES_MAX)?;
        let description = command.text("description").unwrap_or_default();
        whole &= command.has_only(&["name", "description", "input"])
            && description.len() <= DESCRIPTION_BYTES_MAX
            && !command.iter().any(|(name, value)| name == "input" && value.get() == "null")
            && input.as_ref().is_none_or(|input| input.has_only(&["hint"]));
        Some(CommandSpec {
            name: name.into(),
            description: shortened(description, DESCRIPTION_BYTES_MAX),
            hint: input
                .and_then(|input| input.text("hint"))
                .map(|hint| shortened(hint, DESCRIPTION_BYTES_MAX)),
        })
    };
    let commands: Vec<_> = listed.into_iter().filter_map(&mut read).collect();
    let whole = whole && commands.len() == count;
    Some(NewEvent { body: Body::Commands { commands }, relayed: (!whole).then(|| verbatim(words)) })
}

/// `None` if the update is not about the title.
pub(super) fn title(fields: &Fields<'_>, words: &RawValue) -> Option<NewEvent> {
    let title = fields.text("title")?;
    let title = title.split_whitespace().collect::<Vec<_>>().join(" ");
    let title = Some(title).filter(|title| !title.is_empty())?;
    Some(NewEvent {
        body: Body::Title { title: shortened(title, TITLE_BYTES_MAX) },
        relayed: Some(verbatim(words)),
    })
}

/// Clients without notices get them in another form, so the agent's own update cannot be relayed.
pub(super) fn notice(fields: &Fields<'_>) -> Option<NewEvent> {
    let level = match fields.text("severity").as_deref() {
        Some("error") => NoticeLevel::Error,
        Some("warning") => NoticeLevel::Warning,
        _ => NoticeLevel::Info,
    };
    let title = fields.text("title")?;
    let text = match fields.text("description") {
        Some(description) => format!("{title}\n{description}"),
        None => title,
    };
    Some(Body::Notice { level, text: shortened(text, NOTICE_BYTES_MAX) }.into())
}

/// Whether the parameters of a `session/update` describe the session's state, as opposed to the
/// conversation.
pub fn is_lasting(params: &RawValue) -> bool {
    let kind = Fields::of(params).and_then(|params| params.object("update")?.text("sessionUpdate"));
    let lasting =
        ["available_commands_update", "current_mode_update", "config_option_update", "usage_update"];
    kind.is_some_and(|kind| lasting.contains(&kind.as_str()))
}

/// Converts the running totals that an agent reports into the increments that the log stores.
#[derive(Default)]
pub(super) struct UsageMeter {
    cost_usd: f64,
    priced: bool,
    context_used: u64,
    context_size: u64,
}

impl UsageMeter {
    /// The earlier cost of a session that is brought back.
    pub(super) fn start_from(&mut self, cost_usd: f64) {
        self.cost_usd = cost_usd;
    }

    pub(super) fn usage(&mut self, fields: &Fields<'_>, words: &RawValue) -> Option<NewEvent> {
        self.context_used = fields.number("used")?;
        self.context_size = fields.number("size")?;
        let cost_usd = fields.object("cost").and_then(|cost| self.increase(&cost));
        self.priced |= cost_usd.is_some();
        let usage = Usage { cost_usd: cost_usd.unwrap_or_default(), ..self.base() };
        Some(NewEvent { body: Body::Usage(usage), relayed: Some(verbatim(words)) })
    }

    /// A lower total than before means that the agent started to count again.
    fn increase(&mut self, cost: &Fields<'_>) -> Option<f64> {
        let in_dollars = cost.text("currency").is_none_or(|currency| currency.eq_ignore_ascii_case("usd"));
        let all: f64 = cost.number("amount").filter(|_| in_dollars)?;
        if !(0.0..=COST_USD_MAX).contains(&all) {
            return None;
        }
        let before = std::mem::replace(&mut self.cost_usd, all);
        Some(if all >= before { all - before } else { all })
    }

    /// The tokens of one turn, in any of the forms that agents use.
    pub(super) fn tokens(&self, fields: &Fields<'_>) -> Option<Usage> {
        let meta = || fields.object("_meta");
        let counts = fields.object("usage").or_else(|| meta()?.object("usage"));
        let counts = counts.or_else(|| nested_object(&meta()?, &["quota", "token_count"]))?;
        let count =
            |names: [&str; 2]| names.iter().find_map(|name| counts.number::<u64>(name)).unwrap_or_default();
        let usage = Usage {
            input: count(["inputTokens", "input_tokens"]),
            output: count(["outputTokens", "output_tokens"]),
            reasoning: count(["thoughtTokens", "reasoningOutputTokens"]),
            cache_read: count(["cachedReadTokens", "cachedInputTokens"]),
            cache_write: count(["cachedWriteTokens", "cacheWriteInputTokens"]),
            ..self.base()
        };
        let counted = [usage.input, usage.output, usage.cache_read, usage.cache_write];
        counted.iter().any(|count| *count > 0).then_some(usage)
    }

    fn base(&self) -> Usage {
        Usage {
            context_used: self.context_used,
            context_size: self.context_size,
            unpriced: !self.priced,
            ..Usage::default()
        }
    }
}

/// An update that we do not understand, for clients that may.
pub(super) fn foreign(words: &RawValue) -> NewEvent {
    Body::Foreign { payload: verbatim(words) }.into()
}

/// A notification that is not an update: we do not know what it means, but a client may. The agent's session
/// id is emptied, because clients know the session by our id.
pub fn extension(method: &str, params: Option<&RawValue>) -> Body {
    let params = params.map_or("{}", RawValue::get);
    let mut params: serde_json::Value = serde_json::from_str(params).unwrap_or_default();
    if let Some(session) = params.get_mut("sessionId") {
        session.take();
    }
    let method = serde_json::Value::from(method);
    Body::Foreign { payload: Opaque(format!("{EXTENSION}{method},\"params\":{params}}}").into()) }
}

/// The members of a prompt's response besides the stop reason, if there are any.
pub fn prompt_answer(result: &RawValue) -> Option<Body> {
    let words = other_fields(result, &["stopReason"])?;
    Some(Body::Foreign { payload: Opaque(format!("{PROMPT_ANSWER}{}}}", words.0).into()) })
}

/// For events that another event's verbatim update covers.
pub(super) fn silent() -> Option<Opaque> {
    Some(Opaque(Arc::from("")))
}
