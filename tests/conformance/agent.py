"""One server process under test, spoken to in raw frames.

No SDK stands between a test and the wire: ids, omitted fields and broken lines are sent exactly
as written. Each frame of the server is judged by the official schema the moment it arrives, so a
test about anything else also fails when the server breaks the schema on the way.
"""

import json
import os
import subprocess
import sys
import threading
import time

from acp_schema import Conversation

DEADLINE_S = 30
# How long "nothing came" is waited for. Absence can only be concluded from time.
QUIET_S = 0.5
SHUTDOWN_S = 5

STOP_REASONS = {"end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled"}
METHOD_NOT_FOUND = -32601


class Exited(Exception):
    """The server ended while something was still expected of it."""


class Agent:
    def __init__(self, home, cwd):
        binary = os.environ.get("ROPEWALK_BIN")
        assert binary, "ROPEWALK_BIN names the binary under test"
        self.cwd = str(cwd)
        self.process = subprocess.Popen(
            [binary, "serve"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "ROPEWALK_HOME": str(home)},
            cwd=self.cwd,
        )
        self.lines = []  # What the server wrote, byte for byte.
        self.frames = []  # The same, parsed; None for a line that is not JSON.
        self.problems = []
        self.stderr = b""
        self.hello = None
        self._conversation = Conversation()
        self._changed = threading.Condition()
        self._ended = False
        self._last_id = 0
        self._threads = [threading.Thread(target=each, daemon=True) for each in (self._read, self._read_stderr)]
        for thread in self._threads:
            thread.start()

    def _read(self):
        for line in self.process.stdout:
            try:
                frame = json.loads(line)
            except ValueError:
                frame = None
            with self._changed:
                self.lines.append(line)
                self.frames.append(frame)
                found = ["the line is not JSON"] if frame is None else self._conversation.agent_frame(frame)
                self.problems += [f"{problem}: {line[:300]!r}" for problem in found]
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _read_stderr(self):
        self.stderr = self.process.stderr.read()

    # Sending

    def send_bytes(self, line):
        """Sends a line as it is, broken or not."""
        try:
            frame = json.loads(line)
        except ValueError:
            frame = None
        with self._changed:
            self._conversation.client_frame(frame)
        self.process.stdin.write(line)
        self.process.stdin.flush()

    def send(self, frame):
        self.send_bytes(json.dumps(frame).encode() + b"\n")

    def notify(self, method, params=None):
        self.send({"jsonrpc": "2.0", "method": method, **({} if params is None else {"params": params})})

    def start_request(self, method, params=None, id=None):
        if id is None:
            self._last_id += 1
            id = self._last_id
        frame = {"jsonrpc": "2.0", "id": id, "method": method}
        self.send({**frame, **({} if params is None else {"params": params})})
        return id

    # Waiting

    def position(self):
        """Where the server's output stands: a mark for `since`."""
        with self._changed:
            return len(self.frames)

    def since(self, position):
        with self._changed:
            return self.frames[position:]

    def wait_for(self, condition, timeout=DEADLINE_S, start=0):
        """The first frame from `start` on that fulfils the condition, and its position; or None in time."""
        deadline = time.monotonic() + timeout
        with self._changed:
            while True:
                while start < len(self.frames):
                    if isinstance(self.frames[start], dict) and condition(self.frames[start]):
                        return self.frames[start], start
                    start += 1
                if self._ended:
                    raise Exited(f"the server ended; it said: {self.stderr[-2000:].decode(errors='replace')}")
                left = deadline - time.monotonic()
                if left <= 0:
                    return None
                self._changed.wait(left)

    def response(self, id, timeout=DEADLINE_S):
        """Exactly this id, of exactly this type: 1 does not answer "1" nor True."""
        wanted = json.dumps(id)
        found = self.wait_for(lambda f: "method" not in f and "id" in f and json.dumps(f["id"]) == wanted, timeout)
        assert found, f"request {wanted} was not answered in {timeout} s"
        return found[0]

    def silence(self, condition, seconds=QUIET_S, start=None):
        """Asserts that nothing fulfilling the condition arrives for a while."""
        start = self.position() if start is None else start
        found = self.wait_for(condition, seconds, start)
        assert found is None, f"unexpected: {found[0]!r}"

    # Calling

    def request(self, method, params=None, id=None, timeout=DEADLINE_S):
        return self.response(self.start_request(method, params, id), timeout)

    def call(self, method, params=None):
        """The result; an error fails the test."""
        answer = self.request(method, params)
        assert "result" in answer, f"{method} failed: {answer.get('error')!r}"
        return answer["result"]

    def initialize(self, version=1, capabilities=None, **more):
        self.hello = self.call(
            "initialize", {"protocolVersion": version, "clientCapabilities": capabilities or {}, **more}
        )
        return self.hello

    def new_session(self, **more):
        return self.call("session/new", {"cwd": self.cwd, "mcpServers": [], **more})

    def session(self):
        return self.new_session()["sessionId"]

    def prompt(self, session, content, act=None, **more):
        """Runs a turn as a modest client: questions get their first option, other calls -32601.

        `act`, if given, is called once after the first update or question of the turn.
        """
        blocks = [text(content)] if isinstance(content, str) else content
        turn = Turn(self.position())
        id = self.start_request("session/prompt", {"sessionId": session, "prompt": blocks, **more})
        wanted, position = json.dumps(id), turn.start
        while True:
            found = self.wait_for(lambda f: True, start=position)
            assert found, "the turn did not end in time"
            frame, position = found[0], found[1] + 1
            if "method" not in frame:
                if json.dumps(frame.get("id")) == wanted:
                    turn.answer, turn.end = frame, position
                    return turn
                continue
            if "id" in frame:
                turn.calls.append(frame)
            elif frame["method"] == "session/update":
                turn.updates.append(frame["params"])
            if act and not turn.acted:
                turn.acted = True
                act()
            if "id" in frame:
                self.send(self._reply(frame, turn.acted))

    def _reply(self, frame, acted):
        base = {"jsonrpc": "2.0", "id": frame["id"]}
        if frame["method"] != "session/request_permission":
            return {**base, "error": {"code": METHOD_NOT_FOUND, "message": "not a method of this client"}}
        chosen = {"outcome": "selected", "optionId": frame["params"]["options"][0]["optionId"]}
        return {**base, "result": {"outcome": {"outcome": "cancelled"} if acted else chosen}}

    # Ending

    def close_input(self):
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass

    def wait_exit(self, timeout=SHUTDOWN_S):
        """The exit status, or None if the server is still there."""
        try:
            status = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            return None
        for thread in self._threads:
            thread.join(timeout)
        return status

    def stop(self):
        self.close_input()
        if self.wait_exit() is None:
            print("the server did not leave after its input ended", file=sys.stderr)
            self.process.kill()
            self.process.wait()


class Turn:
    def __init__(self, start):
        self.start = start
        self.end = None
        self.updates = []
        self.calls = []
        self.answer = None
        self.acted = False

    @property
    def stop_reason(self):
        assert "result" in self.answer, f"the prompt failed: {self.answer.get('error')!r}"
        return self.answer["result"]["stopReason"]

    def called(self, prefix):
        return [call["method"] for call in self.calls if call["method"].startswith(prefix)]


def text(content):
    return {"type": "text", "text": content}


def is_update_of(session):
    return lambda f: f.get("method") == "session/update" and f["params"]["sessionId"] == session


def is_response(frame):
    return "method" not in frame
