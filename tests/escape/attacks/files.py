"""Attempts on files: outside the workspace, and protected ones inside it."""

import errno
import os
import time

from .base import Impossible, all_refused, append, attempt, overwrite

attempt(0, "write inside the workspace (what the mode allows)")(lambda w: overwrite(w.inside("v0")))
attempt(1, "write outside")(lambda w: overwrite(w.victim(1)))
attempt(2, "write through ..")(lambda w: overwrite(w.inside("..", "..", "out", "v2")))
attempt(3, "write through a symbolic link to a file")(lambda w: overwrite(w.inside("link3")))
attempt(4, "write through a symbolic link to a folder")(lambda w: overwrite(w.inside("dir4", "v4")))
attempt(5, "write through /proc/self/root")(lambda w: overwrite("/proc/self/root" + w.victim(5)))
attempt(6, "write through /proc/self/cwd")(lambda w: overwrite("/proc/self/cwd/../../out/v6"))


@attempt(7, "hard link of an outside file in the workspace")
def hard_link(w):
    os.link(w.victim(7), w.inside("hard7"))
    return overwrite(w.inside("hard7"))


@attempt("0b", "commit what was written (what the mode allows)")
def commit(w):
    import subprocess

    overwrite(w.inside("committed"))
    who = ["-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "core.hooksPath=/nowhere"]
    for words in (["add", "committed"], ["commit", "-q", "-m", "by a command"]):
        ran = subprocess.run(["git", *who, *words], cwd=w["workspace"], capture_output=True, text=True, check=False)
        if ran.returncode != 0:
            raise PermissionError(ran.stderr.strip())


@attempt("0c", "threads, pipes, temporary files, terminals (what the mode allows)")
def ordinary(w):
    import pty
    import socket
    import subprocess
    import tempfile
    import threading

    with tempfile.NamedTemporaryFile() as file:
        file.write(b"x")
    left, right = socket.socketpair()
    worker = threading.Thread(target=lambda: left.sendall(b"y"))
    worker.start()
    worker.join()
    for handle in pty.openpty():
        os.close(handle)
    ran = subprocess.run("echo z | cat > /dev/null; kill -9 $$", shell=True, check=False)
    if right.recv(1) != b"y" or ran.returncode != -9:
        raise PermissionError("something ordinary does not work")
    return overwrite(w.inside("v0c"))


@attempt(8, "move a file out")
def move_out(w):
    os.rename(w.inside("f8"), os.path.join(w["out"], "moved8"))


@attempt(9, "move an outside folder in")
def move_in(w):
    os.rename(os.path.join(w["out"], "d9"), w.inside("d9"))


attempt(10, "remove an outside file")(lambda w: os.unlink(w.victim(10)))
attempt(11, "truncate an outside file")(lambda w: os.truncate(w.victim(11), 0))
attempt(12, "chmod an outside file")(lambda w: os.chmod(w.victim(12), 0o777))


@attempt("12b", "set flags of an outside file")
def flags(w):
    """Needs no more than reading rights, and no path when it is done."""
    import fcntl

    set_flags, no_dump = 0x40086602, 0x40
    handle = os.open(w.victim("12b"), os.O_RDONLY)
    fcntl.ioctl(handle, set_flags, no_dump.to_bytes(8, "little"))


attempt(13, "set the times of an outside file")(lambda w: os.utime(w.victim(13), (1, 1)))
attempt(14, "set an attribute of an outside file")(
    lambda w: os.setxattr(w.victim(14), "user.pwned", b"yes")
)
attempt(15, "make a pipe outside")(lambda w: os.mkfifo(os.path.join(w["out"], "fifo15")))


@attempt("15b", "make a device of the disk")
def device(w):
    disk = os.stat("/").st_dev
    os.mknod(w.inside("disk15b"), 0o060600, disk)
    with open(w.inside("disk15b"), "rb", buffering=0) as file:
        return f"read {len(file.read(4096))} bytes of the disk"


attempt(16, "write a git hook")(lambda w: overwrite(w.inside(".git", "hooks", "pre-commit")))
attempt(17, "write the git config")(
    lambda w: append(w.inside(".git", "config"), "[core]\n\tfsmonitor = pwned\n")
)


@attempt(18, "replace .git by renaming it")
def rename_git(w):
    os.rename(w.inside(".git"), w.inside("git-old"))


@attempt(19, "write the git config through a hard link")
def hard_link_config(w):
    os.link(w.inside(".git", "config"), w.inside("hard19"))
    return append(w.inside("hard19"))


@attempt(20, "create a protected folder that is missing")
def missing_protected(w):
    os.makedirs(w.inside(".claude"), exist_ok=True)
    return overwrite(w.inside(".claude", "settings.json"))




@attempt("20u", "create a protected folder when the end of another command frees its name")
def freed_name(w):
    import time

    # Longer than the other commands that the runner starts meanwhile.
    deadline = time.monotonic() + 1.5
    while True:
        try:
            os.makedirs(w.inside(".cursor"), exist_ok=True)
            return overwrite(w.inside(".cursor", "mcp.json"))
        except OSError:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.005)


@attempt("1m", "write to a file system that is mounted outside")
def mounted(w):
    if not w["mounted"]:
        raise Impossible("needs root to mount one")
    return overwrite(os.path.join(w["mounted"], "v1m"))


attempt("48u", "create a start-up file that is missing, in a home that is the workspace")(
    lambda w: overwrite(os.path.join(w["home"], ".zshenv"))
)
attempt(48, "write ~/.bashrc")(lambda w: append(os.path.join(w["home"], ".bashrc")))
attempt(50, "write in /dev/shm")(lambda w: overwrite(f"/dev/shm/{w['mark']}-50"))


@attempt(51, "a program in memory writes outside")
def memory_program(w):
    handle = os.memfd_create("attacker")
    with open("/bin/sh", "rb") as shell:
        os.write(handle, shell.read())
    child = os.fork()
    if child == 0:
        os.execve(handle, ["sh", "-c", f"echo pwned > {w.victim(51)}"], {})
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0:
        raise PermissionError("the program ran, its write was refused")


@attempt(53, "swap a folder for a symbolic link while writing, 3,000 times")
def swap_race(w):
    """One process swaps, the other writes: sooner or later a check and its use see different things."""
    race, plain, link = w.inside("race53"), w.inside("race53.plain"), w.inside("race53.link")
    os.mkdir(plain)
    os.symlink(w["out"], link)
    swapper = os.fork()
    if swapper == 0:
        while True:
            for target in (plain, link):
                os.rename(target, race)
                os.rename(race, target)
    done, refusal, tries, met_the_link = 0, None, 0, False
    deadline = time.monotonic() + 20
    try:
        # On a busy machine the two may run one after the other for a while: 3,000 tries count only when
        # some of them met the link.
        while tries < 3_000 or (not met_the_link and time.monotonic() < deadline):
            tries += 1
            try:
                overwrite(os.path.join(race, "v53"))
                done += 1
            except OSError as error:
                refusal = error
                met_the_link |= error.errno != errno.ENOENT
            if tries % 100 == 0:
                with open(w.victim(53), encoding="utf-8") as victim:
                    met_the_link |= victim.read() == "pwned\n"
    finally:
        os.kill(swapper, 9)
        os.waitpid(swapper, 0)
    if not done and refusal:
        raise refusal
    return f"{done} writes went somewhere"


@attempt(67, "start at the next login: systemd and autostart")
def autostart(w):
    def plant(*names):
        path = os.path.join(w["home"], ".config", *names)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return overwrite(path)

    return all_refused(
        [
            lambda: plant("systemd", "user", "evil.service"),
            lambda: plant("autostart", "evil.desktop"),
        ]
    )


attempt(68, "write in the folder that core.hooksPath names")(
    lambda w: overwrite(w.inside(".githooks", "post-commit"))
)
attempt("69a", "write a hook of a submodule")(
    lambda w: overwrite(w.inside(".git", "modules", "sub", "hooks", "post-checkout"))
)


@attempt("69e", "hide a submodule's repository from one command")
def hide_module(w):
    """What is no repository when the next fence is built may have no protected hooks."""
    os.rename(w.inside(".git", "modules", "sub", "HEAD"), w.inside(".git", "modules", "sub", "HEAD.kept"))


@attempt("69f", "write its hooks in the next, and show it again")
def write_hidden_module(w):
    done = overwrite(w.inside(".git", "modules", "sub", "hooks", "post-merge"))
    os.rename(w.inside(".git", "modules", "sub", "HEAD.kept"), w.inside(".git", "modules", "sub", "HEAD"))
    return done


attempt("69b", "point a submodule's .git file elsewhere")(lambda w: overwrite(w.inside("sub", ".git")))
attempt("69c", "point a worktree's .git file elsewhere")(
    lambda w: overwrite(os.path.join(w["worktree"], ".git"))
)
attempt("69d", "point a worktree's commondir elsewhere")(
    lambda w: overwrite(w.inside(".git", "worktrees", "worktree", "commondir"))
)


@attempt(70, "make a repository where there is none, and configure it")
def plain_repository(w):
    folder = os.path.join(w["plain"], ".git")
    os.makedirs(folder, exist_ok=True)
    return overwrite(os.path.join(folder, "config"))


attempt(71, "write a hook where .git/hooks is a symbolic link")(
    lambda w: overwrite(os.path.join(w["linked"], ".git", "hooks", "pre-commit"))
)


@attempt(73, "write what an editor or an agent runs or obeys")
def editor_files(w):
    def plant(*names):
        path = w.inside(*names)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return overwrite(path)

    return all_refused(
        [
            lambda: plant(".vscode", "tasks.json"),
            lambda: plant(".idea", "workspace.xml"),
            lambda: plant(".mcp.json"),
            lambda: plant(".envrc"),
            lambda: plant(".ropewalk", "rules.toml"),
        ]
    )


attempt("73b", "write in the folder that keeps the sessions")(
    lambda w: overwrite(os.path.join(w["state"], "pwned"))
)
attempt("73c", "read the folder that keeps the sessions")(lambda w: read_state(w))


def read_state(w):
    with open(os.path.join(w["state"], "sessions.db"), "rb") as file:
        return file.read(16).decode("ascii", "replace")


attempt(74, "write while the workspace is swapped for a symbolic link")(lambda w: overwrite("v74"))
attempt(75, "write when the workspace has become a symbolic link")(lambda w: overwrite("v75"))


@attempt(76, "write after changing to an outside folder")
def other_folder(w):
    os.chdir(w["out"])
    return overwrite("v76")


@attempt(77, "plant a symbolic link under a predictable name in /tmp")
def plant_link(w):
    os.symlink(w.victim(77), f"/tmp/{w['mark']}-77")


@attempt(78, "create a file whose name is no text")
def strange_name(w):
    name = b"v78\xff\n\x1b[2J\xe2\x80\xae"
    handle = os.open(os.fsencode(w["out"]) + b"/" + name, os.O_WRONLY | os.O_CREAT, 0o600)
    os.close(handle)

attempt("1s", "write outside")(lambda w: overwrite(w.victim("1s")))
attempt("16s", "write a git hook")(lambda w: overwrite(w.inside(".git", "hooks", "pre-push")))
