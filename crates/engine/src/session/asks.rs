//! A wish's way: ruled on by the policy, or asked, and then answered exactly once.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Answer, Effect, OpenAsk, Refusal, Sender, Session};
use crate::authority::{Act, ConsentKind, may};
use crate::event::{AskRequest, Body, Origin, Question, REPLY_BYTES_MAX, Resolution, Resolver};
use crate::ids::{AskId, TurnId};
use crate::policy::{Ruling, decide_with};
use crate::rules::{RuleEffect, RuleHit, RuleScope};

/// After so many refusals of the same wish by a person it is refused without asking.
const DENIALS_MAX: u32 = 3;
/// Different refused wishes that are counted.
const DENIED_WISHES_MAX: usize = 256;

/// Tool, subject and what is consented to: what counts as the same wish.
pub(super) type Wish = (Arc<str>, Arc<str>, Option<Arc<str>>);

impl Session {
    pub(super) fn answer(
        &mut self,
        by: &Sender,
        ask: AskId,
        answer: Answer,
        effects: &mut Vec<Effect>,
    ) -> Result<(), Refusal> {
        let open = self.open_asks.get(&ask).cloned().ok_or(Refusal::UnknownAsk(ask))?;
        let answer = match (bounded(answer)?, self.ends_by(by, open.turn)) {
            (Answer::CancelTurn, Some(turn)) => {
                self.cancel(by, Some(turn), effects);
                return Ok(());
            }
            (Answer::CancelTurn, None) if open.request.question.is_some() => Answer::Withdraw,
            (Answer::CancelTurn, None) => Answer::DenyOnce,
            (answer, _) => answer,
        };
        if let Some(question) = &open.request.question {
            let settled = reply_to(ask, question, answer)?;
            self.resolve(ask, &open, settled, by.resolver(), effects);
            return Ok(());
        }
        // What is answered for good becomes a rule of the machine if it is the owner who says it there.
        let for_good = may(by.standing, Act::ChangeRules).is_ok();
        let scope = open.scope(&answer);
        let (answer, chosen) = open.chosen(answer, for_good);
        let allows = matches!(answer, Answer::AllowOnce | Answer::AllowAlways | Answer::AllowExactly);
        if let Some(kind) = open.consent_kind().filter(|_| allows) {
            may(by.standing, Act::Consent(kind)).map_err(|why| Refusal::NotTheirs(ask, why))?;
        }
        let (settled, remember) = match answer {
            Answer::AllowOnce => (Resolution::AllowedOnce.into(), None),
            Answer::AllowAlways | Answer::AllowExactly => (Resolution::AllowedAlways.into(), Some(true)),
            Answer::DenyOnce => (Resolution::DeniedOnce.into(), None),
            Answer::DenyBecause(why) => (Settled::denied(why), None),
            Answer::DenyAlways | Answer::DenyExactly => (Resolution::DeniedAlways.into(), Some(false)),
            // Nobody refused anything: it is not done, it is not counted as a refusal, and the turn goes on.
            Answer::Withdraw => (Resolution::Cancelled.into(), None),
            // Words must not be taken for a yes, nor for a no.
            Answer::Reply(_) | Answer::Choose(_) | Answer::CancelTurn => {
                return Err(Refusal::NotAQuestion(ask));
            }
        };
        let exactly = remember.is_some() && matches!(scope, RuleScope::Arguments(_));
        let settled = Settled { chosen, exactly, ..settled };
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
        Settled { resolution, said, chosen, exactly }: Settled,
        by: Resolver,
        effects: &mut Vec<Effect>,
    ) {
        let asked = if open.request.question.is_some() { Asked::Question } else { Asked::Permission };
        let reason = match (&said, asked) {
            (Some(why), Asked::Permission) => format!("the user refused it: {why}").into(),
            (Some(why), Asked::Question) => format!("the user chose nothing and said: {why}").into(),
            (None, _) => reason_of(asked, resolution, &by),
        };
        let (call, reply) = (open.request.call.clone(), said.clone());
        // An agent that hears "cancelled" ends its turn. A client that gave no usable answer did not want that.
        let heard = match (resolution, &by, asked) {
            (Resolution::Cancelled, Resolver::Surface { .. }, Asked::Permission) => Resolution::DeniedOnce,
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
        let asked = if request.question.is_some() { Asked::Question } else { Asked::Permission };
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

    /// The wishes that wait for a person.
    pub fn open_wishes(&self) -> impl Iterator<Item = (AskId, &AskRequest)> {
        self.open_asks.iter().map(|(ask, open)| (*ask, open.request.as_ref()))
    }

    /// Whoever chooses an approval says yes to what it does not ask, also to what was asked before. What a rule refuses or
    /// wants asked, what takes the owner's consent, and questions still wait for their answers.
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
                reason: format!("refused {DENIALS_MAX} times in this session, so it is not asked again")
                    .into(),
            },
            (Ruling::Ask, Some(kind)) => {
                Ruling::Deny { mode: "unattended".into(), reason: kind.unattended(&request.subject).into() }
            }
            (Ruling::Ask, None) if self.unattended && hit.is_some_and(|hit| hit.effect == RuleEffect::Ask) => {
                let rule = hit.map(RuleHit::shown).unwrap_or_default();
                let reason = format!("nobody is here to ask, and a rule says to ask: {rule}").into();
                Ruling::Deny { mode: "unattended".into(), reason }
            }
            (Ruling::Ask, None) if self.unattended => Ruling::Deny {
                mode: "unattended".into(),
                reason: "nobody is here to ask; allow it beforehand with a rule (ropewalk permissions add), or everything with --approval full".into(),
            },
            (
                ruling @ (Ruling::Allow { .. } | Ruling::Rule { .. } | Ruling::Deny { .. } | Ruling::Ask),
                _,
            ) => ruling,
        }
    }

    fn denied_often(&self, request: &AskRequest) -> bool {
        let wish = (Arc::clone(&request.tool), Arc::clone(&request.subject), request.consent.clone());
        self.denials.get(&wish).is_some_and(|count| *count >= DENIALS_MAX)
    }

    /// Counts what people refuse, so that an agent that insists does not wear them down.
    pub(super) fn count_denial(&mut self, open: &OpenAsk, resolution: Resolution, by: &Resolver) {
        if open.request.question.is_some() {
            return;
        }
        let wish =
            (Arc::clone(&open.request.tool), Arc::clone(&open.request.subject), open.request.consent.clone());
        match (resolution, by) {
            (Resolution::DeniedOnce, Resolver::Surface { .. }) => {
                if self.denials.len() < DENIED_WISHES_MAX || self.denials.contains_key(&wish) {
                    *self.denials.entry(wish).or_default() += 1;
                }
            }
            (Resolution::AllowedOnce | Resolution::AllowedAlways, Resolver::Surface { .. }) => {
                self.denials.remove(&wish);
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

/// How an ask ends.
pub(super) struct Settled {
    resolution: Resolution,
    said: Option<Arc<str>>,
    /// The very answer that the external agent offered.
    chosen: Option<Arc<str>>,
    /// It is about exactly these arguments.
    exactly: bool,
}

impl Settled {
    fn denied(why: Arc<str>) -> Self {
        Self { said: Some(why), ..Resolution::DeniedOnce.into() }
    }
}

impl From<Resolution> for Settled {
    fn from(resolution: Resolution) -> Self {
        Self { resolution, said: None, chosen: None, exactly: false }
    }
}

impl OpenAsk {
    pub(super) fn of(turn: Option<TurnId>, request: &AskRequest) -> Self {
        Self { turn, request: Arc::new(request.clone()) }
    }

    /// What it is about, and what it would change besides if that is several files: each is looked up by itself.
    pub(super) fn subjects(&self) -> impl Iterator<Item = Arc<str>> {
        let others = self.request.by_file().into_iter().skip(1).map(|wish| Arc::clone(&wish.subject));
        std::iter::once(Arc::clone(&self.request.subject)).chain(others)
    }

    pub(super) fn consent_kind(&self) -> Option<ConsentKind> {
        ConsentKind::of(&self.request.tool, self.request.consent.as_deref())
    }

    /// How far an answer goes if it is for good. An external agent's own words for it say nothing of a rule here,
    /// so ours is as narrow as can be.
    fn scope(&self, answer: &Answer) -> RuleScope {
        match answer {
            Answer::AllowExactly | Answer::DenyExactly => RuleScope::Arguments(self.request.input.clone()),
            Answer::Choose(_) => RuleScope::Subject,
            Answer::AllowOnce
            | Answer::AllowAlways
            | Answer::DenyOnce
            | Answer::DenyBecause(_)
            | Answer::DenyAlways
            | Answer::Withdraw
            | Answer::CancelTurn
            | Answer::Reply(_) => RuleScope::Shown,
        }
    }

    /// An answer by an external agent's own name for it, in the words that all wishes are answered with.
    /// What was not offered must not be taken for a yes, nor for a person's no. An agent keeps what is answered for good in files of
    /// its own, so it is told that only where the answer may hold outside this session.
    fn chosen(&self, answer: Answer, for_good: bool) -> (Answer, Option<Arc<str>>) {
        let Answer::Choose(id) = answer else { return (answer, None) };
        let Some(option) = self.request.foreign.as_ref().and_then(|foreign| foreign.option(&id)) else {
            return (Answer::Withdraw, None);
        };
        let answer = match option.means {
            Resolution::AllowedOnce => Answer::AllowOnce,
            Resolution::AllowedAlways => Answer::AllowAlways,
            Resolution::DeniedAlways => Answer::DenyAlways,
            Resolution::DeniedOnce
            | Resolution::Cancelled
            | Resolution::TimedOut
            | Resolution::EndedByRestart => Answer::DenyOnce,
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
enum Asked {
    Permission,
    Question,
}

fn nobody_answers() -> Ruling {
    let reason = "nobody is here to answer; decide yourself, and say what you assumed".into();
    Ruling::Deny { mode: "unattended".into(), reason }
}

/// A reason that is not too long. Without words it is none.
fn bounded(answer: Answer) -> Result<Answer, Refusal> {
    match answer {
        Answer::DenyBecause(why) if why.trim().is_empty() => Ok(Answer::DenyOnce),
        Answer::DenyBecause(why) if why.len() > REPLY_BYTES_MAX => {
            Err(Refusal::ReasonTooLong { limit_bytes: REPLY_BYTES_MAX })
        }
        Answer::DenyBecause(_)
        | Answer::AllowOnce
        | Answer::AllowAlways
        | Answer::AllowExactly
        | Answer::DenyOnce
        | Answer::DenyAlways
        | Answer::DenyExactly
        | Answer::Withdraw
        | Answer::CancelTurn
        | Answer::Reply(_)
        | Answer::Choose(_) => Ok(answer),
    }
}

/// What an answer means to a question. Whoever allows or denies has not understood that there is
/// a question: a yes without words answers nothing.
fn reply_to(ask: AskId, question: &Question, answer: Answer) -> Result<Settled, Refusal> {
    match answer {
        Answer::Reply(said) if question.takes(&said) => {
            Ok(Settled { said: Some(said), ..Resolution::AllowedOnce.into() })
        }
        Answer::Reply(_) | Answer::Choose(_) => {
            let choices = question.choices.join(", ");
            Err(Refusal::NotAnAnswer { ask, choices })
        }
        Answer::Withdraw => Ok(Resolution::Cancelled.into()),
        Answer::DenyBecause(why) => Ok(Settled::denied(why)),
        Answer::AllowOnce
        | Answer::AllowAlways
        | Answer::AllowExactly
        | Answer::DenyOnce
        | Answer::DenyAlways
        | Answer::DenyExactly
        | Answer::CancelTurn => Ok(Resolution::DeniedOnce.into()),
    }
}

/// What the model is told about a decision.
fn reason_of(asked: Asked, resolution: Resolution, by: &Resolver) -> Arc<str> {
    if let Resolver::Policy { reason } | Resolver::Rule { reason } = by {
        return Arc::clone(reason);
    }
    match resolution {
        Resolution::DeniedOnce | Resolution::DeniedAlways if asked == Asked::Question => {
            "the user lets you decide; say what you chose".into()
        }
        Resolution::Cancelled if asked == Asked::Question && matches!(by, Resolver::Surface { .. }) => {
            "the user wants to answer in the conversation: ask in your reply, and end your turn there".into()
        }
        Resolution::TimedOut if asked == Asked::Question => {
            "nobody answered in time; decide yourself, and say what you assumed".into()
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
