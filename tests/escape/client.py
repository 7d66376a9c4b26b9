"""A small editor: drives `ropewalk serve` over its standard streams and says yes to everything."""

import json
import os
import queue
import signal
import subprocess
import threading
import time

PATIENCE_S = 60


class Gone(Exception):
    """The server closed its output, or did not answer in time."""


class Server:
    def __init__(self, command, account, environment, cwd, handles=(), log=None):
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            cwd=cwd,
            env=environment,
            pass_fds=handles,
            **account,
        )
        self.frames = queue.Queue()
        self.last_id = 0
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self.frames.put(line)
        self.frames.put(None)

    def send(self, method, params, notify=False):
        message = {"jsonrpc": "2.0", "method": method, "params": params}
        if not notify:
            self.last_id += 1
            message["id"] = self.last_id
        self._write(message)
        return self.last_id

    def _write(self, message):
        try:
            self.process.stdin.write(json.dumps(message).encode() + b"\n")
            self.process.stdin.flush()
        except OSError as error:
            raise Gone("the server takes no more input") from error

    def next(self, deadline):
        try:
            line = self.frames.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            raise Gone("no answer in time") from None
        if line is None:
            self.frames.put(None)
            raise Gone("the server closed its output")
        return json.loads(line)

    def call(self, method, params, patience_s=PATIENCE_S, on_update=None):
        """The result, the error, and everything that was shown on the way, as one text."""
        wanted = self.send(method, params)
        deadline = time.monotonic() + patience_s
        shown = []
        while True:
            frame = self.next(deadline)
            if "method" in frame and "id" in frame:
                self._answer(frame)
            elif "method" in frame:
                texts = list(strings(frame["params"]))
                shown += texts
                if on_update:
                    on_update("".join(texts))
            elif frame.get("id") == wanted:
                return frame.get("result"), frame.get("error"), "\n".join(shown)

    def _answer(self, frame):
        options = frame["params"].get("options", [])
        allowed = [option["optionId"] for option in options if option.get("kind") == "allow_once"]
        outcome = {"outcome": "selected", "optionId": allowed[0]} if allowed else {"outcome": "cancelled"}
        self._write({"jsonrpc": "2.0", "id": frame["id"], "result": {"outcome": outcome}})

    def initialize(self):
        self.call("initialize", {"protocolVersion": 1, "clientCapabilities": {}})

    def new_session(self, cwd):
        result, error, _ = self.call("session/new", {"cwd": cwd, "mcpServers": []})
        if error:
            raise Gone(f"session/new was refused: {error}")
        session = result["sessionId"]
        setting = {"sessionId": session, "configId": "approval", "value": "full"}
        _, error, _ = self.call("session/set_config_option", setting)
        if error:
            raise Gone(f"the approval could not be set: {error}")
        return session

    def prompt(self, session, text, links=(), **options):
        blocks = [{"type": "text", "text": text}]
        blocks += [{"type": "resource_link", "uri": uri, "name": "link"} for uri in links]
        return self.call("session/prompt", {"sessionId": session, "prompt": blocks}, **options)

    def resident_kib(self):
        """The most memory that the server ever held."""
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as file:
            for line in file:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1])
        return 0

    def close(self):
        """Ends the server as an editor does. Once more does no harm."""
        self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            os.kill(self.process.pid, signal.SIGKILL)
            self.process.wait()


def strings(value):
    """Every text in a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from strings(item)
