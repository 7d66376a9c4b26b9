//! Evaluates all the rules that apply in a folder for one request.
//!
//! **Invariant:** one rule that denies or asks is enough; a command line is allowed only if every command of it is.
//! Rules that cannot be read ask.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use engine::{AskRequest, RULES_UNREADABLE, RuleEffect, RuleHit};

use super::chimera::ChimeraFile;
use super::request_to_match::RuleQuery;
use super::rule::{MatchKind, Rule};
use super::zeph::ZephFile;

/// All rules that apply in one folder, ready for requests.
pub(super) struct EffectiveRules {
    /// The folder by its real path.
    pub(super) workspace: PathBuf,
    pub(super) home: Option<PathBuf>,
    pub(super) rules: Vec<ActiveRule>,
    pub(super) zeph: (Arc<ZephFile>, Arc<str>),
    pub(super) chimera: (Arc<ChimeraFile>, Arc<str>),
    /// Files that cannot be read, and why: they may hold a rule that denies.
    pub(super) damage: Vec<Arc<str>>,
}

/// A rule that applies, and the file that it comes from.
#[derive(Clone)]
pub(super) struct ActiveRule {
    pub(super) effect: RuleEffect,
    pub(super) rule: Arc<Rule>,
    pub(super) source: Arc<str>,
    /// The folder that its relative paths start from.
    pub(super) base: Arc<Path>,
}

impl EffectiveRules {
    /// The hit that decides: the strongest, and among several that allow the most exact one.
    pub(super) fn find(&self, request: &AskRequest) -> Option<RuleHit> {
        self.all(request).into_iter().max_by_key(|hit| (hit.effect, hit.exact))
    }

    /// Every rule that matches the request, in the order of the files.
    pub(super) fn all(&self, request: &AskRequest) -> Vec<RuleHit> {
        let query = RuleQuery::new(request, &self.workspace, self.home.as_deref());
        let mut hits: Vec<RuleHit> = self.rules.iter().filter_map(|active| active.hit(&query)).collect();
        if query.is_command() && !hits.iter().any(|hit| hit.effect == RuleEffect::Allow) {
            hits.extend(self.allowed_together(&query));
        }
        hits.extend(self.undecided(&query));
        hits.extend(self.damage.iter().map(|source| RuleHit {
            effect: RuleEffect::Ask,
            rule: RULES_UNREADABLE.into(),
            source: Arc::clone(source),
            exact: false,
            consent: false,
        }));
        let foreign =
            [(self.zeph.0.verdict(&query), &self.zeph.1), (self.chimera.0.verdict(&query), &self.chimera.1)];
        hits.extend(foreign.into_iter().filter_map(|(verdict, source)| {
            let (effect, rule) = verdict?;
            Some(RuleHit {
                effect,
                rule: rule.into(),
                source: Arc::clone(source),
                exact: false,
                consent: false,
            })
        }));
        hits
    }

    /// Rules that together allow a line: one for every command.
    fn allowed_together(&self, query: &RuleQuery) -> Option<RuleHit> {
        let allowing = || self.rules.iter().filter(|active| active.effect == RuleEffect::Allow);
        allowing().next()?;
        let line = query.line();
        let mut used: Vec<&ActiveRule> = Vec::new();
        for command in line.commands.as_ref()? {
            let active = allowing().find(|active| active.rule.covers_command(query, command))?;
            if !used.iter().any(|one| one.rule == active.rule) {
                used.push(active);
            }
        }
        let first = used.first()?;
        let texts: Vec<&str> = used.iter().map(|active| active.rule.text.as_ref()).collect();
        Some(RuleHit {
            effect: RuleEffect::Allow,
            rule: if texts.len() == 1 { Arc::clone(&first.rule.text) } else { texts.join(" and ").into() },
            source: Arc::clone(&first.source),
            exact: false,
            consent: false,
        })
    }

    /// A rule that denies or asks cannot be decided for a line that cannot be fully understood.
    fn undecided(&self, query: &RuleQuery) -> Option<RuleHit> {
        let looks =
            |active: &&ActiveRule| active.effect != RuleEffect::Allow && active.rule.looks_into(query);
        let active = self.rules.iter().find(looks)?;
        query.line().opaque.then(|| active.possible())
    }
}

impl ActiveRule {
    /// The hit of a rule of which only a person can say whether it applies.
    fn possible(&self) -> RuleHit {
        RuleHit {
            effect: RuleEffect::Ask,
            rule: Arc::clone(&self.rule.text),
            source: format!("{}; it is not known whether it applies", self.source).into(),
            exact: false,
            consent: false,
        }
    }

    fn hit(&self, query: &RuleQuery) -> Option<RuleHit> {
        let matched = match self.effect {
            RuleEffect::Allow => self.rule.covers(query, &self.base),
            RuleEffect::Ask | RuleEffect::Deny => self.rule.touches(query, &self.base),
        }?;
        if matched == MatchKind::Possible {
            return Some(self.possible());
        }
        Some(RuleHit {
            effect: self.effect,
            rule: Arc::clone(&self.rule.text),
            source: Arc::clone(&self.source),
            exact: matched == MatchKind::Exact,
            consent: false,
        })
    }
}
