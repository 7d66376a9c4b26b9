//! The wall between a session and the answers that people gave once and for all.
//!
//! Where rules are kept and how they are written is not the engine's business. It asks what they say
//! of a wish, and hands over what a person wants to be remembered.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::backend::BoxFuture;
use crate::content::Opaque;
use crate::event::AskRequest;

/// What a hit names as its rule where rules cannot be read. What is asked for this reason begins with it.
pub const RULES_UNREADABLE: &str = "permission rules cannot be read, so every action is asked";

/// What a rule does with a wish. The later ones win over the earlier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RuleEffect {
    Allow,
    Ask,
    Deny,
}

/// The rule that decides a wish.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleHit {
    pub effect: RuleEffect,
    /// As it is written where it is kept.
    pub rule: Arc<str>,
    /// Where it is kept, in words: a file, an earlier answer.
    pub source: Arc<str>,
    /// It names this very wish, not a family of wishes.
    pub exact: bool,
    /// It is the owner's consent to this very program or command.
    pub consent: bool,
}

impl RuleHit {
    /// Why a wish is asked, if that is because rules cannot be read.
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

/// What a person said once and for all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remembered {
    pub workspace: PathBuf,
    pub tool: Arc<str>,
    pub subject: Arc<str>,
    /// The digest of the program or command that the owner was asked about, where that takes consent.
    pub consent: Option<Arc<str>>,
    pub scope: RuleScope,
    pub allow: bool,
}

/// How far an answer for good goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RuleScope {
    /// As far as the rule that the person was shown.
    Shown,
    /// What the wish is about, and nothing like it.
    Subject,
    /// The tool with exactly these arguments.
    Arguments(Opaque),
}

pub trait Rules: Send + Sync + 'static {
    /// What the rules say of a wish: the strongest effect of all that match. Called for every tool
    /// call, so it must not wait for a disk.
    fn find(&self, workspace: &Path, request: &AskRequest) -> Option<RuleHit>;

    /// The file of rules that cannot be read and why, if there is one: everything is asked meanwhile.
    fn damage(&self) -> Option<String> {
        None
    }

    /// The rule that an answer for good to this wish would be kept as, for the person who decides.
    fn rule_of(&self, _workspace: &Path, _request: &AskRequest) -> Option<Arc<str>> {
        None
    }

    /// A use of a tool in one spelling: two of the same tool that have the same key have the same arguments.
    fn arguments_key(&self, _tool: &str, subject: &str, input: &Opaque) -> String {
        format!("{subject}={}", input.0)
    }

    /// Keeps an answer as the narrowest rule that means it. It counts from the moment of the call; the
    /// future ends when it will also count after a crash or a power cut, and names the rule, or says why
    /// it will not. The answer is shown to nobody before that.
    fn remember(&self, answer: Remembered) -> BoxFuture<'static, Result<Arc<str>, String>>;
}

/// Answers for exactly the same wish, until the process stops.
#[derive(Default)]
pub struct MemoryRules {
    answers: Mutex<Vec<Remembered>>,
}

impl Rules for MemoryRules {
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
        // What is refused is refused wherever it would run.
        let refused = latest(&None).filter(|answer| !answer.allow);
        refused.or_else(|| latest(&request.consent)).map(|answer| RuleHit {
            effect: if answer.allow { RuleEffect::Allow } else { RuleEffect::Deny },
            rule: format!("{}({})", answer.tool, answer.subject).into(),
            source: "an earlier answer".into(),
            exact: true,
            consent: answer.consent.is_some(),
        })
    }

    fn remember(&self, answer: Remembered) -> BoxFuture<'static, Result<Arc<str>, String>> {
        let rule = format!("{}({})", answer.tool, answer.subject).into();
        self.answers.lock().unwrap_or_else(PoisonError::into_inner).push(answer);
        Box::pin(std::future::ready(Ok(rule)))
    }
}
