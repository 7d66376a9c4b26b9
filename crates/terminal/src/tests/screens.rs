use expect_test::{Expect, expect};
use serde_json::json;

use super::harness::{Harness, ask, card, diff, prompt, row, said, state, tool};
use crate::WhichSession;

fn check(harness: &mut Harness, width: u16, height: u16, expected: &Expect) {
    expected.assert_eq(&harness.screen(width, height));
}

/// A turn in the middle: everything that a session can show.
fn busy() -> Harness {
    let mut harness = Harness::open();
    let plan = json!({"steps": [{"text": "Look", "state": "done"}, {"text": "Make the change", "state": "running"},
        {"text": "Check", "state": "pending"}]});
    harness.view(
        false,
        json!([
            prompt(1, "weave it"),
            row(2, json!({"is": "thought", "text": "Let me see.\nThere is a knot.", "more": 0})),
            said(3, "I will look at **src** first:\n\n- the net\n- the rope"),
            tool(4, &json!({"title": "Read src/net.rs", "kind": "read", "tool": "read", "elapsedMs": 12})),
            tool(5, &json!({"title": "Edit src/net.rs", "kind": "edit", "diffs": [diff()], "elapsedMs": 3})),
            tool(6, &json!({"state": "failed", "exit": 101, "output": "\u{1b}[31merror\u{1b}[0m: the knot is loose\ntest failed"})),
            tool(7, &json!({"title": "make", "state": "running", "output": "one\ntwo\nthree\nfour", "exit": null, "elapsedMs": null})),
        ]),
        state(&json!({"busy": true, "turn": 1, "turnAt": 1_699_999_988_000_i64, "plan": plan,
            "queue": [{"turn": 2, "from": "terminal", "text": "then push it"}]})),
    );
    harness
}

#[test]
fn a_turn_is_seen_as_it_goes() {
    check(
        &mut busy(),
        80,
        30,
        &expect![[r#"
            Weave the net                                                    Working 12 s ●
            ~/loom · offline · code · auto · 38 % context · $0.42
            › weave it

            ∴ Let me see. There is a knot.

            I will look at src first:

            • the net
            • the rope

            ✓ R Read src/net.rs  12 ms
            ✓ E Edit src/net.rs  +1 −1 · 3 ms
                src/net.rs  +1 −1
                 9   fn knot() {
                10 -     loose();
                10 +     tight();
                11   }
            ✗ $ cargo test  exit 101 · 1.2 s
                error: the knot is loose
                test failed
            ◌ $ make  running
                two
                three
                four
            Plan 1/3: Make the change  Ctrl-P opens
            queued: then push it
            ────────────────────────────────────────────────────────────────────────────────
            › Write the next prompt; it is queued
            Enter queues · Esc Esc stops · Tab transcript · Ctrl-X unqueues · ? help
        "#]],
    );
}

#[test]
fn a_narrow_terminal_shows_the_same() {
    check(
        &mut busy(),
        40,
        20,
        &expect![[r#"
            Weave the net            Working 12 s ●
            offline · code · auto · 38 % context · …
            ✓ E Edit src/net.rs  +1 −1 · 3 ms
                src/net.rs  +1 −1
                 9   fn knot() {
                10 -     loose();
                10 +     tight();
                11   }
            ✗ $ cargo test  exit 101 · 1.2 s
                error: the knot is loose
                test failed
            ◌ $ make  running
                two
                three
                four
            Plan 1/3: Make the change  Ctrl-P opens
            queued: then push it
            ────────────────────────────────────────
            › Write the next prompt; it is queued
            Enter queues · Esc Esc stops
        "#]],
    );
}

#[test]
fn a_plan_unfolds() {
    let mut harness = busy();
    harness.keys("ctrl-p");
    check(
        &mut harness,
        60,
        16,
        &expect![[r#"
            Weave the net                                Working 12 s ●
            ~/loom · offline · code · auto · 38 % context · $0.42
                error: the knot is loose
                test failed
            ◌ $ make  running
                two
                three
                four
            Plan 1/3: Make the change  Ctrl-P closes
              ☑ Look
              ▸ Make the change
              ☐ Check
            queued: then push it
            ────────────────────────────────────────────────────────────
            › Write the next prompt; it is queued
            Enter queues · Esc Esc stops · Tab transcript
        "#]],
    );
}

#[test]
fn a_permission_shows_exactly_what_would_be_done() {
    let mut harness = Harness::open();
    let asks =
        json!([ask(9, "high", "rm -rf target && \\\n  git push --force origin main"), ask(10, "low", "ls")]);
    harness.view(false, json!([prompt(1, "clean up")]), state(&json!({"busy": true, "asks": asks})));
    check(
        &mut harness,
        80,
        24,
        &expect![[r#"
            Weave the net                                                       Needs you ●
            ~/loom · offline · code · auto · 38 % context · $0.42












            › clean up
            ▌ Run a command 1 of 2  high risk
            │ it changes files
            │ rm -rf target && \
            │   git push --force origin main
            │ in /home/dev/loom
            │ y allow once  A always, by a rule  n deny  D deny, say why
            ────────────────────────────────────────────────────────────────────────────────
            › Tab to write here
            Tab to prompt · ↑↓ scroll · ←→ other requests · ? help
        "#]],
    );
    check(
        &mut harness,
        40,
        20,
        &expect![[r#"
            Weave the net               Needs you ●
            offline · code · auto · 38 % context · …








            › clean up
            ▌ Run a command 1 of 2  high risk
            │ it changes files
            │ rm -rf target && \
            │   git push --force origin main
            │ in /home/dev/loom
            │ y once  A rule  n deny  D say why
            ────────────────────────────────────────
            › Tab to write here
            Tab to prompt · ↑↓ scroll
        "#]],
    );
}

#[test]
fn an_edit_is_asked_with_its_difference() {
    let mut harness = Harness::open();
    let mut edit = ask(9, "medium", "src/net.rs");
    edit["title"] = "Edit a file".into();
    edit["diffs"] = json!([diff()]);
    harness.view(false, json!([prompt(1, "tighten")]), state(&json!({"busy": true, "asks": [edit]})));
    check(
        &mut harness,
        60,
        18,
        &expect![[r#"
            Weave the net                                   Needs you ●
            ~/loom · offline · code · auto · 38 % context · $0.42



            › tighten
            ▌ Edit a file  medium risk
            │ it changes files
            │ src/net.rs  +1 −1
            │  9   fn knot() {
            │ 10 -     loose();
            │ 10 +     tight();
            │ 11   }
            │ in /home/dev/loom
            │ y allow once  A always, by a rule  n deny  D deny, say why
            ────────────────────────────────────────────────────────────
            › Tab to write here
            Tab to prompt · ↑↓ scroll · ←→ other requests · ? help
        "#]],
    );
}

#[test]
fn commands_are_offered_as_they_are_typed() {
    let mut harness = Harness::open();
    harness.write("/mo");
    check(
        &mut harness,
        60,
        14,
        &expect![[r#"
            Weave the net                                       Ready ●
            ~/loom · offline · code · auto · 38 % context · $0.42

              What should the agent do?
              / lists commands, @ names a file, ? shows the keys




              /model  Model (now offline)
              /mode   Mode (now code)
            ────────────────────────────────────────────────────────────
            › /mo
            Enter selects · ↑↓ choose · Esc closes
        "#]],
    );
    harness.keys("enter");
    check(
        &mut harness,
        60,
        14,
        &expect![[r#"
            Weave the net                                       Ready ●
            ~/loom · offline · code · auto · 38 % context · $0.42

              What should the agent do?
              / lists commands, @ names a file, ? shows the keys




              offline        Offline
              offline-terse  says less
            ────────────────────────────────────────────────────────────
            › /model
            Enter selects · ↑↓ choose · Esc closes
        "#]],
    );
}

#[test]
fn sessions_that_need_somebody_stand_first() {
    let mut harness = Harness::new(WhichSession::Any, true);
    let mut waiting = card("bbbb", "Mend the sail", "/home/dev/sail", "waiting", 1_699_999_000_000);
    waiting["asks"] = json!([ask(1, "high", "rm x")]);
    let mut other = card("cccc", "Tar the deck", "/home/dev/deck", "waiting", 1_699_900_000_000);
    other["asks"] = json!([ask(2, "low", "ls")]);
    let done = card("aaaa", "Weave the net", "/home/dev/loom", "done", 1_699_999_990_000);
    harness.greet(json!([done, waiting, other]));
    check(
        &mut harness,
        60,
        12,
        &expect![[r#"
            Sessions                                                  ●
            Needs you: 2
            Waiting   Mend the sail                              16 min
                      asks: Run a command
            Waiting   Tar the deck                                  1 d
                      asks: Run a command
            Done      Weave the net                                 now
                      /home/dev/loom



            Enter opens · ↑↓ choose · type to filter · Esc goes back
        "#]],
    );
}

#[test]
fn a_new_session_says_how_to_begin_and_help_explains_the_keys() {
    let mut harness = Harness::open();
    check(
        &mut harness,
        60,
        10,
        &expect![[r#"
            Weave the net                                       Ready ●

              What should the agent do?
              / lists commands, @ names a file, ? shows the keys



            ────────────────────────────────────────────────────────────
            › Ask a question or describe a task
            Enter sends · Alt-Enter new line · / commands · @ files
        "#]],
    );
    harness.keys("?");
    check(
        &mut harness,
        80,
        24,
        &expect![[r#"
            Weave the net                                                           Ready ●
            ~/loom · offline · code · auto · 38 % context · $0.42
            Enter               send; while a turn runs, the prompt is queued
            Alt-Enter, Ctrl-J   new line
            Up, Down            prompts that you sent before
            / and @             commands and settings; files
            Esc Esc, Ctrl-C     stop the turn
            Ctrl-X              remove the last queued prompt
            PgUp, PgDn, wheel   scroll; Ctrl-Home, Ctrl-End: to the start, to the end
            Tab                 switch between request, transcript and prompt
            e, Enter            open or close the selected entry; Ctrl-O the last
            w, [ and ]          show a shortened entry in full; previous, next prompt
            Ctrl-P              open or close the plan
            o                   show the address of this session for a browser
            y or a              allow once (press twice if it is risky)
            A                   allow always: shows what and how long, then A again
            n or d, D           deny; deny and say why
            1 to 9              choose an answer to a question; Enter writes another
            /new, /copy         start a new session; copy the last answer
            Ctrl-D, /exit, /quit quit, a turn on a server continues; Ctrl-L redraws
            To select text, hold Shift and use the mouse
            ────────────────────────────────────────────────────────────────────────────────
            › Ask a question or describe a task
            any key goes back
        "#]],
    );
}

#[test]
fn what_an_ended_turn_came_to_is_one_line() {
    let mut harness = Harness::open();
    let ended = |id: u64, stop: &str, error: Option<&str>| {
        row(
            id,
            json!({"is": "ended", "stop": stop, "error": error, "elapsedMs": 48_000, "tools": 12, "files": 3, "costUsd": 0.031}),
        )
    };
    harness.view(
        false,
        json!([
            prompt(1, "a"),
            ended(2, "endTurn", None),
            prompt(3, "b"),
            ended(4, "failed", Some("the provider has no room")),
            row(5, json!({"is": "notice", "level": "warning", "text": "the budget is nearly spent"})),
            row(6, json!({"is": "note", "text": "the model is offline-terse"})),
            row(7, json!({"is": "question", "text": "Which rope?", "reply": "hemp", "by": "iPhone"})),
            tool(8, &json!({"title": "sub", "kind": "other"})),
            json!({"id": 9, "rev": 9, "at": 1, "turn": 1, "under": 8, "is": "said", "text": "below", "more": 2048}),
        ]),
        state(&json!({"others": ["iPhone"]})),
    );
    check(
        &mut harness,
        70,
        24,
        &expect![[r#"
            Weave the net                                                 Ready ●
            ~/loom · offline · code · auto · 38 % context · $0.42 · with iPhone

            › a

            ✓ done · 48 s · 12 actions · 3 files · $0.03

            › b

            ✗ failed: the provider has no room · 48 s · 12 actions · 3 files · $0…

            ! the budget is nearly spent
            · the model is offline-terse

            ? Which rope?
            → hemp (iPhone)

            ✓ * sub  1.2 s

            │ below
            │ … 2 KB more (w shows all)
            ──────────────────────────────────────────────────────────────────────
            › Ask a question or describe a task
            Enter sends · Alt-Enter new line · / commands · @ files
        "#]],
    );
}
