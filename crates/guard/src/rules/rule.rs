//! One rule as people write it: `Tool`, `Tool(pattern)`, `Tool(argument:pattern)`, `Tool(pattern={"all":"arguments"})`.
//!
//! What the pattern is matched against depends on the tool: a shell's commands, a file's path, else
//! what the wish is about.
//!
//! **Invariant:** a rule that this writes is read back as the same rule.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use engine::{Opaque, RuleEffect, RuleScope};

use serde_json::Value;

use super::glob::{self, Glob, Kind};
use super::line::{self, Line, Touch};
use super::starts::Start;
use super::tool::{Tool, Tools};
use super::wish::Wish;
use crate::risk::covered;
use crate::shell::Simple;
use crate::{Scope, scope_of_always};

#[derive(Debug, Clone)]
pub(super) struct Rule {
    /// As it was written.
    pub(super) text: Arc<str>,
    tools: Tools,
    content: Content,
    /// All arguments that the wish must have besides, as [`canonical`] writes them.
    arguments: Option<String>,
}

/// Two rules are the same if they mean the same, however they are written.
impl PartialEq for Rule {
    fn eq(&self, other: &Self) -> bool {
        self.tools == other.tools && self.content == other.content && self.arguments == other.arguments
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Content {
    Anything,
    Command(Pattern),
    Path(PathPattern),
    /// Of a tool that is not ours: what its wish is about, which may be a command.
    Subject {
        glob: Glob,
        command: Option<Pattern>,
    },
    Argument {
        key: String,
        glob: Glob,
    },
    /// The host of the address that is fetched.
    Domain(Glob),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Pattern {
    /// The text, and its words if it is a single command that is understood.
    Exact(String, Option<Vec<String>>),
    /// `git status:*`
    Prefix(Vec<String>),
    Glob(Glob),
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct PathPattern {
    anchor: Anchor,
    glob: Glob,
    /// A name without folders.
    bare: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Anchor {
    Workspace,
    Home,
    Root,
}

/// Why a text is not a rule, and what can be saved of it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Malformed {
    /// What is wrong, and what to write instead.
    pub(super) reason: String,
    /// The rule for every use of the tool, if the tool can be read.
    pub(super) whole_tool: Option<Box<Rule>>,
}

/// What a match is like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Match {
    /// The rule names this very wish.
    Exact,
    Family,
    /// Whether the rule is about it cannot be told.
    Possible,
}

impl Rule {
    pub(super) fn parse(text: &str, effect: RuleEffect) -> Result<Self, Malformed> {
        let written = text.trim();
        let open = written.find('(');
        let name = written[..open.unwrap_or(written.len())].trim_end();
        let Some(tools) = Tools::parse(name) else {
            return Err(Malformed {
                reason: format!("{name:?} is not the name of a tool; write for example shell(git status:*)"),
                whole_tool: None,
            });
        };
        let rule =
            |(content, arguments)| Self { text: written.into(), tools: tools.clone(), content, arguments };
        let Some(open) = open else { return Ok(rule((Content::Anything, None))) };
        let content = match written[open + 1..].strip_suffix(')').map(|body| with_arguments(&tools, body)) {
            None => Err(format!("the bracket is not closed; write {name}(..) or {name}")),
            Some(("", None)) => {
                Err(format!("nothing stands between the brackets; for every use write {name}"))
            }
            Some(("", arguments)) => Ok((Content::Anything, arguments)),
            Some((body, arguments)) => {
                content(&tools, name, body, effect).map(|content| (content, arguments))
            }
        };
        content.map(rule).map_err(|reason| Malformed {
            reason,
            whole_tool: Some(Box::new(rule((Content::Anything, None)))),
        })
    }

    /// The rule that means an answer for good, and no more than the person was told: a command by its program
    /// and sub-command where that says what it does, a tool that is about nothing else as a whole, everything
    /// else by what it is about.
    pub(super) fn of_answer(tool: &str, subject: &str, scope: &RuleScope, workspace: &Path) -> Option<Self> {
        let known = Tool::of(tool);
        match (scope, known) {
            (RuleScope::Arguments(arguments), known) if known != Some(Tool::Shell) => {
                Self::with_arguments(tool, subject, arguments, workspace)
            }
            (RuleScope::Shown, Some(Tool::Shell)) => match scope_of_always(subject) {
                Scope::Program(words) => Self::program(Tool::Shell.name(), &words),
                Scope::Exact => None,
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

    /// The rule for exactly this wish with exactly these arguments.
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
            |rule| matches!(&rule.content, Content::Command(Pattern::Prefix(prefix)) if prefix == words),
        )
    }

    /// The rule for exactly this wish. `place` is where relative paths begin.
    pub(super) fn exact(tool: &str, subject: &str, place: &Path) -> Option<Self> {
        let known = Tool::of(tool);
        let subject = match known {
            Some(Tool::Shell) => subject.trim().to_owned(),
            Some(known) if known.has_path() => relative(subject, place)?,
            _ => subject.to_owned(),
        };
        let mut body = glob::escape(&subject);
        if known != Some(Tool::Shell) {
            body = body.replace("={", "\\={");
        }
        if let Some(colon) = argument(&body) {
            body.insert(colon, '\\');
        }
        let text = format!("{}({body})", known.map_or(tool, |known| known.name()));
        let rule = Self::parse(&text, RuleEffect::Allow).ok()?;
        let same = match &rule.content {
            Content::Command(Pattern::Exact(text, _)) => *text == subject,
            Content::Path(pattern) => pattern.glob.exact().is_some(),
            Content::Subject { glob, .. } => glob.exact() == Some(subject.as_str()),
            _ => false,
        };
        (same && rule.arguments.is_none()).then_some(rule)
    }

    /// Whether a rule that denies or asks is about this wish: whether any part of it is meant.
    pub(super) fn touches(&self, wish: &Wish, base: &Path) -> Option<Match> {
        if !self.tools.include(&wish.tool, true) || !self.has_arguments_of(wish) {
            return None;
        }
        match &self.content {
            Content::Anything if self.arguments.is_some() => Some(Match::Exact),
            Content::Anything => Some(Match::Family),
            Content::Command(pattern) => pattern.touches(wish.line()),
            Content::Path(pattern) => pattern.touches(wish, base),
            Content::Subject { command: Some(pattern), .. } if wish.is_command() => {
                pattern.touches(wish.line())
            }
            Content::Subject { glob, .. } => subject(glob, wish),
            Content::Argument { key, glob } => argument_matches(key, glob, wish),
            Content::Domain(glob) => wish.host().filter(|host| glob.matches(host)).map(|_| Match::Family),
        }
    }

    fn has_arguments_of(&self, wish: &Wish) -> bool {
        self.arguments.as_ref().is_none_or(|arguments| wish.has_arguments(arguments))
    }

    /// Whether a rule that allows covers the whole wish by itself.
    pub(super) fn covers(&self, wish: &Wish, base: &Path) -> Option<Match> {
        if !self.tools.include(&wish.tool, false) || !self.has_arguments_of(wish) {
            return None;
        }
        match &self.content {
            Content::Anything if self.arguments.is_some() => Some(Match::Exact),
            Content::Anything => Some(Match::Family),
            Content::Command(pattern) => pattern.is_exactly(wish.line()),
            Content::Path(pattern) => pattern.covers(wish, base),
            Content::Subject { command, .. } if wish.is_command() => {
                command.as_ref()?.is_exactly(wish.line())
            }
            Content::Subject { glob, .. } => subject(glob, wish),
            Content::Argument { key, glob } => argument_matches(key, glob, wish),
            Content::Domain(glob) => wish.host().filter(|host| glob.matches(host)).map(|_| Match::Family),
        }
    }

    /// Whether a rule that allows covers one command of a line that is understood.
    pub(super) fn covers_command(&self, wish: &Wish, command: &Simple) -> bool {
        let pattern = match &self.content {
            Content::Command(pattern) => Some(pattern),
            Content::Subject { command, .. } => command.as_ref(),
            _ => None,
        };
        self.tools.include(&wish.tool, false)
            && self.has_arguments_of(wish)
            && pattern.is_some_and(|pattern| pattern.covers(command))
    }

    /// It looks into commands, so it cannot be sure about one that cannot be looked through.
    pub(super) fn looks_into(&self, wish: &Wish) -> bool {
        let looks = matches!(self.content, Content::Command(_) | Content::Subject { command: Some(_), .. });
        looks && wish.is_command() && self.tools.include(&wish.tool, true)
    }

    /// A name of a tool that nobody here has.
    pub(super) fn is_strange(&self) -> bool {
        self.tools.is_strange()
    }
}

fn content(tools: &Tools, name: &str, body: &str, effect: RuleEffect) -> Result<Content, String> {
    let narrows = effect != RuleEffect::Allow;
    let key = argument(body).map(|colon| (&body[..colon], &body[colon + 1..]));
    match tools {
        Tools::Known(Tool::Shell) => match key {
            Some(("command", rest)) => command(name, rest),
            Some((_, "*")) => command(name, body),
            Some((key @ ("timeout_seconds" | "timeout" | "cwd" | "description"), glob)) if narrows => {
                Ok(Content::Argument { key: key.to_owned(), glob: Glob::new(glob, Kind::Text) })
            }
            Some((key, rest)) => Err(format!(
                "{key}: is not an argument that can be asked for here; write {name}({key} {rest}:*), or {name}({key}\\:{rest}) for exactly this text"
            )),
            None => command(name, body),
        },
        Tools::Known(tool) if tool.has_path() => match key {
            None | Some(("path" | "file_path", _)) => path(key.map_or(body, |(_, glob)| glob)),
            Some((key, glob)) => {
                Ok(Content::Argument { key: key.to_owned(), glob: Glob::new(glob, Kind::Text) })
            }
        },
        Tools::Known(Tool::Fetch) if let Some(("domain", host)) = key => {
            Ok(Content::Domain(Glob::new(&host.to_lowercase(), Kind::Text)))
        }
        Tools::Matching(_) if !narrows => {
            Err(format!("a rule that allows names one tool; write shell({body}) or whichever is meant"))
        }
        Tools::Known(_) | Tools::Named(_) | Tools::Server(_) | Tools::Matching(_) => match key {
            Some((key, glob)) if glob != "*" => {
                Ok(Content::Argument { key: key.to_owned(), glob: Glob::new(glob, Kind::Text) })
            }
            _ if Glob::new(body, Kind::Text).is_everything() => Ok(Content::Anything),
            _ => Ok(Content::Subject {
                glob: Glob::new(body, Kind::Text),
                command: match command(name, body) {
                    Ok(Content::Command(pattern)) => Some(pattern),
                    _ => None,
                },
            }),
        },
    }
}

/// What stands before `={..}`, and the arguments there. A command is a text, in which this may mean something.
fn with_arguments<'b>(tools: &Tools, body: &'b str) -> (&'b str, Option<String>) {
    let here = |(at, _)| {
        let arguments: Value = serde_json::from_str(&body[at + 1..]).ok()?;
        Some((&body[..at], Some(canonical(&arguments))))
    };
    let found = body.match_indices("={").filter(|(at, _)| ends_plain(&body[..*at])).find_map(here);
    found.filter(|_| *tools != Tools::Known(Tool::Shell)).unwrap_or((body, None))
}

/// A use of a tool in one spelling. A command is its words, or its text if it is not a single one, as in the rule
/// that means it; everything else is what it is about and its arguments.
pub(super) fn arguments_key(tool: &str, subject: &str, input: &Opaque) -> String {
    if Tool::of(tool) == Some(Tool::Shell) {
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

fn command(name: &str, body: &str) -> Result<Content, String> {
    let glob = Glob::new(body, Kind::Text);
    if glob.is_everything() || body == ":*" {
        return Ok(Content::Anything);
    }
    if let Some(prefix) = body.strip_suffix(":*").filter(|prefix| ends_plain(prefix)) {
        let words = Glob::new(prefix, Kind::Text).exact().and_then(plain_words);
        let Some(words) = words else {
            return Err(format!("before :* stand plain words only; write for example {name}(git status:*)"));
        };
        return Ok(Content::Command(Pattern::Prefix(words)));
    }
    Ok(Content::Command(match glob.exact() {
        Some(text) => Pattern::Exact(text.trim().to_owned(), plain_words(text)),
        None => Pattern::Glob(glob),
    }))
}

/// No `\` takes away the meaning of what follows.
fn ends_plain(text: &str) -> bool {
    (text.len() - text.trim_end_matches('\\').len()).is_multiple_of(2)
}

/// The words of a text that is one command and nothing else.
fn plain_words(text: &str) -> Option<Vec<String>> {
    let commands = Line::new(text).commands?;
    let [only] = commands.as_slice() else { return None };
    Some(line::known_words(only)?.into_iter().map(str::to_owned).collect())
}

fn path(body: &str) -> Result<Content, String> {
    let (anchor, rest) = if let Some(rest) = body.strip_prefix("~/") {
        (Anchor::Home, rest)
    } else if body.starts_with('/') {
        // `//` for the root is another agent's spelling.
        (Anchor::Root, body.trim_start_matches('/'))
    } else {
        (Anchor::Workspace, body)
    };
    let anchored = rest.strip_prefix("./");
    let rest = anchored.unwrap_or(rest);
    if rest.split('/').any(|name| name == "..") {
        return Err("a path in a rule has no `..`; write it from the workspace, from / or from ~/".into());
    }
    let bare = anchor == Anchor::Workspace && anchored.is_none() && !rest.contains('/');
    let source = match rest.strip_suffix('/') {
        Some(folder) => format!("{folder}/**"),
        None if rest.is_empty() || rest == "." => "**".to_owned(),
        None => rest.to_owned(),
    };
    Ok(Content::Path(PathPattern { anchor, glob: Glob::new(&source, Kind::Path), bare }))
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

fn subject(glob: &Glob, wish: &Wish) -> Option<Match> {
    let subject = &wish.request.subject;
    glob.matches(subject).then(|| if glob.exact().is_some() { Match::Exact } else { Match::Family })
}

fn argument_matches(key: &str, glob: &Glob, wish: &Wish) -> Option<Match> {
    wish.argument(key).filter(|value| glob.matches(value)).map(|_| Match::Family)
}

impl Pattern {
    fn touches(&self, line: &Line) -> Option<Match> {
        if self.is_exactly(line).is_some() {
            return Some(Match::Exact);
        }
        if matches!(self, Self::Glob(glob) if glob.matches(&line.text)) {
            return Some(Match::Family);
        }
        let touches = |start: &Start| {
            let touch = match self {
                Self::Exact(_, None) => Touch::No,
                Self::Exact(_, Some(words)) => line::is_same(start, words),
                Self::Prefix(prefix) => line::begins(start, prefix),
                Self::Glob(glob) if glob.matches(&start.joined) => Touch::Yes,
                Self::Glob(glob) if start.is_partly_known() && glob.may_begin(&start.words[0]) => {
                    Touch::Maybe
                }
                Self::Glob(_) => Touch::No,
            };
            if start.sure { touch } else { touch.min(Touch::Maybe) }
        };
        match line.starts.iter().map(touches).max() {
            Some(Touch::Yes) => Some(Match::Family),
            Some(Touch::Maybe) => Some(Match::Possible),
            Some(Touch::No) | None => None,
        }
    }

    fn is_exactly(&self, line: &Line) -> Option<Match> {
        matches!(self, Self::Exact(text, _) if *text == line.text).then_some(Match::Exact)
    }

    fn covers(&self, command: &Simple) -> bool {
        match self {
            Self::Exact(_, None) => false,
            Self::Exact(_, Some(words)) => {
                line::known_words(command).is_some_and(|known| known.iter().eq(words))
            }
            Self::Prefix(words) => covered(words, command),
            Self::Glob(glob) => {
                command.argv.first().is_some_and(|first| glob.may_begin(first.text()))
                    && line::known_words(command).is_some_and(|known| glob.matches(&known.join(" ")))
            }
        }
    }
}

impl PathPattern {
    /// The path as the pattern sees it.
    fn seen<'a>(&self, wish: &'a Wish, base: &Path) -> Option<&'a str> {
        let path = wish.path()?;
        match self.anchor {
            Anchor::Root => path.strip_prefix('/'),
            Anchor::Home => below(path, wish.home?),
            Anchor::Workspace => below(path, base),
        }
    }

    fn covers(&self, wish: &Wish, base: &Path) -> Option<Match> {
        if !wish.path_is_text() {
            return None;
        }
        let seen = self.seen(wish, base)?;
        self.glob.matches(seen).then(|| self.kind())
    }

    /// Also what lies in a folder that is meant, and a bare name in every folder.
    fn touches(&self, wish: &Wish, base: &Path) -> Option<Match> {
        let Some(seen) = self.seen(wish, base) else {
            let name = |path: &str| path.split('/').any(|name| self.glob.matches(name));
            return (self.bare && wish.path().is_some_and(name)).then_some(Match::Family);
        };
        // `secret/` and `secret/**` mean the folder too: its names are in it.
        if self.glob.matches(seen) || self.glob.matches(&format!("{seen}/")) {
            return Some(self.kind());
        }
        let folders = seen.match_indices('/').map(|(slash, _)| &seen[..slash]);
        let inside = folders.into_iter().any(|folder| self.glob.matches(folder));
        let named = self.bare && seen.split('/').any(|name| self.glob.matches(name));
        (inside || named).then_some(Match::Family)
    }

    fn kind(&self) -> Match {
        if self.glob.exact().is_some() { Match::Exact } else { Match::Family }
    }
}

/// The rest of a path below a folder.
fn below<'a>(path: &'a str, folder: &Path) -> Option<&'a str> {
    let folder = folder.to_str()?.trim_end_matches('/');
    let rest = path.strip_prefix(folder)?;
    if rest.is_empty() { Some(rest) } else { rest.strip_prefix('/') }
}
