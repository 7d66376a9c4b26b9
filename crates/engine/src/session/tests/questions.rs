//! Questions of the agent: they are asked under every preset and answered once, with text.

use expect_test::expect;

use super::{check, check_running, check_unattended};

#[test]
fn the_first_reply_answers_a_question_and_the_late_one_is_refused() {
    check_running(
        "agent: which colour
         phone: reply 1 red
         editor: reply 1 green",
        expect![[r#"
            1 ask 1: colour?
            > wait for 1
            1 ask 1: AllowedOnce by phone
            > wake 1 with "red"
            ! permission request 1 is unknown or already answered
        "#]],
    );
}

#[test]
fn what_is_none_of_the_choices_leaves_the_question_open() {
    check_running(
        "agent: which colour
         editor: reply 1 blue
         editor: reply 1 green
         agent: question why
         editor: reply 2 because",
        expect![[r#"
            1 ask 1: colour?
            > wait for 1
            ! this is not a valid answer to question 1; choose one of red, green
            1 ask 1: AllowedOnce by editor
            > wake 1 with "green"
            1 ask 2: why?
            > wait for 2
            1 ask 2: AllowedOnce by editor
            > wake 2 with "because"
        "#]],
    );
}

#[test]
fn a_yes_or_a_no_lets_the_agent_decide_and_is_never_remembered() {
    check_running(
        "agent: which colour
         editor: always 1
         agent: which colour
         editor: never 2
         agent: which colour
         editor: deny 3
         agent: which colour
         editor: deny 4
         agent: which colour",
        expect![[r#"
            1 ask 1: colour?
            > wait for 1
            1 ask 1: DeniedOnce by editor
            > wake 1 DeniedOnce: the user lets you decide; say what you chose
            1 ask 2: colour?
            > wait for 2
            1 ask 2: DeniedOnce by editor
            > wake 2 DeniedOnce: the user lets you decide; say what you chose
            1 ask 3: colour?
            > wait for 3
            1 ask 3: DeniedOnce by editor
            > wake 3 DeniedOnce: the user lets you decide; say what you chose
            1 ask 4: colour?
            > wait for 4
            1 ask 4: DeniedOnce by editor
            > wake 4 DeniedOnce: the user lets you decide; say what you chose
            1 ask 5: colour?
            > wait for 5
        "#]],
    );
}

#[test]
fn words_neither_allow_nor_refuse_a_wish() {
    check_running(
        "agent: ask git push
         editor: reply 1 yes
         editor: deny 1",
        expect![[r#"
            1 ask 1: git push?
            > wait for 1
            ! 1 asks for permission and takes no other answer: allow or deny it
            1 ask 1: DeniedOnce by editor
            > wake 1 DeniedOnce: the user refused it
        "#]],
    );
}

#[test]
fn a_question_answered_with_the_end_of_the_turn_ends_it_if_the_turn_is_that_senders() {
    check_running(
        "agent: question why
         phone: cancel-turn 1
         agent: question why
         editor: cancel-turn 2
         agent: end",
        expect![[r#"
            1 ask 1: why?
            > wait for 1
            1 ask 1: Cancelled by phone
            > wake 1 Cancelled: the user wants to answer in the conversation: ask in your reply, and end your turn there
            1 ask 2: why?
            > wait for 2
            1 cancel by editor
            1 ask 2: Cancelled by engine
            > wake 2 Cancelled: the turn was cancelled
            > cancel 1
            1 ended by agent: Cancelled
        "#]],
    );
}

#[test]
fn whoever_gives_a_question_up_answers_in_the_conversation() {
    check_running(
        "agent: question why
         editor: withdraw 1",
        expect![[r#"
            1 ask 1: why?
            > wait for 1
            1 ask 1: Cancelled by editor
            > wake 1 Cancelled: the user wants to answer in the conversation: ask in your reply, and end your turn there
        "#]],
    );
}

#[test]
fn a_question_is_asked_under_every_preset_and_settled_by_a_cancel_and_a_deadline() {
    check(
        "editor: set approval full
         editor: prompt go
         agent: question why
         server: expire 1
         editor: set approval read-only
         agent: question why
         editor: cancel",
        expect![[r#"
            - approval = full by editor
            - notice: approval is full: everything runs without asking, except what your rules say to ask, programs that a project configures, and commands outside the sandbox
            > accepted 1
            1 started by editor
            1 editor says: go
            > start 1
            1 ask 1: why?
            > wait for 1
            1 ask 1: TimedOut by engine
            > wake 1 TimedOut: nobody answered in time; decide yourself, and state what you assumed
            - approval = read-only by editor
            1 ask 2: why?
            > wait for 2
            1 cancel by editor
            1 ask 2: Cancelled by engine
            > wake 2 Cancelled: the turn was cancelled
            > cancel 1
        "#]],
    );
}

#[test]
fn where_nobody_is_a_question_is_not_asked() {
    check_unattended(
        "editor: prompt go
         agent: question why",
        expect![[r#"
            > accepted 1
            1 started by editor
            1 editor says: go
            > start 1
            1 ask 1: DeniedOnce by policy
            > tell the tool DeniedOnce: nobody is available to answer; decide yourself, and state what you assumed
        "#]],
    );
}
