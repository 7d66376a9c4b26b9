//! Nothing outlives a command that ran with a helper, however it ends.

use std::fs;
use std::time::Duration;

use sandbox::{ChildCommand, EndCause, Files, Mode, Output, Policy, run};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::fence::workspace::{Workspace, collect, run_in, until};

pub const MODES: [Mode; 3] = [Mode::ReadOnly, Mode::WorkspaceWriteNetwork, Mode::Off];
/// Leaves its parent and its session twice, and cannot be asked to end.
pub const DAEMON: &str = "import os, signal, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        print('ready', flush=True)
        time.sleep(300)
    time.sleep(300)
";

/// A word for command lines, by which a test finds its own processes.
pub fn word() -> String {
    static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let next = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    format!("fence-end-{}-{next}", std::process::id())
}

/// The processes of this machine that have the word in their command line.
pub fn living(word: &str) -> Vec<u32> {
    let pids =
        fs::read_dir("/proc").unwrap().filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
    let has_word = |pid: &u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(word)
    };
    pids.filter(has_word).collect()
}

fn place(space: &Workspace) -> &str {
    space.root().to_str().unwrap()
}

/// Starts the command and hands over once it has written something.
async fn started(
    command: ChildCommand,
    cancel: &CancellationToken,
) -> (impl Future<Output = sandbox::CommandExit> + use<>, mpsc::Receiver<Output>) {
    let (sender, mut receiver) = mpsc::channel(4);
    let mut running = Box::pin(run(command, cancel.clone(), sender));
    tokio::select! {
        ended = &mut running => panic!("{ended:?}"),
        output = receiver.recv() => assert!(matches!(output, Some(Output::Chunk(_))), "{output:?}"),
    }
    (async move { running.await.unwrap() }, receiver)
}

#[tokio::test]
async fn a_daemon_ends_with_the_command_that_started_it() {
    let space = Workspace::new();
    for mode in MODES {
        let word = word();
        let script = format!("{DAEMON}\nimport sys; sys.stdin.read()");
        let outcome = space.exec(mode, "python3", &["-c", &script, &word]).await.unwrap();
        assert_eq!(
            (outcome.ended.code, outcome.ended.cause),
            (Some(0), EndCause::Itself),
            "{mode} {}",
            outcome.stderr
        );
        assert_eq!(living(&word), Vec::<u32>::new(), "{mode}");
    }
}

#[tokio::test]
async fn a_cancelled_command_is_asked_first_and_leaves_nothing() {
    let space = Workspace::new();
    for mode in MODES {
        let (word, cancel) = (word(), CancellationToken::new());
        let line =
            format!("trap 'echo asked; exit 7' TERM; echo ready; while :; do sleep 0.01; done; : {word}");
        let (running, mut receiver) = started(space.command(mode, "/bin/sh", &["-c", &line]), &cancel).await;
        cancel.cancel();
        let ended = running.await;
        assert_eq!((ended.cause, ended.code), (EndCause::Cancelled, Some(7)), "{mode}");
        let mut said = Vec::new();
        while let Some(Output::Chunk(chunk)) = receiver.recv().await {
            said.extend(chunk.bytes);
        }
        assert!(String::from_utf8_lossy(&said).contains("asked\n"), "{mode}");
        assert_eq!(living(&word), Vec::<u32>::new(), "{mode}");
    }
}

#[tokio::test]
async fn a_command_that_does_not_listen_is_killed_with_all_it_started() {
    let space = Workspace::new();
    for mode in MODES {
        let (word, cancel) = (word(), CancellationToken::new());
        let script = format!(
            "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n{DAEMON}\ntime.sleep(300)"
        );
        let mut command = space.command(mode, "python3", &["-c", &script, &word]);
        command.limits.grace = Duration::from_millis(50);
        let (running, _receiver) = started(command, &cancel).await;
        assert_eq!(living(&word).len(), 3, "{mode}");
        cancel.cancel();
        let ended = running.await;
        assert_eq!((ended.cause, ended.signal.as_deref()), (EndCause::Cancelled, Some("SIGKILL")), "{mode}");
        assert_eq!(living(&word), Vec::<u32>::new(), "{mode}");
    }
    space.assert_clean();
}

#[tokio::test]
async fn the_time_limit_holds() {
    let mut space = Workspace::new();
    (space.limits.wall, space.limits.grace) = (Duration::from_millis(600), Duration::from_millis(50));
    for mode in MODES {
        let word = word();
        let line = format!("trap '' TERM; echo ready; while :; do sleep 0.05; done; : {word}");
        let outcome = run_in(&space, mode, &line).await;
        assert_eq!(
            (outcome.ended.cause, outcome.ended.signal.as_deref()),
            (EndCause::TimedOut, Some("SIGKILL")),
            "{mode}"
        );
        assert_eq!(living(&word), Vec::<u32>::new(), "{mode}");
    }
}

#[tokio::test]
async fn whoever_stops_waiting_leaves_nothing() {
    let space = Workspace::new();
    for mode in MODES {
        let word = word();
        let command = space.command(mode, "python3", &["-c", &format!("{DAEMON}\ntime.sleep(300)"), &word]);
        let (running, receiver) = started(command, &CancellationToken::new()).await;
        drop((running, receiver));
        until(|| living(&word).is_empty()).await;
    }
    until(|| fs::read_dir(space.root()).unwrap().count() == 0).await;
}

#[tokio::test]
async fn a_killed_helper_takes_everything_with_it() {
    let space = Workspace::new();
    for mode in [Mode::ReadOnly, Mode::WorkspaceWrite] {
        let word = word();
        let mut command =
            space.command(mode, "python3", &["-c", &format!("{DAEMON}\ntime.sleep(300)"), &word]);
        command.fence.as_mut().unwrap().helper.arguments = vec![(&word).into()];
        let (running, _receiver) = started(command, &CancellationToken::new()).await;
        // The helper, its first process inside, which is a copy of it, and three of the command.
        let helper = *living(&word).iter().min().unwrap();
        let pid = rustix::process::Pid::from_raw(i32::try_from(helper).unwrap()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        assert_eq!(running.await.signal.as_deref(), Some("SIGKILL"));
        until(|| living(&word).is_empty()).await;
    }
    // What it could not tidy up, whoever next opens the workspace does.
    let left = |name: &str| space.root().join(name).exists();
    assert!(left(".vscode") && left(".git"), "a killed helper leaves names taken");
    let policy = Policy { mode: Mode::WorkspaceWrite, roots: vec![space.root().into()], ..Policy::default() };
    drop(Files::open(policy).unwrap());
    assert!(!left("HEAD"));
    space.assert_clean();
    // So does the next command.
    assert_eq!(run_in(&space, Mode::WorkspaceWrite, "true").await.ended.code, Some(0));
    space.assert_clean();
}

#[tokio::test]
async fn a_command_dies_with_the_program_that_started_it() {
    let space = Workspace::new();
    for mode in MODES {
        let word = word();
        let program = std::env::current_exe().unwrap();
        let arguments =
            ["--ignored", "--exact", "--nocapture", "fence::termination::starts_a_daemon_and_waits"];
        let mut command = space.command(mode, program.to_str().unwrap(), &arguments);
        command.fence = None;
        let told =
            [("FENCE_WORD", word.as_str()), ("FENCE_MODE", mode.name()), ("FENCE_PLACE", place(&space))];
        command.environment.extend(told.map(|(key, value)| (key.into(), value.into())));
        let (running, receiver) = started(command, &CancellationToken::new()).await;
        until(|| living(&word).len() >= 3).await;
        // The program is killed outright and cannot tidy up.
        drop((running, receiver));
        until(|| living(&word).is_empty()).await;
        // The helper has freed the names in the other's workspace.
        let empty =
            |entry: std::io::Result<fs::DirEntry>| fs::read_dir(entry.unwrap().path()).unwrap().count() == 0;
        until(|| fs::read_dir(space.root()).unwrap().all(empty)).await;
    }
}

#[tokio::test]
#[ignore = "only as a process of its own, for the test above"]
#[expect(clippy::disallowed_methods, reason = "this is a program of its own")]
async fn starts_a_daemon_and_waits() {
    let told = |key: &str| std::env::var(key).unwrap();
    let (word, mode) = (told("FENCE_WORD"), told("FENCE_MODE"));
    let space = Workspace::under(&told("FENCE_PLACE"));
    println!("starting");
    space
        .exec(mode.parse().unwrap(), "python3", &["-c", &format!("{DAEMON}\ntime.sleep(300)"), &word])
        .await
        .unwrap();
}

#[tokio::test]
async fn a_flood_is_counted_and_ended_at_its_limit() {
    let mut space = Workspace::new();
    space.limits.forward_bytes_max = 10;
    space.limits.output_bytes_max = 1 << 20;
    for mode in MODES {
        let outcome = collect(space.command(mode, "cat", &["/dev/zero"])).await.unwrap();
        assert_eq!((outcome.ended.cause, outcome.stdout.len()), (EndCause::TooMuchOutput, 10), "{mode}");
    }
}
