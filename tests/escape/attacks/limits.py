"""Attempts to take more than one's share: processes, memory, disk, output, time."""

import mmap
import os
import signal
import sys
import time

from .base import attempt


@attempt(80, "fork without end")
def fork_bomb(w):
    """Far beyond the limit, and no further: without one, the machine must survive."""
    children = []
    try:
        for _ in range(w["processes-try"]):
            child = os.fork()
            if child == 0:
                signal.pause()
                os._exit(0)
            children.append(child)
    finally:
        count = len(children)
        for child in children:
            os.kill(child, signal.SIGKILL)
        for child in children:
            os.waitpid(child, 0)
        if count < w["processes-try"]:
            raise PermissionError(f"stopped after {count} processes")
    return f"{count} processes lived at once"


@attempt(81, "take all memory")
def memory_hog(w):
    step, populate_write = 64 << 20, 23
    held = []
    for _ in range(w["memory-try"] // step):
        try:
            block = mmap.mmap(-1, step)
        except OSError as error:
            raise PermissionError(f"stopped after {len(held) * step} bytes: {error}") from error
        block.madvise(mmap.MADV_HUGEPAGE)
        block.madvise(populate_write)
        held.append(block)
    return f"held {len(held) * step} bytes"


@attempt(82, "fill the disk")
def disk_fill(w):
    """A sparse file: the limit counts its length, the disk hardly notices."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with open(w.inside("fill82"), "wb") as file:
        file.truncate(w["file-try"])


@attempt("82b", "fill memory through /tmp")
def memory_disk(w):
    """Only asks how much there would be; filling it would take everybody's time."""
    room = os.statvfs("/tmp")
    if room.f_frsize * room.f_blocks > w["memory-try"]:
        return f"/tmp takes {room.f_frsize * room.f_blocks >> 20} MiB of {os.statvfs('/tmp').f_bsize}-byte blocks"
    raise PermissionError("it is bounded")


@attempt(83, "a line without an end")
def long_line(w):
    block = b"x" * (1 << 20)
    for _ in range(w["output-try"] // len(block)):
        sys.stdout.buffer.write(block)
    sys.stdout.buffer.flush()


@attempt(84, "output that is no text")
def binary(_w):
    for _ in range(64):
        os.write(1, bytes(range(256)) + b"\xff\xfe\xed\xa0\x80\xf8\x88\x80\x80\x80\x00")
        os.write(2, b"\xe2\x82")


@attempt(85, "sequences that a terminal obeys")
def terminal(w):
    os.write(1, bytes.fromhex(w["sequences"]))


@attempt(86, "ignore being asked to stop")
def stubborn(w):
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    child = os.fork()
    if child == 0:
        os.setsid()
        os.write(1, b"stubborn and ready\n")
        os.execv("/bin/sleep", [f"{w['mark']}-86", "20"])
    time.sleep(20)


@attempt(87, "wait for input")
def read_input(_w):
    data = sys.stdin.buffer.read()
    if data:
        return f"read {data!r}"
    raise PermissionError("there is no input")
