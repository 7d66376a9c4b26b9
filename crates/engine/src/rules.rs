//! The answers that people gave once and for all, as every session of this process sees them.

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use crate::event::AskRequest;
use crate::policy::Rule;

/// The answers that people gave once and for all, shared by every session.
pub(crate) struct RuleBook {
    rules: Mutex<Vec<Rule>>,
}

impl RuleBook {
    pub(crate) fn new(rules: Vec<Rule>) -> Self {
        Self { rules: Mutex::new(rules) }
    }

    /// What the newest matching rule says.
    pub(crate) fn find(&self, workspace: &Path, request: &AskRequest) -> Option<bool> {
        let rules = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        rules.iter().rev().find(|rule| rule.matches(workspace, request)).map(|rule| rule.allow)
    }

    pub(crate) fn add(&self, rule: Rule) {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner).push(rule);
    }
}
