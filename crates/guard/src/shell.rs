//! What a shell would run for a line, read with a grammar of the shell: every simple command with its
//! words, and every part that was not understood.
//!
//! The reader may say "I do not understand" (a [`Doubt`], a [`Word::Unknown`]) as often as it likes;
//! it must never be wrong about what it says it understands. That is why kinds of syntax are allowed
//! by name and everything else is a doubt, why every byte between two parts must be a blank, and why
//! a word is decoded from its own text and not from the parser's idea of it.
//!
//! A line is read for `sh` and `bash` at once: what the two would read differently is not understood.
//!
//! **Invariant:** commands inside parts that were not understood are still listed, as far as the
//! parser found any. There is no number of commands after which the rest is not looked at.

use std::fmt;

mod parts;
mod walk;
mod words;

pub(crate) use walk::is_invisible;
pub use walk::read;

/// A longer line is not read at all.
pub const LINE_BYTES_MAX: usize = 64 << 10;

/// A line as a shell would take it apart.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Script {
    /// In the order of the text; a command comes before the commands inside its words.
    pub commands: Vec<Simple>,
    pub doubts: Vec<Doubt>,
}

/// One program or builtin with its words, before the shell expands anything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Simple {
    /// Empty if there are only assignments or redirections.
    pub argv: Vec<Word>,
    pub assignments: Vec<(String, Word)>,
    pub redirects: Vec<Redirect>,
    pub place: Place,
}

/// One word of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Word {
    /// Exactly this is what the program gets.
    Literal(String),
    /// The source of a word that the shell computes: variables, patterns, substitutions.
    Unknown(String),
}

impl Word {
    pub fn literal(&self) -> Option<&str> {
        match self {
            Self::Literal(text) => Some(text),
            Self::Unknown(_) => None,
        }
    }

    /// What the program gets, or else what was written.
    pub fn text(&self) -> &str {
        match self {
            Self::Literal(text) | Self::Unknown(text) => text,
        }
    }
}

/// Where in the line a command stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Place {
    pub within: Within,
    /// The outermost pipe that it is part of.
    pub pipe: Option<Pipe>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Within {
    #[default]
    Line,
    /// `( .. )` or `{ .. }`
    Group,
    /// Inside a word; of the command with this index, if it is one's.
    Substitution(Option<usize>),
    /// Inside something that was not understood.
    Doubtful,
}

/// A position in a pipe. Pipes inside a pipe count as more stages of the outer one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pipe {
    pub number: usize,
    pub stage: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redirect {
    pub way: Way,
    pub target: Word,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    Read,
    Write,
    /// `2>&1`, `<&-`: no file is opened.
    Duplicate,
    /// The target is the text itself.
    Here,
}

impl Redirect {
    /// Whether a file may be changed by it.
    pub fn writes(&self) -> bool {
        self.way == Way::Write && !matches!(&self.target, Word::Literal(path) if path == "/dev/null")
    }
}

/// A part that was not understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Doubt {
    pub reason: Unread,
    pub source: String,
}

/// Why a part was not understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unread {
    TooLong,
    TooDeep,
    Malformed,
    /// Invisible characters, or such that change what a terminal shows.
    Invisible,
    Loop,
    Condition,
    Test,
    Arithmetic,
    Function,
    /// A function that starts itself more than once.
    ForkBomb,
    Substitution,
    Expansion,
    HereDocument,
    Background,
    Other,
}

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooLong => "it is too long to be looked through",
            Self::TooDeep => "it is nested too deeply to be looked through",
            Self::Malformed => "it could not be understood",
            Self::Invisible => "it has characters that cannot be seen",
            Self::Loop => "it has a loop",
            Self::Condition => "it has a condition",
            Self::Test => "it has a test of the shell's own kind",
            Self::Arithmetic => "it has arithmetic, which may run commands",
            Self::Function => "it defines a function",
            Self::ForkBomb => "it defines a function that starts itself again and again",
            Self::Substitution => "it uses what another command prints",
            Self::Expansion => "it computes a value while it runs",
            Self::HereDocument => "it has a text of its own as input",
            Self::Background => "it leaves something running",
            Self::Other => "a part of it is not known to be harmless",
        })
    }
}
