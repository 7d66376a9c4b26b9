"""Attempts that use the kernel itself: namespaces, mounts, keys, io_uring, terminals.

Some the kernel keeps for root. They are tried by everybody: a fence may have given away a capability.

System call numbers are those of x86-64.
"""

import ctypes
import errno
import fcntl
import mmap
import os
import struct

from .base import Impossible, absent, attempt, overwrite, syscall

CLONE_NEWNS, CLONE_NEWUSER = 0x00020000, 0x10000000
SIGCHLD = 17
(SYS_CLONE, SYS_CHROOT, SYS_MOUNT, SYS_ADD_KEY, SYS_UNSHARE) = (56, 161, 165, 248, 272)
(SYS_NAME_TO_HANDLE_AT, SYS_OPEN_BY_HANDLE_AT, SYS_SETNS, SYS_BPF) = (303, 304, 308, 321)
(SYS_IO_URING_SETUP, SYS_IO_URING_ENTER) = (425, 426)
(SYS_MOVE_MOUNT, SYS_FSOPEN, SYS_FSCONFIG, SYS_FSMOUNT, SYS_CLONE3) = (429, 430, 431, 432, 435)
TIOCSTI, TIOCLINUX, TIOCSCTTY = 0x5412, 0x541C, 0x540E
AT_FDCWD = -100


@attempt(31, "io_uring removes an outside file")
def io_uring(w):
    parameters = ctypes.create_string_buffer(120)
    try:
        ring = syscall(SYS_IO_URING_SETUP, 1, parameters)
    except OSError as error:
        absent(error)
    words = struct.unpack("30I", parameters.raw)
    # The offsets of the submission queue: tail, and the array of indices.
    tail_at, array_at, entries = words[11], words[16], words[0]
    path = ctypes.create_string_buffer(os.fsencode(w.victim(31)))
    queue = mmap.mmap(ring, array_at + 4 * entries, offset=0)
    slots = mmap.mmap(ring, 64 * entries, offset=0x10000000)
    unlink_at = 36
    slots[:64] = struct.pack("=BBHiQQIIQ", unlink_at, 0, 0, AT_FDCWD, 0, ctypes.addressof(path), 0, 0, 0).ljust(
        64, b"\0"
    )
    queue[array_at : array_at + 4] = struct.pack("=I", 0)
    queue[tail_at : tail_at + 4] = struct.pack("=I", 1)
    get_events = 1
    syscall(SYS_IO_URING_ENTER, ring, 1, 1, get_events, None, 0)


@attempt(40, "type into a terminal")
def type_into(w):
    if not w["terminal"]:
        raise Impossible("this kernel lets nobody type into terminals")
    os.setsid() if os.getpid() != os.getsid(0) else None
    try:
        handle = os.open(w["terminal"], os.O_RDWR)
    except OSError:
        # Not there; whether typing is possible at all is seen at one of its own.
        import pty

        handle = pty.openpty()[1]
    try:
        fcntl.ioctl(handle, TIOCSCTTY, 0)
    except OSError:
        pass
    for byte in w.token(40):
        fcntl.ioctl(handle, TIOCSTI, bytes([byte]))


@attempt(52, "paste into a console")
def paste(_w):
    for name in ("/dev/tty1", "/dev/tty0", "/dev/console"):
        try:
            handle = os.open(name, os.O_RDWR | os.O_NOCTTY)
            fcntl.ioctl(handle, TIOCLINUX, b"\x06" + bytes(16))
            return f"{name} answered"
        except OSError as error:
            refusal = error
    raise Impossible(f"no virtual console answers: {refusal}")


@attempt(41, "a user namespace by unshare")
def unshare(_w):
    before = os.readlink("/proc/self/ns/user")
    syscall(SYS_UNSHARE, CLONE_NEWUSER)
    return f"{before} became {os.readlink('/proc/self/ns/user')}"


@attempt(42, "mount")
def mount(w):
    target = os.path.join(w["out"], "mount42")
    syscall(SYS_MOUNT, b"pwned", os.fsencode(target), b"tmpfs", 0, None)


@attempt(44, "leave a key in the user's keyring")
def add_key(w):
    user_keyring = -4
    data = w.token(44)
    try:
        serial = syscall(SYS_ADD_KEY, b"user", f"{w['mark']}-44".encode(), data, len(data), user_keyring)
    except OSError as error:
        absent(error)
    return f"key {serial}"


@attempt(45, "bpf")
def bpf(_w):
    map_create, array = 0, 2
    attributes = struct.pack("=5I", array, 4, 4, 1, 0).ljust(72, b"\0")
    handle = syscall(SYS_BPF, map_create, attributes, len(attributes))
    return os.readlink(f"/proc/self/fd/{handle}")


@attempt(46, "open a file by its handle")
def by_handle(w):
    handle = ctypes.create_string_buffer(struct.pack("=Ii", 128, 0) + bytes(128))
    mount_id = ctypes.c_int()
    syscall(SYS_NAME_TO_HANDLE_AT, AT_FDCWD, os.fsencode(w.victim(46)), handle, ctypes.byref(mount_id), 0)
    place = os.open(w["out"], os.O_RDONLY)
    opened = syscall(SYS_OPEN_BY_HANDLE_AT, place, handle, os.O_WRONLY | os.O_TRUNC)
    os.write(opened, b"pwned\n")


@attempt(49, "chroot")
def chroot(w):
    syscall(SYS_CHROOT, os.fsencode(w["out"]))
    return overwrite("/v49")


def in_child(pid):
    """The child of a raw clone only ends; the parent says that there was one."""
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return f"process {pid} lived in a user namespace of its own"


@attempt(55, "a user namespace by clone")
def clone(_w):
    return in_child(syscall(SYS_CLONE, CLONE_NEWUSER | CLONE_NEWNS | SIGCHLD, 0, 0, 0, 0))


@attempt(56, "a user namespace by clone3")
def clone3(_w):
    arguments = struct.pack("=8Q", CLONE_NEWUSER, 0, 0, 0, SIGCHLD, 0, 0, 0)
    return in_child(syscall(SYS_CLONE3, arguments, len(arguments)))


@attempt(57, "enter the namespaces of process 1")
def enter(w):
    # Threads share the file system state, and setns refuses then; this program has one thread.
    for process in (1, w["pid-outside"], "self"):
        try:
            handle = os.open(f"/proc/{process}/ns/mnt", os.O_RDONLY)
            break
        except OSError:
            continue
    syscall(SYS_SETNS, handle, CLONE_NEWNS)
    return overwrite(w.victim(57))


@attempt(58, "mount by the newer calls")
def fsopen(w):
    create, at_empty_path = 6, 4
    try:
        system = syscall(SYS_FSOPEN, b"tmpfs", 0)
    except OSError as error:
        absent(error, errno.ENODEV)
    syscall(SYS_FSCONFIG, system, create, None, None, 0)
    mounted = syscall(SYS_FSMOUNT, system, 0, 0)
    target = os.fsencode(os.path.join(w["out"], "mount58"))
    syscall(SYS_MOVE_MOUNT, mounted, b"", AT_FDCWD, target, at_empty_path)


@attempt("50b", "leave shared memory of System V")
def shared_memory(w):
    shmget, create = 29, 0o1600
    return f"segment {syscall(shmget, w['shm-key'], 4096, create)}"


@attempt("59b", "make a control group")
def control_group(w):
    for root in ("/sys/fs/cgroup/pids", "/sys/fs/cgroup/unified", "/sys/fs/cgroup"):
        if os.path.isdir(root):
            os.mkdir(f"{root}/{w['mark']}")
            return f"made one in {root}"
    raise Impossible("there are no control groups")


@attempt(59, "change a setting of the kernel")
def sysctl(w):
    with open(w["sysctl"]["path"], "w", encoding="ascii") as file:
        file.write(w["sysctl"]["evil"])
