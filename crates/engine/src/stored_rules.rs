//! The interface between a session and the stored permission rules.
//!
//! How rules are stored and written is not the engine's business. It asks what they say about
//! an action, and passes on the answers that a person wants remembered.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::backend::BoxFuture;
use crate::content::Opaque;
use crate::event::AskRequest;

/// The rule that a hit names if rules cannot be read. The reason of such a request begins with it.
pub const RULES_UNREADABLE: &str = "permission rules cannot be read, so every action is asked";

/// What a rule does with an action. Later variants win over earlier ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RuleEffect {
    Allow,
    Ask,
    Deny,
}

/// The rule that decides an action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleHit {
    pub effect: RuleEffect,
    /// The rule as it is stored.
    pub rule: Arc<str>,
    /// Where it is stored, in words: a file, an earlier answer.
    pub source: Arc<str>,
    /// It names this very action, not a family of actions.
    pub exact: bool,
    /// It is the owner's consent to this very program or command.
    pub consent: bool,
}

impl RuleHit {
    /// Why an action is asked, if that is because rules cannot be read.
    pub(crate) fn unreadable(&self, reason: &str) -> Option<Arc<str>> {
        let stop = if reason.is_empty() { "" } else { ". " };
        let why =
            || format!("{RULES_UNREADABLE} ({}); run `ropewalk doctor`{stop}{reason}", self.source).into();
        (*self.rule == *RULES_UNREADABLE).then(why)
    }

    pub(crate) fn shown(&self) -> String {
        format!("{} ({})", self.rule, self.source)
    }
}

/// An "always" or "never" answer that is to become a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RememberedAnswer {
    pub workspace: PathBuf,
    pub tool: Arc<str>,
    pub subject: Arc<str>,
    /// The digest of the program or command that the owner was asked about, where that takes consent.
    pub consent: Option<Arc<str>>,
    pub scope: RuleScope,
    pub allow: bool,
}

/// How far a remembered answer reaches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RuleScope {
    /// As far as the rule that the person was shown.
    Shown,
    /// Exactly the subject of the action, and nothing similar.
    Subject,
    /// The tool with exactly these arguments.
    Arguments(Opaque),
}

pub trait PermissionRules: Send + Sync + 'static {
    /// The strongest effect of all rules that match an action. Called for every tool call, so it must not
    /// wait for a disk.
    fn find(&self, workspace: &Path, request: &AskRequest) -> Option<RuleHit>;

    /// The file of rules that cannot be read and why, if there is one: everything is asked meanwhile.
    fn damage(&self) -> Option<String> {
        None
    }

    /// The rule that a remembered answer to this action would be stored as, for the person who decides.
    fn rule_of(&self, _workspace: &Path, _request: &AskRequest) -> Option<Arc<str>> {
        None
    }

    /// A use of a tool in one spelling: two of the same tool that have the same key have the same arguments.
    fn arguments_key(&self, _tool: &str, subject: &str, input: &Opaque) -> String {
        format!("{subject}={}", input.0)
    }

    /// Stores an answer as the narrowest rule with its meaning. It takes effect immediately; the future
    /// completes when it also survives a crash or a power cut, and returns the rule, or why it will not
    /// survive. The answer is shown to nobody before that.
    fn remember(&self, answer: RememberedAnswer) -> BoxFuture<'static, Result<Arc<str>, String>>;
}

/// Remembered answers for exactly the same action, until the process stops.
#[derive(Default)]
pub struct MemoryRules {
    answers: Mutex<Vec<RememberedAnswer>>,
}

impl PermissionRules for MemoryRules {
    fn find(&self, workspace: &Path, request: &AskRequest) -> Option<RuleHit> {
        let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let latest = |consent: &Option<Arc<str>>| {
            answers.iter().rev().find(|answer| {
                answer.workspace == workspace
                    && answer.tool == request.tool
                    && answer.subject == request.subject
                    && answer.consent == *consent
                    && match &answer.scope {
                        RuleScope::Shown | RuleScope::Subject => true,
                        RuleScope::Arguments(input) => *input == request.input,
                    }
            })
        };
        // A refusal holds wherever the command would run.
        let refused = latest(&None).filter(|answer| !answer.allow);
        refused.or_else(|| latest(&request.consent)).map(|answer| RuleHit {
            effect: if answer.allow { RuleEffect::Allow } else { RuleEffect::Deny },
            rule: format!("{}({})", answer.tool, answer.subject).into(),
            source: "an earlier answer".into(),
            exact: true,
            consent: answer.consent.is_some(),
        })
    }

    fn remember(&self, answer: RememberedAnswer) -> BoxFuture<'static, Result<Arc<str>, String>> {
        let rule = format!("{}({})", answer.tool, answer.subject).into();
        self.answers.lock().unwrap_or_else(PoisonError::into_inner).push(answer);
        Box::pin(std::future::ready(Ok(rule)))
    }
}
