//! What happens to waiting permission requests when another approval preset is chosen.

use expect_test::expect;

use super::check;

/// Whoever chooses it has said yes, and the log says who.
#[test]
fn a_looser_approval_allows_what_waits_and_would_not_have_been_asked() {
    check(
        "editor: set approval suggest
         editor: prompt go
         agent: ask git push
         agent: edit notes.txt
         agent: which colour
         phone: set approval auto
         phone: set auto_approve full
         editor: allow 1",
        expect![[r#"
            - approval = suggest by editor
            > accepted 1
            1 started by editor
            1 editor says: go
            > start 1
            1 ask 1: git push?
            > wait for 1
            1 ask 2: notes.txt?
            > wait for 2
            1 ask 3: colour?
            > wait for 3
            - approval = auto by phone
            1 ask 2: AllowedOnce by phone
            > wake 2 AllowedOnce: the user allowed it
            - approval = full by phone
            - notice: approval is full: everything runs without asking, except what your rules say to ask, programs that a project configures, and commands outside the sandbox
            1 ask 1: AllowedOnce by phone
            > wake 1 AllowedOnce: the user allowed it
            ! permission request 1 is unknown or already answered
        "#]],
    );
}

/// A rule that was written meanwhile allows, too. Zeph's name takes a switch, and the approval's own does not.
#[test]
fn what_a_rule_allows_by_now_does_not_wait_and_only_zephs_name_is_a_switch() {
    check(
        "editor: set approval strict
         editor: prompt go
         agent: ask git push
         agent: ask git pull
         rules: allow git push
         editor: set approval suggest
         phone: set approval true
         phone: set auto_approve false
         phone: set auto_approve true",
        expect![[r#"
            - approval = strict by editor
            > accepted 1
            1 started by editor
            1 editor says: go
            > start 1
            1 ask 1: git push?
            > wait for 1
            1 ask 2: git pull?
            > wait for 2
            - approval = suggest by editor
            1 ask 1: AllowedOnce by editor
            > wake 1 AllowedOnce: the user allowed it
            ! "true" is not a valid value for approval; choose one of read-only, strict, suggest, auto, full
            - approval = full by phone
            - notice: approval is full: everything runs without asking, except what your rules say to ask, programs that a project configures, and commands outside the sandbox
            1 ask 2: AllowedOnce by phone
            > wake 2 AllowedOnce: the user allowed it
        "#]],
    );
}

/// A rule, also one that was written while the question waited; the owner's consent; a mode; a stricter approval.
#[test]
fn a_looser_approval_leaves_what_is_always_asked_or_refused() {
    check(
        "editor: set approval suggest
         rules: ask git push
         editor: prompt go
         agent: ask git push
         agent: ask git pull
         agent: outside ls
         agent: mcp_server npx a
         rules: deny git pull
         editor: set approval full
         editor: set approval suggest
         agent: ask git fetch
         editor: set mode ask
         editor: set approval full
         editor: set approval read-only
         editor: set approval sometimes",
        expect![[r#"
            - approval = suggest by editor
            > accepted 1
            1 started by editor
            1 editor says: go
            > start 1
            1 ask 1: git push?
            > wait for 1
            1 ask 2: git pull?
            > wait for 2
            1 ask 3: ls?
            > wait for 3
            1 ask 4: npx a?
            > wait for 4
            - approval = full by editor
            - notice: approval is full: everything runs without asking, except what your rules say to ask, programs that a project configures, and commands outside the sandbox
            - approval = suggest by editor
            1 ask 5: git fetch?
            > wait for 5
            - mode = ask by editor
            - approval = full by editor
            - notice: approval is full: everything runs without asking, except what your rules say to ask, programs that a project configures, and commands outside the sandbox
            - approval = read-only by editor
            ! "sometimes" is not a valid value for approval; choose one of read-only, strict, suggest, auto, full
        "#]],
    );
}
