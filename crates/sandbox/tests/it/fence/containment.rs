//! What a fence prevents and what it reports.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::time::Duration;

use sandbox::{DenialReason, EndCause, Mode, RefusedOperation};

use crate::fence::workspace::{Outcome, Workspace, run_in, until};

const MODES: [Mode; 3] = [Mode::ReadOnly, Mode::WorkspaceWrite, Mode::WorkspaceWriteNetwork];
/// A file outside of every workspace that commands can read wherever the sources lie.
const OUTSIDE: &str = "/etc/passwd";
const WRITING: [Mode; 2] = [Mode::WorkspaceWrite, Mode::WorkspaceWriteNetwork];

#[tokio::test]
async fn the_exit_code_the_signal_and_the_output_are_the_commands_own() {
    let space = Workspace::new();
    for mode in Mode::ALL {
        let Outcome { ended, stdout, stderr, .. } =
            run_in(&space, mode, "echo out; echo err >&2; exit 3").await;
        assert_eq!(
            (ended.code, ended.signal.as_deref(), ended.cause),
            (Some(3), None, EndCause::Itself),
            "{mode}"
        );
        assert_eq!((stdout.as_str(), stderr.as_str()), ("out\n", "err\n"), "{mode}");
        let ended = run_in(&space, mode, "kill -SEGV $$").await.ended;
        assert_eq!((ended.code, ended.signal.as_deref()), (None, Some("SIGSEGV")), "{mode}");
    }
}

#[tokio::test]
async fn a_program_that_does_not_exist_is_an_error_in_every_mode() {
    let space = Workspace::new();
    for mode in Mode::ALL {
        let error = space.exec(mode, "/no/such/program", &[]).await.unwrap_err();
        let sandbox::StartError::Spawn(error) = error else { panic!("{error:?}") };
        assert_eq!(error.raw_os_error(), Some(2), "{mode}");
        let found = space.exec(mode, "true", &[]).await.unwrap();
        assert_eq!(found.ended.code, Some(0), "{mode}");
    }
}

#[tokio::test]
async fn the_workspace_is_written_only_in_the_modes_that_write() {
    for mode in MODES {
        let space = Workspace::new();
        let outcome = run_in(&space, mode, "echo hello > file; mkdir -p a/b; mv file a/b/c; cat a/b/c").await;
        let there = fs::read_to_string(space.root().join("a/b/c"));
        if mode.writes() {
            assert_eq!((there.unwrap().as_str(), outcome.refused()), ("hello\n", vec![]), "{mode}");
        } else {
            assert!(there.is_err());
            let file = space.root().join("file");
            assert_eq!(
                outcome.refused()[0],
                (RefusedOperation::Create, Some(file), Some(DenialReason::ReadOnly))
            );
        }
        space.assert_clean();
    }
}

#[tokio::test]
async fn nothing_outside_is_written_and_each_try_is_reported_exactly() {
    let outside = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let outside = outside.path().canonicalize().unwrap();
    fs::write(outside.join("file"), "mine").unwrap();
    fs::set_permissions(outside.join("file"), fs::Permissions::from_mode(0o640)).unwrap();
    let tries = [
        ("echo x > @/new", RefusedOperation::Create, "new"),
        ("echo x >> @/file", RefusedOperation::Write, "file"),
        ("rm -f @/file", RefusedOperation::Remove, "file"),
        ("mkdir @/folder", RefusedOperation::Create, "folder"),
        ("mv @/file @/other", RefusedOperation::Rename, "file"),
        ("ln @/file here", RefusedOperation::Link, "file"),
        ("ln -s x @/link", RefusedOperation::Create, "link"),
        ("chmod 777 @/file", RefusedOperation::Permissions, "file"),
        ("touch -c -d 2001-01-01 @/file", RefusedOperation::Attributes, "file"),
        ("mkfifo @/pipe", RefusedOperation::Create, "pipe"),
        ("ln -s @ escape; echo x > escape/new", RefusedOperation::Create, "new"),
        ("echo x > /proc/self/root@/new", RefusedOperation::Create, "new"),
        ("cd @ && echo x > new", RefusedOperation::Create, "new"),
    ];
    for mode in WRITING {
        for (line, op, name) in tries {
            let mut space = Workspace::new();
            space.path.push(outside.clone());
            let outside_quoted = format!("'{}'", outside.display());
            let outcome = run_in(&space, mode, &line.replace('@', &outside_quoted)).await;
            let expected = (op, Some(outside.join(name)), Some(DenialReason::Outside));
            assert!(outcome.refused().contains(&expected), "{mode} {line}: {:?}", outcome.violations);
            let data = fs::metadata(outside.join("file")).unwrap();
            assert_eq!((data.len(), data.permissions().mode() & 0o777), (4, 0o640), "{line}");
            assert_eq!(fs::read_dir(&outside).unwrap().count(), 1, "{line}");
        }
    }
}

#[tokio::test]
async fn what_is_allowed_is_not_reported() {
    let space = Workspace::new();
    let line = "mkdir -p \"$PWD/a/b\"; rm -f /etc/nothing-there; cat /etc/passwd > copy; ls -l / /nowhere;
        echo x > /dev/null; echo x > /dev/stderr; echo x > /proc/self/fd/1; echo x > /tmp/x; id; rm -r a copy;
        kill -0 $$; true & wait; test -w /etc; sh -c 'exit 0'";
    for mode in WRITING {
        assert_eq!(run_in(&space, mode, line).await.violations, vec![], "{mode}");
    }
    // A folder that many share has the mark that we use.
    let shared = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    fs::set_permissions(shared.path(), fs::Permissions::from_mode(0o1777)).unwrap();
    let space = Workspace::under(shared.path().to_str().unwrap());
    for mode in WRITING {
        assert_eq!(run_in(&space, mode, "mkdir -p \"$PWD/a/b\"").await.violations, vec![], "{mode}");
    }
}

#[tokio::test]
async fn protected_names_stay_as_they_are() {
    for mode in WRITING {
        let space = Workspace::new();
        space.git();
        fs::create_dir(space.root().join(".vscode")).unwrap();
        fs::write(space.root().join(".envrc"), "mine").unwrap();
        fs::write(space.root().join(".bashrc"), "mine").unwrap();
        let before = fs::read_to_string(space.root().join(".git/config")).unwrap();
        for line in [
            "echo evil > .git/hooks/pre-commit",
            "echo evil >> .git/config",
            "echo evil > .git/config.worktree",
            "echo evil > .git/commondir",
            "mv .git .old",
            "mv .git/config .git/old",
            "rm -r .git/hooks",
            "echo evil > .git/new; ln -f .git/new .git/config",
            "echo evil > .git/new; mv -f .git/new .git/config",
            "echo evil > .vscode/tasks.json",
            "mv .vscode v; mkdir .vscode",
            "echo evil > .envrc",
            "rm -f .envrc; echo evil > .envrc",
            "rm -f .bashrc",
            "mkdir -p .ropewalk/x",
            "rmdir .claude; mkdir .claude",
            "echo evil > .mcp.json",
            "chmod 777 .git/config",
        ] {
            let outcome = run_in(&space, mode, line).await;
            assert_ne!(outcome.ended.code, Some(0), "{line}");
            let protected = |refused: &(RefusedOperation, _, Option<DenialReason>)| {
                refused.2 == Some(DenialReason::Protected)
            };
            assert!(outcome.refused().iter().any(protected), "{line}: {:?}", outcome.violations);
        }
        assert_eq!(fs::read_to_string(space.root().join(".git/config")).unwrap(), before);
        assert_eq!(fs::read_to_string(space.root().join(".envrc")).unwrap(), "mine");
        assert_eq!(fs::read_dir(space.root().join(".vscode")).unwrap().count(), 0);
        space.assert_clean_but(&[".git", ".vscode", ".envrc", ".bashrc"]);
    }
}

#[tokio::test]
async fn hidden_places_are_empty_and_reading_them_is_seen() {
    for mode in MODES {
        let mut space = Workspace::new();
        fs::create_dir(space.root().join("secrets")).unwrap();
        fs::write(space.root().join("secrets/key"), "hush").unwrap();
        fs::write(space.root().join("token"), "hush").unwrap();
        symlink("secrets/key", space.root().join("way")).unwrap();
        space.hide("secrets");
        space.hide("token");
        space.hide("not-there");
        let outcome =
            run_in(&space, mode, "cat secrets/key way token; ls secrets; cat secrets/unknown not-there")
                .await;
        assert_eq!(outcome.stdout, "", "{mode}");
        let seen =
            |name: &str| (RefusedOperation::Read, Some(space.root().join(name)), Some(DenialReason::Hidden));
        assert_eq!(outcome.refused(), [seen("secrets/key"), seen("token"), seen("secrets")], "{mode}");
        let written = run_in(&space, mode, "echo x > secrets/new; echo x > token; mv secrets s").await;
        let hidden = written.refused().iter().filter(|seen| seen.2 == Some(DenialReason::Hidden)).count();
        assert_eq!(hidden, 3, "{mode} {:?}", written.violations);
        assert_eq!(fs::read_to_string(space.root().join("token")).unwrap(), "hush");
        assert_eq!(fs::read_dir(space.root().join("secrets")).unwrap().count(), 1);
    }
}

#[tokio::test]
async fn temporary_places_are_private_and_the_workspace_may_lie_in_one() {
    let marker = tempfile::NamedTempFile::new_in("/tmp").unwrap();
    for mode in MODES {
        let space = Workspace::under("/tmp");
        fs::write(space.root().join("mine"), "mine").unwrap();
        // A name that nobody else has a file by.
        let name = format!("{}-a", marker.path().file_name().unwrap().to_str().unwrap());
        let line = format!(
            "cat mine; ls {} 2>/dev/null; echo x > /tmp/{name}; echo x > /var/tmp/{name}; echo x > /dev/shm/{name}; ls /tmp/{name}; echo y > new",
            marker.path().display()
        );
        let outcome = run_in(&space, mode, &line).await;
        assert_eq!(outcome.stdout, format!("mine/tmp/{name}\n"), "{mode}");
        assert_eq!(space.root().join("new").exists(), mode.writes(), "{mode}");
        assert!(["/tmp", "/var/tmp", "/dev/shm"].iter().all(|place| !Path::new(place).join(&name).exists()));
        let expected = if mode.writes() { vec![] } else { vec![Some(space.root().join("new"))] };
        let paths: Vec<_> = outcome.violations.iter().map(|seen| seen.path.clone()).collect();
        assert_eq!(paths, expected, "{mode}");
        space.assert_clean_but(if mode.writes() { &["mine", "new"] } else { &["mine"] });
    }
}

/// A person may keep an agent or a tool in a place that commands get an empty one of.
#[tokio::test]
async fn a_program_in_a_private_place_is_there_to_be_run_and_not_to_be_written() {
    for place in ["/tmp", "/var/tmp"] {
        let folder = tempfile::Builder::new().prefix("x y ü").tempdir_in(place).unwrap();
        let beside = tempfile::NamedTempFile::new_in(place).unwrap();
        let folder = folder.path().canonicalize().unwrap();
        fs::create_dir(folder.join("bin")).unwrap();
        fs::write(folder.join("data"), "data").unwrap();
        let tool = folder.join("bin/the-tool");
        fs::write(&tool, "#!/bin/sh\necho ran $(cat \"$(dirname \"$0\")/../data\") \"$@\"\n").unwrap();
        fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).unwrap();
        let tool = tool.to_str().unwrap();
        let written = format!("echo x > '{}/new'; ls '{}'", folder.display(), beside.path().display());
        for mode in MODES {
            let mut space = Workspace::new();
            let by_path = space.exec(mode, tool, &["a"]).await.unwrap();
            assert_eq!(by_path.stdout, "ran data a\n", "{mode} {place} {}", by_path.stderr);
            let by_argument = space.exec(mode, "/bin/sh", &[tool, "b"]).await.unwrap();
            assert_eq!(by_argument.stdout, "ran data b\n", "{mode} {place} {}", by_argument.stderr);
            let by_line = run_in(&space, mode, &format!("'{tool}' c")).await;
            assert_eq!(by_line.stdout, "ran data c\n", "{mode} {place} {}", by_line.stderr);
            space.path.push(folder.join("bin"));
            let by_name = run_in(&space, mode, &format!("the-tool d; {written}")).await;
            assert_eq!(by_name.stdout, "ran data d\n", "{mode} {place} {}", by_name.stderr);
            let expected = if mode.writes() { DenialReason::Outside } else { DenialReason::ReadOnly };
            let refused = (RefusedOperation::Create, Some(folder.join("new")), Some(expected));
            assert_eq!(by_name.refused(), [refused], "{mode} {place}");
            assert!(!folder.join("new").exists());
            space.assert_clean();
        }
    }
}

/// A wrapper starts another program, and a package of Node reads the ones beside it.
#[tokio::test]
async fn what_a_program_in_a_private_place_needs_is_there_too() {
    let folder = tempfile::Builder::new().prefix("x y ü").tempdir_in("/tmp").unwrap();
    let folder = folder.path().canonicalize().unwrap();
    let script = |path: &str, text: &str| {
        let path = folder.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let real = script("elsewhere/real", "echo real \"$@\"");
    let wrapper = script("bin/wrapper", &format!("A=1 exec '{real}' \"$@\""));
    let package = script(
        "node_modules/a/dist/run",
        "cat \"$(dirname \"$0\")/../../b/index\"; ls \"$(dirname \"$0\")/../../..\"",
    );
    fs::create_dir(folder.join("node_modules/b")).unwrap();
    fs::write(folder.join("node_modules/b/index"), "beside\n").unwrap();
    let space = Workspace::new();
    let wrapped = space.exec(Mode::WorkspaceWrite, &wrapper, &["a"]).await.unwrap();
    assert_eq!(wrapped.stdout, "real a\n", "{}", wrapped.stderr);
    let found = space.exec(Mode::WorkspaceWrite, &package, &[]).await.unwrap();
    assert_eq!(found.stdout, "beside\nnode_modules\n", "{}", found.stderr);
}

/// Folders below the workspace are opened too, and git looks into repositories inside of others.
#[tokio::test]
async fn protected_names_further_below_stay_as_they_are() {
    let space = Workspace::new();
    space.git();
    let nested = Workspace::at(space.root().join("lib/nested").to_str().unwrap());
    fs::create_dir_all(nested.root()).unwrap();
    nested.git();
    for folder in [
        "a/b/.vscode",
        "a/.devcontainer",
        "node_modules/x/.vscode",
        "c/.hg",
        "d/.cargo",
        "d/.bsp",
        "d/.config/mise",
        "bare.git/objects",
        "bare.git/refs",
    ] {
        fs::create_dir_all(space.root().join(folder)).unwrap();
    }
    for (file, text) in [
        ("a/mise.toml", "mine"),
        ("a/.gitmodules", "mine"),
        ("w.code-workspace", "mine"),
        ("c/.hg/hgrc", "mine"),
        ("d/.cargo/config.toml", "mine"),
        ("bare.git/HEAD", "ref: refs/heads/main"),
        ("bare.git/config", "[core]"),
    ] {
        fs::write(space.root().join(file), text).unwrap();
    }
    for line in [
        "echo evil > lib/nested/.git/hooks/pre-commit",
        "echo evil >> lib/nested/.git/config",
        "mv lib/nested/.git lib/nested/old",
        "mv lib other",
        "echo evil > a/b/.vscode/tasks.json",
        "mv a/b c",
        "rm -r a/.devcontainer",
        "echo evil > a/mise.toml",
        "rm -f w.code-workspace",
        "echo evil >> c/.hg/hgrc",
        "echo evil >> d/.cargo/config.toml",
        "echo evil > d/.config/mise/config.toml",
        "echo evil >> bare.git/config",
    ] {
        let outcome = run_in(&space, Mode::WorkspaceWrite, line).await;
        assert_ne!(outcome.ended.code, Some(0), "{line}");
        let broken = outcome.violations.first().map(|seen| seen.reason);
        assert_eq!(broken, Some(Some(DenialReason::Protected)), "{line}");
    }
    let free = "echo x > lib/nested/.git/index && echo x > a/b/new && echo x > c/.hg/dirstate \
                && echo x > d/.cargo/registry && echo x > d/.bsp/sbt.json && echo x > d/.config/nextest.toml \
                && echo x > a/.gitmodules && rm -r node_modules";
    let outcome = run_in(&space, Mode::WorkspaceWrite, free).await;
    assert_eq!((outcome.ended.code, outcome.violations), (Some(0), vec![]), "{}", outcome.stderr);
    space.assert_clean_but(&[".git"]);
    for (folder, left) in [("lib/nested/.git", 7), ("a/b", 2), ("a", 4)] {
        let count = fs::read_dir(space.root().join(folder)).unwrap().count();
        assert_eq!(count, left, "no name is held further below: {folder}");
    }
}

#[tokio::test]
async fn a_protected_name_may_be_a_link_to_a_file_to_nothing_or_to_itself() {
    let space = Workspace::new();
    fs::create_dir(space.root().join("sub")).unwrap();
    fs::write(space.root().join("sub/envrc"), "mine").unwrap();
    let links = [
        (".envrc", "sub/envrc"),
        (".mcp.json", OUTSIDE),
        (".claude", "later/claude"),
        (".idea", ".idea"),
        (".zed", ".codex"),
        (".codex", ".zed"),
    ];
    for (name, target) in links {
        symlink(target, space.root().join(name)).unwrap();
    }
    for mode in WRITING {
        for line in [
            "echo evil > .envrc",
            "echo evil > sub/envrc",
            "mv sub old",
            "rm -f .mcp.json",
            "mkdir -p later/claude && echo evil > later/claude/settings.json",
            "rm -f .idea",
            "rm -f .zed",
        ] {
            assert_ne!(run_in(&space, mode, line).await.ended.code, Some(0), "{mode} {line}");
        }
        let outcome = run_in(&space, mode, "cat .envrc .mcp.json && echo x > sub/new && rm sub/new").await;
        assert_eq!((outcome.ended.code, outcome.violations), (Some(0), vec![]), "{}", outcome.stderr);
        assert_eq!(outcome.stdout, format!("mine{}", fs::read_to_string(OUTSIDE).unwrap()));
    }
    for (name, target) in links {
        assert_eq!(fs::read_link(space.root().join(name)).unwrap(), Path::new(target));
    }
    assert!(!space.root().join("later").exists(), "the name is free again");
}

/// As an agent's own folder is: its settings are the person's, the rest is its own.
#[tokio::test]
async fn what_the_policy_locks_is_read_only_where_it_is_there() {
    let mut space = Workspace::new();
    let root = space.root().to_owned();
    for folder in ["hooks", "agent/extensions"] {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
    for file in ["settings.json", "hooks/stop.sh", "agent/extensions/a.ts"] {
        fs::write(root.join(file), "mine").unwrap();
    }
    symlink(OUTSIDE, root.join("mcp.json")).unwrap();
    let names = ["settings.json", "hooks", "agent/extensions", "mcp.json", "plugins", "none/plugins"];
    space.locked = names.map(|name| root.join(name)).into();
    for mode in WRITING {
        for line in [
            "echo evil > settings.json",
            "rm -f settings.json",
            "mv settings.json old",
            "echo evil > new && mv new settings.json",
            "echo evil > hooks/stop.sh",
            "echo evil > hooks/new.sh",
            "mv hooks old",
            "rm -r agent/extensions",
            "mv agent old",
            "rm -f mcp.json",
            "ln -sfn /etc/passwd mcp.json",
        ] {
            let outcome = run_in(&space, mode, line).await;
            assert_ne!(outcome.ended.code, Some(0), "{mode} {line}");
            let broken = outcome.violations.first().map(|seen| seen.reason);
            assert_eq!(
                broken,
                Some(Some(DenialReason::Protected)),
                "{mode} {line}: {:?}",
                outcome.violations
            );
        }
        let free = "echo x > sessions.db && mkdir -p agent/sessions && echo x > agent/sessions/1 \
                    && cat settings.json hooks/stop.sh mcp.json && mkdir plugins && rmdir plugins";
        let outcome = run_in(&space, mode, free).await;
        assert_eq!((outcome.ended.code, outcome.violations), (Some(0), vec![]), "{}", outcome.stderr);
        assert_eq!(outcome.stdout, format!("minemine{}", fs::read_to_string(OUTSIDE).unwrap()));
    }
    assert_eq!(fs::read_link(root.join("mcp.json")).unwrap(), Path::new(OUTSIDE));
    space.assert_clean();
}

#[tokio::test]
async fn a_workspace_that_cannot_be_fenced_is_refused() {
    for root in ["/", "/proc", "/dev", "/sys/kernel"] {
        let error = Workspace::at(root).exec(Mode::WorkspaceWrite, "true", &[]).await.unwrap_err();
        assert!(error.to_string().contains("cannot be a writable workspace"), "{error}");
    }
    assert_eq!(Workspace::at("/").exec(Mode::ReadOnly, "true", &[]).await.unwrap().ended.code, Some(0));
    let space = Workspace::new();
    symlink(space.root(), space.root().join("link")).unwrap();
    let linked = Workspace::at(space.root().join("link").to_str().unwrap());
    let error = linked.exec(Mode::WorkspaceWrite, "true", &[]).await.unwrap_err();
    assert!(error.to_string().contains("without following links"), "{error}");
}

#[tokio::test]
async fn a_helper_that_is_none_is_an_error_and_never_a_way_around() {
    let mut space = Workspace::new();
    (space.limits.wall, space.limits.grace) = (Duration::from_millis(500), Duration::from_millis(50));
    for program in ["/bin/true", "/bin/false", "/bin/cat"] {
        space.helper.program = program.into();
        let error = space.exec(Mode::WorkspaceWrite, "/bin/touch", &["made"]).await.unwrap_err();
        assert!(matches!(error, sandbox::StartError::NoFence(_)), "{program}: {error:?}");
    }
    space.assert_clean();
}

#[tokio::test]
async fn there_is_no_network_unless_the_mode_has_it() {
    let script = "import socket
for family in (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX, socket.AF_NETLINK, socket.AF_PACKET, 40):
    kind = socket.SOCK_RAW if family in (socket.AF_NETLINK, socket.AF_PACKET) else socket.SOCK_STREAM
    try: socket.socket(family, kind); print(family)
    except OSError: pass
a, b = socket.socketpair(); a.send(b'x'); assert b.recv(1) == b'x'";
    let space = Workspace::new();
    for mode in MODES {
        let outcome = space.exec(mode, "python3", &["-c", script]).await.unwrap();
        let expected = if mode.network() { "2\n10\n16\n" } else { "" };
        assert_eq!(
            (outcome.stdout.as_str(), outcome.ended.code),
            (expected, Some(0)),
            "{mode} {}",
            outcome.stderr
        );
        let refused = outcome.violations.iter().filter(|seen| seen.op == RefusedOperation::Network).count();
        assert_eq!(refused, if mode.network() { 3 } else { 6 }, "{mode} {:?}", outcome.violations);
    }
}

/// A datagram socket of a pair can be connected again, to any Unix socket of the machine.
#[tokio::test]
async fn a_pair_of_sockets_reaches_nobody_else() {
    let outside = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    // The address of a Unix socket is short, so it is bound and reached by a relative path.
    let script = "import os, socket, sys
os.chdir(sys.argv[1])
kinds = {kind | flag for kind in range(1, 16) for flag in (0, socket.SOCK_CLOEXEC, socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)}
for kind in sorted(kinds):
    for family in (socket.AF_UNIX, socket.AF_INET, 30, 40):
        try: near, far = socket.socketpair(family, kind)
        except OSError: continue
        near.setblocking(True); far.setblocking(True)
        near.send(b'x'); assert far.recv(1) == b'x'
        print(int(family), int(near.type))
        for say in (lambda: near.sendto(b'heard', 's'), lambda: (near.connect('s'), near.send(b'heard'))):
            try: say()
            except OSError: pass";
    let path = outside.path().join("s");
    let listener = socket_at(&path);
    listener.set_nonblocking(true).unwrap();
    let space = Workspace::new();
    for mode in MODES {
        let place = outside.path().to_str().unwrap();
        let outcome = space.exec(mode, "python3", &["-c", script, place]).await.unwrap();
        assert_eq!(outcome.ended.code, Some(0), "{mode} {}", outcome.stderr);
        let worked: std::collections::BTreeSet<_> = outcome.stdout.lines().collect();
        assert_eq!(worked.into_iter().collect::<Vec<_>>(), ["1 1", "1 5"], "{mode}");
        assert!(outcome.violations.iter().any(|seen| seen.op == RefusedOperation::Network), "{mode}");
        let heard = listener.recv(&mut [0; 16]);
        assert_eq!(heard.unwrap_err().kind(), std::io::ErrorKind::WouldBlock, "{mode}");
    }
}

/// A datagram socket at a path that may be longer than an address.
fn socket_at(path: &Path) -> std::os::unix::net::UnixDatagram {
    let folder = fs::File::open(path.parent().unwrap()).unwrap();
    let short = format!(
        "/proc/self/fd/{}/{}",
        std::os::fd::AsRawFd::as_raw_fd(&folder),
        path.file_name().unwrap().display()
    );
    std::os::unix::net::UnixDatagram::bind(short).unwrap()
}

#[tokio::test]
async fn calls_into_the_kernel_are_refused_and_seen() {
    let script = "import ctypes, os, threading
libc = ctypes.CDLL(None, use_errno=True)
for name, *arguments in (('unshare', 0x10000000), ('ptrace', 16, 1, 0, 0), ('chroot', b'/tmp'), ('mount', b'a', b'/tmp', b'tmpfs', 0, 0),
    ('setns', 0, 0), ('umount2', b'/tmp', 2), ('ioctl', 0, 0x5412, b'x')):
    assert getattr(libc, name)(*arguments) == -1 and ctypes.get_errno() == 1, name
for number in (321, 425, 250, 323, 298, 304, 310, 438): assert libc.syscall(number, 0, 0, 0, 0, 0) == -1 and ctypes.get_errno() == 1, number
assert libc.syscall(56, 0x10000000 | 17, 0, 0, 0, 0) == -1
assert libc.syscall(435, 0, 0) == -1 and ctypes.get_errno() == 38
worker = threading.Thread(target=print, args=('thread',)); worker.start(); worker.join()";
    let space = Workspace::new();
    let outcome = space.exec(Mode::WorkspaceWriteNetwork, "python3", &["-c", script]).await.unwrap();
    assert_eq!((outcome.ended.code, outcome.stdout.as_str()), (Some(0), "thread\n"), "{}", outcome.stderr);
    let ops: std::collections::BTreeSet<_> = outcome.violations.iter().map(|seen| seen.op.name()).collect();
    let expected = ["kernel", "mount", "namespace", "terminal", "trace"];
    assert_eq!(ops.into_iter().collect::<Vec<_>>(), expected, "{:?}", outcome.violations);
}

#[tokio::test]
async fn a_signal_to_a_process_outside_is_refused_and_seen() {
    let space = Workspace::new();
    let pid = std::process::id();
    let outcome = run_in(&space, Mode::WorkspaceWrite, &format!("kill -0 {pid}")).await;
    assert_ne!(outcome.ended.code, Some(0));
    assert_eq!(outcome.violations[0].op, RefusedOperation::Signal);
    assert_eq!(outcome.violations[0].detail, format!("a signal to process {pid}"));
    assert_eq!(outcome.violations[0].program, "sh");
}

#[tokio::test]
async fn many_refusals_are_told_once_each_and_not_without_end() {
    let space = Workspace::new();
    let line = "for n in $(seq 80); do echo x > /etc/no-$n; done 2>/dev/null; echo x > /etc/no-1";
    let outcome = run_in(&space, Mode::WorkspaceWrite, line).await;
    assert_eq!(outcome.violations.len(), 51);
    assert_eq!(outcome.violations[50].op, RefusedOperation::More);
}

#[tokio::test]
async fn root_has_no_power_inside() {
    let space = Workspace::new();
    let line = "grep -E '^(Cap(Inh|Prm|Eff|Bnd|Amb)|NoNewPrivs|Seccomp):' /proc/self/status | awk '{print $2}' | tr '\n' ' '";
    let none = "0000000000000000 ".repeat(5) + "1 2 ";
    assert_eq!(run_in(&space, Mode::WorkspaceWrite, line).await.stdout, none);
    let line = "echo 5 > /proc/sys/kernel/pid_max; echo 1 > /sys/kernel/mm/ksm/run; chmod 600 /dev/null; chmod 600 /dev/stdin;
        test -e /dev/mem || test -e /dev/vda || test -e /dev/kvm; echo $?";
    let outcome = run_in(&space, Mode::WorkspaceWrite, line).await;
    assert_eq!(outcome.stdout, "1\n", "{}", outcome.stderr);
    assert_eq!(fs::metadata("/dev/null").unwrap().permissions().mode() & 0o777, 0o666);
}

#[tokio::test]
async fn the_command_gets_no_file_but_the_standard_ones() {
    let space = Workspace::new();
    for mode in Mode::ALL {
        // The fourth is the folder that it lists.
        let outcome = space.exec(mode, "ls", &["/proc/self/fd"]).await.unwrap();
        assert_eq!(outcome.stdout, "0\n1\n2\n3\n", "{mode}");
    }
}

#[tokio::test]
async fn nobody_fills_the_names_by_killing_the_helper() {
    let space = Workspace::new();
    fs::create_dir(space.root().join(".zed")).unwrap();
    fs::set_permissions(space.root().join(".zed"), fs::Permissions::from_mode(0o1755)).unwrap();
    // As a killed helper left it: taken over, kept during the command, gone afterwards.
    assert_ne!(run_in(&space, Mode::WorkspaceWrite, "echo x > .zed/y").await.ended.code, Some(0));
    space.assert_clean();
}

#[tokio::test]
async fn placeholders_of_two_commands_at_once_protect_both() {
    let space = Workspace::new();
    let short = "until test -e go; do sleep 0.01; done; rm go; echo x > .claude/a";
    let long = "touch go; until ! test -e go; do sleep 0.01; done; sleep 0.3; mkdir .idea/a; rmdir .idea";
    let (short, long) =
        tokio::join!(run_in(&space, Mode::WorkspaceWrite, short), run_in(&space, Mode::WorkspaceWrite, long));
    assert_eq!(short.violations[0].reason, Some(DenialReason::Protected));
    let refused: Vec<_> = long.refused().into_iter().map(|seen| (seen.0, seen.2)).collect();
    assert_eq!(
        refused,
        [
            (RefusedOperation::Create, Some(DenialReason::Protected)),
            (RefusedOperation::Remove, Some(DenialReason::Protected))
        ]
    );
    space.assert_clean();
}

#[tokio::test]
async fn what_the_person_puts_there_meanwhile_stays() {
    let space = Workspace::new();
    let root = space.root().to_owned();
    let fill = async {
        until(|| root.join("ready").exists()).await;
        fs::write(root.join(".vscode/tasks.json"), "mine").unwrap();
    };
    let line = "touch ready; until test -e .vscode/tasks.json; do sleep 0.01; done; rm ready";
    let (outcome, ()) = tokio::join!(run_in(&space, Mode::WorkspaceWrite, line), fill);
    assert_eq!(outcome.ended.code, Some(0));
    let mode = fs::metadata(root.join(".vscode")).unwrap().permissions().mode() & 0o7777;
    assert_eq!(
        (fs::read_to_string(root.join(".vscode/tasks.json")).unwrap().as_str(), mode),
        ("mine", 0o755)
    );
    space.assert_clean_but(&[".vscode"]);
}

#[tokio::test]
async fn a_file_may_not_grow_without_end() {
    let mut space = Workspace::new();
    space.limits.file_bytes_max = 1 << 20;
    let outcome = run_in(&space, Mode::WorkspaceWrite, "head -c 2000000 /dev/zero > big").await;
    assert_ne!(outcome.ended.code, Some(0));
    assert_eq!(fs::metadata(space.root().join("big")).unwrap().len(), 1 << 20);
}

#[tokio::test]
async fn too_much_memory_ends_the_command_and_says_so() {
    let mut space = Workspace::new();
    space.limits.memory_bytes_max = 200 << 20;
    space.limits.wall = Duration::from_secs(60);
    let script = "import os, time\nos.fork()\nhold = [b'x' * (1 << 20) for _ in range(150)]\ntime.sleep(60)";
    for mode in [Mode::WorkspaceWrite, Mode::Off] {
        let outcome = space.exec(mode, "python3", &["-c", script]).await.unwrap();
        assert_eq!(
            (outcome.ended.cause, outcome.ended.signal.as_deref()),
            (EndCause::TooMuchMemory, Some("SIGKILL")),
            "{mode}"
        );
    }
}

#[tokio::test]
async fn too_many_processes_end_the_command_and_it_says_so() {
    let mut space = Workspace::new();
    space.limits.processes_max = 40;
    space.limits.wall = Duration::from_secs(60);
    for mode in [Mode::WorkspaceWrite, Mode::Off] {
        let outcome = run_in(&space, mode, "for n in $(seq 43); do sleep 60 & done; wait").await;
        assert_eq!(
            (outcome.ended.cause, outcome.ended.signal.as_deref()),
            (EndCause::TooManyProcesses, Some("SIGKILL")),
            "{mode}"
        );
    }
}

/// The kernel counts all processes of an ordinary user there, so a limit meant for one command stops it at once.
#[tokio::test]
async fn without_the_fence_the_kernels_process_limit_stays_as_it_is() {
    let space = Workspace::new();
    let line =
        |limits: &str| limits.lines().find(|line| line.starts_with("Max processes")).unwrap().to_owned();
    let outcome = run_in(&space, Mode::Off, "cat /proc/self/limits").await;
    assert_eq!(line(&outcome.stdout), line(&fs::read_to_string("/proc/self/limits").unwrap()));
}

#[tokio::test]
async fn the_probe_tries_what_the_fence_promises() {
    let space = Workspace::new();
    let ability = sandbox::probe(&space.helper, space.root()).await;
    assert!(ability.holds(), "{ability:?}");
    assert!(ability.landlock_abi.unwrap() >= 3);
    let none = sandbox::Helper { program: "/bin/false".into(), arguments: vec![] };
    let ability = sandbox::probe(&none, space.root()).await;
    assert!(!ability.holds() && ability.backend.is_err());
    assert_eq!(fs::read_dir(space.root()).unwrap().count(), 0);
}
