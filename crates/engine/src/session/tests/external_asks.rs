//! Sessions with an external agent: the settings it offers, what it says between turns, and its own permission requests.

use std::sync::Arc;

use crate::content::{Opaque, ToolKind};
use crate::event::{AskOption, AskRequest, Body, ForeignAsk, Origin, Resolution, ToolClass, ToolStart};
use crate::ids::{AskId, CallId, SessionId, SurfaceId, Timestamp};
use crate::session::{Effect, Input, PermissionAnswer, Refusal, Sender, Session, TurnReport};
use crate::settings::{APPROVAL, Category, Choice, MODE, SettingSpec, approval_spec};
use crate::stored_rules::RuleScope;

const NOW: Timestamp = Timestamp(0);

fn session() -> Session {
    Session::new(Arc::from([approval_spec()]), "/project".into(), None, false)
}

fn joined() -> Session {
    let mut session = session();
    let of = SessionId::parse("ours").unwrap();
    tell(&mut session, Body::Joined { agent: "other".into(), session: "its-1".into(), of, extra: None })
        .unwrap();
    session
}

fn tell(session: &mut Session, body: Body) -> Result<Vec<Effect>, Refusal> {
    session.apply(NOW, Input::FromAgent { event: body.into() })
}

fn change(session: &mut Session, id: &str, value: &str) -> Result<Vec<Effect>, Refusal> {
    let by = Sender::new(SurfaceId(1), "editor");
    session.apply(NOW, Input::Change { by, id: id.into(), value: value.into() })
}

fn modes(values: &[&str]) -> SettingSpec {
    let choice =
        |value: &&str| Choice { value: (*value).into(), name: (*value).into(), description: "".into() };
    SettingSpec {
        id: MODE.into(),
        name: "Mode".into(),
        description: "".into(),
        category: Category::Mode,
        choices: values.iter().map(choice).collect(),
        default: values[0].into(),
        words: None,
    }
}

#[test]
fn what_an_agent_offers_can_be_chosen_and_the_approval_stays() {
    let mut session = joined();
    tell(&mut session, Body::Offered { settings: vec![modes(&["plan", "build"])] }).unwrap();
    assert_eq!(session.settings().get(MODE), "plan");
    change(&mut session, MODE, "build").unwrap();
    change(&mut session, APPROVAL, "read-only").unwrap();
    tell(&mut session, Body::Offered { settings: vec![modes(&["build", "fly"])] }).unwrap();
    assert_eq!(session.settings().get(MODE), "build", "what was chosen is still offered");
    tell(&mut session, Body::Offered { settings: vec![modes(&["fly"])] }).unwrap();
    assert_eq!((session.settings().get(MODE), session.settings().get(APPROVAL)), ("fly", "read-only"));
    assert!(matches!(change(&mut session, MODE, "plan"), Err(Refusal::UnknownChoice { .. })));
}

#[test]
fn an_agent_cannot_offer_or_choose_an_approval() {
    let mut session = joined();
    let mut theirs = approval_spec();
    theirs.default = "full".into();
    tell(&mut session, Body::Offered { settings: vec![theirs] }).unwrap();
    assert_eq!(session.settings().get(APPROVAL), "auto");
    let full = Body::SettingChanged { id: APPROVAL.into(), value: "full".into() };
    assert_eq!(tell(&mut session, full), Err(Refusal::NotATurnsBusiness));
}

#[test]
fn only_an_agent_that_is_joined_says_what_can_be_chosen() {
    let mut session = session();
    let offered = Body::Offered { settings: vec![modes(&["plan"])] };
    assert_eq!(tell(&mut session, offered), Err(Refusal::NotATurnsBusiness));
    let chosen = Body::SettingChanged { id: MODE.into(), value: "plan".into() };
    assert_eq!(tell(&mut session, chosen), Err(Refusal::NotATurnsBusiness));
}

#[test]
fn between_turns_an_agent_may_speak_and_start_nothing() {
    let mut session = joined();
    let effects = tell(&mut session, Body::Title { title: "A net".into() }).unwrap();
    assert!(matches!(&effects[..], [Effect::Record { origin: Origin::Agent, turn: None, .. }]));
    let start =
        ToolStart { kind: ToolKind::Execute, ..ToolStart::new(CallId("c".into()), "bash".into(), "".into()) };
    assert_eq!(tell(&mut session, Body::ToolStarted(Box::new(start))), Err(Refusal::NotATurnsBusiness));
}

fn asks(session: &mut Session, subject: &str) -> AskId {
    let by = Sender::new(SurfaceId(1), "editor");
    let content = vec![crate::content::Content::text("go")];
    session.apply(NOW, Input::Prompt { by, content }).unwrap();
    let option = |id: &str, means| AskOption { id: id.into(), name: id.into(), means };
    let request = AskRequest {
        subject: subject.into(),
        foreign: Some(Box::new(ForeignAsk {
            options: vec![
                option("yes", Resolution::AllowedOnce),
                option("yes-for-the-folder", Resolution::AllowedAlways),
                option("yes-for-ever", Resolution::AllowedAlways),
                option("no", Resolution::DeniedOnce),
            ],
            params: Opaque("{}".into()),
        })),
        ..AskRequest::new("bash", "", ToolClass::Execute)
    };
    let turn = session.running().unwrap();
    let report = TurnReport::Ask { request: Box::new(request), hit: None };
    let effects = session.apply(NOW, Input::FromTurn { turn, within: None, report }).unwrap();
    match effects.last() {
        Some(Effect::Wait { ask }) => *ask,
        other => panic!("not asked: {other:?}"),
    }
}

/// Its own words say nothing of a rule here, so ours is about this very thing.
#[test]
fn an_option_for_good_is_remembered_for_exactly_what_was_asked() {
    let scope = |answer| {
        let mut session = joined();
        let ask = asks(&mut session, "git status");
        let by = Sender::owner(SurfaceId(2), "phone");
        let effects = session.apply(NOW, Input::Answer { by, ask, answer }).unwrap();
        effects
            .into_iter()
            .find_map(|effect| if let Effect::Remember { scope, .. } = effect { Some(scope) } else { None })
    };
    assert_eq!(scope(PermissionAnswer::Choose("yes-for-ever".into())), Some(RuleScope::Subject));
    assert_eq!(scope(PermissionAnswer::AllowAlways), Some(RuleScope::Shown));
}

/// How the ask ends, what the agent is told, and whether it is remembered.
fn answered(subject: &str, answer: PermissionAnswer) -> (Resolution, Option<Arc<str>>, bool) {
    let mut session = joined();
    let ask = asks(&mut session, subject);
    let by = Sender::owner(SurfaceId(2), "phone");
    let effects = session.apply(NOW, Input::Answer { by, ask, answer }).unwrap();
    let remembered = effects.iter().any(|effect| matches!(effect, Effect::Remember { .. }));
    let woken = effects.into_iter().find_map(|effect| {
        if let Effect::Wake { resolution, said, .. } = effect { Some((resolution, said)) } else { None }
    });
    let (resolution, said) = woken.unwrap();
    (resolution, said, remembered)
}

#[test]
fn the_very_option_that_was_chosen_is_told_to_the_agent() {
    let choose = |id: &str| answered("git push", PermissionAnswer::Choose(id.into()));
    assert_eq!(choose("yes"), (Resolution::AllowedOnce, Some("yes".into()), false));
    assert_eq!(choose("yes-for-ever"), (Resolution::AllowedAlways, Some("yes-for-ever".into()), true));
    assert_eq!(choose("no"), (Resolution::DeniedOnce, Some("no".into()), false));
    assert_eq!(choose("allow_once"), (Resolution::DeniedOnce, None, false), "not offered: no yes");
    assert_eq!(answered("git push", PermissionAnswer::AllowAlways), (Resolution::AllowedAlways, None, true));
    let nameless = answered("", PermissionAnswer::Choose("yes-for-ever".into()));
    assert!(!nameless.2, "what has no name cannot be allowed for ever");
}

#[test]
fn the_nearest_option_never_says_more_than_was_meant() {
    let option = |id: &str, means| AskOption { id: id.into(), name: id.into(), means };
    let ask = |options: Vec<AskOption>| ForeignAsk { options, params: Opaque("{}".into()) };
    let nearest = |ask: &ForeignAsk, wanted| ask.nearest(wanted).map(|option| option.id.to_string());
    let always = ask(vec![option("always", Resolution::AllowedAlways), option("no", Resolution::DeniedOnce)]);
    assert_eq!(nearest(&always, Resolution::AllowedOnce), None);
    assert_eq!(nearest(&always, Resolution::DeniedAlways), Some("no".into()));
    let once = ask(vec![option("once", Resolution::AllowedOnce)]);
    assert_eq!(nearest(&once, Resolution::AllowedAlways), Some("once".into()));
    assert_eq!(nearest(&once, Resolution::TimedOut), None);
}
