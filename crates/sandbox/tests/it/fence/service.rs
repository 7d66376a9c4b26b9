//! Services behind a fence: children that the caller talks to while they run.

use std::fs;
use std::io::Write as _;
use std::time::Duration;

use sandbox::{ChildCommand, Mode, RefusedOperation, ServiceEvent, ServicePipes, ServiceProcess, StartError};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::time::timeout;

use crate::fence::termination::{DAEMON, MODES, living, word};
use crate::fence::workspace::{Workspace, until};

const GRACE: Duration = Duration::from_millis(50);
const PATIENCE: Duration = Duration::from_secs(20);

async fn start(command: &ChildCommand) -> (ServiceProcess, ServicePipes) {
    timeout(PATIENCE, ServiceProcess::start(command)).await.unwrap().unwrap()
}

async fn ended(service: &mut ServiceProcess) -> Option<i32> {
    timeout(PATIENCE, service.ended()).await.unwrap().and_then(|status| status.code())
}

#[tokio::test]
async fn a_fenced_service_answers_writes_inside_and_not_outside() {
    let (mut space, outside) = (Workspace::new(), Workspace::new());
    // So that it is seen where the sources are below the folder for temporary files.
    space.path.push(outside.root().to_owned());
    let place = outside.root().join("f");
    let line = format!(
        "while read word; do echo got $word; done; echo in > inside; echo out > '{}'; exit 3",
        place.display()
    );
    for (mode, writes) in [(Mode::ReadOnly, false), (Mode::WorkspaceWrite, true), (Mode::Off, true)] {
        let (mut service, ServicePipes { mut stdin, stdout, stderr: _stderr }) =
            start(&space.command(mode, "/bin/sh", &["-c", &line])).await;
        let mut lines = BufReader::new(stdout).lines();
        for word in ["one", "two"] {
            stdin.write_all(format!("{word}\n").as_bytes()).await.unwrap();
            assert_eq!(lines.next_line().await.unwrap(), Some(format!("got {word}")), "{mode}");
        }
        drop(stdin);
        let mut refused = Vec::new();
        let status = loop {
            match timeout(PATIENCE, service.next()).await.unwrap() {
                ServiceEvent::Refused(violation) => refused.push((violation.op, violation.path)),
                ServiceEvent::Ended(status) => break status,
            }
        };
        assert_eq!(status.and_then(|status| status.code()), Some(3), "{mode}");
        assert_eq!(fs::remove_file(space.root().join("inside")).is_ok(), writes, "{mode}");
        assert_eq!(fs::remove_file(&place).is_ok(), mode == Mode::Off, "{mode}");
        if mode == Mode::WorkspaceWrite {
            assert_eq!(refused, [(RefusedOperation::Create, Some(place.clone()))]);
        }
    }
    space.assert_clean();
}

#[tokio::test]
async fn megabytes_go_in_and_come_out_unchanged() {
    let space = Workspace::new();
    let data: Vec<u8> = (0..8_u32 << 20).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    for mode in MODES {
        let (mut service, ServicePipes { mut stdin, mut stdout, stderr: _stderr }) =
            start(&space.command(mode, "cat", &[])).await;
        let speak = async {
            stdin.write_all(&data).await.unwrap();
            drop(stdin);
        };
        let mut heard = Vec::new();
        let (_, read) =
            timeout(PATIENCE, async { tokio::join!(speak, stdout.read_to_end(&mut heard)) }).await.unwrap();
        read.unwrap();
        assert!(heard == data, "{mode}: {} bytes", heard.len());
        assert_eq!(ended(&mut service).await, Some(0), "{mode}");
    }
}

#[tokio::test]
async fn whoever_writes_to_a_service_that_no_longer_reads_is_told() {
    let space = Workspace::new();
    for mode in MODES {
        let (service, ServicePipes { mut stdin, stdout, stderr: _stderr }) =
            start(&space.command(mode, "/bin/sh", &["-c", "exec <&-; echo closed; sleep 300"])).await;
        let mut lines = BufReader::new(stdout).lines();
        assert_eq!(lines.next_line().await.unwrap().as_deref(), Some("closed"), "{mode}");
        let error = timeout(PATIENCE, async {
            loop {
                if let Err(error) = stdin.write_all(b"hello\n").await {
                    break error;
                }
            }
        });
        assert_eq!(error.await.unwrap().kind(), std::io::ErrorKind::BrokenPipe, "{mode}");
        service.end(GRACE).await;
    }
}

#[tokio::test]
async fn a_program_that_is_not_there_is_named_by_its_error() {
    let space = Workspace::new();
    for mode in MODES {
        let (mut service, _pipes) = start(&space.command(mode, "no-such-program", &[])).await;
        assert_eq!(ended(&mut service).await, Some(125), "{mode}");
        let Some(StartError::Spawn(error)) = service.not_started() else { panic!("{mode}") };
        assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "{mode}");
    }
}

#[tokio::test]
async fn a_helper_that_is_none_starts_nothing() {
    let mut space = Workspace::new();
    space.helper.program = "/bin/true".into();
    let refused = ServiceProcess::start(&space.command(Mode::ReadOnly, "true", &[])).await;
    assert!(matches!(refused, Err(StartError::NoFence(_))));
}

#[tokio::test]
async fn a_service_that_is_ended_or_dropped_leaves_nothing() {
    let space = Workspace::new();
    for mode in MODES {
        for gently in [true, false] {
            let word = word();
            let script = format!("{DAEMON}\ntime.sleep(300)");
            let (service, pipes) = start(&space.command(mode, "python3", &["-c", &script, &word])).await;
            let mut lines = BufReader::new(pipes.stdout).lines();
            assert_eq!(lines.next_line().await.unwrap().as_deref(), Some("ready"), "{mode}");
            assert_eq!(living(&word).len(), 3, "{mode}");
            if gently {
                timeout(PATIENCE, service.end(GRACE)).await.unwrap();
                assert_eq!(living(&word), Vec::<u32>::new(), "{mode}");
            } else {
                drop(service);
                until(|| living(&word).is_empty()).await;
            }
        }
    }
    until(|| fs::read_dir(space.root()).unwrap().count() == 0).await;
}

#[tokio::test]
async fn a_fenced_service_dies_with_the_program_that_started_it() {
    let space = Workspace::new();
    for mode in MODES {
        let word = word();
        let program = std::env::current_exe().unwrap();
        let arguments = ["--ignored", "--exact", "--nocapture", "fence::service::starts_a_service_and_waits"];
        let mut command = space.command(mode, program.to_str().unwrap(), &arguments);
        command.fence = None;
        let place = space.root().to_str().unwrap();
        let told = [("FENCE_WORD", word.as_str()), ("FENCE_MODE", mode.name()), ("FENCE_PLACE", place)];
        command.environment.extend(told.map(|(key, value)| (key.into(), value.into())));
        let (owner, pipes) = start(&command).await;
        until(|| living(&word).len() >= 3).await;
        // Killed outright: nothing of it can tidy up.
        drop((owner, pipes));
        until(|| living(&word).is_empty()).await;
    }
}

#[tokio::test]
#[ignore = "only as a process of its own, for the test above"]
#[expect(clippy::disallowed_methods, reason = "this is a program of its own")]
async fn starts_a_service_and_waits() {
    let told = |key: &str| std::env::var(key).unwrap();
    let space = Workspace::under(&told("FENCE_PLACE"));
    let script = format!("{DAEMON}\ntime.sleep(300)");
    let arguments = ["-c", &script, &told("FENCE_WORD")];
    let command = space.command(told("FENCE_MODE").parse().unwrap(), "python3", &arguments);
    let (mut service, pipes) = start(&command).await;
    std::io::stdout().write_all(b"started\n").unwrap();
    service.ended().await;
    drop(pipes);
}
