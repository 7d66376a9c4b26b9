//! What a command says when it cannot do what it was asked: what is wrong, why, and what to try.
//!
//! Three short lines on standard error; under `--json` the same as one object on standard output.

use std::fmt::Display;
use std::io;
use std::process::ExitCode;

use engine::{OpenError, SessionId, StoreError};
use serde_json::json;
use store::audit::KeyError;

use crate::secrets;
use crate::terminal::{self, one_line};

#[derive(Debug)]
pub struct Trouble {
    kind: Kind,
    what: String,
    because: Option<String>,
    fix: Option<String>,
    /// Sessions that could have been meant, with their titles.
    candidates: Vec<(SessionId, String)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Failed,
    Busy,
    Usage,
    NotFound,
    /// Nobody reads our output any more, so nobody wants to hear about it.
    Unheard,
}

impl Kind {
    fn code(self) -> &'static str {
        match self {
            Self::Failed | Self::Unheard => "failed",
            Self::Busy => "busy",
            Self::Usage => "usage",
            Self::NotFound => "not_found",
        }
    }

    fn exit(self) -> ExitCode {
        match self {
            Self::Failed | Self::Busy | Self::Unheard => ExitCode::from(1),
            Self::Usage => ExitCode::from(2),
            Self::NotFound => ExitCode::from(5),
        }
    }
}

impl Trouble {
    pub fn failed(what: impl Into<String>) -> Self {
        Self::new(Kind::Failed, what)
    }

    pub fn usage(what: impl Into<String>) -> Self {
        Self::new(Kind::Usage, what)
    }

    pub fn not_found(what: impl Into<String>) -> Self {
        Self::new(Kind::NotFound, what)
    }

    fn new(kind: Kind, what: impl Into<String>) -> Self {
        Self { kind, what: what.into(), because: None, fix: None, candidates: Vec::new() }
    }

    pub fn because(self, reason: impl Display) -> Self {
        Self { because: Some(reason.to_string()), ..self }
    }

    pub fn fix(self, fix: impl Into<String>) -> Self {
        Self { fix: Some(fix.into()), ..self }
    }

    pub fn candidates(self, candidates: Vec<(SessionId, String)>) -> Self {
        Self { candidates, ..self }
    }

    /// A session could not be opened or read.
    pub fn open(error: OpenError) -> Self {
        match error {
            OpenError::NotFound(id) => Self::not_found(format!("there is no session {id}")).fix(SEE_LIST),
            OpenError::Agent(error) => Self::failed("the agent has no session for you")
                .because(error)
                .fix("ropewalk agents check NAME says whether an agent starts; try a command by hand"),
            OpenError::Store(StoreError::NotFound) => {
                Self::not_found("there is no such session").fix(SEE_LIST)
            }
            OpenError::Store(StoreError::BusyElsewhere) => {
                Self::new(Kind::Busy, "this session is in the middle of a turn in another ropewalk")
                    .because("only one program at a time may write to a session")
                    .fix("wait until that turn ends, or go on in a copy: ropewalk sessions fork ID")
            }
            OpenError::Store(StoreError::Busy { reason }) => {
                Self::new(Kind::Busy, "the session store is busy").because(reason)
            }
            OpenError::Store(StoreError::Unavailable { reason }) => {
                Self::failed("the session store cannot be used").because(reason).fix("ropewalk doctor")
            }
            OpenError::Store(error) => Self::failed("the session cannot be used").because(error),
            OpenError::Stopping | OpenError::LimitReached(_) => Self::failed(error.to_string()),
        }
    }

    /// The audit's key cannot be used, so nothing that must be audited may be done.
    pub fn key(error: KeyError) -> Self {
        let trouble = Self::failed(error.to_string()).fix(error.fix());
        match std::error::Error::source(&error) {
            Some(source) => trouble.because(source),
            None => trouble.because("a key that others know proves nothing"),
        }
    }

    /// Standard output or a file could not be written.
    pub fn output(error: &io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self::new(Kind::Unheard, "nobody reads the output");
        }
        Self::failed("the output cannot be written").because(error)
    }

    /// What is wrong and why, on one line.
    pub fn in_short(&self) -> String {
        let fix = self.fix.as_ref().map_or_else(String::new, |fix| format!("; {fix}"));
        one_line(&format!("{}{fix}", self.text()))
    }

    /// Says it as a warning: something is not done, and the rest goes on.
    pub fn warn(&self, consequence: &str) {
        let text = one_line(&format!("{consequence}: {}", self.text()));
        terminal::say(&format!("{} {text}", terminal::stderr_paint().warn("warning:")));
    }

    /// Tells the user, and answers how the program is to end.
    pub fn report(&self, as_json: bool) -> ExitCode {
        if self.kind == Kind::Unheard {
            return self.kind.exit();
        }
        if as_json {
            // Without an output there is nobody left to tell.
            drop(terminal::put_json(&self.as_json()));
            return self.kind.exit();
        }
        let paint = terminal::stderr_paint();
        terminal::say(&format!("{} {}", paint.bad("error:"), one_line(&self.what)));
        if let Some(because) = &self.because {
            terminal::say(&format!("{} {}", paint.quiet("because:"), one_line(because)));
        }
        for (id, title) in &self.candidates {
            terminal::say(&format!("  {id}  {}", one_line(title)));
        }
        if let Some(fix) = &self.fix {
            terminal::say(&format!("{} {}", paint.quiet("try:"), one_line(fix)));
        }
        self.kind.exit()
    }

    /// What is wrong and why, in one line.
    pub fn text(&self) -> String {
        match &self.because {
            Some(because) => format!("{}: {because}", self.what),
            None => self.what.clone(),
        }
    }

    fn as_json(&self) -> serde_json::Value {
        let message = self.text();
        let message = secrets::without(&message);
        let mut error = json!({ "code": self.kind.code(), "message": message, "fix": self.fix });
        if !self.candidates.is_empty() {
            let entry = |(id, title): &(SessionId, String)| json!({ "id": id.as_str(), "title": title });
            error["candidates"] = self.candidates.iter().map(entry).collect();
        }
        json!({ "error": error })
    }
}

const SEE_LIST: &str = "ropewalk sessions list";

/// The command line was not understood, or asked for help.
pub fn bad_usage(error: &clap::Error) -> ExitCode {
    let as_json = std::env::args_os().any(|argument| argument == "--json");
    if !error.use_stderr() || !as_json {
        // Help that nobody reads is no failure.
        drop(error.print());
        return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
    }
    let text = error.to_string();
    let what = text.lines().next().unwrap_or_default();
    Trouble::usage(what.strip_prefix("error: ").unwrap_or(what)).fix("ropewalk --help").report(true)
}
