//! What the sandbox promises about commands, tried with real ones.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::time::Duration;

use sandbox::{
    ChildCommand, Chunk, CommandExit, CommandLimits, EndCause, Output, Program, PseudoTerminal, ServicePipes,
    ServiceProcess, StdStream, WindowSize, run, run_in_terminal,
};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

fn shell(line: &str) -> ChildCommand {
    ChildCommand {
        program: Program::Shell(line.into()),
        cwd: "/".into(),
        environment: vec![("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into())],
        limits: CommandLimits::default(),
        fence: None,
    }
}

async fn collect(command: ChildCommand) -> (CommandExit, String, String) {
    let (sender, mut receiver) = mpsc::channel::<Output>(4);
    let gather = async {
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        while let Some(Output::Chunk(chunk)) = receiver.recv().await {
            match chunk.stream {
                StdStream::Stdout => stdout.extend(chunk.bytes),
                StdStream::Stderr => stderr.extend(chunk.bytes),
            }
        }
        (String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
    };
    let (ended, (stdout, stderr)) = tokio::join!(run(command, CancellationToken::new(), sender), gather);
    (ended.unwrap(), stdout, stderr)
}

fn chunk(output: Option<Output>) -> Chunk {
    match output {
        Some(Output::Chunk(chunk)) => chunk,
        other => panic!("{other:?}"),
    }
}

/// Whether a process is there and not merely waiting to be reaped.
fn alive(pid: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(')').next().unwrap().trim_start().starts_with('Z'))
}

async fn wait_until_gone(pid: &str) {
    let gone = async {
        while alive(pid) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(5), gone).await.unwrap();
}

#[tokio::test]
async fn the_exit_code_is_reported_exactly() {
    let (ended, stdout, stderr) = collect(shell("echo out; echo err >&2; exit 3")).await;
    assert_eq!((ended.code, ended.signal, ended.cause), (Some(3), None, EndCause::Itself));
    assert_eq!((stdout.as_str(), stderr.as_str()), ("out\n", "err\n"));
    assert_eq!((ended.output_bytes, ended.dropped_bytes), (8, 0));
}

#[tokio::test]
async fn the_signal_is_reported_by_name() {
    let (ended, ..) = collect(shell("kill -SEGV $$")).await;
    assert_eq!((ended.code, ended.signal.as_deref()), (None, Some("SIGSEGV")));
}

#[tokio::test]
async fn the_environment_is_only_what_was_given() {
    let (_, stdout, _) = collect(shell("env | grep -v -e ^PWD= -e ^_= -e ^SHLVL=; cat")).await;
    assert_eq!(stdout, "PATH=/usr/local/bin:/usr/bin:/bin\n");
}

#[tokio::test]
async fn a_program_that_does_not_exist_is_an_error() {
    let program = Program::Exec { program: "/no/such/program".into(), arguments: vec![] };
    let (sender, _receiver) = mpsc::channel(1);
    let outcome = run(ChildCommand { program, ..shell("") }, CancellationToken::new(), sender).await;
    assert_eq!(outcome.unwrap_err().to_string(), "the command could not be started");
}

#[tokio::test]
async fn output_arrives_while_the_command_runs_and_cancel_ends_its_grandchildren() {
    let (sender, mut receiver) = mpsc::channel::<Output>(4);
    let cancel = CancellationToken::new();
    let line = "sh -c 'trap \"\" TERM; sleep 300 & echo $!; wait'; echo never";
    let watch = async {
        let pid = String::from_utf8(chunk(receiver.recv().await).bytes).unwrap().trim().to_owned();
        assert!(alive(&pid));
        cancel.cancel();
        pid
    };
    let (ended, pid) = tokio::join!(run(shell(line), cancel.clone(), sender), watch);
    assert_eq!(ended.unwrap().cause, EndCause::Cancelled);
    wait_until_gone(&pid).await;
}

#[tokio::test]
async fn a_process_that_made_its_own_group_ends_too() {
    let (sender, mut receiver) = mpsc::channel::<Output>(4);
    let cancel = CancellationToken::new();
    // `timeout` makes itself a group of its own.
    let line = "timeout 300 sh -c 'echo $$; exec sleep 300'; true";
    let watch = async {
        let pid = String::from_utf8(chunk(receiver.recv().await).bytes).unwrap();
        cancel.cancel();
        pid
    };
    let (_, pid) = tokio::join!(run(shell(line), cancel.clone(), sender), watch);
    wait_until_gone(pid.trim()).await;
}

#[tokio::test]
async fn a_command_dies_with_the_process_that_started_it() {
    let (sender, mut receiver) = mpsc::channel::<Output>(4);
    let program = std::env::current_exe().unwrap();
    let arguments =
        ["--ignored", "--exact", "--nocapture", "run::starts_a_command_and_waits"].map(Into::into);
    let command =
        ChildCommand { program: Program::Exec { program, arguments: arguments.into() }, ..shell("") };
    let watch = async {
        let mut output = String::new();
        loop {
            output += &String::from_utf8(chunk(receiver.recv().await).bytes).unwrap();
            if let Some(pid) = output.split("pid=").nth(1).and_then(|rest| rest.split_once('\n')) {
                return pid.0.to_owned();
            }
        }
    };
    // The helper is killed outright and cannot tidy up; its command is in another session.
    let pid = tokio::select! {
        _ = run(command, CancellationToken::new(), sender) => panic!("it ended"),
        pid = watch => pid,
    };
    wait_until_gone(&pid).await;
}

#[tokio::test]
#[ignore = "only as a process of its own, for the test above"]
async fn starts_a_command_and_waits() {
    let (sender, mut receiver) = mpsc::channel::<Output>(4);
    let show = async {
        while let Some(Output::Chunk(chunk)) = receiver.recv().await {
            println!("pid={}", String::from_utf8(chunk.bytes).unwrap().trim());
        }
    };
    let (ended, ()) =
        tokio::join!(run(shell("echo $$; exec sleep 300"), CancellationToken::new(), sender), show);
    ended.unwrap();
}

#[tokio::test]
async fn dropping_the_wait_ends_the_command() {
    let (sender, mut receiver) = mpsc::channel::<Output>(4);
    let pid = tokio::select! {
        _ = run(shell("sleep 300 & echo $!; wait"), CancellationToken::new(), sender) => panic!("it ended"),
        output = receiver.recv() => String::from_utf8(chunk(output).bytes).unwrap(),
    };
    wait_until_gone(pid.trim()).await;
}

#[tokio::test]
async fn what_a_command_leaves_in_the_background_ends_with_it() {
    let (ended, stdout, _) = collect(shell("sleep 300 & echo $!")).await;
    assert_eq!((ended.code, ended.cause), (Some(0), EndCause::Itself));
    wait_until_gone(stdout.trim()).await;
}

#[tokio::test]
async fn the_time_limit_ends_the_command_even_if_it_ignores_the_polite_signal() {
    let mut command = shell("trap '' TERM; while :; do sleep 0.05; done");
    command.limits.wall = Duration::from_millis(100);
    command.limits.grace = Duration::from_millis(100);
    let (ended, ..) = collect(command).await;
    assert_eq!((ended.cause, ended.signal.as_deref()), (EndCause::TimedOut, Some("SIGKILL")));
}

#[tokio::test]
async fn a_command_that_closes_its_output_goes_on() {
    let (ended, ..) = collect(shell("exec >&- 2>&-; sleep 0.05; exit 7")).await;
    assert_eq!(ended.code, Some(7));
}

#[tokio::test]
async fn a_flood_is_counted_but_not_kept() {
    let before = resident_kib();
    let (ended, stdout, _) = collect(shell("head -c 104857600 /dev/zero")).await;
    assert_eq!(ended.code, Some(0));
    assert_eq!((ended.output_bytes, ended.dropped_bytes), (100 << 20, (100 << 20) - (1 << 20)));
    assert_eq!(stdout.len(), 1 << 20);
    assert!(resident_kib() < before + 20_000, "memory must stay flat");
}

#[tokio::test]
async fn the_hard_output_cap_ends_the_command() {
    let mut command = shell("cat /dev/zero");
    command.limits.forward_bytes_max = 10;
    command.limits.output_bytes_max = 1 << 20;
    let (ended, stdout, _) = collect(command).await;
    assert_eq!((ended.cause, stdout.len()), (EndCause::TooMuchOutput, 10));
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

const WINDOW: WindowSize = WindowSize { columns: 100, rows: 30 };

/// Runs a line in a terminal and types each text once the one before it was answered by a line.
async fn in_terminal(line: &str, typed: &[&str]) -> (CommandExit, String) {
    let (keys, queue) = mpsc::channel(4);
    let (sender, mut receiver) = mpsc::channel::<Output>(4);
    let terminal = PseudoTerminal { window: WINDOW, typed: Some(queue) };
    let people = async {
        let (mut shown, mut typed) = (String::new(), typed.iter());
        let mut lines = 0;
        while let Some(Output::Chunk(Chunk { stream, bytes })) = receiver.recv().await {
            assert_eq!(stream, StdStream::Stdout, "a terminal has one output");
            shown.push_str(&String::from_utf8(bytes).unwrap());
            while lines < shown.matches('\n').count() {
                lines += 1;
                if let Some(text) = typed.next() {
                    keys.send(text.as_bytes().to_vec()).await.unwrap();
                }
            }
        }
        shown
    };
    let cancel = CancellationToken::new();
    let (ended, shown) = tokio::join!(run_in_terminal(shell(line), terminal, cancel, sender), people);
    (ended.unwrap(), shown)
}

#[tokio::test]
async fn a_command_in_a_terminal_has_one_of_the_size_that_was_wanted() {
    let line =
        "test -t 0 && test -t 1 && test -t 2 && echo all; stty size; echo err >&2; : > /dev/tty; exit 3";
    let (ended, shown) = in_terminal(line, &[]).await;
    assert_eq!((shown.as_str(), ended.code, ended.cause), ("all\n30 100\nerr\n", Some(3), EndCause::Itself));
}

#[tokio::test]
async fn what_is_typed_is_read_and_not_echoed_and_keys_of_the_terminal_work() {
    let line = "echo name?; read n; echo \"hello $n\"; cat; echo after";
    let (ended, shown) = in_terminal(line, &["you\n", "more\n", "\u{4}"]).await;
    assert_eq!((shown.as_str(), ended.code), ("name?\nhello you\nmore\nafter\n", Some(0)));
    let (ended, shown) =
        in_terminal("trap 'echo stopped; exit 7' INT; echo go; while :; do sleep 0.01; done", &["\u{3}"])
            .await;
    assert_eq!((shown.as_str(), ended.code), ("go\nstopped\n", Some(7)));
}

#[tokio::test]
async fn nothing_is_left_of_a_terminal_when_its_command_is_given_up() {
    let (sender, mut receiver) = mpsc::channel(4);
    let terminal = PseudoTerminal { window: WINDOW, typed: None };
    let command = shell("sleep 300 & echo $!; cat");
    let mut running = Box::pin(run_in_terminal(command, terminal, CancellationToken::new(), sender));
    let pid = tokio::select! {
        ended = &mut running => panic!("{ended:?}"),
        output = receiver.recv() => String::from_utf8(chunk(output).bytes).unwrap(),
    };
    assert!(alive(pid.trim()));
    drop(running);
    wait_until_gone(pid.trim()).await;
}

#[tokio::test]
async fn without_a_time_limit_a_command_takes_as_long_as_it_takes() {
    let mut command = shell("echo done");
    command.limits.wall = Duration::ZERO;
    let (ended, stdout, _) = collect(command).await;
    assert_eq!((ended.cause, stdout.as_str()), (EndCause::Itself, "done\n"));
    let mut command = shell("echo done");
    command.limits.wall = Duration::MAX;
    assert_eq!(collect(command).await.0.cause, EndCause::Itself, "and no time is too long to be added");
}

#[tokio::test]
async fn a_service_is_spoken_to_and_nothing_of_it_is_left_when_it_ends() {
    // Closes its eyes to signals, and has a child that reads nothing and would live on.
    let line = "trap '' TERM; sleep 1000 & echo $!; while read line; do echo got $line; done; sleep 1000";
    for gently in [true, false] {
        let (service, ServicePipes { mut stdin, stdout, stderr: _ }) =
            ServiceProcess::start(&shell(line)).await.unwrap();
        let mut lines = BufReader::new(stdout).lines();
        let child = lines.next_line().await.unwrap().unwrap();
        stdin.write_all(b"hello\n").await.unwrap();
        assert_eq!(lines.next_line().await.unwrap().as_deref(), Some("got hello"));
        assert!(alive(&child));
        drop(stdin);
        if gently {
            service.end(Duration::from_millis(20)).await
        } else {
            drop(service)
        }
        wait_until_gone(&child).await;
    }
}

#[tokio::test]
async fn a_service_that_ends_says_how_and_takes_its_children_along() {
    let (mut service, pipes) = ServiceProcess::start(&shell("sleep 1000 & echo $!; exit 7")).await.unwrap();
    let child = BufReader::new(pipes.stdout).lines().next_line().await.unwrap().unwrap();
    assert_eq!(service.ended().await.and_then(|status| status.code()), Some(7));
    wait_until_gone(&child).await;
}
