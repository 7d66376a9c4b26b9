//! One rule as people write it: `Tool`, `Tool(pattern)`, `Tool(argument:pattern)`, `Tool(pattern={"all":"arguments"})`.
//!
//! What the pattern is matched against depends on the tool: the commands of a shell line, the path of a file, otherwise
//! the subject of the request.
//!
//! **Invariant:** a rule that this module writes is read back as the same rule.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use engine::{Opaque, RuleEffect, RuleScope};

use serde_json::Value;

use super::command_line::{self, Certainty, CommandLine};
use super::glob::{self, Glob, GlobKind};
use super::request_to_match::RuleQuery;
use super::started_programs::StartedProgram;
use super::tool_names::{KnownTool, ToolSelector};
use crate::risk::covered;
use crate::shell::SimpleCommand;
use crate::{CommandScope, scope_of_always};

#[derive(Debug, Clone)]
pub(super) struct Rule {
    /// As it was written.
    pub(super) text: Arc<str>,
    tools: ToolSelector,
    content: RuleSubject,
    /// All arguments that the request must also have, as [`canonical`] writes them.
    arguments: Option<String>,
}

/// Two rules are the same if they mean the same, however they are written.
impl PartialEq for Rule {
    fn eq(&self, other: &Self) -> bool {
        self.tools == other.tools && self.content == other.content && self.arguments == other.arguments
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum RuleSubject {
    Anything,
    Command(CommandPattern),
    Path(PathPattern),
    /// For a tool that is not built in: the subject of its request, which may be a command.
    Subject {
        glob: Glob,
        command: Option<CommandPattern>,
    },
    Argument {
        key: String,
        glob: Glob,
    },
    /// The host of the address that is fetched.
    Domain(Glob),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum CommandPattern {
    /// The text, and its words if it is a single command that was understood.
    Exact(String, Option<Vec<String>>),
    /// `git status:*`
    Prefix(Vec<String>),
    Glob(Glob),
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct PathPattern {
    anchor: PathAnchor,
    glob: Glob,
    /// A name without folders.
    bare: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PathAnchor {
    Workspace,
    Home,
    Root,
}

/// Why a text is not a rule, and the rule that can be recovered from it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RuleParseError {
    /// What is wrong, and what to write instead.
    pub(super) reason: String,
    /// The rule for every use of the tool, if the tool can be read.
    pub(super) whole_tool: Option<Box<Rule>>,
}

/// How closely a rule matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MatchKind {
    /// The rule names exactly this request.
    Exact,
    Family,
    /// It is unknown whether the rule is about the request.
    Possible,
}

impl Rule {
    pub(super) fn parse(text: &str, effect: RuleEffect) -> Result<Self, RuleParseError> {
        let written = text.trim();
        let open = written.find('(');
        let name = written[..open.unwrap_or(written.len())].trim_end();
        let Some(tools) = ToolSelector::parse(name) else {
            return Err(RuleParseError {
                reason: format!("{name:?} is not the name of a tool; write for example shell(git status:*)"),
                whole_tool: None,
            });
        };
        let rule =
            |(content, arguments)| Self { text: written.into(), tools: tools.clone(), content, arguments };
        let Some(open) = open else { return Ok(rule((RuleSubject::Anything, None))) };
        let content = match written[open + 1..].strip_suffix(')').map(|body| with_arguments(&tools, body)) {
            None => Err(format!("the bracket is not closed; write {name}(..) or {name}")),
            Some(("", None)) => Err(format!("the brackets are empty; for every use write {name}")),
            Some(("", arguments)) => Ok((RuleSubject::Anything, arguments)),
            Some((body, arguments)) => {
                content(&tools, name, body, effect).map(|content| (content, arguments))
            }
        };
        content.map(rule).map_err(|reason| RuleParseError {
            reason,
            whole_tool: Some(Box::new(rule((RuleSubject::Anything, None)))),
        })
    }

    /// The rule for an "always" or "never" answer. It covers no more than the person was shown: a command by its
    /// program and subcommand where these say what it does, a tool without a subject as a whole, everything else by
    /// its subject.
    pub(super) fn of_answer(tool: &str, subject: &str, scope: &RuleScope, workspace: &Path) -> Option<Self> {
        let known = KnownTool::of(tool);
        match (scope, known) {
            (RuleScope::Arguments(arguments), known) if known != Some(KnownTool::Shell) => {
                Self::with_arguments(tool, subject, arguments, workspace)
            }
            (RuleScope::Shown, Some(KnownTool::Shell)) => match scope_of_always(subject) {
                CommandScope::Program(words) => Self::program(KnownTool::Shell.name(), &words),
                CommandScope::Exact => None,
            }
            .or_else(|| Self::exact(tool, subject, workspace)),
            (RuleScope::Shown | RuleScope::Subject, None) if tool == subject => {
                Self::parse(tool, RuleEffect::Allow).ok()
            }
            (RuleScope::Shown | RuleScope::Subject | RuleScope::Arguments(_), _) => {
                Self::exact(tool, subject, workspace)
            }
        }
    }

    /// The rule for exactly this request with exactly these arguments.
    fn with_arguments(tool: &str, subject: &str, arguments: &Opaque, place: &Path) -> Option<Self> {
        let arguments = canonical(&serde_json::from_str(&arguments.0).ok()?);
        let text = if tool == subject {
            format!("{tool}(={arguments})")
        } else {
            format!("{}={arguments})", Self::exact(tool, subject, place)?.text.strip_suffix(')')?)
        };
        let rule = Self::parse(&text, RuleEffect::Allow).ok()?;
        (rule.arguments.as_ref() == Some(&arguments)).then_some(rule)
    }

    /// The rule for every command that begins with these words.
    pub(super) fn program(tool: &str, words: &[String]) -> Option<Self> {
        let quoted: Vec<String> = words.iter().map(|word| quoted(word)).collect();
        let text = format!("{tool}({}:*)", glob::escape(&quoted.join(" ")));
        Self::parse(&text, RuleEffect::Allow).ok().filter(
            |rule| matches!(&rule.content, RuleSubject::Command(CommandPattern::Prefix(prefix)) if prefix == words),
        )
    }

    /// The rule for exactly this request. `place` is the folder that relative paths start from.
    pub(super) fn exact(tool: &str, subject: &str, place: &Path) -> Option<Self> {
        let known = KnownTool::of(tool);
        let subject = match known {
            Some(KnownTool::Shell) => subject.trim().to_owned(),
            Some(known) if known.has_path() => relative(subject, place)?,
            _ => subject.to_owned(),
        };
        let mut body = glob::escape(&subject);
        if known != Some(KnownTool::Shell) {
            body = body.replace("={", "\\={");
        }
        if let Some(colon) = argument(&body) {
            body.insert(colon, '\\');
        }
        let text = format!("{}({body})", known.map_or(tool, |known| known.name()));
        let rule = Self::parse(&text, RuleEffect::Allow).ok()?;
        let same = match &rule.content {
            RuleSubject::Command(CommandPattern::Exact(text, _)) => *text == subject,
            RuleSubject::Path(pattern) => pattern.glob.exact().is_some(),
            RuleSubject::Subject { glob, .. } => glob.exact() == Some(subject.as_str()),
            _ => false,
        };
        (same && rule.arguments.is_none()).then_some(rule)
    }

    /// Whether a rule that denies or asks is about this request: one matching part of it is enough.
    pub(super) fn touches(&self, query: &RuleQuery, base: &Path) -> Option<MatchKind> {
        if !self.tools.include(&query.tool, true) || !self.has_arguments_of(query) {
            return None;
        }
        match &self.content {
            RuleSubject::Anything if self.arguments.is_some() => Some(MatchKind::Exact),
            RuleSubject::Anything => Some(MatchKind::Family),
            RuleSubject::Command(pattern) => pattern.touches(query.line()),
            RuleSubject::Path(pattern) => pattern.touches(query, base),
            RuleSubject::Subject { command: Some(pattern), .. } if query.is_command() => {
                pattern.touches(query.line())
            }
            RuleSubject::Subject { glob, .. } => subject(glob, query),
            RuleSubject::Argument { key, glob } => argument_matches(key, glob, query),
            RuleSubject::Domain(glob) => {
                query.host().filter(|host| glob.matches(host)).map(|_| MatchKind::Family)
            }
        }
    }

    fn has_arguments_of(&self, query: &RuleQuery) -> bool {
        self.arguments.as_ref().is_none_or(|arguments| query.has_arguments(arguments))
    }

    /// Whether a rule that allows covers the whole request by itself.
    pub(super) fn covers(&self, query: &RuleQuery, base: &Path) -> Option<MatchKind> {
        if !self.tools.include(&query.tool, false) || !self.has_arguments_of(query) {
            return None;
        }
        match &self.content {
            RuleSubject::Anything if self.arguments.is_some() => Some(MatchKind::Exact),
            RuleSubject::Anything => Some(MatchKind::Family),
            RuleSubject::Command(pattern) => pattern.is_exactly(query.line()),
            RuleSubject::Path(pattern) => pattern.covers(query, base),
            RuleSubject::Subject { command, .. } if query.is_command() => {
                command.as_ref()?.is_exactly(query.line())
            }
            RuleSubject::Subject { glob, .. } => subject(glob, query),
            RuleSubject::Argument { key, glob } => argument_matches(key, glob, query),
            RuleSubject::Domain(glob) => {
                query.host().filter(|host| glob.matches(host)).map(|_| MatchKind::Family)
            }
        }
    }

    /// Whether a rule that allows covers one command of a line that is understood.
    pub(super) fn covers_command(&self, query: &RuleQuery, command: &SimpleCommand) -> bool {
        let pattern = match &self.content {
            RuleSubject::Command(pattern) => Some(pattern),
            RuleSubject::Subject { command, .. } => command.as_ref(),
            _ => None,
        };
        self.tools.include(&query.tool, false)
            && self.has_arguments_of(query)
            && pattern.is_some_and(|pattern| pattern.covers(command))
    }

    /// It looks into commands, so it cannot be sure about one that cannot be looked through.
    pub(super) fn looks_into(&self, query: &RuleQuery) -> bool {
        let looks =
            matches!(self.content, RuleSubject::Command(_) | RuleSubject::Subject { command: Some(_), .. });
        looks && query.is_command() && self.tools.include(&query.tool, true)
    }

    /// A name of a tool that nobody here has.
    pub(super) fn is_unknown(&self) -> bool {
        self.tools.is_unknown()
    }
}

fn content(tools: &ToolSelector, name: &str, body: &str, effect: RuleEffect) -> Result<RuleSubject, String> {
    let narrows = effect != RuleEffect::Allow;
    let key = argument(body).map(|colon| (&body[..colon], &body[colon + 1..]));
    match tools {
        ToolSelector::Known(KnownTool::Shell) => match key {
            Some(("command", rest)) => command(name, rest),
            Some((_, "*")) => command(name, body),
            Some((key @ ("timeout_seconds" | "timeout" | "cwd" | "description"), glob)) if narrows => {
                Ok(RuleSubject::Argument { key: key.to_owned(), glob: Glob::new(glob, GlobKind::Text) })
            }
            Some((key, rest)) => Err(format!(
                "{key}: is not an argument that a rule can check here; write {name}({key} {rest}:*), or {name}({key}\\:{rest}) for exactly this text"
            )),
            None => command(name, body),
        },
        ToolSelector::Known(tool) if tool.has_path() => match key {
            None | Some(("path" | "file_path", _)) => path(key.map_or(body, |(_, glob)| glob)),
            Some((key, glob)) => {
                Ok(RuleSubject::Argument { key: key.to_owned(), glob: Glob::new(glob, GlobKind::Text) })
            }
        },
        ToolSelector::Known(KnownTool::Fetch) if let Some(("domain", host)) = key => {
            Ok(RuleSubject::Domain(Glob::new(&host.to_lowercase(), GlobKind::Text)))
        }
        ToolSelector::Matching(_) if !narrows => {
            Err(format!("a rule that allows names one tool; write shell({body}) or whichever is meant"))
        }
        ToolSelector::Known(_)
        | ToolSelector::Named(_)
        | ToolSelector::Server(_)
        | ToolSelector::Matching(_) => match key {
            Some((key, glob)) if glob != "*" => {
                Ok(RuleSubject::Argument { key: key.to_owned(), glob: Glob::new(glob, GlobKind::Text) })
            }
            _ if Glob::new(body, GlobKind::Text).is_everything() => Ok(RuleSubject::Anything),
            _ => Ok(RuleSubject::Subject {
                glob: Glob::new(body, GlobKind::Text),
                command: match command(name, body) {
                    Ok(RuleSubject::Command(pattern)) => Some(pattern),
                    _ => None,
                },
            }),
        },
    }
}

/// What stands before `={..}`, and the arguments there. A command is a text, in which this may mean something.
fn with_arguments<'b>(tools: &ToolSelector, body: &'b str) -> (&'b str, Option<String>) {
    let here = |(at, _)| {
        let arguments: Value = serde_json::from_str(&body[at + 1..]).ok()?;
        Some((&body[..at], Some(canonical(&arguments))))
    };
    let found = body.match_indices("={").filter(|(at, _)| ends_plain(&body[..*at])).find_map(here);
    found.filter(|_| *tools != ToolSelector::Known(KnownTool::Shell)).unwrap_or((body, None))
}

/// A use of a tool in one spelling. A command is its words, or its text if it is not a single one, as in the rule
/// that means it; everything else is what it is about and its arguments.
pub(super) fn arguments_key(tool: &str, subject: &str, input: &Opaque) -> String {
    if KnownTool::of(tool) == Some(KnownTool::Shell) {
        return match plain_words(subject) {
            Some(words) => words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" "),
            None => subject.trim().to_owned(),
        };
    }
    let arguments = serde_json::from_str(&input.0).map(|value| canonical(&value));
    format!("{subject}={}", arguments.as_deref().unwrap_or(&input.0))
}

/// JSON without blanks, the members of each object by their names: the same for the same arguments.
pub(super) fn canonical(value: &Value) -> String {
    let quoted = |text: &str| Value::from(text).to_string();
    match value {
        Value::Object(members) => {
            let sorted: BTreeMap<&String, &Value> = members.iter().collect();
            let members: Vec<String> =
                sorted.iter().map(|(name, value)| format!("{}:{}", quoted(name), canonical(value))).collect();
            format!("{{{}}}", members.join(","))
        }
        Value::Array(items) => {
            format!("[{}]", items.iter().map(canonical).collect::<Vec<_>>().join(","))
        }
        plain => plain.to_string(),
    }
}

/// Where the colon of `argument:pattern` is.
fn argument(body: &str) -> Option<usize> {
    let colon = glob::find_plain(body, ':')?;
    let key = &body[..colon];
    let starts = key.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    (starts && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')).then_some(colon)
}

fn command(name: &str, body: &str) -> Result<RuleSubject, String> {
    let glob = Glob::new(body, GlobKind::Text);
    if glob.is_everything() || body == ":*" {
        return Ok(RuleSubject::Anything);
    }
    if let Some(prefix) = body.strip_suffix(":*").filter(|prefix| ends_plain(prefix)) {
        let words = Glob::new(prefix, GlobKind::Text).exact().and_then(plain_words);
        let Some(words) = words else {
            return Err(format!(
                "only plain words may come before :*; write for example {name}(git status:*)"
            ));
        };
        return Ok(RuleSubject::Command(CommandPattern::Prefix(words)));
    }
    Ok(RuleSubject::Command(match glob.exact() {
        Some(text) => CommandPattern::Exact(text.trim().to_owned(), plain_words(text)),
        None => CommandPattern::Glob(glob),
    }))
}

/// No `\` takes away the meaning of what follows.
fn ends_plain(text: &str) -> bool {
    (text.len() - text.trim_end_matches('\\').len()).is_multiple_of(2)
}

/// The words of a text that is one command and nothing else.
fn plain_words(text: &str) -> Option<Vec<String>> {
    let commands = CommandLine::new(text).commands?;
    let [only] = commands.as_slice() else { return None };
    Some(command_line::known_words(only)?.into_iter().map(str::to_owned).collect())
}

fn path(body: &str) -> Result<RuleSubject, String> {
    let (anchor, rest) = if let Some(rest) = body.strip_prefix("~/") {
        (PathAnchor::Home, rest)
    } else if body.starts_with('/') {
        // `//` for the root is another agent's spelling.
        (PathAnchor::Root, body.trim_start_matches('/'))
    } else {
        (PathAnchor::Workspace, body)
    };
    let anchored = rest.strip_prefix("./");
    let rest = anchored.unwrap_or(rest);
    if rest.split('/').any(|name| name == "..") {
        return Err("a path in a rule must not contain `..`; write it relative to the workspace, or starting with / or ~/".into());
    }
    let bare = anchor == PathAnchor::Workspace && anchored.is_none() && !rest.contains('/');
    let source = match rest.strip_suffix('/') {
        Some(folder) => format!("{folder}/**"),
        None if rest.is_empty() || rest == "." => "**".to_owned(),
        None => rest.to_owned(),
    };
    Ok(RuleSubject::Path(PathPattern { anchor, glob: Glob::new(&source, GlobKind::Path), bare }))
}

/// A path from the workspace, so that it holds there and nowhere else.
fn relative(subject: &str, place: &Path) -> Option<String> {
    let path = Path::new(subject);
    let text = match path.strip_prefix(place) {
        Ok(rest) if rest.as_os_str().is_empty() => "./".to_owned(),
        // A name alone would hold in every folder when it denies; `~` would be the home folder.
        Ok(rest) if rest.components().count() == 1 || rest.to_str()?.starts_with('~') => {
            format!("./{}", rest.to_str()?)
        }
        Ok(rest) => rest.to_str()?.to_owned(),
        Err(_) if path.is_absolute() => subject.to_owned(),
        Err(_) => return None,
    };
    Some(text)
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "_-./+=@,%^:".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

fn subject(glob: &Glob, query: &RuleQuery) -> Option<MatchKind> {
    let subject = &query.request.subject;
    glob.matches(subject).then(|| if glob.exact().is_some() { MatchKind::Exact } else { MatchKind::Family })
}

fn argument_matches(key: &str, glob: &Glob, query: &RuleQuery) -> Option<MatchKind> {
    query.argument(key).filter(|value| glob.matches(value)).map(|_| MatchKind::Family)
}

impl CommandPattern {
    fn touches(&self, line: &CommandLine) -> Option<MatchKind> {
        if self.is_exactly(line).is_some() {
            return Some(MatchKind::Exact);
        }
        if matches!(self, Self::Glob(glob) if glob.matches(&line.text)) {
            return Some(MatchKind::Family);
        }
        let touches = |start: &StartedProgram| {
            let touch = match self {
                Self::Exact(_, None) => Certainty::No,
                Self::Exact(_, Some(words)) => command_line::is_same(start, words),
                Self::Prefix(prefix) => command_line::begins(start, prefix),
                Self::Glob(glob) if glob.matches(&start.joined) => Certainty::Yes,
                Self::Glob(glob) if start.is_partly_known() && glob.may_begin(&start.words[0]) => {
                    Certainty::Maybe
                }
                Self::Glob(_) => Certainty::No,
            };
            if start.sure { touch } else { touch.min(Certainty::Maybe) }
        };
        match line.starts.iter().map(touches).max() {
            Some(Certainty::Yes) => Some(MatchKind::Family),
            Some(Certainty::Maybe) => Some(MatchKind::Possible),
            Some(Certainty::No) | None => None,
        }
    }

    fn is_exactly(&self, line: &CommandLine) -> Option<MatchKind> {
        matches!(self, Self::Exact(text, _) if *text == line.text).then_some(MatchKind::Exact)
    }

    fn covers(&self, command: &SimpleCommand) -> bool {
        match self {
            Self::Exact(_, None) => false,
            Self::Exact(_, Some(words)) => {
                command_line::known_words(command).is_some_and(|known| known.iter().eq(words))
            }
            Self::Prefix(words) => covered(words, command),
            Self::Glob(glob) => {
                command.argv.first().is_some_and(|first| glob.may_begin(first.text()))
                    && command_line::known_words(command).is_some_and(|known| glob.matches(&known.join(" ")))
            }
        }
    }
}

impl PathPattern {
    /// The path as the pattern sees it.
    fn seen<'a>(&self, query: &'a RuleQuery, base: &Path) -> Option<&'a str> {
        let path = query.path()?;
        match self.anchor {
            PathAnchor::Root => path.strip_prefix('/'),
            PathAnchor::Home => below(path, query.home?),
            PathAnchor::Workspace => below(path, base),
        }
    }

    fn covers(&self, query: &RuleQuery, base: &Path) -> Option<MatchKind> {
        if !query.path_is_text() {
            return None;
        }
        let seen = self.seen(query, base)?;
        self.glob.matches(seen).then(|| self.kind())
    }

    /// Also what lies in a folder that is meant, and a bare name in every folder.
    fn touches(&self, query: &RuleQuery, base: &Path) -> Option<MatchKind> {
        let Some(seen) = self.seen(query, base) else {
            let name = |path: &str| path.split('/').any(|name| self.glob.matches(name));
            return (self.bare && query.path().is_some_and(name)).then_some(MatchKind::Family);
        };
        // `secret/` and `secret/**` mean the folder too: its names are in it.
        if self.glob.matches(seen) || self.glob.matches(&format!("{seen}/")) {
            return Some(self.kind());
        }
        let folders = seen.match_indices('/').map(|(slash, _)| &seen[..slash]);
        let inside = folders.into_iter().any(|folder| self.glob.matches(folder));
        let named = self.bare && seen.split('/').any(|name| self.glob.matches(name));
        (inside || named).then_some(MatchKind::Family)
    }

    fn kind(&self) -> MatchKind {
        if self.glob.exact().is_some() { MatchKind::Exact } else { MatchKind::Family }
    }
}

/// The rest of a path below a folder.
fn below<'a>(path: &'a str, folder: &Path) -> Option<&'a str> {
    let folder = folder.to_str()?.trim_end_matches('/');
    let rest = path.strip_prefix(folder)?;
    if rest.is_empty() { Some(rest) } else { rest.strip_prefix('/') }
}
