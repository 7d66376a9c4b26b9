#!/usr/bin/env python3
"""Starts `ropewalk serve` and records every line that passes, both ways.

A rig launches this instead of the binary, so that what a foreign client saw can be
validated afterwards without that client's help. One file per server process, because
JSON-RPC ids start again with every process.

Environment: ROPEWALK_BIN is the binary; ACP_TAP_DIR is the folder for the records
(without it nothing is recorded). Arguments replace the default `serve`.

The tap adds nothing of its own: end of input is passed on, the exit status is the
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
    """One JSON object per line: {"from": "client" or "server", "line": text}."""

    def __init__(self, folder):
        self.lock = threading.Lock()
        self.file = None
        if folder:
            os.makedirs(folder, exist_ok=True)
            name = f"{time.time_ns()}-{os.getpid()}.jsonl"
            self.file = open(os.path.join(folder, name), "w", encoding="utf-8", newline="\n")

    def write(self, sender, line):
        if self.file is None:
            return
        text = line.decode("utf-8", "surrogateescape").rstrip("\n")
        with self.lock:
            self.file.write(json.dumps({"from": sender, "line": text}) + "\n")
            self.file.flush()


def copy(source, target, record, sender):
    for line in source:
        # Recorded before it is passed on: whoever has seen a line can rely on the record having it.
        record.write(sender, line)
        try:
            target.write(line)
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
    # Not sys.exit: the input thread may hold the lock of the standard input.
    os._exit(status if status >= 0 else 128 - status)


if __name__ == "__main__":
    main()
