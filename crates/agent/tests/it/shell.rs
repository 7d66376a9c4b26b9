//! Commands: terminals, time limits, and what goes on in the background.

use std::time::Duration;

use engine::{Body, PermissionAnswer};
use expect_test::{Expect, expect};
use testkit::{Line, Script, call, say};

use crate::harness::Harness;

/// One prompt whose model makes the calls one after the other.
async fn check(calls: &[&str], expected: Expect) -> Harness {
    let replies = calls.iter().map(|call| vec![line(call)]).chain([vec![say("Done.")]]);
    let mut harness = Harness::with(Script::new(replies)).await;
    let events = harness.prompt("go").await;
    expected.assert_eq(&plain(&harness.lines(&events)));
    harness
}

/// Seconds are `N`, output is in one piece however it was cut, and what a terminal hides is shown.
fn plain(lines: &str) -> String {
    let seconds = regex::Regex::new(r"\b\d+ s\b").unwrap();
    let pieces = regex::Regex::new(r"(Stdout: .*)\n\d+ Stdout: ").unwrap();
    let mut lines = seconds.replace_all(lines, "N s").replace('\r', "<CR>").replace('\u{1b}', "<ESC>");
    while let std::borrow::Cow::Owned(joined) = pieces.replace(&lines, "$1") {
        lines = joined;
    }
    lines
}

/// `tool arguments`.
fn line(text: &str) -> Line {
    let (tool, arguments) = text.split_once(' ').unwrap();
    call(tool, arguments)
}

#[tokio::test]
async fn a_terminal_is_there_for_the_asking() {
    check(
        &[
            r#"shell {"command":"test -t 1 || echo no terminal; cat"}"#,
            r#"shell {"command":"test -t 0 && echo $TERM; stty size; printf '10%%\\r99%%\\n\\033[31mred\\033[0m\\n'","tty":true}"#,
        ],
        expect![[r#"
            1 starts: test -t 1 || echo no terminal; cat (Execute)
            asks Execute Medium test -t 1 || echo no terminal; cat
            1 Stdout: no terminal|
            1 ends: no terminal| exit Some(0) None
            2 starts: test -t 0 && echo $TERM; stty size; printf '10%%\r99%%\n\033[31mred\033[0m\n' (Execute)
            asks Execute Medium test -t 0 && echo $TERM; stty size; printf '10%%\r99%%\n\033[31mred\033[0m\n'
            2 Stdout: xterm-256color|40 120|10%<CR>99%|<ESC>[31mred<ESC>[0m|
            2 ends: xterm-256color|40 120|99%|red| exit Some(0) None
            say Done.
            title go
            EndTurn
        "#]],
    )
    .await;
}

#[tokio::test]
async fn a_command_that_takes_too_long_is_ended_and_what_it_wrote_is_told() {
    let harness = check(
        &[r#"shell {"command":"echo begun; sleep 300 & echo $! > pid; wait","timeout_seconds":1}"#],
        expect![[r#"
            1 starts: echo begun; sleep 300 & echo $! > pid; wait (Execute)
            asks Execute Medium echo begun; sleep 300 & echo $! > pid; wait
            1 Stdout: begun|
            1 fails: begun||[ended after N s: it took too long] exit Some(124) None
            say Done.
            title go
            EndTurn
        "#]],
    )
    .await;
    assert!(!alive(&harness.read("pid")), "its process tree is gone");
}

#[tokio::test]
async fn what_runs_in_the_background_is_seen_typed_to_and_ended_later() {
    let script = Script::new([
        vec![line(r#"shell {"command":"echo name?; read n; echo hello $n","background":true,"tty":true}"#)],
        vec![say("It runs.")],
        vec![line(r#"job_input {"job":"job-1","text":"you\n"}"#)],
        vec![line(r#"jobs {"action":"wait","job":"job-1","seconds":300}"#)],
        vec![line(r#"shell {"command":"sleep 300","background":true}"#)],
        vec![line(r#"jobs {"action":"list"}"#)],
        vec![line(r#"jobs {"action":"kill","job":"job-2"}"#)],
        vec![line(r#"jobs {"action":"output","job":"job-3"}"#)],
        vec![say("Done.")],
    ]);
    let mut harness = Harness::with(script).await;
    let mut events = harness.prompt("start").await;
    events.extend(harness.prompt("and now?").await);
    expect![[r#"
        1 starts: echo name?; read n; echo hello $n (Execute)
        asks Execute Medium echo name?; read n; echo hello $n
        1 ends: started in the background as job-1; what it writes is seen with the tool jobs
        say It runs.
        title start
        EndTurn
        2 starts: Type to job-1: you (Execute)
        asks Execute Medium you

        2 ends: typed; look at job-1 for the result
        3 starts: Wait for job-1 (Read)
        3 ends: job-1: ended with exit code 0 after N s (echo name?; read n; echo hello $n)|name?|hello you|
        4 starts: sleep 300 (Execute)
        4 ends: started in the background as job-2; what it writes is seen with the tool jobs
        5 starts: List background jobs (Read)
        5 ends: job-1: ended with exit code 0 after N s (echo name?; read n; echo hello $n)|job-2: running for N s (sleep 300)
        6 starts: End job-2 (Read)
        6 ends: job-2: killed after N s (sleep 300)|[no new output]
        7 starts: Look at job-3 (Read)
        7 fails: no background command "job-3"; there are job-1, job-2
        say Done.
        EndTurn
    "#]]
    .assert_eq(&plain(&harness.lines(&events)));
}

#[tokio::test]
async fn a_background_command_that_fails_at_once_has_failed() {
    check(
        &[r#"shell {"command":"echo no; exit 7","background":true}"#],
        expect![[r#"
            1 starts: echo no; exit 7 (Execute)
            asks Execute Medium echo no; exit 7
            1 fails: job-1: ended with exit code 7 after N s (echo no; exit 7)|no| exit Some(7) None
            say Done.
            title go
            EndTurn
        "#]],
    )
    .await;
}

#[tokio::test]
async fn a_cancel_and_the_end_of_a_turn_leave_the_background_alone_and_the_sessions_end_does_not() {
    let script = Script::new([
        vec![line(r#"shell {"command":"echo $$ > pid; exec sleep 300","background":true}"#)],
        vec![line(r#"jobs {"action":"wait","job":"job-1","seconds":300}"#)],
    ]);
    let mut harness = Harness::with(script).await;
    harness.send(vec![engine::Content::text("go")]).await;
    let waits = |body: &Body| matches!(body, Body::ToolStarted(start) if start.tool.as_ref() == "jobs");
    let mut events = harness.until(waits).await;
    harness.cancel().await;
    events.extend(harness.turn().await);
    expect![[r#"
        1 starts: echo $$ > pid; exec sleep 300 (Execute)
        asks Execute Medium echo $$ > pid; exec sleep 300
        1 ends: started in the background as job-1; what it writes is seen with the tool jobs
        2 starts: Wait for job-1 (Read)
        2 fails: the turn was cancelled
        title go
        Cancelled
    "#]]
    .assert_eq(&harness.lines(&events));
    let pid = harness.read("pid");
    assert!(alive(&pid));
    harness.restart().await;
    assert!(!alive(&pid), "the session has ended and waited for it");
}

#[tokio::test]
async fn typing_is_asked_for_and_judged_like_a_command() {
    let script = Script::new([
        vec![line(r#"shell {"command":"sh","background":true,"tty":true}"#)],
        vec![line(r#"job_input {"job":"job-1","text":"rm -rf /\n"}"#)],
        vec![say("Done.")],
    ]);
    let mut harness = Harness::with(script).await;
    harness.answer = PermissionAnswer::AllowOnce;
    harness.send(vec![engine::Content::text("go")]).await;
    let mut events = harness.until(|body| matches!(body, Body::Asked { .. })).await;
    harness.answer = PermissionAnswer::DenyOnce;
    events.extend(harness.until(|body| matches!(body, Body::Text { .. })).await);
    expect![[r#"
        1 starts: sh (Execute)
        asks Execute Medium sh
        1 ends: started in the background as job-1; what it writes is seen with the tool jobs
        2 starts: Type to job-1: rm -rf / (Execute)
        asks Execute Critical rm -rf /

        2 fails: not allowed: the user refused it
        say Done.
    "#]]
    .assert_eq(&harness.lines(&events));
}

fn alive(pid: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{}/stat", pid.trim()))
        .is_ok_and(|stat| !stat.rsplit(')').next().unwrap().trim_start().starts_with('Z'))
}

/// The whole of it takes longer than this only if something hangs.
#[tokio::test]
async fn waiting_for_a_job_ends_with_it() {
    let waited = check(
        &[
            r#"shell {"command":"sleep 1; echo over","background":true}"#,
            r#"jobs {"action":"wait","job":"job-1","seconds":300}"#,
        ],
        expect![[r#"
            1 starts: sleep 1; echo over (Execute)
            1 ends: started in the background as job-1; what it writes is seen with the tool jobs
            2 starts: Wait for job-1 (Read)
            2 ends: job-1: ended with exit code 0 after N s (sleep 1; echo over)|over|
            say Done.
            title go
            EndTurn
        "#]],
    );
    tokio::time::timeout(Duration::from_secs(60), waited).await.unwrap();
}

/// A repository without a commit, whose settings are these.
fn repository(harness: &Harness, settings: &str) {
    for (file, text) in [
        ("HEAD", "ref: refs/heads/main\n"),
        ("objects/info/kept", ""),
        ("refs/heads/kept/kept", ""),
        ("config", settings),
    ] {
        harness.write(&format!(".git/{file}"), text);
    }
    std::fs::remove_dir_all(harness.dir.join(".git/refs/heads/kept")).unwrap();
    harness.write("a.txt", "text\n");
}

async fn commands(settings: &str, lines: &[&str]) -> (Harness, String) {
    let shell = |line: &&str| vec![call("shell", serde_json::json!({ "command": line }).to_string())];
    let mut harness = Harness::with(Script::new(lines.iter().map(shell).chain([vec![say("Done.")]]))).await;
    repository(&harness, settings);
    let events = harness.prompt("go").await;
    let notices = events.iter().filter_map(|event| match &event.body {
        Body::Notice { text, .. } => Some(format!("notice: {text}\n")),
        _ => None,
    });
    let lines = harness.lines(&events) + &notices.collect::<String>();
    (harness, lines)
}

/// Git runs programs that a repository's settings name. A command that is run unasked must not.
#[tokio::test]
async fn git_that_only_looks_runs_nothing_of_the_repository() {
    let seen = "test -e ran && echo loud || echo quiet";
    let settings = "[core]\n\tfsmonitor = \"touch ran; false\"\n\thooksPath = ./hooks\n";
    let lines = ["git add a.txt; rm -f ran", "git status --short", seen, "git status --short > out", seen];
    let (_harness, said) = commands(settings, &lines).await;
    assert!(!said.contains("asks Execute Medium git status --short\n"), "{said}");
    assert!(said.contains("2 Stdout: A  a.txt"), "{said}");
    assert!(said.contains("3 Stdout: quiet"), "{said}");
    // One that was asked for is git as the person has it.
    assert!(said.contains("5 Stdout: loud"), "{said}");
}

#[tokio::test]
async fn git_in_a_repository_that_names_programs_of_its_own_is_asked_for() {
    for settings in [
        "[diff \"x\"]\n\ttextconv = ./run\n",
        "[diff]\n\texternal = ./run\n",
        "[filter \"x\"]\n\tclean = ./run\n",
    ] {
        let (_harness, said) = commands(settings, &["git status --short", "ls"]).await;
        assert!(said.contains("asks Execute Medium git status --short\n"), "{settings} {said}");
        assert!(!said.contains("asks Execute Medium ls\n"), "{said}");
    }
}

/// A version manager's shim runs what the workspace's files name, and so does a program in the workspace.
#[tokio::test]
async fn a_program_that_the_workspace_chooses_is_asked_for_although_it_only_says_its_version() {
    let lines =
        ["node --version", "timeout 5 node -v", "bash -c 'jq . a.json'", "cat a.json", "git --version"];
    let shell = |line: &&str| vec![call("shell", serde_json::json!({ "command": line }).to_string())];
    let script = Script::new(lines.iter().map(shell).chain([vec![say("Done.")]]));
    // An entry that is relative begins at the folder of the command.
    let files = [("tools/shims/node", "#!/bin/sh\n"), ("tools/shims/jq", "#!/bin/sh\n"), ("a.json", "{}")];
    let mut harness = Harness::project(script, &files, |config| {
        config.environment = vec![("PATH".into(), "tools/shims:/usr/bin:/bin".into())];
    })
    .await;
    let events = harness.prompt("go").await;
    let said = harness.lines(&events);
    for line in &lines[..3] {
        assert!(said.contains(&format!("asks Execute Medium {line}\n")), "{line}: {said}");
    }
    assert_eq!(said.matches("asks Execute").count(), 3, "{said}");
}

#[tokio::test]
async fn a_command_that_leaves_what_runs_something_later_is_told() {
    let line = "mkdir -p lib2/.git/hooks a/.vscode b/src";
    let (_harness, said) = commands("", &[line, "mkdir c", "ls"]).await;
    assert_eq!(said.matches("notice: ").count(), 1, "{said}");
    assert!(said.contains("run something: a/.vscode, lib2/.git (a nested repository); check them"), "{said}");
}

/// It goes on after its call, so what it leaves is looked for when it has ended, whether anybody looks or not.
#[tokio::test]
async fn what_a_background_command_leaves_that_can_run_something_is_told_once() {
    let script = Script::new([
        vec![line(
            r#"shell {"command":"read n; mkdir -p a/.vscode; read n; mkdir -p b/.git","background":true,"tty":true}"#,
        )],
        vec![say("It runs.")],
        vec![line(r#"job_input {"job":"job-1","text":"go\n"}"#)],
        vec![say("Typed.")],
        vec![line(r#"jobs {"action":"output","job":"job-1"}"#)],
        vec![line(r#"job_input {"job":"job-1","text":"on\n"}"#)],
        vec![say("Typed again.")],
        vec![line(r#"jobs {"action":"wait","job":"job-1","seconds":300}"#)],
        vec![say("Done.")],
    ]);
    let mut harness = Harness::with(script).await;
    let notices = |events: &[std::sync::Arc<engine::Event>]| -> Vec<String> {
        let text = |event: &std::sync::Arc<engine::Event>| match &event.body {
            Body::Notice { text, .. } => Some(text.to_string()),
            _ => None,
        };
        events.iter().filter_map(text).collect()
    };
    let mut events = harness.prompt("start").await;
    events.extend(harness.prompt("go").await);
    let made = async {
        while !harness.dir.join("a/.vscode").exists() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), made).await.unwrap();
    assert_eq!(notices(&events), [""; 0], "it runs, and nobody has looked");
    let looked = harness.prompt("look, and go on").await;
    assert!(notices(&looked).concat().contains(": a/.vscode; check them"), "{:?}", notices(&looked));
    // It ends, and nobody looks at it.
    let known = |events: &[std::sync::Arc<engine::Event>]| notices(events).concat().contains("b/.git");
    let mut ended = if known(&looked) {
        Vec::new()
    } else {
        harness.until(|body| matches!(body, Body::Notice { .. })).await
    };
    ended.extend(harness.prompt("wait").await);
    let all = notices(&looked.into_iter().chain(ended).collect::<Vec<_>>());
    assert_eq!(all.len(), 2, "{all:?}");
    assert!(all[1].contains(": b/.git (a nested repository); check them"), "{all:?}");
}
