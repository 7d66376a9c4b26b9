//! Permission requests: what the policy says, who is asked, and whose answer counts.

use expect_test::expect;

use super::{check, check_running, check_unattended};

#[test]
fn the_first_answer_wins_and_the_late_one_is_refused() {
    check_running(
        "agent: ask git push
         phone: allow 1
         editor: deny 1",
        expect![[r#"
            1 ask 1: git push?
            > wait for 1
            1 ask 1: AllowedOnce by phone
            > wake 1 AllowedOnce: the user allowed it
            ! permission request 1 is unknown or already answered
        "#]],
    );
}

#[test]
fn a_program_that_a_project_names_is_allowed_by_the_owner_at_the_machine_alone() {
    check_running(
        "agent: mcp_server npx a
         elsewhere: allow 1
         client: always 1
         editor: allow 1
         agent: mcp_server npx b
         elsewhere: deny 2
         agent: mcp_server npx c
         client: never 3
         agent: mcp_server npx c",
        expect![[r#"
            1 ask 1: npx a?
            > wait for 1
            ! 1: only the owner at the machine can allow a program that a project configures: answer in a terminal or browser there, or run `ropewalk mcp trust NAME` there
            ! 1: only the owner at the machine can allow a program that a project configures: answer in a terminal or browser there, or run `ropewalk mcp trust NAME` there
            1 ask 1: AllowedOnce by editor
            > wake 1 AllowedOnce: the user allowed it
            1 ask 2: npx b?
            > wait for 2
            1 ask 2: DeniedOnce by elsewhere
            > wake 2 DeniedOnce: the user refused it
            1 ask 3: npx c?
            > wait for 3
            1 ask 3: DeniedAlways by client
            > wake 3 DeniedAlways: the user refused it and never wants to be asked again
            1 ask 4: DeniedAlways by rule
            > tell the tool DeniedAlways: refused by the rule mcp_server(npx c) (an answer for this session)
        "#]],
    );
}

#[test]
fn no_approval_and_no_rule_starts_a_program_that_a_project_names() {
    check(
        "editor: set approval full
         client: prompt go
         agent: ask git push
         agent: mcp_server npx a
         editor: always 2
         agent: mcp_server npx a",
        expect![[r#"
            - approval = full by editor
            - notice: approval is full: everything runs without asking, except what your rules say to ask, programs that a project configures, and commands outside the sandbox
            > accepted 1
            1 started by client
            1 client says: go
            > start 1
            1 ask 1: AllowedOnce by policy
            > tell the tool AllowedOnce: approval is set to full
            1 ask 2: npx a?
            > wait for 2
            > remember mcp_server npx a: true
            1 ask 2: AllowedAlways by editor
            > wake 2 AllowedAlways: the user allowed it
            1 ask 3: npx a?
            > wait for 3
        "#]],
    );
}

#[test]
fn nobody_at_a_terminal_means_that_no_program_of_a_project_starts() {
    check_unattended(
        "editor: set approval full
         editor: prompt go
         agent: mcp_server npx a",
        expect![[r#"
            - approval = full by editor
            - notice: approval is full: everything runs without asking, except what your rules say to ask, programs that a project configures, and commands outside the sandbox
            > accepted 1
            1 started by editor
            1 editor says: go
            > start 1
            1 blocked by unattended
            1 ask 1: DeniedOnce by policy
            > tell the tool DeniedOnce: run `ropewalk mcp trust NAME` in its folder at this machine to allow it
        "#]],
    );
}

#[test]
fn why_a_person_refuses_is_told_to_the_agent_and_answers_nothing() {
    check_running(
        "agent: ask git push
         phone: because 1 not on a Friday
         agent: ask git push
         phone: because 2
         agent: which colour
         phone: because 3 neither suits",
        expect![[r#"
            1 ask 1: git push?
            > wait for 1
            1 ask 1: DeniedOnce by phone
            > wake 1 DeniedOnce: the user refused it: not on a Friday
            1 ask 2: git push?
            > wait for 2
            1 ask 2: DeniedOnce by phone
            > wake 2 DeniedOnce: the user refused it
            1 ask 3: colour?
            > wait for 3
            1 ask 3: DeniedOnce by phone
            > wake 3 DeniedOnce: the user chose nothing and said: neither suits
        "#]],
    );
}

#[test]
fn a_reason_without_end_is_refused_and_the_ask_stays_open() {
    let script = format!(
        "editor: prompt ship it
         agent: ask git push
         phone: because 1 {}
         phone: deny 1",
        "x".repeat((64 << 10) + 1)
    );
    check(
        &script,
        expect![[r#"
            > accepted 1
            1 started by editor
            1 editor says: ship it
            > start 1
            1 ask 1: git push?
            > wait for 1
            ! a reason can have at most 65536 bytes; shorten it, or send it as a prompt
            1 ask 1: DeniedOnce by phone
            > wake 1 DeniedOnce: the user refused it
        "#]],
    );
}

#[test]
fn an_ask_nobody_made_cannot_be_answered() {
    check(
        "editor: allow 7
         editor: prompt go
         agent: ask git push
         editor: allow 2",
        expect![[r#"
            ! permission request 7 is unknown or already answered
            > accepted 1
            1 started by editor
            1 editor says: go
            > start 1
            1 ask 1: git push?
            > wait for 1
            ! permission request 2 is unknown or already answered
        "#]],
    );
}

#[test]
fn a_refused_wish_leaves_the_turn_going() {
    check_running(
        "agent: ask git push
         editor: deny 1
         agent: text then not
         agent: end",
        expect![[r#"
            1 ask 1: git push?
            > wait for 1
            1 ask 1: DeniedOnce by editor
            > wake 1 DeniedOnce: the user refused it
            1 text: then not
            1 ended by agent: EndTurn
        "#]],
    );
}

#[test]
fn an_ask_answered_with_the_end_of_the_turn_ends_it_if_the_turn_is_that_senders() {
    check_running(
        "agent: ask git push
         phone: cancel-turn 1
         agent: ask git fetch
         editor: cancel-turn 2
         editor: cancel-turn 2
         agent: ask git pull
         agent: end",
        expect![[r#"
            1 ask 1: git push?
            > wait for 1
            1 ask 1: DeniedOnce by phone
            > wake 1 DeniedOnce: the user refused it
            1 ask 2: git fetch?
            > wait for 2
            1 cancel by editor
            1 ask 2: Cancelled by engine
            > wake 2 Cancelled: the turn was cancelled
            > cancel 1
            ! permission request 2 is unknown or already answered
            1 ask 3: Cancelled by engine
            > tell the tool Cancelled: the turn was cancelled
            1 ended by agent: Cancelled
        "#]],
    );
}

/// What the sender has waiting is not meant.
#[test]
fn an_ask_answered_with_the_end_of_the_turn_leaves_the_queue() {
    check_running(
        "editor: prompt next
         agent: ask git push
         editor: cancel-turn 1
         agent: end",
        expect![[r#"
            > accepted 2
            2 queued by editor
            1 ask 1: git push?
            > wait for 1
            1 cancel by editor
            1 ask 1: Cancelled by engine
            > wake 1 Cancelled: the turn was cancelled
            > cancel 1
            1 ended by agent: Cancelled
            2 started by editor
            2 editor says: next
            > start 2
        "#]],
    );
}

#[test]
fn cancel_settles_every_ask_and_the_end_every_open_call() {
    check_running(
        "agent: tool one
         agent: tool two
         agent: ask git push
         agent: ask git fetch
         agent: done two
         phone: cancel
         phone: allow 1
         agent: end",
        expect![[r#"
            1 tool one started
            1 tool two started
            1 ask 1: git push?
            > wait for 1
            1 ask 2: git fetch?
            > wait for 2
            1 tool two ended by agent
            1 cancel by phone
            1 ask 1: Cancelled by engine
            > wake 1 Cancelled: the turn was cancelled
            1 ask 2: Cancelled by engine
            > wake 2 Cancelled: the turn was cancelled
            > cancel 1
            ! permission request 1 is unknown or already answered
            1 tool one failed by engine
            1 ended by agent: Cancelled
        "#]],
    );
}

#[test]
fn a_wish_after_the_cancel_is_refused_at_once() {
    check_running(
        "editor: cancel
         agent: ask git push
         agent: read notes
         agent: fail whatever",
        expect![[r#"
            1 cancel by editor
            > cancel 1
            1 ask 1: Cancelled by engine
            > tell the tool Cancelled: the turn was cancelled
            1 ask 2: Cancelled by engine
            > tell the tool Cancelled: the turn was cancelled
            1 ended by agent: Cancelled
        "#]],
    );
}

#[test]
fn a_mode_beats_an_allowing_rule() {
    check_running(
        "agent: ask make
         editor: always 1
         agent: ask make
         editor: set mode ask
         agent: ask make
         editor: set mode code
         agent: ask make",
        expect![[r#"
            1 ask 1: make?
            > wait for 1
            > remember ask make: true
            1 ask 1: AllowedAlways by editor
            > wake 1 AllowedAlways: the user allowed it
            1 ask 2: AllowedAlways by rule
            > tell the tool AllowedAlways: allowed by the rule r (test)
            - mode = ask by editor
            1 blocked by ask
            1 ask 3: DeniedOnce by policy
            > tell the tool DeniedOnce: the session is in ask mode: only reading is allowed; switch to code mode
            - mode = code by editor
            1 ask 4: AllowedAlways by rule
            > tell the tool AllowedAlways: allowed by the rule r (test)
        "#]],
    );
}

#[test]
fn auto_reads_and_edits_without_asking() {
    check_running(
        "agent: read notes
         agent: edit notes
         agent: ask make
         agent: fetch example.org",
        expect![[r#"
            1 ask 1: AllowedOnce by policy
            > tell the tool AllowedOnce: reading is allowed
            1 ask 2: AllowedOnce by policy
            > tell the tool AllowedOnce: edits inside the workspace are allowed
            1 ask 3: make?
            > wait for 3
            1 ask 4: example.org?
            > wait for 4
        "#]],
    );
}

#[test]
fn read_only_refuses_all_but_reading_without_asking() {
    check(
        "editor: set approval read-only
         editor: prompt go
         agent: read notes
         agent: edit notes
         agent: ask make
         agent: fetch example.org",
        expect![[r#"
            - approval = read-only by editor
            > accepted 1
            1 started by editor
            1 editor says: go
            > start 1
            1 ask 1: AllowedOnce by policy
            > tell the tool AllowedOnce: reading is allowed
            1 blocked by read-only
            1 ask 2: DeniedOnce by policy
            > tell the tool DeniedOnce: approval is set to read-only: only reading is allowed
            1 blocked by read-only
            1 ask 3: DeniedOnce by policy
            > tell the tool DeniedOnce: approval is set to read-only: only reading is allowed
            1 blocked by read-only
            1 ask 4: DeniedOnce by policy
            > tell the tool DeniedOnce: approval is set to read-only: only reading is allowed
        "#]],
    );
}

#[test]
fn read_only_beats_an_allowing_rule() {
    check_running(
        "agent: ask make
         editor: always 1
         editor: set approval read-only
         agent: ask make",
        expect![[r#"
            1 ask 1: make?
            > wait for 1
            > remember ask make: true
            1 ask 1: AllowedAlways by editor
            > wake 1 AllowedAlways: the user allowed it
            - approval = read-only by editor
            1 blocked by read-only
            1 ask 2: DeniedOnce by policy
            > tell the tool DeniedOnce: approval is set to read-only: only reading is allowed
        "#]],
    );
}

#[test]
fn full_asks_nothing() {
    check(
        "editor: set approval full
         editor: prompt go
         agent: edit notes
         agent: ask make
         agent: fetch example.org",
        expect![[r#"
            - approval = full by editor
            - notice: approval is full: everything runs without asking, except what your rules say to ask, programs that a project configures, and commands outside the sandbox
            > accepted 1
            1 started by editor
            1 editor says: go
            > start 1
            1 ask 1: AllowedOnce by policy
            > tell the tool AllowedOnce: approval is set to full
            1 ask 2: AllowedOnce by policy
            > tell the tool AllowedOnce: approval is set to full
            1 ask 3: AllowedOnce by policy
            > tell the tool AllowedOnce: approval is set to full
        "#]],
    );
}

#[test]
fn the_reading_modes_refuse_edits_and_programs_even_with_full_approval() {
    check(
        "editor: set approval full
         editor: set mode ask
         editor: prompt go
         agent: read notes
         agent: edit notes
         agent: ask make
         editor: set mode architect
         agent: edit notes
         agent: fetch example.org",
        expect![[r#"
            - approval = full by editor
            - notice: approval is full: everything runs without asking, except what your rules say to ask, programs that a project configures, and commands outside the sandbox
            - mode = ask by editor
            > accepted 1
            1 started by editor
            1 editor says: go
            > start 1
            1 ask 1: AllowedOnce by policy
            > tell the tool AllowedOnce: approval is set to full
            1 blocked by ask
            1 ask 2: DeniedOnce by policy
            > tell the tool DeniedOnce: the session is in ask mode: only reading is allowed; switch to code mode
            1 blocked by ask
            1 ask 3: DeniedOnce by policy
            > tell the tool DeniedOnce: the session is in ask mode: only reading is allowed; switch to code mode
            - mode = architect by editor
            1 blocked by architect
            1 ask 4: DeniedOnce by policy
            > tell the tool DeniedOnce: the session is in architect mode: only reading is allowed; switch to code mode
            1 blocked by architect
            1 ask 5: DeniedOnce by policy
            > tell the tool DeniedOnce: the session is in architect mode: only reading is allowed; switch to code mode
        "#]],
    );
}

#[test]
fn an_ask_that_nobody_answers_in_time_is_denied() {
    check_running(
        "agent: ask git push
         clock: expire 1
         clock: expire 1
         editor: allow 1",
        expect![[r#"
            1 ask 1: git push?
            > wait for 1
            1 ask 1: TimedOut by engine
            > wake 1 TimedOut: nobody answered in time
            ! permission request 1 is unknown or already answered
            ! permission request 1 is unknown or already answered
        "#]],
    );
}

#[test]
fn where_nobody_can_answer_a_wish_is_refused_at_once() {
    check_unattended(
        "editor: prompt go
         agent: ask git push
         agent: edit notes
         agent: end",
        expect![[r#"
            > accepted 1
            1 started by editor
            1 editor says: go
            > start 1
            1 blocked by unattended
            1 ask 1: DeniedOnce by policy
            > tell the tool DeniedOnce: nobody is available to ask; allow it in advance with a rule (ropewalk permissions add), or everything with --approval full
            1 ask 2: AllowedOnce by policy
            > tell the tool AllowedOnce: edits inside the workspace are allowed
            1 ended by agent: EndTurn
        "#]],
    );
}

#[test]
fn an_answer_that_is_not_understood_does_nothing_and_is_no_refusal() {
    check_running(
        "agent: ask git push
         editor: withdraw 1
         agent: ask git push
         editor: withdraw 2
         agent: ask git push
         editor: withdraw 3
         agent: ask git push
         editor: allow 4",
        expect![[r#"
            1 ask 1: git push?
            > wait for 1
            1 ask 1: Cancelled by editor
            > wake 1 DeniedOnce: the client gave no usable answer to the permission request, so the tool was not run
            1 ask 2: git push?
            > wait for 2
            1 ask 2: Cancelled by editor
            > wake 2 DeniedOnce: the client gave no usable answer to the permission request, so the tool was not run
            1 ask 3: git push?
            > wait for 3
            1 ask 3: Cancelled by editor
            > wake 3 DeniedOnce: the client gave no usable answer to the permission request, so the tool was not run
            1 ask 4: git push?
            > wait for 4
            1 ask 4: AllowedOnce by editor
            > wake 4 AllowedOnce: the user allowed it
        "#]],
    );
}

#[test]
fn after_three_refusals_the_same_wish_is_refused_without_asking() {
    check_running(
        "agent: ask git push
         editor: deny 1
         agent: ask git push
         phone: deny 2
         agent: ask git push
         editor: deny 3
         agent: ask git push
         agent: ask git pull
         server: restart
         editor: prompt again
         agent: ask git push",
        expect![[r#"
            1 ask 1: git push?
            > wait for 1
            1 ask 1: DeniedOnce by editor
            > wake 1 DeniedOnce: the user refused it
            1 ask 2: git push?
            > wait for 2
            1 ask 2: DeniedOnce by phone
            > wake 2 DeniedOnce: the user refused it
            1 ask 3: git push?
            > wait for 3
            1 ask 3: DeniedOnce by editor
            > wake 3 DeniedOnce: the user refused it
            1 ask 4: DeniedAlways by rule
            > tell the tool DeniedAlways: refused 3 times in this session; the user is not asked again
            1 ask 5: git pull?
            > wait for 5
            1 ask 5: EndedByRestart by engine
            > wake 5 EndedByRestart: the server stopped
            1 ended by engine: Interrupted
            > accepted 2
            2 started by editor
            2 editor says: again
            > start 2
            2 ask 6: DeniedAlways by rule
            > tell the tool DeniedAlways: refused 3 times in this session; the user is not asked again
        "#]],
    );
}

#[test]
fn what_is_asked_because_rules_cannot_be_read_says_so() {
    use crate::event::{AskRequest, Body, ToolClass};
    use crate::ids::{SurfaceId, Timestamp, TurnId};
    use crate::session::{Effect, Input, Sender, Session, TurnReport};
    use crate::stored_rules::{RULES_UNREADABLE, RuleEffect, RuleHit};

    let mut session = Session::new(vec![crate::settings::approval_spec()].into(), "/p".into(), None, false);
    let by = Sender::owner(SurfaceId(1), "owner");
    session.apply(Timestamp(0), Input::Prompt { by, content: vec![crate::Content::text("go")] }).unwrap();
    let hit = RuleHit {
        effect: RuleEffect::Ask,
        rule: RULES_UNREADABLE.into(),
        source: "~/permissions.toml: line 2 is not TOML".into(),
        exact: false,
        consent: false,
    };
    for (given, expected) in [("", ""), ("it only looks", ". it only looks")] {
        let request = AskRequest { reason: given.into(), ..AskRequest::new("shell", "ls", ToolClass::Read) };
        let report = TurnReport::Ask { request: Box::new(request), hit: Some(hit.clone()) };
        let input = Input::FromTurn { turn: TurnId(1), within: None, report };
        let effects = session.apply(Timestamp(0), input).unwrap();
        let reason = |effect: &Effect| {
            if let Effect::Record { event, .. } = effect
                && let Body::Asked { request, .. } = &event.body
            {
                return Some(request.reason.to_string());
            }
            None
        };
        let asked = effects.iter().find_map(reason);
        let why = "(~/permissions.toml: line 2 is not TOML); run `ropewalk doctor`";
        assert_eq!(asked.unwrap(), format!("{RULES_UNREADABLE} {why}{expected}"));
    }
}
