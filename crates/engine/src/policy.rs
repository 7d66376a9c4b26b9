//! Who may do what without asking: one pure function that every door and every tool goes through.
//!
//! **Invariant:** a denial beats everything, and a mode that forbids a class of tools cannot be
//! talked out of it by a rule or a preset.

use std::path::PathBuf;
use std::sync::Arc;

use crate::event::{AskRequest, ToolClass};
use crate::settings::{APPROVAL, MODE, Settings};

/// An answer that a person gave once and for all, for exactly this wish in this workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    pub workspace: PathBuf,
    pub tool: Arc<str>,
    pub subject: Arc<str>,
    pub allow: bool,
}

impl Rule {
    pub fn matches(&self, workspace: &std::path::Path, request: &AskRequest) -> bool {
        self.workspace == workspace && self.tool == request.tool && self.subject == request.subject
    }
}

/// What the policy says of a wish before any person is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ruling {
    Allow {
        reason: Arc<str>,
    },
    /// A person said "always" or "never" earlier.
    Remembered {
        allow: bool,
    },
    Deny {
        mode: Arc<str>,
        reason: Arc<str>,
    },
    Ask,
}

/// Decides a wish from the session's settings and a rule that matches it, if there is one.
pub fn decide(settings: &Settings, request: &AskRequest, remembered: Option<bool>) -> Ruling {
    let mode = settings.get(MODE);
    let approval = settings.get(APPROVAL);
    if let Some(reason) = forbidden_by_mode(mode, request.class) {
        return Ruling::Deny { mode: mode.into(), reason };
    }
    if remembered == Some(false) {
        return Ruling::Remembered { allow: false };
    }
    match (approval, request.class) {
        (_, ToolClass::Read) => allow("reading is allowed"),
        ("full", _) => allow("approval is set to full"),
        ("read-only", ToolClass::Edit | ToolClass::Execute | ToolClass::Network) => Ruling::Deny {
            mode: approval.into(),
            reason: "approval is set to read-only: only reading is allowed".into(),
        },
        (_, _) if remembered == Some(true) => Ruling::Remembered { allow: true },
        ("auto", ToolClass::Edit) => allow("edits inside the workspace are allowed"),
        (_, ToolClass::Edit | ToolClass::Execute | ToolClass::Network) => Ruling::Ask,
    }
}

fn allow(reason: &str) -> Ruling {
    Ruling::Allow { reason: reason.into() }
}

fn forbidden_by_mode(mode: &str, class: ToolClass) -> Option<Arc<str>> {
    // A mode that is not known to change things only reads; a backend without modes has none.
    let only_reading = !matches!(mode, "code" | "");
    match class {
        ToolClass::Read => None,
        ToolClass::Edit | ToolClass::Execute | ToolClass::Network => only_reading.then(|| {
            format!("the session is in {mode} mode: only reading is allowed; switch to code mode").into()
        }),
    }
}
