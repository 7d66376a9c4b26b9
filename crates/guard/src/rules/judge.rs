//! What all the rules that hold in a folder say of a wish.
//!
//! **Invariant:** one rule that denies or asks is enough; a command line is allowed only if every
//! command of it is. Rules that cannot be read ask.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use engine::{AskRequest, RULES_UNREADABLE, RuleEffect, RuleHit};

use super::chimera::ChimeraFile;
use super::rule::{Match, Rule};
use super::wish::Wish;
use super::zeph::ZephFile;

/// Everything that holds in one folder, ready to be asked.
pub(super) struct View {
    /// The folder by its real path.
    pub(super) workspace: PathBuf,
    pub(super) home: Option<PathBuf>,
    pub(super) rules: Vec<Held>,
    pub(super) zeph: (Arc<ZephFile>, Arc<str>),
    pub(super) chimera: (Arc<ChimeraFile>, Arc<str>),
    /// Files that cannot be read, and why: they may hold a rule that denies.
    pub(super) damage: Vec<Arc<str>>,
}

/// A rule and where it is kept.
#[derive(Clone)]
pub(super) struct Held {
    pub(super) effect: RuleEffect,
    pub(super) rule: Arc<Rule>,
    pub(super) source: Arc<str>,
    /// Where its relative paths begin.
    pub(super) base: Arc<Path>,
}

impl View {
    /// The hit that decides: the strongest, and of several that allow the one that is most exact.
    pub(super) fn find(&self, request: &AskRequest) -> Option<RuleHit> {
        self.all(request).into_iter().max_by_key(|hit| (hit.effect, hit.exact))
    }

    /// Every rule that has something to say of the wish, in the order of the files.
    pub(super) fn all(&self, request: &AskRequest) -> Vec<RuleHit> {
        let wish = Wish::new(request, &self.workspace, self.home.as_deref());
        let mut hits: Vec<RuleHit> = self.rules.iter().filter_map(|held| held.hit(&wish)).collect();
        if wish.is_command() && !hits.iter().any(|hit| hit.effect == RuleEffect::Allow) {
            hits.extend(self.together(&wish));
        }
        hits.extend(self.unsure(&wish));
        hits.extend(self.damage.iter().map(|source| RuleHit {
            effect: RuleEffect::Ask,
            rule: RULES_UNREADABLE.into(),
            source: Arc::clone(source),
            exact: false,
            consent: false,
        }));
        let foreign =
            [(self.zeph.0.verdict(&wish), &self.zeph.1), (self.chimera.0.verdict(&wish), &self.chimera.1)];
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

    /// Rules that allow a line between them: one for every command.
    fn together(&self, wish: &Wish) -> Option<RuleHit> {
        let allowing = || self.rules.iter().filter(|held| held.effect == RuleEffect::Allow);
        allowing().next()?;
        let line = wish.line();
        let mut used: Vec<&Held> = Vec::new();
        for command in line.commands.as_ref()? {
            let held = allowing().find(|held| held.rule.covers_command(wish, command))?;
            if !used.iter().any(|one| one.rule == held.rule) {
                used.push(held);
            }
        }
        let first = used.first()?;
        let texts: Vec<&str> = used.iter().map(|held| held.rule.text.as_ref()).collect();
        Some(RuleHit {
            effect: RuleEffect::Allow,
            rule: if texts.len() == 1 { Arc::clone(&first.rule.text) } else { texts.join(" and ").into() },
            source: Arc::clone(&first.source),
            exact: false,
            consent: false,
        })
    }

    /// A rule that denies or asks cannot be sure about a line that cannot be looked through.
    fn unsure(&self, wish: &Wish) -> Option<RuleHit> {
        let looks = |held: &&Held| held.effect != RuleEffect::Allow && held.rule.looks_into(wish);
        let held = self.rules.iter().find(looks)?;
        wish.line().opaque.then(|| held.possible())
    }
}

impl Held {
    /// A person has to say whether it applies.
    fn possible(&self) -> RuleHit {
        RuleHit {
            effect: RuleEffect::Ask,
            rule: Arc::clone(&self.rule.text),
            source: format!("{}; whether it applies cannot be told", self.source).into(),
            exact: false,
            consent: false,
        }
    }

    fn hit(&self, wish: &Wish) -> Option<RuleHit> {
        let matched = match self.effect {
            RuleEffect::Allow => self.rule.covers(wish, &self.base),
            RuleEffect::Ask | RuleEffect::Deny => self.rule.touches(wish, &self.base),
        }?;
        if matched == Match::Possible {
            return Some(self.possible());
        }
        Some(RuleHit {
            effect: self.effect,
            rule: Arc::clone(&self.rule.text),
            source: Arc::clone(&self.source),
            exact: matched == Match::Exact,
            consent: false,
        })
    }
}
