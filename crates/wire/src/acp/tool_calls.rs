//! Tool calls, plans and content in the schema's types.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use agent_client_protocol_schema::v1 as schema;
use engine::{
    AskId, AskRequest, CallId, Content, FileChange, Location, Opaque, PlanEntry, Priority, Risk, StepStatus,
    TerminalId, Timestamp, ToolChange, ToolContent, ToolEnd, ToolKind, ToolStart,
};
use serde_json::{Map, Value, json};

use super::code_fence::{self, CONSOLE, fenced};
use super::sub_agent_calls::{CLAUDE_CODE, PARENT};
use crate::ferret_otter_common as common;
use crate::timestamp::rfc3339;

/// Longer titles are cut: clients show them on one line.
const TITLE_CHARS_MAX: usize = 120;

/// A longer rule does not fit on a button.
const RULE_NAME_BYTES_MAX: usize = 80;

/// The result of a call is sent as its content; `toolResponse` only repeats its beginning.
const RESPONSE_BYTES_MAX: usize = 4 << 10;

/// The state of a command's terminal at this client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TerminalUse {
    /// The client has no terminal for the call: the output is sent as text.
    None,
    /// Announced; nothing was written to it yet.
    Silent,
    Written,
}

/// Maps the protocol's word for a tool kind.
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

/// With `cwd`, this announces a terminal in which the client shows the command's output.
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
        let info = json!({ "terminal_id": start.call.0.as_ref(), "cwd": unicode_path(cwd) });
        meta.insert("terminal_info".into(), info);
        if runs_command(start) {
            call = call.content(vec![console(&start.call)]);
        }
    }
    call.meta(meta)
}

/// Whether the tool certainly runs a command: other tools are of this kind too and produce no terminal
/// output.
pub(super) fn runs_command(start: &ToolStart) -> bool {
    start.kind == ToolKind::Execute && input(&start.input).get("command").is_some_and(Value::is_string)
}

/// The terminal that stands for a command's output. Its id is the call's id.
pub(super) fn console(call: &CallId) -> schema::ToolCallContent {
    terminal_content(&TerminalId(Arc::clone(&call.0)))
}

/// A piece of a command's output for its terminal. Only embedded terminals are shown, so the first piece
/// embeds it: a permission request may have replaced it.
pub(super) fn written(call: &CallId, text: &str, first: bool) -> schema::ToolCallUpdate {
    let output = json!({ "terminal_id": call.0.as_ref(), "data": text });
    let mut fields = schema::ToolCallUpdateFields::new();
    if first {
        fields = fields.content(vec![console(call)]);
    }
    schema::ToolCallUpdate::new(Arc::clone(&call.0), fields)
        .meta(Map::from_iter([("terminal_output".to_string(), output)]))
}

/// The end of a call. Output that was shown in a terminal stays there. `ours` says that the text comes from
/// our own tools and is not Markdown.
pub(super) fn call_end(end: &ToolEnd, terminal_use: TerminalUse, ours: bool) -> schema::ToolCallUpdate {
    let status = if end.failed { schema::ToolCallStatus::Failed } else { schema::ToolCallStatus::Completed };
    let mut fields = schema::ToolCallUpdateFields::new().status(status);
    let keeps_console = match terminal_use {
        TerminalUse::None => false,
        TerminalUse::Silent => end.exit.is_some(),
        TerminalUse::Written => true,
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
        Some(_) | None => shortened(common::result_text(end, Path::new(""))).into(),
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

/// The result of a call. It is made from the end of the call alone, so a client that reconnected after the
/// start is told the same.
fn result_content(end: &ToolEnd, ours: bool) -> Vec<schema::ToolCallContent> {
    let only_text = end.content.iter().all(|piece| matches!(piece, ToolContent::Block(Content::Text(_))));
    let language = match &end.exit {
        _ if !ours || !only_text => None,
        Some(_) => Some(CONSOLE.to_owned()),
        // A failed call shows its error. A call that names files returned the contents of those files.
        None if end.failed || (end.locations.is_empty() && !end.plain_text) => None,
        None => Some(code_fence::language(end.locations.iter().map(|place| place.path.as_path()))),
    };
    let piece = |piece: &ToolContent| match (piece, &language) {
        (ToolContent::Block(Content::Text(said)), Some(language)) => text(fenced(language, said)),
        (ToolContent::Block(_) | ToolContent::Diff(_), _) => content(piece),
    };
    end.content.iter().map(piece).collect()
}

pub(super) fn changed(change: &ToolChange, terminal_use: TerminalUse) -> schema::ToolCallUpdate {
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
        let console = (terminal_use == TerminalUse::Written).then(|| console(&change.call));
        fields = fields.content(console.into_iter().chain(new.iter().map(content)).collect::<Vec<_>>());
    }
    schema::ToolCallUpdate::new(Arc::clone(&change.call.0), fields)
}

/// The same for a command that ran in a terminal of the client's own.
pub(super) fn call_end_in_terminal(end: &ToolEnd, terminal: &TerminalId) -> schema::ToolCallUpdate {
    let mut update = call_end(end, TerminalUse::None, true);
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
        .locations(vec![schema::ToolCallLocation::new(unicode_path(&change.path))]);
    schema::ToolCallUpdate::new(Arc::clone(&call.0), fields)
}

/// The option ids of our permission requests.
pub(super) const ALLOW_ONCE: &str = "allow_once";
pub(super) const ALLOW_ALWAYS: &str = "allow_always";
pub(super) const REJECT_ONCE: &str = "reject_once";
pub(super) const REJECT_ALWAYS: &str = "reject_always";

pub(super) fn permission(
    session: schema::SessionId,
    (ask, request): (AskId, &AskRequest),
    parent: Option<&CallId>,
    scope: AlwaysScope,
) -> schema::RequestPermissionRequest {
    // Clients show each call once, so two requests without a call must not share an id.
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
        fields = fields.locations(vec![schema::ToolCallLocation::new(unicode_path(path))]);
    }
    let option =
        |id: &str, name: &str, kind| schema::PermissionOption::new(id.to_string(), name.to_string(), kind);
    let what = for_good(request, scope);
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
    if let (Some(rule), AlwaysScope::Rules) = (&request.rule, scope) {
        meta.insert("rule".to_string(), rule.as_ref().into());
    }
    schema::RequestPermissionRequest::new(session, schema::ToolCallUpdate::new(call, fields), options)
        .meta(meta)
}

/// What this client's "always" answers are stored as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum AlwaysScope {
    /// A rule of this machine.
    #[default]
    Rules,
    /// A decision for this session only.
    Session,
}

/// The subject of an "always" answer, exactly as wide as its rule.
fn for_good(request: &AskRequest, scope: AlwaysScope) -> String {
    let this = match request.kind {
        ToolKind::Execute => "exactly this command",
        // The stored rule is about the file, whatever is written to it.
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
    let Some(rule) = request.rule.as_deref().filter(|_| scope == AlwaysScope::Rules) else {
        return match scope {
            AlwaysScope::Rules => this.to_owned(),
            AlwaysScope::Session => format!("{this} in this session"),
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

/// Clients show only what is inside the request, so the warning is part of its content.
fn warning(request: &AskRequest) -> Option<schema::ToolCallContent> {
    let loud = match request.risk {
        Risk::Low | Risk::Medium => return unreadable_rules(request).map(|why| text(why.to_owned())),
        Risk::High => "High risk",
        Risk::Critical => "Critical risk",
    };
    Some(text(format!("{loud}: {}", request.reason)))
}

/// The reason of the request, if rules could not be read.
pub(super) fn unreadable_rules(request: &AskRequest) -> Option<&str> {
    Some(&*request.reason).filter(|reason| reason.starts_with(engine::RULES_UNREADABLE))
}

/// A refusal by the sandbox or the policy, for clients that show refusals in a special way.
pub(super) fn refused(
    call: &CallId,
    (tool, mode, reason): (&str, &str, &str),
    path: Option<&Path>,
) -> schema::ToolCallUpdate {
    let violation = json!({ "tool": tool, "path": path.map(unicode_path), "mode": mode, "reason": reason });
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
    schema::Diff::new(unicode_path(&change.path), change.after.as_deref().unwrap_or_default())
        .old_text(change.before.as_deref().map(str::to_owned))
}

fn locations(locations: &[Location]) -> Vec<schema::ToolCallLocation> {
    locations
        .iter()
        .map(|place| schema::ToolCallLocation::new(unicode_path(&place.path)).line(place.line))
        .collect()
}

/// JSON strings must be Unicode. A path that is not must not invalidate the whole update.
pub(super) fn unicode_path(path: &Path) -> PathBuf {
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

/// The input of a tool. Strict clients accept only an object there.
fn input(given: &Opaque) -> Value {
    object(given, "input").unwrap_or_else(|| json!({}))
}

/// The value if it is an object, otherwise an object that holds the value under this name.
fn object(opaque_value: &Opaque, name: &str) -> Option<Value> {
    match opaque(opaque_value) {
        Value::Null => None,
        object @ Value::Object(_) => Some(object),
        other @ (Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) => {
            Some(json!({ name: other }))
        }
    }
}

/// The parsed JSON, or the text itself if it is not JSON.
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
