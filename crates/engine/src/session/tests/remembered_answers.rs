//! "Always" and "never": whose answers become rules, whose hold in the session alone, and how far they reach.

use std::sync::Arc;

use expect_test::expect;

use super::{check, check_running};
use crate::content::{Content, FileChange, Opaque, ToolContent};
use crate::event::{AskRequest, ToolClass};
use crate::ids::{SurfaceId, Timestamp};
use crate::session::{Effect, Input, PermissionAnswer, Sender, Session, TurnReport};

const NOW: Timestamp = Timestamp(0);

#[test]
fn what_somebody_else_answers_for_good_holds_in_the_session_alone() {
    check(
        "client: prompt go
         agent: ask git push
         client: always 1
         agent: ask git push
         agent: ask git pull
         elsewhere: never 3
         agent: ask git pull
         editor: set approval read-only
         agent: ask git push",
        expect![[r#"
            > accepted 1
            1 started by client
            1 client says: go
            > start 1
            1 ask 1: git push?
            > wait for 1
            1 ask 1: AllowedAlways by client
            > wake 1 AllowedAlways: the user allowed it
            1 ask 2: AllowedAlways by rule
            > tell the tool AllowedAlways: allowed by the rule ask(git push) (an answer for this session)
            1 ask 3: git pull?
            > wait for 3
            1 ask 3: DeniedAlways by elsewhere
            > wake 3 DeniedAlways: the user refused it and never wants to be asked again
            1 ask 4: DeniedAlways by rule
            > tell the tool DeniedAlways: refused by the rule ask(git pull) (an answer for this session)
            - approval = read-only by editor
            1 blocked by read-only
            1 ask 5: DeniedOnce by policy
            > tell the tool DeniedOnce: approval is set to read-only: only reading is allowed
        "#]],
    );
}

#[test]
fn an_answer_about_exact_arguments_is_remembered_as_one() {
    check_running(
        "agent: ask git push
         editor: exactly 1
         agent: ask git pull
         editor: never-exactly 2",
        expect![[r#"
            1 ask 1: git push?
            > wait for 1
            > remember exact arguments of ask git push: true
            1 ask 1: AllowedAlways by editor
            > wake 1 AllowedAlways: the user allowed it
            1 ask 2: git pull?
            > wait for 2
            > remember exact arguments of ask git pull: false
            1 ask 2: DeniedAlways by editor
            > wake 2 DeniedAlways: the user refused it and never wants to be asked again
        "#]],
    );
}

#[test]
fn what_somebody_else_answers_about_exact_arguments_holds_for_these_alone() {
    check(
        "client: prompt go
         agent: with {1} make
         client: exactly 1
         agent: with {1} make
         agent: with {2} make
         elsewhere: never-exactly 3
         agent: with {2} make
         agent: with {3} make
         client: always 5
         agent: with {4} make
         agent: with {2} make",
        expect![[r#"
            > accepted 1
            1 started by client
            1 client says: go
            > start 1
            1 ask 1: make?
            > wait for 1
            1 ask 1: AllowedAlways by client
            > wake 1 AllowedAlways: the user allowed it
            1 ask 2: AllowedAlways by rule
            > tell the tool AllowedAlways: allowed by the rule ask(make) (an answer for this session)
            1 ask 3: make?
            > wait for 3
            1 ask 3: DeniedAlways by elsewhere
            > wake 3 DeniedAlways: the user refused it and never wants to be asked again
            1 ask 4: DeniedAlways by rule
            > tell the tool DeniedAlways: refused by the rule ask(make) (an answer for this session)
            1 ask 5: make?
            > wait for 5
            1 ask 5: AllowedAlways by client
            > wake 5 AllowedAlways: the user allowed it
            1 ask 6: AllowedAlways by rule
            > tell the tool AllowedAlways: allowed by the rule ask(make) (an answer for this session)
            1 ask 7: DeniedAlways by rule
            > tell the tool DeniedAlways: refused by the rule ask(make) (an answer for this session)
        "#]],
    );
}

#[test]
fn always_writes_a_rule_and_the_same_wish_is_not_asked_again() {
    check_running(
        "agent: ask git push
         editor: always 1
         agent: ask git push
         agent: ask git push --force",
        expect![[r#"
            1 ask 1: git push?
            > wait for 1
            > remember ask git push: true
            1 ask 1: AllowedAlways by editor
            > wake 1 AllowedAlways: the user allowed it
            1 ask 2: AllowedAlways by rule
            > tell the tool AllowedAlways: allowed by the rule r (test)
            1 ask 3: git push --force?
            > wait for 3
        "#]],
    );
}

#[test]
fn never_writes_a_rule_and_the_same_wish_is_refused_at_once() {
    check_running(
        "agent: ask rm -rf
         editor: never 1
         agent: ask rm -rf
         editor: set approval full
         agent: ask rm -rf",
        expect![[r#"
            1 ask 1: rm -rf?
            > wait for 1
            > remember ask rm -rf: false
            1 ask 1: DeniedAlways by editor
            > wake 1 DeniedAlways: the user refused it and never wants to be asked again
            1 ask 2: DeniedAlways by rule
            > tell the tool DeniedAlways: refused by the rule r (test)
            - approval = full by editor
            - notice: approval is full: everything runs without asking, except what your rules say to ask, programs that a project configures, and commands outside the sandbox
            1 ask 3: DeniedAlways by rule
            > tell the tool DeniedAlways: refused by the rule r (test)
        "#]],
    );
}

/// Each file of a change is looked up by itself, so each has its rule.
#[test]
fn an_answer_about_several_files_is_remembered_for_each_of_them() {
    let remembered = |answer| {
        let mut session = Session::new(Arc::new([]), "/w".into(), None, false);
        let (by, content) = (Sender::owner(SurfaceId(1), "editor"), vec![Content::text("go")]);
        session.apply(NOW, Input::Prompt { by: by.clone(), content }).unwrap();
        let change = |path: &str| FileChange { path: path.into(), before: None, after: Some("x".into()) };
        let request = AskRequest {
            path: Some("/w/a".into()),
            input: Opaque("{}".into()),
            preview: ["/w/a", "/w/b"].map(|path| ToolContent::Diff(change(path))).to_vec(),
            ..AskRequest::new("patch", "/w/a", ToolClass::Execute)
        };
        let turn = session.running().unwrap();
        let report = TurnReport::Ask { request: Box::new(request), hit: None };
        let effects = session.apply(NOW, Input::FromTurn { turn, within: None, report }).unwrap();
        let Some(Effect::Wait { ask }) = effects.last() else { panic!("not asked: {effects:?}") };
        let effects = session.apply(NOW, Input::Answer { by, ask: *ask, answer }).unwrap();
        let subject =
            |effect| if let Effect::Remember { subject, .. } = effect { Some(subject) } else { None };
        effects.into_iter().filter_map(subject).collect::<Vec<_>>()
    };
    assert_eq!(remembered(PermissionAnswer::AllowExactly), ["/w/a".into(), "/w/b".into()]);
    // The rule that was shown is about the one file.
    assert_eq!(remembered(PermissionAnswer::AllowAlways), ["/w/a".into()]);
}
