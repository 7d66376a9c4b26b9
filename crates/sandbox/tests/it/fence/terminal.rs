//! A terminal behind a fence belongs to the command and is no way out.

use sandbox::{Chunk, EndCause, Mode, Output, PseudoTerminal, RefusedOperation, WindowSize, run_in_terminal};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::fence::workspace::Workspace;

async fn shown(mode: Mode, line: &str, typed: &str) -> (Option<i32>, String, Vec<RefusedOperation>) {
    let space = Workspace::new();
    let (keys, queue) = mpsc::channel(1);
    keys.send(typed.as_bytes().to_vec()).await.unwrap();
    let terminal = PseudoTerminal { window: WindowSize { columns: 80, rows: 24 }, typed: Some(queue) };
    let (sender, mut receiver) = mpsc::channel(8);
    let gather = async {
        let (mut shown, mut refused) = (Vec::new(), Vec::new());
        while let Some(output) = receiver.recv().await {
            match output {
                Output::Chunk(Chunk { bytes, .. }) => shown.extend(bytes),
                Output::Refused(violation) => refused.push(violation.op),
            }
        }
        (String::from_utf8(shown).unwrap(), refused)
    };
    let command = space.command(mode, "/bin/sh", &["-c", line]);
    let running = run_in_terminal(command, terminal, CancellationToken::new(), sender);
    let (ended, (shown, refused)) = tokio::join!(running, gather);
    let ended = ended.unwrap();
    assert_eq!(ended.cause, EndCause::Itself, "{mode}");
    (ended.code, shown, refused)
}

#[tokio::test]
async fn a_fenced_command_has_its_terminal_in_every_mode() {
    let line = "test -t 0 && test -t 1 && test -t 2 && stty size; read n; echo \"<$n>\" >&2; \
                echo tty > /dev/tty; echo err > /dev/stderr; exit 3";
    for mode in Mode::ALL {
        let (code, shown, refused) = shown(mode, line, "typed\n").await;
        assert_eq!((code, shown.as_str()), (Some(3), "24 80\n<typed>\ntty\nerr\n"), "{mode}");
        assert_eq!(refused, [], "{mode}");
    }
}

#[tokio::test]
async fn a_fenced_command_cannot_type_for_others() {
    let type_ahead = "import fcntl; fcntl.ioctl(0, 0x5412, b'x')";
    for mode in [Mode::ReadOnly, Mode::WorkspaceWriteNetwork] {
        let (code, shown, _) = shown(mode, &format!("python3 -c \"{type_ahead}\" 2>&1"), "").await;
        assert!(code == Some(1) && shown.contains("PermissionError"), "{mode} {shown}");
    }
}
