//! How a permission request is decided: by the policy, or by a person who answers exactly once.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Effect, OpenAsk, PermissionAnswer, Refusal, Sender, Session};
use crate::authority::{Act, ConsentKind, may};
use crate::event::{AskRequest, Body, Origin, Question, REPLY_BYTES_MAX, Resolution, Resolver};
use crate::ids::{AskId, TurnId};
use crate::permission_policy::{Ruling, decide_with};
use crate::stored_rules::{RuleEffect, RuleHit, RuleScope};

/// After this many refusals by a person, the same action is refused without asking.
const DENIALS_MAX: u32 = 3;
/// Different refused actions that are counted.
const DENIED_ACTIONS_MAX: usize = 256;

/// Tool, subject and consent: two actions with the same key count as the same.
pub(super) type ActionKey = (Arc<str>, Arc<str>, Option<Arc<str>>);

impl Session {
    pub(super) fn answer(
        &mut self,
        by: &Sender,
        ask: AskId,
        answer: PermissionAnswer,
        effects: &mut Vec<Effect>,
    ) -> Result<(), Refusal> {
        let open = self.open_asks.get(&ask).cloned().ok_or(Refusal::UnknownAsk(ask))?;
        let answer = match (bounded(answer)?, self.ends_by(by, open.turn)) {
            (PermissionAnswer::CancelTurn, Some(turn)) => {
                self.cancel(by, Some(turn), effects);
                return Ok(());
            }
            (PermissionAnswer::CancelTurn, None) if open.request.question.is_some() => {
                PermissionAnswer::Withdraw
            }
            (PermissionAnswer::CancelTurn, None) => PermissionAnswer::DenyOnce,
            (answer, _) => answer,
        };
        if let Some(question) = &open.request.question {
            let settled = reply_to(ask, question, answer)?;
            self.resolve(ask, &open, settled, by.resolver(), effects);
            return Ok(());
        }
        // A remembered answer becomes a rule of the machine if its owner gives it there.
        let for_good = may(by.standing, Act::ChangeRules).is_ok();
        let scope = open.scope(&answer);
        let (answer, chosen) = open.chosen(answer, for_good);
        let allows = matches!(
            answer,
            PermissionAnswer::AllowOnce | PermissionAnswer::AllowAlways | PermissionAnswer::AllowExactly
        );
        if let Some(kind) = open.consent_kind().filter(|_| allows) {
            may(by.standing, Act::Consent(kind)).map_err(|why| Refusal::NotTheirs(ask, why))?;
        }
        let (settled, remember) = match answer {
            PermissionAnswer::AllowOnce => (Resolution::AllowedOnce.into(), None),
            PermissionAnswer::AllowAlways | PermissionAnswer::AllowExactly => {
                (Resolution::AllowedAlways.into(), Some(true))
            }
            PermissionAnswer::DenyOnce => (Resolution::DeniedOnce.into(), None),
            PermissionAnswer::DenyBecause(why) => (AskOutcome::denied(why), None),
            PermissionAnswer::DenyAlways | PermissionAnswer::DenyExactly => {
                (Resolution::DeniedAlways.into(), Some(false))
            }
            // Nobody refused anything: the action is not done, it does not count as a refusal, and the turn
            // continues.
            PermissionAnswer::Withdraw => (Resolution::Cancelled.into(), None),
            // A text must count neither as a yes nor as a no.
            PermissionAnswer::Reply(_) | PermissionAnswer::Choose(_) | PermissionAnswer::CancelTurn => {
                return Err(Refusal::NotAQuestion(ask));
            }
        };
        let exactly = remember.is_some() && matches!(scope, RuleScope::Arguments(_));
        let settled = AskOutcome { chosen, exactly, ..settled };
        if let Some(allow) = remember.filter(|_| for_good && !open.request.subject.is_empty()) {
            let remember = |subject: Arc<str>| Effect::Remember {
                tool: Arc::clone(&open.request.tool),
                subject,
                consent: open.request.consent.clone(),
                scope: scope.clone(),
                allow,
            };
            match exactly {
                true => effects.extend(open.subjects().map(remember)),
                false => effects.push(remember(Arc::clone(&open.request.subject))),
            }
        }
        self.resolve(ask, &open, settled, by.resolver(), effects);
        Ok(())
    }

    pub(super) fn resolve(
        &mut self,
        ask: AskId,
        open: &OpenAsk,
        AskOutcome { resolution, said, chosen, exactly }: AskOutcome,
        by: Resolver,
        effects: &mut Vec<Effect>,
    ) {
        let asked = if open.request.question.is_some() { AskKind::Question } else { AskKind::Permission };
        let reason = match (&said, asked) {
            (Some(why), AskKind::Permission) => format!("the user refused it: {why}").into(),
            (Some(why), AskKind::Question) => format!("the user chose nothing and said: {why}").into(),
            (None, _) => reason_of(asked, resolution, &by),
        };
        let (call, reply) = (open.request.call.clone(), said.clone());
        // An agent that gets "cancelled" ends its turn. A client that gave no usable answer did not want
        // that.
        let heard = match (resolution, &by, asked) {
            (Resolution::Cancelled, Resolver::Surface { .. }, AskKind::Permission) => Resolution::DeniedOnce,
            (resolution, _, _) => resolution,
        };
        let body = Body::Resolved { ask, call, resolution, by, reply, exactly };
        self.record(Origin::Engine, open.turn, body, effects);
        // Why something is refused is part of the reason; it answers nothing.
        let said = chosen.or_else(|| said.filter(|_| resolution.allows()));
        effects.push(Effect::Wake { ask, resolution: heard, reason, said });
    }

    pub(super) fn ask(
        &mut self,
        turn: TurnId,
        origin: Origin,
        mut request: Box<AskRequest>,
        hit: Option<&RuleHit>,
        effects: &mut Vec<Effect>,
    ) {
        let ask = AskId(self.next_ask);
        self.next_ask += 1;
        let asked = if request.question.is_some() { AskKind::Question } else { AskKind::Permission };
        let (resolution, by) = match self.ruling(&request, hit) {
            _ if self.cancelling() => (Resolution::Cancelled, Resolver::Engine),
            Ruling::Ask => {
                if let Some(reason) = hit.and_then(|hit| hit.unreadable(&request.reason)) {
                    request.reason = reason;
                }
                self.record(origin, Some(turn), Body::Asked { ask, request }, effects);
                effects.push(Effect::Wait { ask });
                return;
            }
            Ruling::Allow { reason } => (Resolution::AllowedOnce, Resolver::Policy { reason }),
            Ruling::Rule { allow, reason } => {
                let resolution = if allow { Resolution::AllowedAlways } else { Resolution::DeniedAlways };
                (resolution, Resolver::Rule { reason })
            }
            Ruling::Deny { reason, .. } if request.question.is_some() => {
                (Resolution::DeniedOnce, Resolver::Policy { reason })
            }
            Ruling::Deny { mode, reason } => {
                let blocked = Body::PolicyBlocked {
                    call: request.call.clone(),
                    tool: Arc::clone(&request.tool),
                    path: request.path.clone(),
                    mode,
                    reason: Arc::clone(&reason),
                };
                self.record(Origin::Engine, Some(turn), blocked, effects);
                (Resolution::DeniedOnce, Resolver::Policy { reason })
            }
        };
        let reason = reason_of(asked, resolution, &by);
        let body = Body::Resolved { ask, call: request.call, resolution, by, reply: None, exactly: false };
        self.record(Origin::Engine, Some(turn), body, effects);
        effects.push(Effect::Settle { resolution, reason });
    }

    /// The actions that wait for a person.
    pub fn open_requests(&self) -> impl Iterator<Item = (AskId, &AskRequest)> {
        self.open_asks.iter().map(|(ask, open)| (*ask, open.request.as_ref()))
    }

    /// Choosing an approval allows everything that it does not ask for, including waiting requests. Requests
    /// that a rule refuses or wants asked, that take the owner's consent, and questions still wait for their
    /// answers.
    pub(super) fn allow_unasked(
        &mut self,
        by: &Sender,
        hits: &BTreeMap<AskId, RuleHit>,
        effects: &mut Vec<Effect>,
    ) {
        if may(by.standing, Act::Allow).is_err() {
            return;
        }
        let unasked = |(ask, open): (&AskId, &OpenAsk)| {
            let ruling = self.ruling(&open.request, hits.get(ask));
            let allowed = matches!(ruling, Ruling::Allow { .. } | Ruling::Rule { allow: true, .. });
            (allowed && open.consent_kind().is_none()).then(|| (*ask, open.clone()))
        };
        let unasked: Vec<_> = self.open_asks.iter().filter_map(unasked).collect();
        for (ask, open) in unasked {
            self.resolve(ask, &open, Resolution::AllowedOnce.into(), by.resolver(), effects);
        }
    }

    fn ruling(&self, request: &AskRequest, hit: Option<&RuleHit>) -> Ruling {
        if request.question.is_some() {
            // Nothing is done, so no preset and no rule has a say; only a person can answer.
            return if self.unattended { nobody_answers() } else { Ruling::Ask };
        }
        let asks_owner = request.consent_kind().filter(|_| self.unattended || self.of_client);
        match (decide_with(&self.settings, &self.free_modes, request, hit), asks_owner) {
            (Ruling::Ask, _) if self.denied_often(request) => Ruling::Rule {
                allow: false,
                reason: format!("refused {DENIALS_MAX} times in this session; the user is not asked again")
                    .into(),
            },
            (Ruling::Ask, Some(kind)) => {
                Ruling::Deny { mode: "unattended".into(), reason: kind.unattended(&request.subject).into() }
            }
            (Ruling::Ask, None) if self.unattended && hit.is_some_and(|hit| hit.effect == RuleEffect::Ask) => {
                let rule = hit.map(RuleHit::shown).unwrap_or_default();
                let reason = format!("nobody is available to ask, and a rule requires asking: {rule}").into();
                Ruling::Deny { mode: "unattended".into(), reason }
            }
            (Ruling::Ask, None) if self.unattended => Ruling::Deny {
                mode: "unattended".into(),
                reason: "nobody is available to ask; allow it in advance with a rule (ropewalk permissions add), or everything with --approval full".into(),
            },
            (
                ruling @ (Ruling::Allow { .. } | Ruling::Rule { .. } | Ruling::Deny { .. } | Ruling::Ask),
                _,
            ) => ruling,
        }
    }

    fn denied_often(&self, request: &AskRequest) -> bool {
        let action = (Arc::clone(&request.tool), Arc::clone(&request.subject), request.consent.clone());
        self.denials.get(&action).is_some_and(|count| *count >= DENIALS_MAX)
    }

    /// Counts what people refuse, so that an agent that insists does not wear them down.
    pub(super) fn count_denial(&mut self, open: &OpenAsk, resolution: Resolution, by: &Resolver) {
        if open.request.question.is_some() {
            return;
        }
        let action =
            (Arc::clone(&open.request.tool), Arc::clone(&open.request.subject), open.request.consent.clone());
        match (resolution, by) {
            (Resolution::DeniedOnce, Resolver::Surface { .. }) => {
                if self.denials.len() < DENIED_ACTIONS_MAX || self.denials.contains_key(&action) {
                    *self.denials.entry(action).or_default() += 1;
                }
            }
            (Resolution::AllowedOnce | Resolution::AllowedAlways, Resolver::Surface { .. }) => {
                self.denials.remove(&action);
            }
            (_, _) => {}
        }
    }

    pub(super) fn asks_of(&self, turn: Option<TurnId>) -> Vec<(AskId, OpenAsk)> {
        self.open_asks
            .iter()
            .filter(|(_, open)| open.turn == turn)
            .map(|(ask, open)| (*ask, open.clone()))
            .collect()
    }
}

/// How a permission request or question ends.
pub(super) struct AskOutcome {
    resolution: Resolution,
    said: Option<Arc<str>>,
    /// The very answer that the external agent offered.
    chosen: Option<Arc<str>>,
    /// It is about exactly these arguments.
    exactly: bool,
}

impl AskOutcome {
    fn denied(why: Arc<str>) -> Self {
        Self { said: Some(why), ..Resolution::DeniedOnce.into() }
    }
}

impl From<Resolution> for AskOutcome {
    fn from(resolution: Resolution) -> Self {
        Self { resolution, said: None, chosen: None, exactly: false }
    }
}

impl OpenAsk {
    pub(super) fn of(turn: Option<TurnId>, request: &AskRequest) -> Self {
        Self { turn, request: Arc::new(request.clone()) }
    }

    /// The subjects of the action: the one asked about and, if it would change several files, the others.
    /// Each is looked up by itself.
    pub(super) fn subjects(&self) -> impl Iterator<Item = Arc<str>> {
        let others = self.request.by_file().into_iter().skip(1).map(|action| Arc::clone(&action.subject));
        std::iter::once(Arc::clone(&self.request.subject)).chain(others)
    }

    pub(super) fn consent_kind(&self) -> Option<ConsentKind> {
        ConsentKind::of(&self.request.tool, self.request.consent.as_deref())
    }

    /// The scope of a remembered answer. An external agent's own option says nothing about a rule here, so
    /// our rule is as narrow as possible.
    fn scope(&self, answer: &PermissionAnswer) -> RuleScope {
        match answer {
            PermissionAnswer::AllowExactly | PermissionAnswer::DenyExactly => {
                RuleScope::Arguments(self.request.input.clone())
            }
            PermissionAnswer::Choose(_) => RuleScope::Subject,
            PermissionAnswer::AllowOnce
            | PermissionAnswer::AllowAlways
            | PermissionAnswer::DenyOnce
            | PermissionAnswer::DenyBecause(_)
            | PermissionAnswer::DenyAlways
            | PermissionAnswer::Withdraw
            | PermissionAnswer::CancelTurn
            | PermissionAnswer::Reply(_) => RuleScope::Shown,
        }
    }

    /// Translates an external agent's own option into our answers. An option that was not offered must count
    /// neither as a yes nor as a person's no. An agent stores remembered answers in files of its own, so it
    /// gets its own option only where the answer may hold outside this session.
    fn chosen(&self, answer: PermissionAnswer, for_good: bool) -> (PermissionAnswer, Option<Arc<str>>) {
        let PermissionAnswer::Choose(id) = answer else { return (answer, None) };
        let Some(option) = self.request.foreign.as_ref().and_then(|foreign| foreign.option(&id)) else {
            return (PermissionAnswer::Withdraw, None);
        };
        let answer = match option.means {
            Resolution::AllowedOnce => PermissionAnswer::AllowOnce,
            Resolution::AllowedAlways => PermissionAnswer::AllowAlways,
            Resolution::DeniedAlways => PermissionAnswer::DenyAlways,
            Resolution::DeniedOnce
            | Resolution::Cancelled
            | Resolution::TimedOut
            | Resolution::EndedByRestart => PermissionAnswer::DenyOnce,
        };
        let told = match option.means {
            Resolution::AllowedAlways | Resolution::DeniedAlways if !for_good => None,
            Resolution::AllowedAlways
            | Resolution::DeniedAlways
            | Resolution::AllowedOnce
            | Resolution::DeniedOnce
            | Resolution::Cancelled
            | Resolution::TimedOut
            | Resolution::EndedByRestart => Some(Arc::clone(&option.id)),
        };
        (answer, told)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum AskKind {
    Permission,
    Question,
}

fn nobody_answers() -> Ruling {
    let reason = "nobody is available to answer; decide yourself, and state what you assumed".into();
    Ruling::Deny { mode: "unattended".into(), reason }
}

/// A reason that is not too long. Without words it is none.
fn bounded(answer: PermissionAnswer) -> Result<PermissionAnswer, Refusal> {
    match answer {
        PermissionAnswer::DenyBecause(why) if why.trim().is_empty() => Ok(PermissionAnswer::DenyOnce),
        PermissionAnswer::DenyBecause(why) if why.len() > REPLY_BYTES_MAX => {
            Err(Refusal::ReasonTooLong { limit_bytes: REPLY_BYTES_MAX })
        }
        PermissionAnswer::DenyBecause(_)
        | PermissionAnswer::AllowOnce
        | PermissionAnswer::AllowAlways
        | PermissionAnswer::AllowExactly
        | PermissionAnswer::DenyOnce
        | PermissionAnswer::DenyAlways
        | PermissionAnswer::DenyExactly
        | PermissionAnswer::Withdraw
        | PermissionAnswer::CancelTurn
        | PermissionAnswer::Reply(_)
        | PermissionAnswer::Choose(_) => Ok(answer),
    }
}

/// What an answer means for a question. An allow or deny misunderstands the question: a yes without text
/// answers nothing.
fn reply_to(ask: AskId, question: &Question, answer: PermissionAnswer) -> Result<AskOutcome, Refusal> {
    match answer {
        PermissionAnswer::Reply(said) if question.takes(&said) => {
            Ok(AskOutcome { said: Some(said), ..Resolution::AllowedOnce.into() })
        }
        PermissionAnswer::Reply(_) | PermissionAnswer::Choose(_) => {
            let choices = question.choices.join(", ");
            Err(Refusal::NotAnAnswer { ask, choices })
        }
        PermissionAnswer::Withdraw => Ok(Resolution::Cancelled.into()),
        PermissionAnswer::DenyBecause(why) => Ok(AskOutcome::denied(why)),
        PermissionAnswer::AllowOnce
        | PermissionAnswer::AllowAlways
        | PermissionAnswer::AllowExactly
        | PermissionAnswer::DenyOnce
        | PermissionAnswer::DenyAlways
        | PermissionAnswer::DenyExactly
        | PermissionAnswer::CancelTurn => Ok(Resolution::DeniedOnce.into()),
    }
}

/// The reason that the model gets for a decision.
fn reason_of(asked: AskKind, resolution: Resolution, by: &Resolver) -> Arc<str> {
    if let Resolver::Policy { reason } | Resolver::Rule { reason } = by {
        return Arc::clone(reason);
    }
    match resolution {
        Resolution::DeniedOnce | Resolution::DeniedAlways if asked == AskKind::Question => {
            "the user lets you decide; say what you chose".into()
        }
        Resolution::Cancelled if asked == AskKind::Question && matches!(by, Resolver::Surface { .. }) => {
            "the user wants to answer in the conversation: ask in your reply, and end your turn there".into()
        }
        Resolution::TimedOut if asked == AskKind::Question => {
            "nobody answered in time; decide yourself, and state what you assumed".into()
        }
        Resolution::AllowedOnce | Resolution::AllowedAlways => "the user allowed it".into(),
        Resolution::DeniedOnce => "the user refused it".into(),
        Resolution::DeniedAlways => "the user refused it and never wants to be asked again".into(),
        Resolution::Cancelled if matches!(by, Resolver::Surface { .. }) => {
            "the client gave no usable answer to the permission request, so the tool was not run".into()
        }
        Resolution::Cancelled => "the turn was cancelled".into(),
        Resolution::TimedOut => "nobody answered in time".into(),
        Resolution::EndedByRestart => "the server stopped".into(),
    }
}
