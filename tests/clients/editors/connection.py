"""One editor at one server process, through the tap: it answers what the editor would answer."""

import contextlib
import itertools
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

TAP = pathlib.Path(__file__).parent.parent / "tap.py"
DEADLINE_S = 60
# What may be said of a session while no prompt and no load is under way.
OUTSIDE_TURNS = {
    "available_commands_update",
    "config_option_update",
    "current_mode_update",
    "session_info_update",
    "usage_update",
}


class Refused(Exception):
    """The server answered with an error."""

    def __init__(self, method, error):
        super().__init__(f"{method}: {error}")
        self.code = error["code"]


class Connection:
    def __init__(self, editor, home, workspace, arguments=()):
        self.editor = editor
        self.workspace = str(workspace)
        self.screens = {}
        self.asked = []
        # The kind of option that is chosen, `cancelled`, or None: the question stays open.
        self.answer = "allow_once"
        # Terminals are opened when the test says so, and not at once.
        self.slow = False
        self.problems = []
        self._open = {}
        self._answers = {}
        self.terminals = {}
        self._busy = {}
        self._ids = itertools.count(1)
        self._changed = threading.Condition(threading.RLock())
        self.held = None
        self._ended = False
        self._server = subprocess.Popen(
            [sys.executable, str(TAP), "serve", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "ROPEWALK_HOME": str(home)},
            cwd=self.workspace,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    # The way of each editor

    def start(self):
        self.hello = self.request("initialize", self.editor.hello)
        methods = self.hello.get("authMethods", [])
        if self.editor.authenticates and methods:
            self.request("authenticate", {"methodId": methods[0]["id"]})
        return self.hello

    def new_session(self):
        created = self.request("session/new", {"cwd": self.workspace, "mcpServers": []})
        return created["sessionId"], created

    def load(self, session):
        with self._changed:
            self.screens[session] = self.editor.screen()
        return self.request("session/load", {"sessionId": session, "cwd": self.workspace, "mcpServers": []})

    def start_prompt(self, session, text):
        return self._ask("session/prompt", {"sessionId": session, "prompt": [{"type": "text", "text": text}]})

    def end_prompt(self, prompt):
        """The stop reason, after every update of the turn."""
        return self._result(prompt)["stopReason"]

    def prompt(self, session, text, answer="allow_once"):
        self.answer = answer
        stop = self.end_prompt(self.start_prompt(session, text))
        for tool in self.screens[session].tools.values():
            assert tool["status"] in ("completed", "failed"), f"the turn is over, this is not: {tool}"
        return stop

    def cancel(self, session):
        """As the specification demands: the notification, then every open question is answered `cancelled`."""
        self._send({"method": "session/cancel", "params": {"sessionId": session}})
        with self._changed:
            waiting = [each for each in self.asked if not each["answered"]]
        for each in waiting:
            self._choose(each, "cancelled")

    def leave(self):
        """Ends as the editor does, and gives what went wrong on the way."""
        if self.editor.terminates:
            self._server.send_signal(signal.SIGTERM)
        else:
            self._server.stdin.close()
        status = self._server.wait(DEADLINE_S)
        self._reader.join(DEADLINE_S)
        for terminal in self.terminals.values():
            terminal.kill()
        assert status == 0, f"the server ended with {status}"
        return self.problems + [problem for screen in self.screens.values() for problem in screen.problems]

    def kill(self):
        if self._server.poll() is None:
            self._server.kill()
        self._server.wait()

    # Waiting

    def until(self, what, condition):
        deadline = time.monotonic() + DEADLINE_S
        with self._changed:
            while not condition():
                assert not self._ended, f"the server ended before this: {what}"
                left = deadline - time.monotonic()
                assert left > 0, f"did not happen in time: {what}"
                self._changed.wait(left)

    def request(self, method, parameters):
        return self._result(self._ask(method, parameters))

    def _ask(self, method, parameters):
        number = next(self._ids)
        with self._changed:
            self._open[number] = (method, parameters)
            if method in ("session/prompt", "session/load"):
                self._busy[parameters["sessionId"]] = method
        self._send({"id": number, "method": method, "params": parameters})
        return number

    def _result(self, number):
        self.until(f"the answer to request {number}", lambda: number in self._answers)
        method, frame = self._answers.pop(number)
        if "error" in frame:
            raise Refused(method, frame["error"])
        return frame["result"]

    # The wire

    def _send(self, frame):
        line = json.dumps({"jsonrpc": "2.0", **frame}).encode() + b"\n"
        with self._changed:
            self._server.stdin.write(line)
            self._server.stdin.flush()

    def _read(self):
        for line in self._server.stdout:
            with self._changed:
                try:
                    self._take(json.loads(line))
                except Exception as error:  # noqa: BLE001: told by the test, not by a dead thread
                    self.problems.append(f"{type(error).__name__}: {error}: {line[:400]!r}")
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _take(self, frame):
        if "method" not in frame:
            return self._answered(frame)
        parameters = frame.get("params", {})
        if frame["method"] == "session/update":
            self._updated(parameters)
        elif "id" in frame:
            self._serve(frame["id"], frame["method"], parameters)
        return None

    def _answered(self, frame):
        method, parameters = self._open.pop(frame["id"])
        if method == "session/new" and "result" in frame:
            # From here on the editor knows the session: an update before this would be lost.
            self.screens[frame["result"]["sessionId"]] = self.editor.screen()
        if method in ("session/prompt", "session/load"):
            self._busy.pop(parameters["sessionId"], None)
        self._answers[frame["id"]] = (method, frame)

    def _updated(self, parameters):
        update, session = parameters["update"], parameters["sessionId"]
        screen = self.screens.get(session)
        if screen is None:
            self.problems.append(f"an update of a session that the editor does not know yet: {update}")
            return
        kind, busy = update["sessionUpdate"], self._busy.get(session)
        if busy is None and kind not in OUTSIDE_TURNS:
            self.problems.append(f"an update outside a turn: {update}")
        if busy == "session/prompt" and kind == "user_message_chunk":
            self.problems.append(f"the person's own words come back: {update}")
        screen.update(update)
        if self.editor.complains and kind not in getattr(screen, "KNOWN", (kind,)):
            self._send({"id": None, "error": {"code": -32602, "message": "Parameter is not the expected type"}})

    # What the editor is asked

    def _serve(self, number, method, parameters):
        handler = {
            "session/request_permission": self._permission,
            "fs/read_text_file": self._read_file,
            "fs/write_text_file": self._write_file,
            "terminal/create": self._create,
            "terminal/output": self._output,
            "terminal/wait_for_exit": self._wait,
            "terminal/kill": self._kill,
            "terminal/release": self._release,
        }.get(method)
        if handler is None:
            self.problems.append(f"the editor was asked for {method}")
            return self._send({"id": number, "error": {"code": -32601, "message": "Method not found"}})
        return handler(number, parameters)

    def _permission(self, number, parameters):
        self.screens[parameters["sessionId"]].permission(parameters)
        question = {"id": number, "parameters": parameters, "answered": False}
        self.asked.append(question)
        if self.answer is not None:
            self._choose(question, self.answer)

    def _choose(self, question, kind):
        question["answered"] = True
        if kind == "cancelled":
            outcome = {"outcome": "cancelled"}
        else:
            chosen = next(each for each in question["parameters"]["options"] if each["kind"] == kind)
            outcome = {"outcome": "selected", "optionId": chosen["optionId"]}
        self._send({"id": question["id"], "result": {"outcome": outcome}})

    def _read_file(self, number, parameters):
        assert self.editor.capabilities["fs"]["readTextFile"], "files are not offered"
        try:
            text = pathlib.Path(parameters["path"]).read_text(encoding="utf-8")
        except OSError as error:
            if self.editor.missing_file is not None:
                wrong = {"code": self.editor.missing_file, "message": str(error)}
                return self._send({"id": number, "error": wrong})
            text = ""
        return self._send({"id": number, "result": {"content": text}})

    def _write_file(self, number, parameters):
        assert self.editor.capabilities["fs"]["writeTextFile"], "files are not offered"
        pathlib.Path(parameters["path"]).write_text(parameters["content"], encoding="utf-8")
        self._send({"id": number, "result": self.editor.write_result})

    def _create(self, number, parameters):
        assert self.editor.has_terminal, "terminals are not offered"
        if self.slow:
            self.held = (number, parameters)
        else:
            self._open_terminal(number, parameters)

    def given_back(self):
        """Of each terminal that the editor opened: whether the agent has given it back."""
        return [self.screens[each.session].terminals[each.id]["released"] for each in self.terminals.values()]

    def open_held_terminal(self):
        with self._changed:
            self._open_terminal(*self.held)

    def _open_terminal(self, number, parameters):
        terminal = Terminal(f"terminal-{len(self.terminals) + 1}", parameters, self.workspace, self._said)
        terminal.session = parameters["sessionId"]
        self.terminals[terminal.id] = terminal
        self.screens[terminal.session].created(terminal.id)
        self._send({"id": number, "result": {"terminalId": terminal.id}})

    def _said(self, terminal, text):
        with self._changed:
            self.screens[terminal.session].terminals[terminal.id]["text"] += text
            self._changed.notify_all()

    def _output(self, number, parameters):
        terminal = self.terminals[parameters["terminalId"]]
        status = {} if terminal.status is None else {"exitStatus": terminal.status}
        text = self.screens[terminal.session].terminals[terminal.id]["text"]
        self._send({"id": number, "result": {"output": text, "truncated": False, **status}})

    def _wait(self, number, parameters):
        terminal = self.terminals[parameters["terminalId"]]

        def answer():
            terminal.wait()
            # A command that ends with the connection is nobody's any more.
            with contextlib.suppress(ValueError, BrokenPipeError):
                self._send({"id": number, "result": terminal.status})

        threading.Thread(target=answer, daemon=True).start()

    def _kill(self, number, parameters):
        if self.editor.refuses_kill:
            return self._send({"id": number, "error": {"code": -32603, "message": "An error occurred"}})
        self.terminals[parameters["terminalId"]].kill()
        return self._send({"id": number, "result": {}})

    def _release(self, number, parameters):
        terminal = self.terminals[parameters["terminalId"]]
        terminal.kill()
        self.screens[terminal.session].released(terminal.id)
        self._send({"id": number, "result": {}})


class Terminal:
    """A command in the editor's own terminal."""

    def __init__(self, name, parameters, workspace, said):
        self.id = name
        self.status = None
        self.session = None
        environment = {each["name"]: each["value"] for each in parameters.get("env") or []}
        self._process = subprocess.Popen(
            [parameters["command"], *(parameters.get("args") or [])],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=parameters.get("cwd") or workspace,
            env={**os.environ, **environment},
            text=True,
            start_new_session=True,
        )
        self._said = said
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self._process.stdout:
            self._said(self, line)
        code = self._process.wait()
        self.status = {"exitCode": code} if code >= 0 else {"signal": signal.Signals(-code).name}

    def wait(self):
        self._reader.join()

    def kill(self):
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
