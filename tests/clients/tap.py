#!/usr/bin/env python3
"""Starts `ropewalk serve` and records every line that passes, both ways.

A rig launches this instead of the binary, so that what a foreign client saw can be
validated afterwards without that client's help. One file per server process, because
JSON-RPC ids start again with every process.

Environment: ROPEWALK_BIN is the binary; ACP_TAP_DIR is the folder for the records
(without it nothing is recorded). ACP_TAP_HIDE names a session capability that the client
shall not learn of, to make it take its other way. Arguments replace the default `serve`.

Apart from that the tap changes nothing: end of input is passed on, the exit status is the
server's, and a signal sent to the tap reaches the server.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time


class Record:
    """One JSON object per line: {"from": "client" or "server", "line": text}, and {"ended": status} last."""

    def __init__(self, folder):
        self.lock = threading.Lock()
        self.file = None
        if folder:
            os.makedirs(folder, exist_ok=True)
            name = f"{time.time_ns()}-{os.getpid()}.jsonl"
            self.file = open(os.path.join(folder, name), "w", encoding="utf-8", newline="\n")

    def write(self, sender, line):
        text = line.decode("utf-8", "surrogateescape").rstrip("\n")
        self.append({"from": sender, "line": text})

    def append(self, entry):
        if self.file is None:
            return
        with self.lock:
            self.file.write(json.dumps(entry) + "\n")
            self.file.flush()


def hide_capability(line):
    """The line without the hidden capability; only the answer to `initialize` can carry it."""
    hidden = os.environ.get("ACP_TAP_HIDE")
    if not hidden or b'"agentCapabilities"' not in line:
        return line
    frame = json.loads(line)
    frame["result"]["agentCapabilities"]["sessionCapabilities"].pop(hidden, None)
    return json.dumps(frame).encode() + b"\n"


def copy(source, target, record, sender):
    for line in source:
        # Recorded before it is passed on: whoever has seen a line can rely on the record having it.
        record.write(sender, line)
        try:
            target.write(hide_capability(line) if sender == "server" else line)
            target.flush()
        except (BrokenPipeError, ValueError):
            break


def copy_input(server, record):
    copy(sys.stdin.buffer, server.stdin, record, "client")
    try:
        server.stdin.close()
    except BrokenPipeError:
        pass


def main():
    binary = os.environ.get("ROPEWALK_BIN")
    if not binary:
        sys.exit("tap: ROPEWALK_BIN is not set")
    record = Record(os.environ.get("ACP_TAP_DIR"))
    server = subprocess.Popen(
        [binary, *(sys.argv[1:] or ["serve"])], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda received, _frame: server.send_signal(received))
    # A daemon thread: when the server is gone, nobody needs the client's further input.
    threading.Thread(target=copy_input, args=(server, record), daemon=True).start()
    copy(server.stdout, sys.stdout.buffer, record, "server")
    status = server.wait()
    record.append({"ended": status})
    # Not sys.exit: the input thread may hold the lock of the standard input.
    os._exit(status if status >= 0 else 128 - status)


if __name__ == "__main__":
    main()
