#!/usr/bin/python3
"""Runs the escape suite against one binary, in one mode, as one user.

    run.py --binary PATH --mode MODE [--uid N] [--only KEY,..]

Started by `cargo xtask escape`. Prints a line of JSON per attempt and one for the whole; fails when any
attempt ends otherwise than table.py says.
"""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

from client import Gone, Server
from judge import Judge
from special import NAMES, SPECIAL
from table import MODES, OFF, TABLE
from world import World


# Codes of JSON-RPC for what is no message, no request, or has wrong parameters.
MALFORMED = (-32700, -32600, -32602)


class Bout:
    """One mode, one user: a world, a server in it, and the sessions that attempts run in."""

    def __init__(self, binary, mode, uid):
        self.mode = mode
        self.world = World(uid)
        self.binary = self.world.path("bin", "ropewalk")
        shutil.copy(binary, self.binary)
        os.chmod(self.binary, 0o755)
        self.sandbox_flags = self._sandbox_flags()
        self.sessions, self.said = {}, {}
        self.left_open = os.open(self.world.victim(39), os.O_WRONLY | os.O_APPEND)
        self.log = open(self.world.path("server.log"), "wb")
        self.server = self._start()

    def _sandbox_flags(self):
        shown = subprocess.run([self.binary, "serve", "--help"], capture_output=True, text=True, check=True)
        if "--sandbox" in shown.stdout:
            return ["--sandbox", self.mode]
        if self.mode == OFF:
            return []
        raise SystemExit("this binary has no --sandbox")

    def _start(self):
        command = [self.binary, "serve", *self.sandbox_flags]
        environment, cwd = self.world.environment(), self.world.inside()
        server = Server(command, self.world.account, environment, cwd, (self.left_open,), self.log)
        server.initialize()
        return server

    def session(self, name):
        if name not in self.sessions:
            self.sessions[name] = self.server.new_session(self.world.folder(name))
            self.said[name] = []
        return self.sessions[name]

    def turns(self, name):
        """The attempts of a session, in the order of its turns."""
        return self.said[name]

    def say(self, session, text):
        name = next(name for name, known in self.sessions.items() if known == session)
        _, error, shown = self.server.prompt(session, text)
        # A prompt that is no valid message never becomes a turn.
        if not error or error["code"] not in MALFORMED:
            self.said[name].append(self.key)
        return shown + (json.dumps(error) if error else "")

    @staticmethod
    def claim(shown):
        found = re.findall(r'\{"n": "[^\n]*\}', shown)
        for line in reversed(found):
            try:
                return json.loads(line)
            except ValueError:
                continue
        return None

    def attempt(self, row, judge):
        self.key = row.key
        if row.key in SPECIAL:
            claim, shown, verdict = SPECIAL[row.key](self)
        else:
            shown = self.say(self.session(row.session), f"run {self.world.attack(row.key)}")
            claim, verdict = self.claim(shown), None
        if verdict is None:
            verdict = judge.succeeded(row.key, claim, shown)
        detail = claim["detail"] if claim else tail(shown)
        if verdict:
            return "succeeded", detail
        if claim and claim["outcome"] == "impossible":
            return "impossible", detail
        return "refused", detail

    def bites(self, row, judge):
        """Whether an attempt succeeds when its command is started by nobody but the user."""
        command = self.world.attack(row.key).split()
        place = {"env": self.world.environment(), "cwd": self.world.inside(), **self.world.account}
        handles = (self.left_open,)
        ran = subprocess.run(command, capture_output=True, text=True, check=False, pass_fds=handles, **place)
        succeeded = judge.succeeded(row.key, self.claim(ran.stdout), ran.stdout)
        for left in self.world.processes(f"{self.world.mark}-{row.key}"):
            os.kill(left, signal.SIGKILL)
        return succeeded

    def events(self):
        """The refusals in the log, by attempt."""
        found = {}
        for name, session in self.sessions.items():
            show = [self.binary, "sessions", "show", "--json", session]
            environment = self.world.environment()
            shown = subprocess.run(show, capture_output=True, env=environment, check=True, **self.world.account)
            turns = {}
            for event in json.loads(shown.stdout)["events"]:
                if event["turn"] is not None and event["turn"] not in turns:
                    turns[event["turn"]] = len(turns)
                if event["event_type"] == "policy_blocked":
                    key = self.said[name][turns[event["turn"]]]
                    found.setdefault(key, []).append(event["payload"])
        return found

    def litter(self):
        """What a fence left in the workspace when the server was gone: nobody may find it there."""
        known = {".git", ".githooks", ".gitmodules", ".env"}
        return sorted(name for name in os.listdir(self.world.inside()) if name.startswith(".") and name not in known)

    def close(self):
        os.close(self.left_open)
        self.log.close()
        self.world.close()


def tail(shown):
    """What a person would look at first when an attempt said nothing of itself."""
    lines = [line for line in shown.splitlines() if re.search("exit code|did not work|refused|not be", line)]
    return lines[-1][:200] if lines else ""


def names():
    """What each attempt is called."""
    from attacks import base, files, kernel, limits, processes, sockets  # noqa: F401

    return {**{key: name for key, (name, _) in base.ATTEMPTS.items()}, **NAMES}


def surprise(row, mode, uid, outcome, events):
    """Why an outcome is not what the table says, or nothing."""
    if outcome in ("broken", "toothless"):
        return outcome
    if mode == OFF:
        expected = row.root if uid == 0 else row.user
        if expected == "S" and outcome == "refused":
            return "refused without a fence: the attempt does not bite"
        if expected == "R" and outcome == "succeeded":
            return "succeeded, and no mode allows it"
        return None
    if mode in row.allowed:
        return None if outcome == "succeeded" else "refused, though the mode allows it"
    if outcome == "succeeded":
        return "ESCAPED"
    if row.event and outcome == "refused" and not events:
        return "refused without an event"
    return None


def is_wanted(row, wanted, mode, uid):
    if wanted:
        return row.key in wanted or row.key.rstrip("abcdefghijklmnopqrstuvwxyz") in wanted
    return mode in row.modes and (uid == os.getuid() or not row.long)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", required=True)
    parser.add_argument("--mode", choices=MODES, required=True)
    parser.add_argument("--uid", type=int, default=os.getuid())
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    wanted = set(filter(None, options.only.split(",")))
    rows = [row for row in TABLE if is_wanted(row, wanted, options.mode, options.uid)]
    began = time.monotonic()
    bout = Bout(options.binary, options.mode, options.uid)
    outcomes = {}
    try:
        judge = Judge(bout.world)
        for row in rows:
            started = time.monotonic()
            try:
                outcome, detail = bout.attempt(row, judge)
            except Gone as error:
                outcome, detail = "broken", str(error)
            outcomes[row.key] = (outcome, detail, time.monotonic() - started)
            if options.mode == OFF and row.control and outcome == "refused" and not bout.bites(row, judge):
                outcomes[row.key] = ("toothless", "refused, but also without us", 0)
        events = bout.events()
        bout.server.close()
        litter = [] if options.mode == OFF else bout.litter()
    finally:
        bout.server.close()
        bout.close()
    surprises, named = 0, names()
    for row in rows:
        outcome, detail, took = outcomes[row.key]
        blocked = events.get(row.key, [])
        problem = surprise(row, options.mode, options.uid, outcome, blocked)
        surprises += problem is not None
        line = {"n": row.key, "name": named[row.key], "outcome": outcome, "events": len(blocked), "ms": round(took * 1000)}
        line |= {"detail": str(detail)[:200], "surprise": problem}
        print(json.dumps(line))
    if litter and not wanted:
        surprises += 1
        line = {"n": "end", "name": "nothing of the fence stays in the workspace", "outcome": "litter", "events": 0}
        print(json.dumps(line | {"detail": ", ".join(litter), "surprise": "left behind"}))
    seconds = round(time.monotonic() - began, 1)
    print(json.dumps({"attempts": len(rows), "surprises": surprises, "seconds": seconds}))
    return 1 if surprises else 0


sys.exit(main())
