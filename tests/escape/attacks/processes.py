"""Attempts on other processes and on what they know, and to outlive one's own command."""

import ctypes
import os
import signal
import sys
import time

from .base import Impossible, attempt, libc, syscall

PTRACE_ATTACH, PTRACE_DETACH, PTRACE_PEEKDATA = 16, 17, 2
SYS_PIDFD_OPEN, SYS_PIDFD_GETFD, SYS_PROCESS_VM_READV = 434, 438, 310
SECRET_BYTES = 48


def other(w):
    """The process that holds a secret, and where in its memory."""
    return w["holder"]["pid"], w["holder"]["address"]


@attempt(32, "ptrace another process")
def ptrace(w):
    pid, address = other(w)
    call = libc().ptrace
    call.restype = ctypes.c_long
    call.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    if call(PTRACE_ATTACH, pid, None, None) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    os.waitpid(pid, 0x40000000)
    words = [call(PTRACE_PEEKDATA, pid, address + at, None) for at in range(0, SECRET_BYTES, 8)]
    call(PTRACE_DETACH, pid, None, None)
    return b"".join(word.to_bytes(8, "little", signed=True) for word in words).decode("ascii", "replace")


@attempt(33, "read the environment of other processes")
def environments(w):
    found, refusal = [], None
    for name in {str(other(w)[0]), *filter(str.isdigit, os.listdir("/proc"))}:
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                found += [part for part in file.read().split(b"\0") if part.startswith(b"HELD_WORDS=")]
        except OSError as error:
            refusal = error
    if not found:
        raise refusal or PermissionError("no process shows its environment")
    return b" ".join(found).decode()


@attempt(34, "read the memory of another process")
def memory(w):
    pid, address = other(w)
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as file:
        return os.pread(file.fileno(), SECRET_BYTES, address).decode("ascii", "replace")


@attempt(35, "process_vm_readv")
def vm_read(w):
    class Span(ctypes.Structure):
        _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]

    pid, address = other(w)
    buffer = ctypes.create_string_buffer(SECRET_BYTES)
    here, there = Span(ctypes.addressof(buffer), SECRET_BYTES), Span(address, SECRET_BYTES)
    syscall(SYS_PROCESS_VM_READV, pid, ctypes.byref(here), 1, ctypes.byref(there), 1, 0)
    return buffer.raw.decode("ascii", "replace")


@attempt(36, "kill another process")
def kill(w):
    os.kill(w["sleeper"], signal.SIGKILL)


@attempt(37, "take an open file from another process")
def take_file(w):
    pid, handle = other(w)[0], w["holder"]["handle"]
    process = syscall(SYS_PIDFD_OPEN, pid, 0)
    taken = syscall(SYS_PIDFD_GETFD, process, handle, 0)
    return os.pread(taken, SECRET_BYTES, 0).decode("ascii", "replace")


@attempt(38, "secrets in the environment")
def environment(_w):
    found = [f"{name}={value}" for name, value in os.environ.items() if "SECRET" in value]
    if not found:
        raise PermissionError("there are none")
    return " ".join(found)


@attempt(39, "a file handle that was left open")
def inherited(w):
    for handle in range(3, 256):
        try:
            if os.readlink(f"/proc/self/fd/{handle}") == w.victim(39):
                os.write(handle, b"pwned\n")
                return f"handle {handle}"
        except OSError:
            continue
    raise PermissionError("there is none")


@attempt("39b", "any other handle than input and output")
def any_handle(_w):
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
        except FileNotFoundError:
            # The one that listed them.
            continue
        if int(name) > 2:
            found[name] = target
    if not found:
        raise PermissionError("there is none")
    return str(found)


@attempt(43, "a setuid program")
def setuid(w):
    if os.getuid() == 0 or not w["setuid"]:
        raise Impossible("needs a setuid program, and a user who is not root")
    import subprocess

    shown = subprocess.run([w["setuid"], w["root-secret"]], capture_output=True, text=True, check=False)
    if shown.returncode != 0:
        raise PermissionError(shown.stderr.strip())
    return shown.stdout


@attempt(47, "read ~/.ssh/id_rsa")
def ssh_key(w):
    with open(os.path.join(w["home"], ".ssh", "id_rsa"), encoding="ascii") as file:
        return file.read()


@attempt("47b", "read ~/.netrc, ~/.aws and ~/.gnupg")
def other_secrets(w):
    found, refusal = [], None
    for name in (".netrc", ".aws/credentials", ".gnupg/secring"):
        try:
            with open(os.path.join(w["home"], name), encoding="ascii") as file:
                found.append(file.read())
        except OSError as error:
            refusal = error
    if refusal and not found:
        raise refusal
    return " ".join(found)


@attempt(54, "a daemon outlives its command")
def daemon(w):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
            for handle in (0, 1, 2):
                os.close(handle)
            os.execv("/bin/sleep", [f"{w['mark']}-54", "20"])
        os._exit(0)
    os.wait()
    # The daemon must have replaced itself before its command ends.
    time.sleep(0.02)


@attempt(93, "loaders and start-up files by environment")
def loaders(_w):
    bad = ("LD_", "GIT_CONFIG", "GIT_SSH", "NODE_OPTIONS", "PYTHONSTARTUP", "BASH_ENV", "PERL5OPT")
    found = [name for name in os.environ if name.startswith(bad) and "planted" in os.environ[name]]
    if not found:
        raise PermissionError("none was passed on")
    return " ".join(sorted(found))


if sys.maxsize < 2**32:
    raise SystemExit("the system call numbers here are those of 64-bit Linux")
