//! What a session does when a part of its log is lost: it assumes the stricter settings.
//!
//! The lost events may have changed the approval or the mode, refused something for this session, or moved it to another
//! folder. So from there on everything is asked, nothing is changed, and no remembered answer allows anything, until
//! somebody chooses again. `read-only` stays: it refuses where `strict` asks. The lost change may have been one to
//! `read-only`, which cannot be known, but with `strict` nothing happens that a person has not seen.

use std::sync::Arc;

use super::{Effect, READING_MODE, Session};
use crate::event::{Body, NoticeLevel, Origin};
use crate::ids::{Seq, TurnId};
use crate::settings::{APPROVAL, MODE};
use crate::store::POSITIONS_SKIPPED_MAX;

/// The approval of a session of which it is not known what was chosen.
const ASKS_EVERYTHING: &str = "strict";
const READ_ONLY: &str = "read-only";

/// The value of each setting before it became stricter.
#[derive(Default)]
pub(super) struct NarrowedSettings {
    approval: Option<Arc<str>>,
    mode: Option<Arc<str>>,
}

impl NarrowedSettings {
    /// The setting was chosen after the loss, so its value is known again.
    pub(super) fn chosen(&mut self, id: &str) {
        match id {
            APPROVAL => self.approval = None,
            MODE => self.mode = None,
            _ => {}
        }
    }
}

impl Session {
    /// Events are lost here that may have decided what the agent may do.
    pub(super) fn narrow(&mut self) {
        self.grants.drop_allowed();
        let approval: Arc<str> = self.settings.get(APPROVAL).into();
        if !matches!(&*approval, READ_ONLY | ASKS_EVERYTHING) {
            self.settings.set(APPROVAL.into(), ASKS_EVERYTHING.into());
            self.narrowed.approval.get_or_insert(approval);
        }
        let mode: Arc<str> = self.settings.get(MODE).into();
        if self.changes_things(&mode) && self.offers(MODE, READING_MODE) {
            self.settings.set(MODE.into(), READING_MODE.into());
            self.narrowed.mode.get_or_insert(mode);
        }
    }

    /// The log ends before `next`, and somebody has seen its events up to `seen`: the file was restored, or
    /// its end is damaged. None of these positions is assigned again, and neither are the numbers of turns
    /// and questions; each of those took a position, so no more of them can be lost. The notice carries the
    /// last turn that may be lost.
    pub fn lost_end(&mut self, next: Seq, seen: Seq) -> Vec<Effect> {
        let Some(lost) = seen
            .0
            .saturating_add(1)
            .checked_sub(next.0)
            .filter(|lost| (1..POSITIONS_SKIPPED_MAX).contains(lost))
        else {
            return Vec::new();
        };
        let mut effects = vec![Effect::GoOnAfter { seen }];
        let text = format!(
            "the last events of this session are missing ({lost} positions): the audit log has them, but the store does not, because its file was restored from a copy or its end is damaged. `ropewalk audit query` shows what is known of them"
        );
        let notice = Body::Notice { level: NoticeLevel::Damage, text: text.into() };
        let turn = TurnId(self.next_turn.saturating_add(lost));
        self.record(Origin::Engine, Some(turn), notice, &mut effects);
        effects
    }

    /// The notice in the place of a lost end has the last turn that may have been in it.
    pub(super) fn leave_out(&mut self, turn: Option<TurnId>) {
        let lost = turn.map_or(0, |turn| turn.0.saturating_sub(self.next_turn));
        if lost > 0 {
            self.next_turn = self.next_turn.saturating_add(lost + 1);
            self.next_ask = self.next_ask.saturating_add(lost);
        }
    }

    /// Records what became stricter, and why. Called once, after the whole log was observed: the next
    /// opening finds the choice in the log, after the loss.
    pub fn record_narrowed(&mut self) -> Vec<Effect> {
        let mut effects = Vec::new();
        let NarrowedSettings { approval, mode } = std::mem::take(&mut self.narrowed);
        let mut stricter = Vec::new();
        for (id, was) in [(APPROVAL, approval), (MODE, mode)] {
            let Some(was) = was.filter(|_| self.specs.iter().any(|spec| *spec.id == *id)) else { continue };
            let value: Arc<str> = self.settings.get(id).into();
            stricter.push(format!("{id} is {value} (it was {was})"));
            self.record(Origin::Engine, None, Body::SettingChanged { id: id.into(), value }, &mut effects);
        }
        if !stricter.is_empty() {
            let text = format!(
                "a damaged part of this session may have changed its settings, so the stricter values apply: {}. Permissions for the whole session are asked again; if you want the settings as they were, choose them again",
                stricter.join(", ")
            );
            let notice = Body::Notice { level: NoticeLevel::Warning, text: text.into() };
            self.record(Origin::Engine, None, notice, &mut effects);
        }
        effects
    }

    /// The modes of an external agent are its own business: what it may do is decided action by action.
    fn changes_things(&self, mode: &str) -> bool {
        !self.joined && (mode == "code" || self.free_modes.iter().any(|free| **free == *mode))
    }

    fn offers(&self, id: &str, value: &str) -> bool {
        self.specs.iter().any(|spec| *spec.id == *id && spec.offers(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Standing;
    use crate::event::{AskRequest, Resolution, Resolver, ToolClass};
    use crate::ids::{AskId, SurfaceId, TurnId};
    use crate::session::test_script::new_session;

    fn session() -> Session {
        new_session(false)
    }

    fn see(session: &mut Session, body: Body) {
        session.observe(&Origin::Engine, Some(TurnId(1)), &body);
    }

    fn choose(session: &mut Session, id: &str, value: &str) {
        see(session, Body::SettingChanged { id: id.into(), value: value.into() });
    }

    fn lose(session: &mut Session) {
        see(session, Body::Notice { level: NoticeLevel::Damage, text: "damaged".into() });
    }

    fn settings(session: &Session) -> (&str, &str) {
        (session.settings().get(APPROVAL), session.settings().get(MODE))
    }

    #[test]
    fn what_may_have_been_a_change_of_a_setting_makes_everything_asked() {
        for (approval, mode, expected) in [
            ("full", "code", ("strict", "ask")),
            ("auto", "code", ("strict", "ask")),
            ("suggest", "architect", ("strict", "architect")),
            ("strict", "ask", ("strict", "ask")),
            ("read-only", "code", ("read-only", "ask")),
        ] {
            let mut session = session();
            choose(&mut session, APPROVAL, approval);
            choose(&mut session, MODE, mode);
            lose(&mut session);
            assert_eq!(settings(&session), expected, "{approval} {mode}");
        }
    }

    #[test]
    fn after_a_lost_end_no_number_is_given_again_and_the_stricter_holds() {
        let mut session = session();
        see(&mut session, Body::TurnStarted);
        assert!(session.lost_end(Seq(5), Seq(4)).is_empty(), "what everybody has seen is there");
        assert!(session.lost_end(Seq(5), Seq(u64::MAX)).is_empty(), "nobody has seen so much");
        let effects = session.lost_end(Seq(5), Seq(9));
        let [Effect::GoOnAfter { seen: Seq(9) }, Effect::Record { origin, turn, event }] = effects.as_slice()
        else {
            panic!("{effects:?}")
        };
        let numbers = |session: &Session| (session.next_turn, session.next_ask);
        // Five events are lost, so at most five turns and five questions.
        assert_eq!(numbers(&session), (8, 6));
        assert_eq!(settings(&session), ("strict", "ask"));
        // Whoever opens it again counts the same.
        let mut again = self::session();
        see(&mut again, Body::TurnStarted);
        again.observe(origin, *turn, &event.body);
        assert_eq!(numbers(&again), numbers(&session));
    }

    #[test]
    fn it_is_said_once_and_holds_until_somebody_chooses() {
        let mut session = session();
        choose(&mut session, APPROVAL, "full");
        lose(&mut session);
        lose(&mut session);
        let effects = session.record_narrowed();
        let body = |effect| if let Effect::Record { event, .. } = effect { Some(event.body) } else { None };
        let bodies: Vec<Body> = effects.into_iter().filter_map(body).collect();
        let [approval, mode, Body::Notice { level: NoticeLevel::Warning, text }] = bodies.as_slice() else {
            panic!("{bodies:?}")
        };
        assert_eq!(*approval, Body::SettingChanged { id: APPROVAL.into(), value: "strict".into() });
        assert_eq!(*mode, Body::SettingChanged { id: MODE.into(), value: "ask".into() });
        assert!(text.contains("approval is strict (it was full), mode is ask (it was code)"), "{text}");

        // The next opening finds them in the log.
        let mut again = self::session();
        choose(&mut again, APPROVAL, "full");
        lose(&mut again);
        for body in bodies {
            see(&mut again, body);
        }
        assert!(again.record_narrowed().is_empty());
        assert_eq!(settings(&again), ("strict", "ask"));
        choose(&mut again, APPROVAL, "auto");
        assert!(again.record_narrowed().is_empty());
        assert_eq!(settings(&again), ("auto", "ask"));
    }

    #[test]
    fn an_answer_for_the_session_allows_nothing_after_a_loss_and_still_refuses() {
        let mut session = session();
        let by = Resolver::Surface {
            id: SurfaceId(1),
            name: "phone".into(),
            remote: None,
            standing: Standing::Other,
        };
        for (number, subject, resolution) in [
            (1, "make", Resolution::AllowedAlways),
            (2, "git push", Resolution::DeniedAlways),
            (3, "make doc", Resolution::AllowedAlways),
            (4, "git pull", Resolution::DeniedAlways),
        ] {
            let request = AskRequest::new("shell", subject, ToolClass::Execute);
            see(&mut session, Body::Asked { ask: AskId(number), request: Box::new(request) });
            let by = by.clone();
            let (ask, exactly) = (AskId(number), number > 2);
            see(&mut session, Body::Resolved { ask, call: None, resolution, by, reply: None, exactly });
        }
        let granted = |session: &Session, subject: &str| {
            let request = AskRequest::new("shell", subject, ToolClass::Execute);
            session.granted(&request, &crate::MemoryRules::default()).map(|hit| hit.effect)
        };
        for allowed in ["make", "make doc"] {
            assert_eq!(granted(&session, allowed), Some(crate::RuleEffect::Allow));
        }
        lose(&mut session);
        for (allowed, refused) in [("make", "git push"), ("make doc", "git pull")] {
            assert_eq!(granted(&session, allowed), None);
            assert_eq!(granted(&session, refused), Some(crate::RuleEffect::Deny));
        }
    }
}
