//! Turns are accepted, queued, cancelled and ended exactly once; and what a restart does with open ones.

use expect_test::expect;

use super::{check, check_running};
use crate::content::Content;
use crate::ids::{SurfaceId, Timestamp};
use crate::session::test_script::ScriptRunner;
use crate::session::{Input, QUEUE_BYTES_MAX, QUEUE_MAX, Refusal, Sender, Session};
use std::sync::Arc;

#[test]
fn a_second_cancel_changes_nothing() {
    check_running(
        "editor: cancel
         phone: cancel
         editor: cancel 1",
        expect![[r#"
            1 cancel by editor
            > cancel 1
        "#]],
    );
}

#[test]
fn a_store_that_was_put_back_goes_on_after_what_was_seen_and_says_so_in_its_turn() {
    check(
        "server: put-back 40
         editor: prompt go
         server: put-back 7",
        expect![[r#"
            > go on after 40
            - notice: the store was put back
            > accepted 1
            1 started by editor
            1 editor says: go
            > start 1
            > go on after 7
            1 notice: the store was put back
        "#]],
    );
}

#[test]
fn a_second_prompt_queues_and_starts_after_the_first() {
    check_running(
        "phone: prompt two
         editor: prompt three
         agent: end
         agent: end
         agent: end",
        expect![[r#"
            > accepted 2
            2 queued by phone
            > accepted 3
            3 queued by editor
            1 ended by agent: EndTurn
            2 started by phone
            2 phone says: two
            > start 2
            2 ended by agent: EndTurn
            3 started by editor
            3 editor says: three
            > start 3
            3 ended by agent: EndTurn
        "#]],
    );
}

#[test]
fn cancel_empties_only_what_its_sender_queued() {
    check_running(
        "phone: prompt two
         editor: prompt three
         phone: prompt four
         editor: cancel
         agent: end
         agent: end",
        expect![[r#"
            > accepted 2
            2 queued by phone
            > accepted 3
            3 queued by editor
            > accepted 4
            4 queued by phone
            3 ended by editor: Cancelled
            1 cancel by editor
            > cancel 1
            1 ended by agent: Cancelled
            2 started by phone
            2 phone says: two
            > start 2
            2 ended by agent: EndTurn
            4 started by phone
            4 phone says: four
            > start 4
        "#]],
    );
}

#[test]
fn one_queued_turn_can_be_cancelled_alone() {
    check_running(
        "editor: prompt two
         editor: prompt three
         editor: cancel 2
         agent: end",
        expect![[r#"
            > accepted 2
            2 queued by editor
            > accepted 3
            3 queued by editor
            2 ended by editor: Cancelled
            1 ended by agent: EndTurn
            3 started by editor
            3 editor says: three
            > start 3
        "#]],
    );
}

#[test]
fn a_running_turn_cancelled_by_number_leaves_the_queue() {
    check_running(
        "editor: prompt two
         editor: cancel 1
         agent: end
         agent: end",
        expect![[r#"
            > accepted 2
            2 queued by editor
            1 cancel by editor
            > cancel 1
            1 ended by agent: Cancelled
            2 started by editor
            2 editor says: two
            > start 2
            2 ended by agent: EndTurn
        "#]],
    );
}

#[test]
fn a_late_cancel_does_not_hit_the_next_turn() {
    check_running(
        "editor: prompt two
         agent: end
         editor: cancel 1
         agent: end",
        expect![[r#"
            > accepted 2
            2 queued by editor
            1 ended by agent: EndTurn
            2 started by editor
            2 editor says: two
            > start 2
            2 ended by agent: EndTurn
        "#]],
    );
}

#[test]
fn cancel_with_nothing_to_cancel_is_nothing() {
    check(
        "editor: cancel
         editor: cancel 5",
        expect![""],
    );
}

#[test]
fn the_end_of_a_cancelled_turn_is_cancelled_whatever_the_agent_says() {
    check_running(
        "editor: cancel
         agent: fail connection lost",
        expect![[r#"
            1 cancel by editor
            > cancel 1
            1 ended by agent: Cancelled
        "#]],
    );
}

#[test]
fn a_failed_turn_says_why_and_the_next_one_runs() {
    check_running(
        "phone: prompt two
         agent: fail no credit
         agent: end",
        expect![[r#"
            > accepted 2
            2 queued by phone
            1 notice: no credit
            1 ended by agent: Failed
            2 started by phone
            2 phone says: two
            > start 2
            2 ended by agent: EndTurn
        "#]],
    );
}

#[test]
fn close_ends_everything_and_then_stops() {
    check_running(
        "phone: prompt two
         agent: tool ls
         agent: ask git push
         server: close
         editor: prompt three
         agent: end
         agent@1: text too late",
        expect![[r#"
            > accepted 2
            2 queued by phone
            1 tool ls started
            1 ask 1: git push?
            > wait for 1
            2 ended by engine: Cancelled
            1 ask 1: Cancelled by engine
            > wake 1 Cancelled: the turn was cancelled
            > cancel 1
            ! the session is closing
            1 tool ls failed by engine
            1 ended by agent: Cancelled
            > stop
            ! turn 1 is not running
        "#]],
    );
}

#[test]
fn a_client_that_closes_a_running_turn_has_cancelled_it() {
    check(
        "editor: prompt one
         phone: prompt two
         editor: close
         editor: close again
         agent: end",
        expect![[r#"
            > accepted 1
            1 started by editor
            1 editor says: one
            > start 1
            > accepted 2
            2 queued by phone
            2 ended by editor: Cancelled
            1 cancel by editor
            > cancel 1
            > cancel 1
            1 ended by agent: Cancelled
            > stop
        "#]],
    );
}

#[test]
fn a_close_with_a_reason_is_a_cancel_also_where_nothing_runs() {
    check("editor: close", expect![["> stop\n"]]);
    check(
        "editor: close user_done",
        expect![[r#"
            - cancel by editor: user_done
            > stop
        "#]],
    );
    check(
        "editor: prompt one
         editor: cancel
         editor: close user_done",
        expect![[r#"
            > accepted 1
            1 started by editor
            1 editor says: one
            > start 1
            1 cancel by editor
            > cancel 1
            > cancel 1
        "#]],
    );
}

#[test]
fn close_without_work_stops_at_once() {
    check(
        "server: close
         editor: prompt one",
        expect![[r#"
            > stop
            ! the session is closing
        "#]],
    );
}

#[test]
fn a_session_with_work_does_not_retire() {
    check_running(
        "server: retire
         agent: end
         server: retire",
        expect![[r#"
            ! the session is in the middle of a turn
            1 ended by agent: EndTurn
            > stop
        "#]],
    );
}

#[test]
fn unknown_settings_and_choices_are_refused_by_name() {
    check(
        "editor: set colour blue
         editor: set mode sleep
         editor: prompt go
         agent: set mode sleep",
        expect![[r#"
            ! unknown setting "colour"; the settings are mode, approval
            ! "sleep" is not a valid value for mode; choose one of code, ask, architect
            > accepted 1
            1 started by editor
            1 editor says: go
            > start 1
            ! "sleep" is not a valid value for mode; choose one of code, ask, architect
        "#]],
    );
}

#[test]
fn a_setting_that_stays_is_not_recorded() {
    check(
        "editor: set mode code
         editor: set mode ask
         editor: set mode ask
         editor: prompt go
         agent: set mode code",
        expect![[r#"
            - mode = ask by editor
            > accepted 1
            1 started by editor
            1 editor says: go
            > start 1
            1 mode = code by agent
        "#]],
    );
}

#[test]
fn reports_of_an_old_turn_are_refused() {
    check_running(
        "agent: end
         agent@1: text ghost
         agent@1: end
         editor: prompt two
         agent@1: ask git push
         agent@1: end
         agent@9: text prophet
         agent@2: end",
        expect![[r#"
            1 ended by agent: EndTurn
            ! turn 1 is not running
            ! turn 1 is not running
            > accepted 2
            2 started by editor
            2 editor says: two
            > start 2
            ! turn 1 is not running
            ! turn 1 is not running
            ! turn 9 is not running
            2 ended by agent: EndTurn
        "#]],
    );
}

#[test]
fn a_turn_cannot_report_what_is_not_its_business() {
    check_running(
        "agent: turn-started
         agent: turn-ended
         agent: user I am the user
         agent: queued
         agent: asked git push
         agent: cancelled
         agent: setting ask
         agent: moved /tmp",
        expect![[r#"
            ! a turn cannot report this
            ! a turn cannot report this
            ! a turn cannot report this
            ! a turn cannot report this
            ! a turn cannot report this
            ! a turn cannot report this
            ! a turn cannot report this
            ! a turn cannot report this
        "#]],
    );
}

#[test]
fn tool_calls_start_once_and_end_once() {
    check_running(
        "agent: output ls
         agent: done ls
         agent: tool ls
         agent: tool ls
         agent: output ls
         agent: done ls
         agent: done ls
         agent: output ls",
        expect![[r#"
            ! a turn cannot report this
            ! a turn cannot report this
            1 tool ls started
            ! a turn cannot report this
            1 tool ls writes
            1 tool ls ended by agent
            ! a turn cannot report this
            ! a turn cannot report this
        "#]],
    );
}

#[test]
fn a_turn_that_ends_in_the_middle_closes_its_calls_and_asks() {
    check_running(
        "agent: tool ls
         agent: ask git push
         agent: end
         editor: allow 1",
        expect![[r#"
            1 tool ls started
            1 ask 1: git push?
            > wait for 1
            1 ask 1: Cancelled by engine
            > wake 1 Cancelled: the turn was cancelled
            1 tool ls failed by engine
            1 ended by agent: EndTurn
            ! permission request 1 is unknown or already answered
        "#]],
    );
}

#[test]
fn names_and_places_can_change_at_any_time() {
    check(
        "editor: rename first
         editor: move /elsewhere
         editor: prompt go
         phone: rename second
         server: close
         phone: rename third",
        expect![[r#"
            - title: first by editor
            - moved to /elsewhere
            > accepted 1
            1 started by editor
            1 editor says: go
            > start 1
            - title: second by phone
            > cancel 1
            - title: third by phone
        "#]],
    );
}

#[test]
fn a_restart_ends_what_was_open_and_counts_on() {
    check_running(
        "phone: prompt two
         agent: tool ls
         agent: ask git push
         server: restart
         editor: allow 1
         agent@1: text ghost
         editor: prompt three
         agent: ask git push",
        expect![[r#"
            > accepted 2
            2 queued by phone
            1 tool ls started
            1 ask 1: git push?
            > wait for 1
            1 ask 1: EndedByRestart by engine
            > wake 1 EndedByRestart: the server stopped
            1 tool ls failed by engine
            1 ended by engine: Interrupted
            2 ended by engine: Interrupted
            ! permission request 1 is unknown or already answered
            ! turn 1 is not running
            > accepted 3
            3 started by editor
            3 editor says: three
            > start 3
            3 ask 2: git push?
            > wait for 2
        "#]],
    );
}

#[test]
fn a_restart_keeps_settings_title_and_place() {
    check(
        "editor: set mode ask
         editor: set approval full
         editor: rename work
         server: restart
         editor: set mode ask
         editor: set approval full
         editor: prompt go
         agent: ask make",
        expect![[r#"
            - mode = ask by editor
            - approval = full by editor
            - notice: approval is full: everything runs without asking, except what your rules say to ask, programs that a project configures, and commands outside the sandbox
            - title: work by editor
            > accepted 1
            1 started by editor
            1 editor says: go
            > start 1
            1 blocked by ask
            1 ask 1: DeniedOnce by policy
            > tell the tool DeniedOnce: the session is in ask mode: only reading is allowed; switch to code mode
        "#]],
    );
}

#[test]
fn a_restart_with_nothing_open_has_nothing_to_do() {
    check_running(
        "agent: end
         server: restart
         server: restart",
        expect![[r#"
            1 ended by agent: EndTurn
        "#]],
    );
}

#[test]
fn a_full_queue_refuses_and_takes_again_once_there_is_room() {
    let mut stage = ScriptRunner::new(false);
    stage.line("editor: prompt running");
    for _ in 0..QUEUE_MAX {
        stage.line("editor: prompt waiting");
    }
    stage.shown.clear();
    for line in ["phone: prompt too many", "agent: end", "phone: prompt fits", "phone: prompt too many"] {
        stage.line(line);
    }
    expect![[r#"
        ! too many prompts are waiting; wait for one to finish, or cancel
        1 ended by agent: EndTurn
        2 started by editor
        2 editor says: waiting
        > start 2
        > accepted 34
        34 queued by phone
        ! too many prompts are waiting; wait for one to finish, or cancel
    "#]]
    .assert_eq(&stage.shown);
}

#[test]
fn prompts_that_wait_are_bounded_in_bytes_too() {
    let mut session = Session::new(Arc::from([]), "/home".into(), None, false);
    let mut prompt = |bytes: usize| {
        let by = Sender::new(SurfaceId(1), "editor");
        let content = vec![Content::text("x".repeat(bytes))];
        session.apply(Timestamp(0), Input::Prompt { by, content }).map(drop)
    };
    assert_eq!(prompt(QUEUE_BYTES_MAX), Ok(()), "it runs, and does not wait");
    assert_eq!(prompt(QUEUE_BYTES_MAX / 2), Ok(()));
    assert_eq!(prompt(QUEUE_BYTES_MAX / 2), Err(Refusal::QueueFull));
    assert_eq!(prompt(1), Ok(()));
}
