//! Permission requests of an agent, as actions that our rules and people can judge.

use std::path::{Component, PathBuf};
use std::sync::Arc;

use engine::{
    AskOption, AskRequest, CallId, ForeignAsk, Opaque, Resolution, Risk, ToolClass, ToolContent, ToolKind,
};
use serde_json::json;
use serde_json::value::RawValue;

use super::content::{locations, path, tool_word};
use super::content_hashes::content;
use super::raw_json::{self, Fields, shortened, shortened_json};
use super::tool_calls::{OpenCall, call_id, tool_name};
use crate::acp::tool_kind;

const OPTIONS_MAX: usize = 32;
/// The id must be sent back unchanged.
const OPTION_ID_BYTES_MAX: usize = 1 << 10;
const NAME_BYTES_MAX: usize = 512;
const TITLE_BYTES_MAX: usize = 4 << 10;
const SUBJECT_BYTES_MAX: usize = 64 << 10;
const INPUT_BYTES_MAX: usize = 256 << 10;
const PARAMS_BYTES_MAX: usize = 4 << 20;
const ARGUMENTS_MAX: usize = 1024;
/// Prefix of the names of tools that an MCP server provides.
const SERVED: &str = "mcp__";

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadPermissionRequest {
    #[error("the permission request has no valid tool call")]
    NoCall,
    #[error("the permission request has no options; send at least one")]
    NoOptions,
    #[error("the permission request is too long; the limit is {PARAMS_BYTES_MAX} bytes")]
    TooLong,
}

/// Decodes `session/request_permission`. The risk is a first guess, to be refined by code that can inspect
/// files and commands.
pub fn permission_request(params: &RawValue) -> Result<AskRequest, BadPermissionRequest> {
    ask(params, |_| None)
}

/// The response: the chosen option, or that the turn was cancelled.
pub fn permission_outcome(option: Option<&str>) -> Box<RawValue> {
    let answer = match option {
        Some(id) => json!({ "outcome": { "outcome": "selected", "optionId": id } }),
        None => json!({ "outcome": { "outcome": "cancelled" } }),
    };
    // JSON that was just written is valid JSON.
    RawValue::from_string(answer.to_string()).unwrap_or_default()
}

/// The same, completed with what the agent sent about the call before: some agents send little more than its
/// id.
pub(super) fn ask<'c>(
    params: &RawValue,
    known: impl Fn(&CallId) -> Option<&'c OpenCall>,
) -> Result<AskRequest, BadPermissionRequest> {
    if params.get().len() > PARAMS_BYTES_MAX {
        return Err(BadPermissionRequest::TooLong);
    }
    let fields = Fields::of(params).ok_or(BadPermissionRequest::NoCall)?;
    let call = fields.object("toolCall").ok_or(BadPermissionRequest::NoCall)?;
    let options = options(&fields);
    if options.is_empty() {
        return Err(BadPermissionRequest::NoOptions);
    }
    let id = call.text("toolCallId").filter(|id| !id.is_empty()).map(|id| call_id(id).0);
    let wish = ProposedAction::of(&call, id.as_ref().and_then(known));
    let doubt = wish.doubt();
    Ok(AskRequest {
        class: wish.class(),
        subject: wish.subject(id.as_ref()),
        call: id,
        risk: if doubt.is_some() { Risk::High } else { Risk::Medium },
        reason: doubt.unwrap_or("the agent asks for it").into(),
        kind: wish.kind,
        path: wish.paths.into_iter().next(),
        tool: wish.tool,
        title: wish.title,
        input: wish.input,
        preview: wish.preview,
        question: None,
        foreign: Some(Box::new(ForeignAsk { options, params: Opaque(fields.without("sessionId").into()) })),
        consent: None,
        rule: None,
    })
}

fn options(fields: &Fields<'_>) -> Vec<AskOption> {
    let option = |raw: &RawValue| {
        let fields = Fields::of(raw)?;
        let id = fields.text("optionId").filter(|id| id.len() <= OPTION_ID_BYTES_MAX)?;
        let means = match fields.text("kind").as_deref() {
            Some("allow_once") => Resolution::AllowedOnce,
            Some("allow_always") => Resolution::AllowedAlways,
            Some("reject_always") => Resolution::DeniedAlways,
            // An unknown kind never allows anything.
            _ => Resolution::DeniedOnce,
        };
        let name = fields.text("name").unwrap_or_else(|| id.clone());
        Some(AskOption { name: shortened(name, NAME_BYTES_MAX), id: id.into(), means })
    };
    fields.list("options", OPTIONS_MAX).unwrap_or_default().into_iter().filter_map(option).collect()
}

/// What an agent wants to do, as far as it says so.
struct ProposedAction {
    kind: ToolKind,
    tool: Arc<str>,
    title: Arc<str>,
    input: Opaque,
    paths: Vec<PathBuf>,
    command: Option<String>,
    address: Option<String>,
    preview: Vec<ToolContent>,
}

impl ProposedAction {
    fn of(call: &Fields<'_>, known: Option<&OpenCall>) -> Self {
        let said = call.text("kind").as_deref().map(tool_kind).filter(|kind| *kind != ToolKind::Other);
        let title = call.text("title").map(|title| shortened(title, TITLE_BYTES_MAX));
        let title = title.or_else(|| known?.title.clone());
        let input = call.get("rawInput").filter(|input| input.get() != "{}");
        let input = input.map(|input| shortened_json(input, INPUT_BYTES_MAX));
        let input = input.or_else(|| known?.input().cloned()).unwrap_or_else(|| Opaque("{}".into()));
        let read = serde_json::from_str::<&RawValue>(&input.0).ok();
        let inner = read.and_then(Fields::of);
        let named = tool_name(call).or_else(|| known?.tool.clone());
        let served = named.clone().filter(|name| name.starts_with(SERVED));
        let served = served.or_else(|| served_by(inner.as_ref(), known, title.as_deref()));
        let kind = match &served {
            // A tool of an MCP server is not a command, whatever kind it declares.
            Some(_) => ToolKind::Other,
            None => said
                .or_else(|| known?.kind.filter(|kind| *kind != ToolKind::Other))
                .unwrap_or_else(|| named.as_deref().map_or(ToolKind::Other, kind_by_name)),
        };
        let tool = served.or(named).unwrap_or_else(|| tool_word(kind).into());
        let preview = content(call);
        let paths = match class(kind) {
            ToolClass::Read | ToolClass::Edit => paths(call, known, &preview, inner.as_ref()),
            ToolClass::Execute | ToolClass::Network => Vec::new(),
        };
        Self {
            title: title.unwrap_or_else(|| Arc::clone(&tool)),
            command: read.filter(|_| kind == ToolKind::Execute).and_then(command),
            address: inner.and_then(|input| input.text_of(&["url", "uri"])),
            paths,
            kind,
            tool,
            input,
            preview,
        }
    }

    fn class(&self) -> ToolClass {
        class(self.kind)
    }

    /// Why the subject of the request is unclear.
    fn doubt(&self) -> Option<&'static str> {
        match self.kind {
            ToolKind::Read | ToolKind::Edit | ToolKind::Delete | ToolKind::Move => self.doubtful_file(),
            ToolKind::Execute if self.unsaid() => Some("the agent does not say which command it would run"),
            ToolKind::Execute
            | ToolKind::Search
            | ToolKind::Think
            | ToolKind::Fetch
            | ToolKind::SwitchMode
            | ToolKind::Other => None,
        }
    }

    /// Of several files, only those with a shown diff can be judged; and a path with `..` may lead anywhere.
    fn doubtful_file(&self) -> Option<&'static str> {
        let shown = |path: &PathBuf| {
            self.preview
                .iter()
                .any(|piece| matches!(piece, ToolContent::Diff(change) if change.path == *path))
        };
        let straight = |path: &PathBuf| {
            path.is_absolute() && !path.components().any(|part| part == Component::ParentDir)
        };
        if self.paths.is_empty() {
            return Some("the agent does not say which file it is about");
        }
        if !self.paths.iter().all(straight) {
            return Some("the agent does not say plainly which file it is about");
        }
        let all_shown = self.paths.iter().skip(1).all(shown);
        (!all_shown).then_some("it is about several files, and not all are shown")
    }

    /// A title of one word is a tool's name and not a command.
    fn unsaid(&self) -> bool {
        self.command.is_none() && self.title.chars().all(char::is_alphabetic)
    }

    /// An unclear subject cannot be allowed for good, so it names this very call.
    fn subject(&self, call: Option<&CallId>) -> Arc<str> {
        let file = || self.paths.first().map(|path| path.to_string_lossy().into_owned());
        let this = || format!("{} [{}]", self.title, call.map_or("?", |call| &call.0));
        let subject = match self.kind {
            ToolKind::Read | ToolKind::Edit | ToolKind::Delete | ToolKind::Move => {
                file().unwrap_or_else(this)
            }
            ToolKind::Search => file().unwrap_or_else(|| self.title.to_string()),
            ToolKind::Execute if self.unsaid() => this(),
            ToolKind::Execute => self.command.clone().unwrap_or_else(|| self.title.to_string()),
            ToolKind::Fetch => self.address.clone().unwrap_or_else(|| self.title.to_string()),
            ToolKind::Other if self.tool.starts_with(SERVED) => self.tool.to_string(),
            ToolKind::Think | ToolKind::SwitchMode | ToolKind::Other => self.title.to_string(),
        };
        shortened(subject, SUBJECT_BYTES_MAX)
    }
}

fn class(kind: ToolKind) -> ToolClass {
    match kind {
        ToolKind::Read | ToolKind::Search | ToolKind::Think => ToolClass::Read,
        ToolKind::Edit | ToolKind::Delete | ToolKind::Move => ToolClass::Edit,
        ToolKind::Fetch => ToolClass::Network,
        ToolKind::Execute | ToolKind::SwitchMode | ToolKind::Other => ToolClass::Execute,
    }
}

/// The name that rules use for a tool of an MCP server.
fn served_by(input: Option<&Fields<'_>>, known: Option<&OpenCall>, title: Option<&str>) -> Option<Arc<str>> {
    let name = |input: &Fields<'_>| {
        let (server, tool) = (input.text("server")?, input.text("tool")?);
        input.get("command").is_none().then(|| format!("{SERVED}{server}__{tool}"))
    };
    let before = || {
        let input = serde_json::from_str::<&RawValue>(&known?.input()?.0).ok()?;
        name(&Fields::of(input)?)
    };
    let plain = |title: &&str| title.starts_with(SERVED) && !title.contains(char::is_whitespace);
    let title = || title.filter(plain).map(str::to_owned);
    let served = input.and_then(name).or_else(before).or_else(title)?;
    Some(shortened(served, NAME_BYTES_MAX))
}

/// Only names that imply a change or a command: a tool that is believed to read only is rarely asked about.
fn kind_by_name(tool: &str) -> ToolKind {
    match tool.to_ascii_lowercase().as_str() {
        "write" | "write_file" | "create_file" | "edit" | "edit_file" | "str_replace" | "multiedit" => {
            ToolKind::Edit
        }
        "shell" | "bash" | "exec" | "run_shell_command" | "execute_command" | "run_command" => {
            ToolKind::Execute
        }
        _ => ToolKind::Other,
    }
}

/// The files that the action is about, without duplicates: locations and diffs first, then the input.
fn paths(
    call: &Fields<'_>,
    known: Option<&OpenCall>,
    preview: &[ToolContent],
    input: Option<&Fields<'_>>,
) -> Vec<PathBuf> {
    let places = locations(call).filter(|places| !places.is_empty());
    let places = places.or_else(|| Some(known?.locations.clone())).unwrap_or_default();
    let changed = preview.iter().filter_map(|piece| match piece {
        ToolContent::Diff(change) => Some(change.path.clone()),
        ToolContent::Block(_) => None,
    });
    let mut paths: Vec<PathBuf> = Vec::new();
    for path in places.into_iter().map(|place| place.path).chain(changed) {
        if !paths.contains(&path) {
            paths.push(path);
        }
    }
    if paths.is_empty() {
        let names = ["file_path", "filePath", "filepath", "path", "abs_path", "notebook_path"];
        paths.extend(input.and_then(|input| input.text_of(&names)).and_then(|text| path(&text)));
    }
    paths
}

/// The text of a command, as a shell would get it.
fn command(input: &RawValue) -> Option<String> {
    if let Some((text, _)) = raw_json::text(input) {
        return Some(text);
    }
    let fields = Fields::of(input)?;
    let told = fields.get("command").or_else(|| fields.get("cmd"))?;
    let mut words: Vec<String> = match raw_json::text(told) {
        Some((text, _)) => match fields.list("args", ARGUMENTS_MAX) {
            Some(arguments) if !arguments.is_empty() => {
                std::iter::once(text).chain(texts(&arguments)).collect()
            }
            _ => return Some(text),
        },
        None => texts(&raw_json::list(told, ARGUMENTS_MAX)?).collect(),
    };
    let shell = |program: &str| matches!(program.rsplit('/').next(), Some("sh" | "bash" | "zsh" | "dash"));
    match words.as_slice() {
        [program, flag, _] if shell(program) && matches!(flag.as_str(), "-c" | "-lc") => words.pop(),
        _ => Some(words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")),
    }
}

fn texts(listed: &[&RawValue]) -> impl Iterator<Item = String> {
    listed.iter().filter_map(|raw| raw_json::text(raw).map(|(text, _)| text))
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./=:,@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}
