//! Commands that would run outside the sandbox: who can allow them.

use expect_test::expect;

use super::{check, check_running, check_unattended};

#[test]
fn a_command_leaves_the_fence_by_the_word_of_the_owner_at_the_machine_alone() {
    check(
        "editor: set approval full
         editor: prompt go
         agent: outside make
         elsewhere: allow 1
         client: always 1
         editor: allow 1
         agent: outside make
         editor: always 2
         agent: outside make
         agent: outside make clean
         editor: never 4
         agent: outside make clean
         agent: ask make clean",
        expect![[r#"
            - approval = full by editor
            - notice: approval is full: everything runs without asking, except what your rules say to ask, programs that a project configures, and commands outside the sandbox
            > accepted 1
            1 started by editor
            1 editor says: go
            > start 1
            1 ask 1: make?
            > wait for 1
            ! 1: only the owner at the machine can allow a command in the editor's terminal, outside the sandbox: answer in a terminal or browser there, or remove `terminal = "editor"` from the settings there to run it inside the sandbox
            ! 1: only the owner at the machine can allow a command in the editor's terminal, outside the sandbox: answer in a terminal or browser there, or remove `terminal = "editor"` from the settings there to run it inside the sandbox
            1 ask 1: AllowedOnce by editor
            > wake 1 AllowedOnce: the user allowed it
            1 ask 2: make?
            > wait for 2
            > remember editor-terminal:make: true
            1 ask 2: AllowedAlways by editor
            > wake 2 AllowedAlways: the user allowed it
            1 ask 3: AllowedAlways by rule
            > tell the tool AllowedAlways: trusted: r (test)
            1 ask 4: make clean?
            > wait for 4
            > remember editor-terminal:make clean: false
            1 ask 4: DeniedAlways by editor
            > wake 4 DeniedAlways: the user refused it and never wants to be asked again
            1 ask 5: DeniedAlways by rule
            > tell the tool DeniedAlways: refused by the rule r (test)
            1 ask 6: AllowedOnce by policy
            > tell the tool AllowedOnce: approval is set to full
        "#]],
    );
}

/// Refusing is anybody's, and holds where the command would run, not inside the fence.
#[test]
fn what_somebody_else_refuses_for_good_outside_the_fence_may_run_inside_it() {
    check_running(
        "agent: outside make
         client: never 1
         agent: outside make
         agent: ask make
         client: never 3
         agent: ask make
         agent: ask ls
         client: always 5
         agent: outside ls",
        expect![[r#"
            1 ask 1: make?
            > wait for 1
            1 ask 1: DeniedAlways by client
            > wake 1 DeniedAlways: the user refused it and never wants to be asked again
            1 ask 2: DeniedAlways by rule
            > tell the tool DeniedAlways: refused by the rule ask(make) (an answer for this session)
            1 ask 3: make?
            > wait for 3
            1 ask 3: DeniedAlways by client
            > wake 3 DeniedAlways: the user refused it and never wants to be asked again
            1 ask 4: DeniedAlways by rule
            > tell the tool DeniedAlways: refused by the rule ask(make) (an answer for this session)
            1 ask 5: ls?
            > wait for 5
            1 ask 5: AllowedAlways by client
            > wake 5 AllowedAlways: the user allowed it
            1 ask 6: ls?
            > wait for 6
        "#]],
    );
}

#[test]
fn nobody_at_a_terminal_means_that_no_command_leaves_the_fence() {
    check_unattended(
        "editor: set approval full
         editor: prompt go
         agent: outside make
         agent: ask make",
        expect![[r#"
            - approval = full by editor
            - notice: approval is full: everything runs without asking, except what your rules say to ask, programs that a project configures, and commands outside the sandbox
            > accepted 1
            1 started by editor
            1 editor says: go
            > start 1
            1 blocked by unattended
            1 ask 1: DeniedOnce by policy
            > tell the tool DeniedOnce: it would run in the editor's terminal, outside the sandbox, and nobody at this machine can be asked; remove `terminal = "editor"` from this machine's settings to run it inside the sandbox
            1 ask 2: AllowedOnce by policy
            > tell the tool AllowedOnce: approval is set to full
        "#]],
    );
}
