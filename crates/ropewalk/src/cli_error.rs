//! The error that a command reports: what failed, why, and what to do next.
//!
//! It is printed as three short lines on standard error, or as one object on standard output with `--json`.

use std::fmt::Display;
use std::io;
use std::process::ExitCode;

use engine::{OpenError, SessionId, StoreError};
use serde_json::json;
use store::audit::AuditKeyError;

use crate::output::{self, one_line};
use crate::secrets_to_redact;

#[derive(Debug)]
pub struct CliError {
    kind: Kind,
    what: String,
    because: Option<String>,
    fix: Option<String>,
    /// Sessions that match an ambiguous id, with their titles.
    candidates: Vec<(SessionId, String)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Failed,
    Busy,
    Usage,
    NotFound,
    /// The reader of our output is gone, so there is nobody to report it to.
    OutputClosed,
}

impl Kind {
    fn code(self) -> &'static str {
        match self {
            Self::Failed | Self::OutputClosed => "failed",
            Self::Busy => "busy",
            Self::Usage => "usage",
            Self::NotFound => "not_found",
        }
    }

    fn exit(self) -> ExitCode {
        match self {
            Self::Failed | Self::Busy | Self::OutputClosed => ExitCode::from(1),
            Self::Usage => ExitCode::from(2),
            Self::NotFound => ExitCode::from(5),
        }
    }
}

impl CliError {
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

    /// For a session that could not be opened or read.
    pub fn from_open(error: OpenError) -> Self {
        match error {
            OpenError::NotFound(id) => Self::not_found(format!("session {id} not found")).fix(SEE_LIST),
            OpenError::Agent(error) => Self::failed("the agent could not open a session")
                .because(error)
                .fix("check that the agent starts with `ropewalk agents check NAME`"),
            OpenError::Store(StoreError::NotFound) => Self::not_found("session not found").fix(SEE_LIST),
            OpenError::Store(StoreError::BusyElsewhere) => Self::new(
                Kind::Busy,
                "this session is running a turn in another ropewalk process",
            )
            .because("only one process at a time can write to a session")
            .fix("wait until the turn ends, or continue in a copy made with `ropewalk sessions fork ID`"),
            OpenError::Store(StoreError::Busy { reason }) => {
                Self::new(Kind::Busy, "the session store is busy").because(reason)
            }
            OpenError::Store(StoreError::Unavailable { reason }) => {
                Self::failed("the session store cannot be used").because(reason).fix("ropewalk doctor")
            }
            OpenError::Store(error) => Self::failed("could not open the session").because(error),
            OpenError::Stopping | OpenError::LimitReached(_) => Self::failed(error.to_string()),
        }
    }

    /// For an audit key that cannot be used: nothing that must be audited may be done.
    pub fn from_key(error: AuditKeyError) -> Self {
        let failed = Self::failed(error.to_string()).fix(error.fix());
        match std::error::Error::source(&error) {
            Some(source) => failed.because(source),
            None => failed.because("a key that others can read proves nothing"),
        }
    }

    /// For standard output that could not be written.
    pub fn from_output(error: &io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self::new(Kind::OutputClosed, "the output was closed");
        }
        Self::failed("could not write the output").because(error)
    }

    /// What failed, why, and the fix, on one line.
    pub fn summary(&self) -> String {
        let fix = self.fix.as_ref().map_or_else(String::new, |fix| format!("; {fix}"));
        one_line(&format!("{}{fix}", self.text()))
    }

    /// Prints it as a warning after `consequence`; the command continues.
    pub fn warn(&self, consequence: &str) {
        let text = one_line(&format!("{consequence}: {}", self.text()));
        output::say(&format!("{} {text}", output::stderr_paint().warn("warning:")));
    }

    /// Prints the error and returns the exit code.
    pub fn report(&self, as_json: bool) -> ExitCode {
        if self.kind == Kind::OutputClosed {
            return self.kind.exit();
        }
        if as_json {
            // If the output is closed, there is nobody to report to.
            drop(output::put_json(&self.as_json()));
            return self.kind.exit();
        }
        let paint = output::stderr_paint();
        output::say(&format!("{} {}", paint.bad("error:"), one_line(&self.what)));
        if let Some(because) = &self.because {
            output::say(&format!("{} {}", paint.quiet("because:"), one_line(because)));
        }
        for (id, title) in &self.candidates {
            output::say(&format!("  {id}  {}", one_line(title)));
        }
        if let Some(fix) = &self.fix {
            output::say(&format!("{} {}", paint.quiet("try:"), one_line(fix)));
        }
        self.kind.exit()
    }

    /// What failed and why.
    pub fn text(&self) -> String {
        match &self.because {
            Some(because) => format!("{}: {because}", self.what),
            None => self.what.clone(),
        }
    }

    fn as_json(&self) -> serde_json::Value {
        let message = self.text();
        let message = secrets_to_redact::redacted(&message);
        let mut error = json!({ "code": self.kind.code(), "message": message, "fix": self.fix });
        if !self.candidates.is_empty() {
            let entry = |(id, title): &(SessionId, String)| json!({ "id": id.as_str(), "title": title });
            error["candidates"] = self.candidates.iter().map(entry).collect();
        }
        json!({ "error": error })
    }
}

const SEE_LIST: &str = "ropewalk sessions list";

/// The command line is wrong, or asked for help.
pub fn bad_usage(error: &clap::Error) -> ExitCode {
    let as_json = std::env::args_os().any(|argument| argument == "--json");
    if !error.use_stderr() || !as_json {
        // A closed output is no failure for help.
        drop(error.print());
        return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
    }
    let text = error.to_string();
    let what = text.lines().next().unwrap_or_default();
    CliError::usage(what.strip_prefix("error: ").unwrap_or(what)).fix("ropewalk --help").report(true)
}
