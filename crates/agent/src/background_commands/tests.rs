use std::time::Duration;

use sandbox::{CommandLimits, Program};

use super::*;

/// Longer than anything here takes, also on a busy machine.
const TEST_TIMEOUT: Duration = Duration::from_secs(30);

fn command(line: &str) -> ChildCommand {
    ChildCommand {
        program: Program::Shell(line.into()),
        cwd: "/".into(),
        environment: vec![("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into())],
        limits: CommandLimits {
            wall: Duration::ZERO,
            forward_bytes_max: u64::MAX,
            ..CommandLimits::default()
        },
        fence: None,
    }
}

fn start(background: &BackgroundJobs, line: &str, tty: bool) -> Arc<BackgroundJob> {
    background.start(command(line), line, tty, None).unwrap()
}

async fn until_ended(job: &BackgroundJob) {
    tokio::time::timeout(TEST_TIMEOUT, job.until_ended()).await.unwrap();
}

/// What it wrote since the last look, once that holds a text.
async fn until_written(job: &BackgroundJob, text: &str) -> String {
    let mut seen = String::new();
    let looking = async {
        while !seen.contains(text) {
            tokio::time::sleep(Duration::from_millis(5)).await;
            seen.push_str(&job.take_output().text);
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, looking).await.unwrap();
    seen
}

fn alive(pid: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(')').next().unwrap().trim_start().starts_with('Z'))
}

#[tokio::test]
async fn what_is_written_later_is_seen_once_and_the_end_is_told() {
    let background = BackgroundJobs::default();
    let job = start(&background, "echo one; read n; echo \"two $n\"; exit 3", true);
    assert_eq!(until_written(&job, "one").await, "one\n");
    assert!(job.state().starts_with("running for "), "{}", job.state());
    job.type_in("x\n").unwrap();
    until_ended(&job).await;
    assert_eq!(job.take_output().text, "two x\n");
    assert_eq!(job.take_output().text, "");
    assert_eq!(
        job.state(),
        format!("ended with exit code 3 after {} s", job.ended().unwrap().after.as_secs())
    );
    assert!(job.type_in("y\n").unwrap_err().starts_with("job-1 is ended"));
}

#[tokio::test]
async fn only_the_newest_of_a_flood_is_kept() {
    let background = BackgroundJobs::default();
    let job = start(&background, "seq 1 200000", false);
    until_ended(&job).await;
    let output = job.take_output();
    assert!(output.text.len() <= BUFFER_BYTES_MAX && output.text.ends_with("\n200000\n"));
    // Everything is either there or counted.
    assert_eq!(output.text.len() as u64 + output.lost_bytes, 1_288_895);
}

#[tokio::test]
async fn their_number_is_limited_and_old_ones_are_forgotten() {
    let background = BackgroundJobs::default();
    let jobs: Vec<_> = (0..RUNNING_MAX).map(|_| start(&background, "sleep 300", false)).collect();
    let refused = background.start(command("true"), "true", false, None).err().unwrap();
    assert!(refused.contains("end one with jobs"), "{refused}");
    jobs[0].kill();
    until_ended(&jobs[0]).await;
    assert!(jobs[0].state().starts_with("killed"), "{}", jobs[0].state());
    for _ in 0..ENDED_MAX + 3 {
        until_ended(&start(&background, "true", false)).await;
    }
    let buffer = background.all();
    // The last one had not ended when the oldest were forgotten.
    assert_eq!(buffer.len(), RUNNING_MAX - 1 + ENDED_MAX + 1);
    assert!(background.find("job-1").is_err() && background.find("job-2").is_ok());
    background.close().await;
}

#[tokio::test]
async fn closing_ends_them_all_and_nothing_starts_after_it() {
    let background = BackgroundJobs::default();
    let stubborn = start(&background, "trap '' TERM; sleep 300 & echo $!; wait; sleep 300", false);
    let pid = until_written(&stubborn, "\n").await;
    assert!(alive(pid.trim()));
    tokio::time::timeout(TEST_TIMEOUT, background.close()).await.unwrap();
    assert!(!alive(pid.trim()));
    assert_eq!(
        background.start(command("true"), "true", false, None).err().unwrap(),
        "the session is closing"
    );
}

#[tokio::test]
async fn whoever_forgets_a_session_ends_its_commands() {
    let background = BackgroundJobs::default();
    let job = start(&background, "sleep 300", false);
    drop(background);
    until_ended(&job).await;
}

#[tokio::test]
async fn typing_has_its_limits() {
    let background = BackgroundJobs::default();
    let deaf = start(&background, "sleep 300", false);
    assert!(deaf.type_in("x").unwrap_err().contains("no input"));
    let job = start(&background, "stty raw; echo ready; exec sleep 300", true);
    until_written(&job, "ready").await;
    assert!(job.type_in(&"x".repeat(TYPED_BYTES_MAX + 1)).unwrap_err().contains("64 KiB"));
    // It reads nothing, so what is typed piles up: in the terminal, then in the queue, then no more.
    let full = (0..TYPED_PER_SECOND_MAX).find_map(|_| job.type_in(&"x".repeat(TYPED_BYTES_MAX)).err());
    assert!(full.unwrap().contains("has not read"));
    let many = (0..3 * TYPED_PER_SECOND_MAX)
        .find_map(|_| job.type_in("x").err().filter(|error| error.contains("in a second")));
    assert!(many.is_some());
    background.close().await;
}
