//! Tool calls, plans and content in the schema's types.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use agent_client_protocol_schema::v1 as schema;
use engine::{
    AskId, AskRequest, CallId, Content, FileChange, Location, Opaque, PlanEntry, Priority, Risk, StepStatus,
    TerminalId, Timestamp, ToolChange, ToolContent, ToolEnd, ToolKind, ToolStart,
};
use serde_json::{Map, Value, json};

use super::calls::{CLAUDE_CODE, PARENT};
use super::fence::{self, CONSOLE, fenced};
use crate::siblings;
use crate::timestamp::rfc3339;

/// Longer titles are cut: clients show them on one line.
const TITLE_CHARS_MAX: usize = 120;

/// A longer rule does not fit on a button.
const RULE_NAME_BYTES_MAX: usize = 80;

/// What a call came to is told as its content; beside it stands only the beginning.
const RESPONSE_BYTES_MAX: usize = 4 << 10;

/// A command's terminal as this client knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Console {
    /// The client has none for the call: what the command wrote is told as text.
    None,
    /// Announced, with nothing written to it yet.
    Silent,
    Written,
}

/// The kind of a tool by the protocol's word for it.
pub(crate) fn tool_kind(word: &str) -> ToolKind {
    match word {
        "read" => ToolKind::Read,
        "edit" => ToolKind::Edit,
        "delete" => ToolKind::Delete,
        "move" => ToolKind::Move,
        "search" => ToolKind::Search,
        "execute" => ToolKind::Execute,
        "think" => ToolKind::Think,
        "fetch" => ToolKind::Fetch,
        "switch_mode" => ToolKind::SwitchMode,
        _ => ToolKind::Other,
    }
}

/// With `cwd`, the client shows a command's output in a terminal that this announces.
pub(super) fn started(start: &ToolStart, at: Timestamp, cwd: Option<&Path>) -> schema::ToolCall {
    let mut call = schema::ToolCall::new(Arc::clone(&start.call.0), title(&start.title))
        .name(start.tool.to_string())
        .kind(kind(start.kind))
        .status(schema::ToolCallStatus::InProgress)
        .locations(locations(&start.locations))
        .raw_input(input(&start.input));
    let facts = json!({ "toolName": start.tool.as_ref(), "startedAt": rfc3339(at) });
    let mut meta = Map::from_iter([(CLAUDE_CODE.to_string(), facts)]);
    if let Some(cwd) = cwd.filter(|_| start.kind == ToolKind::Execute) {
        let info = json!({ "terminal_id": start.call.0.as_ref(), "cwd": shown(cwd) });
        meta.insert("terminal_info".into(), info);
        if runs_command(start) {
            call = call.content(vec![console(&start.call)]);
        }
    }
    call.meta(meta)
}

/// Whether it is sure to be a command: other tools are of this kind too, and have nothing for a terminal.
pub(super) fn runs_command(start: &ToolStart) -> bool {
    start.kind == ToolKind::Execute && input(&start.input).get("command").is_some_and(Value::is_string)
}

/// The terminal that stands for a command's output. It has the call's own name.
pub(super) fn console(call: &CallId) -> schema::ToolCallContent {
    terminal_content(&TerminalId(Arc::clone(&call.0)))
}

/// A piece of a command's output, for its terminal. Only what is embedded is shown, so the first one embeds
/// it: a permission request may have put something else in its place.
pub(super) fn written(call: &CallId, text: &str, first: bool) -> schema::ToolCallUpdate {
    let output = json!({ "terminal_id": call.0.as_ref(), "data": text });
    let mut fields = schema::ToolCallUpdateFields::new();
    if first {
        fields = fields.content(vec![console(call)]);
    }
    schema::ToolCallUpdate::new(Arc::clone(&call.0), fields)
        .meta(Map::from_iter([("terminal_output".to_string(), output)]))
}

/// How a call ended. What it showed in a terminal stays there. `ours`: its text is what our tools give, which
/// is not Markdown.
pub(super) fn ended(end: &ToolEnd, in_console: Console, ours: bool) -> schema::ToolCallUpdate {
    let status = if end.failed { schema::ToolCallStatus::Failed } else { schema::ToolCallStatus::Completed };
    let mut fields = schema::ToolCallUpdateFields::new().status(status);
    let keeps_console = match in_console {
        Console::None => false,
        Console::Silent => end.exit.is_some(),
        Console::Written => true,
    };
    let told = match (keeps_console, end.exit.is_some()) {
        (true, true) => vec![console(&end.call)],
        (true, false) => std::iter::once(console(&end.call)).chain(result_content(end, ours)).collect(),
        (false, _) => result_content(end, ours),
    };
    if !told.is_empty() {
        fields = fields.content(told);
    }
    if !end.locations.is_empty() {
        fields = fields.locations(locations(&end.locations));
    }
    if let Some(raw) = end.raw.as_ref().and_then(|raw| object(raw, "output")) {
        fields = fields.raw_output(raw);
    }
    let response = match &end.raw {
        Some(raw) if raw.0.len() <= RESPONSE_BYTES_MAX => opaque(raw),
        Some(_) | None => shortened(siblings::result_text(end, Path::new(""))).into(),
    };
    let facts = json!({ "elapsedMs": end.elapsed_ms, "toolResponse": response });
    let elapsed = ("elapsedMs".to_string(), Value::from(end.elapsed_ms));
    let mut meta = Map::from_iter([elapsed, (CLAUDE_CODE.to_string(), facts)]);
    if let Some(exit) = &end.exit {
        meta.insert("exitCode".into(), exit.code.into());
        if keeps_console {
            let exit = json!({
                "terminal_id": end.call.0.as_ref(), "exit_code": exit.code, "signal": exit.signal.as_deref(),
            });
            meta.insert("terminal_exit".into(), exit);
        }
    }
    schema::ToolCallUpdate::new(Arc::clone(&end.call.0), fields).meta(meta)
}

/// What a call came to. This is made from its end alone: a client that comes back after its beginning is
/// told the same.
fn result_content(end: &ToolEnd, ours: bool) -> Vec<schema::ToolCallContent> {
    let only_text = end.content.iter().all(|piece| matches!(piece, ToolContent::Block(Content::Text(_))));
    let language = match &end.exit {
        _ if !ours || !only_text => None,
        Some(_) => Some(CONSOLE.to_owned()),
        // One that failed says why. A tool that names files gives what stands in them.
        None if end.failed || (end.locations.is_empty() && !end.plain_text) => None,
        None => Some(fence::language(end.locations.iter().map(|place| place.path.as_path()))),
    };
    let piece = |piece: &ToolContent| match (piece, &language) {
        (ToolContent::Block(Content::Text(said)), Some(language)) => text(fenced(language, said)),
        (ToolContent::Block(_) | ToolContent::Diff(_), _) => content(piece),
    };
    end.content.iter().map(piece).collect()
}

pub(super) fn changed(change: &ToolChange, in_console: Console) -> schema::ToolCallUpdate {
    let mut fields = schema::ToolCallUpdateFields::new().status(schema::ToolCallStatus::InProgress);
    if let Some(new) = &change.title {
        fields = fields.title(title(new));
    }
    if let Some(new) = change.kind {
        fields = fields.kind(kind(new));
    }
    if let Some(new) = &change.locations {
        fields = fields.locations(locations(new));
    }
    if let Some(new) = &change.input {
        fields = fields.raw_input(input(new));
    }
    if let Some(new) = &change.content {
        let console = (in_console == Console::Written).then(|| console(&change.call));
        fields = fields.content(console.into_iter().chain(new.iter().map(content)).collect::<Vec<_>>());
    }
    schema::ToolCallUpdate::new(Arc::clone(&change.call.0), fields)
}

/// The same for a command that the client ran itself and shows itself.
pub(super) fn ended_in(end: &ToolEnd, terminal: &TerminalId) -> schema::ToolCallUpdate {
    let mut update = ended(end, Console::None, true);
    update.fields = update.fields.content(vec![terminal_content(terminal)]);
    update
}

pub(super) fn in_terminal(call: &CallId, terminal: &TerminalId) -> schema::ToolCallUpdate {
    let fields = schema::ToolCallUpdateFields::new().content(vec![terminal_content(terminal)]);
    schema::ToolCallUpdate::new(Arc::clone(&call.0), fields)
}

fn terminal_content(terminal: &TerminalId) -> schema::ToolCallContent {
    let id = schema::TerminalId::new(Arc::clone(&terminal.0));
    schema::ToolCallContent::Terminal(schema::Terminal::new(id))
}

pub(super) fn edited(call: &CallId, change: &FileChange) -> schema::ToolCallUpdate {
    let fields = schema::ToolCallUpdateFields::new()
        .content(vec![schema::ToolCallContent::Diff(diff(change))])
        .locations(vec![schema::ToolCallLocation::new(shown(&change.path))]);
    schema::ToolCallUpdate::new(Arc::clone(&call.0), fields)
}

/// The ids of our options in a permission request.
pub(super) const ALLOW_ONCE: &str = "allow_once";
pub(super) const ALLOW_ALWAYS: &str = "allow_always";
pub(super) const REJECT_ONCE: &str = "reject_once";
pub(super) const REJECT_ALWAYS: &str = "reject_always";

pub(super) fn permission(
    session: schema::SessionId,
    (ask, request): (AskId, &AskRequest),
    parent: Option<&CallId>,
    keeps: Keeps,
) -> schema::RequestPermissionRequest {
    // Clients show a call once: two questions about no call must not be taken for one.
    let own = || format!("ropewalk-ask-{}", ask.0).into();
    let call = request.call.as_ref().map_or_else(own, |call| Arc::clone(&call.0));
    let mut fields = schema::ToolCallUpdateFields::new()
        .title(title(&request.title))
        .kind(kind(request.kind))
        .status(schema::ToolCallStatus::Pending)
        .raw_input(input(&request.input));
    let shown_content: Vec<_> =
        warning(request).into_iter().chain(request.preview.iter().map(content)).collect();
    if !shown_content.is_empty() {
        fields = fields.content(shown_content);
    }
    if let Some(path) = &request.path {
        fields = fields.locations(vec![schema::ToolCallLocation::new(shown(path))]);
    }
    let option =
        |id: &str, name: &str, kind| schema::PermissionOption::new(id.to_string(), name.to_string(), kind);
    let what = for_good(request, keeps);
    let options = vec![
        option(ALLOW_ONCE, "Allow", schema::PermissionOptionKind::AllowOnce),
        option(ALLOW_ALWAYS, &format!("Always allow {what}"), schema::PermissionOptionKind::AllowAlways),
        option(REJECT_ONCE, "Reject", schema::PermissionOptionKind::RejectOnce),
        option(REJECT_ALWAYS, &format!("Never allow {what}"), schema::PermissionOptionKind::RejectAlways),
    ];
    let mut meta = Map::from_iter([
        ("reason".to_string(), request.reason.as_ref().into()),
        ("risk".to_string(), request.risk.as_str().into()),
    ]);
    if let Some(parent) = parent {
        meta.insert(CLAUDE_CODE.into(), json!({ PARENT: parent.0.as_ref() }));
    }
    if let (Some(rule), Keeps::Rules) = (&request.rule, keeps) {
        meta.insert("rule".to_string(), rule.as_ref().into());
    }
    schema::RequestPermissionRequest::new(session, schema::ToolCallUpdate::new(call, fields), options)
        .meta(meta)
}

/// What an answer for good of this client is kept as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Keeps {
    /// A rule of the machine.
    #[default]
    Rules,
    /// Something that holds in this session alone.
    Session,
}

/// What an answer for good is about, as far as its rule goes and no further.
fn for_good(request: &AskRequest, keeps: Keeps) -> String {
    let this = match request.kind {
        ToolKind::Execute => "exactly this command",
        // What is kept is about the file, whatever is written to it.
        ToolKind::Edit if request.path.is_some() && request.preview.len() <= 1 => "changes to this file",
        ToolKind::Read
        | ToolKind::Edit
        | ToolKind::Delete
        | ToolKind::Move
        | ToolKind::Search
        | ToolKind::Think
        | ToolKind::Fetch
        | ToolKind::SwitchMode
        | ToolKind::Other => "exactly this",
    };
    let Some(rule) = request.rule.as_deref().filter(|_| keeps == Keeps::Rules) else {
        return match keeps {
            Keeps::Rules => this.to_owned(),
            Keeps::Session => format!("{this} in this session"),
        };
    };
    match rule.split_once('(') {
        None => format!("every use of {rule}"),
        Some((_, body)) => match body.strip_suffix(":*)") {
            Some(words) => format!("`{words} …`"),
            None if request.kind == ToolKind::Execute || rule.len() > RULE_NAME_BYTES_MAX => this.to_owned(),
            None => format!("`{rule}`"),
        },
    }
}

/// Clients show what is in the request and nothing of what is beside it, so a danger stands in it.
fn warning(request: &AskRequest) -> Option<schema::ToolCallContent> {
    let loud = match request.risk {
        Risk::Low | Risk::Medium => return unreadable_rules(request).map(|why| text(why.to_owned())),
        Risk::High => "High risk",
        Risk::Critical => "Critical risk",
    };
    Some(text(format!("{loud}: {}", request.reason)))
}

/// Why this is asked, if that is because rules cannot be read.
pub(super) fn unreadable_rules(request: &AskRequest) -> Option<&str> {
    Some(&*request.reason).filter(|reason| reason.starts_with(engine::RULES_UNREADABLE))
}

/// What a fence or the policy refused, for clients that want to show it in a way of its own.
pub(super) fn refused(
    call: &CallId,
    (tool, mode, reason): (&str, &str, &str),
    path: Option<&Path>,
) -> schema::ToolCallUpdate {
    let violation = json!({ "tool": tool, "path": path.map(shown), "mode": mode, "reason": reason });
    schema::ToolCallUpdate::new(Arc::clone(&call.0), schema::ToolCallUpdateFields::new())
        .meta(Map::from_iter([("sandboxViolation".to_string(), violation)]))
}

pub(super) fn plan(entries: &[PlanEntry]) -> schema::Plan {
    let entry = |entry: &PlanEntry| {
        let priority = match entry.priority {
            Priority::High => schema::PlanEntryPriority::High,
            Priority::Medium => schema::PlanEntryPriority::Medium,
            Priority::Low => schema::PlanEntryPriority::Low,
        };
        let status = match entry.status {
            StepStatus::Pending => schema::PlanEntryStatus::Pending,
            StepStatus::InProgress => schema::PlanEntryStatus::InProgress,
            StepStatus::Completed => schema::PlanEntryStatus::Completed,
        };
        schema::PlanEntry::new(entry.content.to_string(), priority, status)
    };
    schema::Plan::new(entries.iter().map(entry).collect())
}

pub(super) fn text(text: String) -> schema::ToolCallContent {
    schema::ToolCallContent::Content(schema::Content::new(schema::ContentBlock::from(text)))
}

pub(crate) fn block(content: &Content) -> schema::ContentBlock {
    match content {
        Content::Text(text) => schema::ContentBlock::Text(schema::TextContent::new(text.to_string())),
        Content::Image { mime, data, uri } => schema::ContentBlock::Image(
            schema::ImageContent::new(data.to_string(), mime.to_string())
                .uri(uri.as_deref().map(str::to_owned)),
        ),
        Content::Audio { mime, data } => {
            schema::ContentBlock::Audio(schema::AudioContent::new(data.to_string(), mime.to_string()))
        }
        Content::Link(link) => schema::ContentBlock::ResourceLink(
            schema::ResourceLink::new(link.name.to_string(), link.uri.to_string())
                .mime_type(link.mime.as_deref().map(str::to_owned))
                .title(link.title.as_deref().map(str::to_owned))
                .description(link.description.as_deref().map(str::to_owned))
                .size(link.size_bytes.and_then(|size| i64::try_from(size).ok())),
        ),
        Content::Resource { uri, mime, text } => {
            let text = schema::TextResourceContents::new(text.to_string(), uri.to_string())
                .mime_type(mime.as_deref().map(str::to_owned));
            let resource = schema::EmbeddedResourceResource::TextResourceContents(text);
            schema::ContentBlock::Resource(schema::EmbeddedResource::new(resource))
        }
        Content::Binary { uri, mime, data } => {
            let blob = schema::BlobResourceContents::new(data.to_string(), uri.to_string())
                .mime_type(mime.as_deref().map(str::to_owned));
            let resource = schema::EmbeddedResourceResource::BlobResourceContents(blob);
            schema::ContentBlock::Resource(schema::EmbeddedResource::new(resource))
        }
    }
}

fn content(content: &ToolContent) -> schema::ToolCallContent {
    match content {
        ToolContent::Block(content) => schema::ToolCallContent::Content(schema::Content::new(block(content))),
        ToolContent::Diff(change) => schema::ToolCallContent::Diff(diff(change)),
    }
}

fn diff(change: &FileChange) -> schema::Diff {
    schema::Diff::new(shown(&change.path), change.after.as_deref().unwrap_or_default())
        .old_text(change.before.as_deref().map(str::to_owned))
}

fn locations(locations: &[Location]) -> Vec<schema::ToolCallLocation> {
    locations.iter().map(|place| schema::ToolCallLocation::new(shown(&place.path)).line(place.line)).collect()
}

/// JSON has no other text than Unicode. A path that is none must not take the whole update with it.
pub(super) fn shown(path: &Path) -> PathBuf {
    match path.to_str() {
        Some(text) => text.into(),
        None => path.to_string_lossy().into_owned().into(),
    }
}

pub(super) fn title(title: &str) -> String {
    if title.chars().count() <= TITLE_CHARS_MAX {
        return title.to_owned();
    }
    title.chars().take(TITLE_CHARS_MAX - 1).chain(['…']).collect()
}

fn shortened(mut text: String) -> String {
    if text.len() > RESPONSE_BYTES_MAX {
        text.truncate(text.floor_char_boundary(RESPONSE_BYTES_MAX));
        text.push('…');
    }
    text
}

/// What a tool was given. Strict clients read nothing else than an object there.
fn input(given: &Opaque) -> Value {
    object(given, "input").unwrap_or_else(|| json!({}))
}

/// An object: what is none stands in one, under this name.
fn object(opaque_value: &Opaque, name: &str) -> Option<Value> {
    match opaque(opaque_value) {
        Value::Null => None,
        object @ Value::Object(_) => Some(object),
        other @ (Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) => {
            Some(json!({ name: other }))
        }
    }
}

/// JSON where it is JSON, otherwise the text itself.
fn opaque(opaque: &Opaque) -> Value {
    serde_json::from_str(&opaque.0).unwrap_or_else(|_| Value::String(opaque.0.to_string()))
}

fn kind(kind: ToolKind) -> schema::ToolKind {
    match kind {
        ToolKind::Read => schema::ToolKind::Read,
        ToolKind::Edit => schema::ToolKind::Edit,
        ToolKind::Delete => schema::ToolKind::Delete,
        ToolKind::Move => schema::ToolKind::Move,
        ToolKind::Search => schema::ToolKind::Search,
        ToolKind::Execute => schema::ToolKind::Execute,
        ToolKind::Think => schema::ToolKind::Think,
        ToolKind::Fetch => schema::ToolKind::Fetch,
        ToolKind::SwitchMode => schema::ToolKind::SwitchMode,
        ToolKind::Other => schema::ToolKind::Other,
    }
}
