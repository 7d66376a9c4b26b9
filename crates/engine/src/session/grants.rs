//! Answers for good that hold in one session alone.
//!
//! "Always" and "never" become rules of the machine when its owner at the machine says them. From anybody
//! else they hold for exactly the same wish, in the same folder, until the session is deleted: the log says
//! them, and the state is made from it again after a restart.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use super::asks::Wish;
use super::{OpenAsk, Session};
use crate::event::{AskRequest, Resolution, Resolver};
use crate::rules::{RuleEffect, RuleHit};

/// Different wishes that are remembered; whoever answers more is asked again.
const GRANTS_MAX: usize = 256;

/// Whether a wish in a folder is allowed or refused.
pub(super) type Grants = BTreeMap<(PathBuf, Wish), bool>;

impl Session {
    /// What was answered here, and holds here alone.
    pub fn granted(&self, request: &AskRequest) -> Option<RuleHit> {
        if self.grants.is_empty() {
            return None;
        }
        let given = |consent: Option<Arc<str>>| {
            let wish = (Arc::clone(&request.tool), Arc::clone(&request.subject), consent);
            self.grants.get(&(self.cwd.clone(), wish))
        };
        // What is refused is refused wherever it would run; what is allowed is not allowed outside the fence.
        given(request.consent.clone()).or_else(|| given(None)).map(|allow| RuleHit {
            effect: if *allow { RuleEffect::Allow } else { RuleEffect::Deny },
            rule: format!("{}({})", request.tool, request.subject).into(),
            source: "an answer for this session".into(),
            exact: true,
            consent: false,
        })
    }

    pub(super) fn grant(&mut self, open: &OpenAsk, resolution: Resolution, by: &Resolver) {
        let allow = match resolution {
            Resolution::AllowedAlways => true,
            Resolution::DeniedAlways => false,
            Resolution::AllowedOnce
            | Resolution::DeniedOnce
            | Resolution::Cancelled
            | Resolution::TimedOut
            | Resolution::EndedByRestart => return,
        };
        if !by.for_session() || open.request.subject.is_empty() || open.consent_kind().is_some() && allow {
            return;
        }
        let wish =
            (Arc::clone(&open.request.tool), Arc::clone(&open.request.subject), open.request.consent.clone());
        let wish = (self.cwd.clone(), wish);
        if self.grants.len() < GRANTS_MAX || self.grants.contains_key(&wish) {
            self.grants.insert(wish, allow);
        }
    }
}
