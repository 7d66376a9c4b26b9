//! Parses a line of shell with a grammar: every simple command with its words, and every part that was not
//! understood.
//!
//! The parser may report a part as not understood ([`Doubt`], [`Word::Unknown`]) as often as it likes. It must never
//! be wrong about a part that it reports as understood. That is why syntax kinds are allowed by name and everything
//! else is a doubt, why all text between two parts must be blank, and why a word is decoded from its own source text
//! and not from the syntax tree.
//!
//! A line is read for `sh` and `bash` at once: what the two read differently counts as not understood.
//!
//! **Invariant:** commands inside parts that were not understood are still listed, as far as the parser found any.
//! There is no number of commands after which the rest is skipped.

use std::fmt;

mod parser;
mod quoting;
mod simple_command;

pub(crate) use parser::is_invisible;
pub use parser::read;

/// Only the beginning of a longer line is read.
pub const LINE_BYTES_MAX: usize = 64 << 10;

/// A line of shell, parsed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Script {
    /// In the order of the text; a command comes before the commands inside its words.
    pub commands: Vec<SimpleCommand>,
    pub doubts: Vec<Doubt>,
}

/// One program or builtin with its words, before the shell expands anything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SimpleCommand {
    /// Empty if there are only assignments or redirections.
    pub argv: Vec<Word>,
    pub assignments: Vec<(String, Word)>,
    pub redirects: Vec<Redirect>,
    pub position: CommandPosition,
}

/// One word of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Word {
    /// Exactly this is what the program gets.
    Literal(String),
    /// The source text of a word that the shell computes: variables, patterns, substitutions.
    Unknown(String),
}

impl Word {
    pub fn literal(&self) -> Option<&str> {
        match self {
            Self::Literal(text) => Some(text),
            Self::Unknown(_) => None,
        }
    }

    /// The text that the program gets, or the source text if that is unknown.
    pub fn text(&self) -> &str {
        match self {
            Self::Literal(text) | Self::Unknown(text) => text,
        }
    }
}

/// Where in a line a command stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CommandPosition {
    pub nesting: Nesting,
    /// Its position in the outermost pipeline that it is part of.
    pub pipe: Option<PipePosition>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Nesting {
    #[default]
    Line,
    /// `( .. )` or `{ .. }`
    Group,
    /// Inside a word: a word of the command with this index, if it belongs to a command.
    Substitution(Option<usize>),
    /// Inside a part that was not understood.
    Doubtful,
}

/// A position in a pipeline. Pipelines inside a pipeline count as further stages of the outer one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PipePosition {
    pub number: usize,
    pub stage: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redirect {
    pub kind: RedirectKind,
    pub target: Word,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RedirectKind {
    Read,
    Write,
    /// `2>&1`, `<&-`: no file is opened.
    Duplicate,
    /// The target is the input text itself: a here-document or here-string.
    InlineText,
}

impl Redirect {
    /// Whether it may change a file.
    pub fn writes(&self) -> bool {
        self.kind == RedirectKind::Write
            && !matches!(&self.target, Word::Literal(path) if path == "/dev/null")
    }
}

/// A part that was not understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Doubt {
    pub reason: DoubtReason,
    pub source: String,
}

/// Why a part was not understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DoubtReason {
    TooLong,
    TooDeep,
    Malformed,
    /// Characters that are invisible or change what a terminal shows.
    Invisible,
    Loop,
    Condition,
    Test,
    Arithmetic,
    Function,
    /// A function that calls itself more than once.
    ForkBomb,
    Substitution,
    Expansion,
    HereDocument,
    Background,
    Other,
}

impl fmt::Display for DoubtReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooLong => "it is too long to be checked",
            Self::TooDeep => "it is nested too deeply to be checked",
            Self::Malformed => "it could not be understood",
            Self::Invisible => "it contains invisible characters",
            Self::Loop => "it has a loop",
            Self::Condition => "it has a condition",
            Self::Test => "it has a shell test ([[ ]])",
            Self::Arithmetic => "it has arithmetic, which may run commands",
            Self::Function => "it defines a function",
            Self::ForkBomb => "it defines a function that starts itself without end",
            Self::Substitution => "it uses the output of another command",
            Self::Expansion => "it computes a value at run time",
            Self::HereDocument => "it has a here-document as input",
            Self::Background => "it leaves a process running",
            Self::Other => "a part of it is not known to be harmless",
        })
    }
}
