"""Drives the built binary's bridge against `receiver.py`, a receiver that knows the public contract and nothing else.

`run.py --binary PATH [--minutes N] [--table FILE]`

Without `--minutes` it is the short form of about 40 seconds, without the parts that take minutes. The long form repeats cuts, restarts and heartbeats for so many
minutes, and measures the whole back-off. It prints a table and ends with 1 if something is not as it must be.
"""

import argparse
import json
import os
import pathlib
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback

from receiver import Receiver

TOKEN = secrets.token_hex(32)
WINDOW = 50
# A wait may be late on a busy machine. It may not be early.
# In the short form nothing is too late: a machine may be busy with other tests.
LATE = {True: 2.0, False: 600.0}
EARLY = 0.05

rows = []
rows_lock = threading.Lock()


def check(name, expected, measured, good):
    with rows_lock:
        rows.append((name, str(expected), str(measured), bool(good)))
    print(f"{'ok    ' if good else 'FAILED'}  {name}: expected {expected}; measured {measured}", flush=True)


class Bridge:
    """`ropewalk bridge`, with a home of its own."""

    def __init__(self, binary, *arguments, token=TOKEN, variables=None):
        self.home = pathlib.Path(tempfile.mkdtemp(prefix="bridge-contract-"))
        (self.home / "work").mkdir()
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.home), "ROPEWALK_HOME": str(self.home / "state"),
                       "ROPEWALK_OFFLINE": "1", "NO_PROXY": "*", **(variables or {})}
        if token:
            environment["FERRET_BRIDGE_TOKEN"] = token
        self.process = subprocess.Popen([binary, "ferret", "bridge", *arguments], cwd=self.home / "work", env=environment,
                                        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        self.lines = []
        self.changed = threading.Condition()
        self.reading = threading.Thread(target=self._read, daemon=True)
        self.reading.start()

    def _read(self):
        for line in self.process.stderr:
            with self.changed:
                self.lines.append(line.decode().rstrip("\n"))
                self.changed.notify_all()

    def said(self, words, count=1, seconds=60):
        until = time.monotonic() + seconds
        with self.changed:
            while True:
                found = [line for line in self.lines if words in line]
                if len(found) >= count:
                    return found
                if time.monotonic() > until:
                    raise AssertionError(f"{words!r} was not said {count} times: {self.lines}")
                self.changed.wait(0.2)

    def wait(self, seconds=60):
        code = self.process.wait(seconds)
        self.reading.join(seconds)
        return code

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.home, ignore_errors=True)


class Reader:
    """What somebody has seen who counts updates: each once, by its number."""

    def __init__(self, receiver):
        self.receiver, self.at, self.last = receiver, 0, 0
        self.updates, self.answers, self.notices = {}, {}, []
        self.connections = {}  # connection -> numbers of what was replayed there
        self.differing = 0
        self.twice = 0
        self.told_missing = set()  # numbers that a notice said were not told
        self.after_notice = False

    def read(self):
        frames, self.at = self.receiver.frames[self.at:], len(self.receiver.frames)
        for _, connection, line in frames:
            frame = json.loads(line)
            if "method" not in frame:
                self.twice += frame["id"] in self.answers
                self.answers[frame["id"]] = (frame, self.last)
                continue
            params = frame["params"]
            if params.get("text", "").startswith("bridge: replay window exceeded"):
                self.notices.append((connection, params))
                self.after_notice = True
                continue
            number = self.last + 1
            if params.get("replay"):
                number = params["replaySeq"]
                self.connections.setdefault(connection, []).append(number)
                line = line.replace(f',"replay":true,"replaySeq":{number}}}}}', "}}")
                self.differing += self.updates.get(number, line) != line
                if self.after_notice:
                    self.told_missing.update(range(self.last + 1, number))
                    self.after_notice = False
            self.last = max(self.last, number)
            self.updates[number] = line
        return self

    def answered(self, number, seconds=60):
        def found():
            return self.read().answers.get(number)
        return self.receiver.wait(f"the answer to {number}", found, seconds)

    def kinds(self, kind):
        return [number for number, line in self.updates.items() if json.loads(line)["params"].get("kind") == kind]


def lines_of(count, pause_ms=0):
    """A prompt whose turn has so many tool calls, after a pause."""
    pause = [f"sleep {pause_ms}"] if pause_ms else []
    return "\n".join(pause + ["list"] * count)


# The ends: what is refused, and how.

def refusals(binary, long):
    receiver = Receiver(TOKEN)
    bridge = Bridge(binary, "--remote-url", receiver.url)
    code = bridge.wait()
    check("plain http without --insecure", "refused, no request", f"exit {code}, {len(receiver.requests)} requests",
          code != 0 and not receiver.requests and any("--insecure" in line for line in bridge.lines))
    bridge.close()
    receiver.close()
    cases = [("register", 401), ("register", 403), ("socket", 401), ("socket", 403)]
    if long:
        cases += [("heartbeat", 401), ("heartbeat", 403)]
    for endpoint, status in cases:
        receiver = Receiver(TOKEN)
        receiver.instead[endpoint] = status
        bridge = Bridge(binary, "--remote-url", receiver.url, "--insecure")
        code = bridge.wait(90)
        words = {401: "bridge: 401 Unauthorized", 403: "bridge: 403 Forbidden"}[status]
        tries = len(receiver.seen(endpoint))
        said = any(words in line for line in bridge.lines)
        check(f"{status} to {endpoint}", "ends at once, exit not 0, said",
              f"exit {code}, {tries} request(s) there, {'said' if said else bridge.lines}", code != 0 and tries == 1 and said)
        loud = any("INSECURE" in line for line in bridge.lines)
        if (endpoint, status) == cases[0]:
            check("plain http with --insecure", "a loud warning", "said" if loud else bridge.lines, loud)
        bridge.close()
        receiver.close()
    receiver = Receiver(TOKEN)
    bridge = Bridge(binary, "--remote-url", receiver.url, "--insecure", token="0" * 64)
    code = bridge.wait()
    check("a token that the receiver does not know", "exit not 0 after one request",
          f"exit {code}, {len(receiver.requests)} request(s)", code != 0 and len(receiver.requests) == 1)
    bridge.close()
    receiver.close()


def certificates(folder):
    """What is to be trusted and what is shown: a certificate for localhost of an authority, and one that is its own."""
    def openssl(*arguments):
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    openssl("req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-days", "2", "-subj", "/CN=contract authority")
    openssl("req", *key, "-keyout", "own.key", "-out", "own.csr", "-subj", "/CN=localhost")
    (folder / "names").write_text("subjectAltName=DNS:localhost\nbasicConstraints=CA:FALSE\n")
    openssl("x509", "-req", "-in", "own.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-out", "own.pem",
            "-days", "2", "-extfile", "names")
    # As openssl makes it by itself: a certificate that is its own authority.
    openssl("req", "-x509", *key, "-keyout", "self.key", "-out", "self.pem", "-days", "2", "-subj", "/CN=localhost",
            "-addext", "subjectAltName=DNS:localhost")
    return ((folder / "ca.pem", (str(folder / "own.pem"), str(folder / "own.key"))),
            (folder / "self.pem", (str(folder / "self.pem"), str(folder / "self.key"))))


def tls(binary, _long):
    if not shutil.which("openssl"):
        check("TLS", "an openssl to make certificates with", "there is none", False)
        return
    folder = pathlib.Path(tempfile.mkdtemp(prefix="bridge-contract-tls-"))
    for kind, (authority, papers) in zip(("of an authority", "that is its own authority"), certificates(folder)):
        receiver = Receiver(TOKEN, tls=papers, host="localhost")
        bridge = Bridge(binary, "--remote-url", receiver.url)
        code = bridge.wait()
        said = any("bridge: TLS verification failed" in line for line in bridge.lines)
        check(f"a certificate {kind} that nobody trusts", "exit not 0, said, no request",
              f"exit {code}, {'said' if said else bridge.lines}, {len(receiver.requests)} requests",
              code != 0 and said and not receiver.requests)
        bridge.close()
        for name, arguments, variables in (("trusted", [], {"SSL_CERT_FILE": str(authority)}), ("--insecure", ["--insecure"], {})):
            bridge = Bridge(binary, "--remote-url", receiver.url, *arguments, variables=variables)
            bridge.said("bridge connected")
            bridge.process.send_signal(signal.SIGINT)
            code = bridge.wait()
            check(f"https, a certificate {kind}, {name}", "connected, exit 0 after Ctrl-C", f"exit {code}", code == 0)
            bridge.close()
        receiver.close()
    shutil.rmtree(folder, ignore_errors=True)


# One bridge that lives long.

class Life:
    def __init__(self, binary, long):
        self.receiver = Receiver(TOKEN)
        self.long = long
        self.began = time.monotonic()
        self.bridge = Bridge(binary, "--remote-url", self.receiver.url, "--insecure", "--auth-token", TOKEN, token=None)
        self.reader = Reader(self.receiver)
        self.number = 0
        self.turns = 0

    def connect(self):
        receiver = self.receiver
        receiver.wait("the socket", lambda: receiver.sockets)
        connected = self.bridge.said("bridge connected")
        self.session = json.loads(receiver.seen("register")[0].body)["session_id"]
        line = f"[ferret] bridge connected: {receiver.url} session={self.session}"
        others = [line for line in self.bridge.lines if "INSECURE" not in line and "bridge connected" not in line]
        check("status line", "one: [ferret] bridge connected: URL session=ID",
              f"{connected[0]}; others: {others}", connected == [line] and not others)
        body = sorted(json.loads(receiver.seen("register")[0].body))
        five = ["approval", "cwd", "model", "sandbox", "session_id"]
        check("body of POST /api/sessions", five, body, body == five)

    def call(self, method, **params):
        self.number += 1
        self.receiver.call(self.number, method, sessionId=self.session, **params)
        return self.number

    def turn(self, count, pause_ms=0):
        self.turns += 1
        return self.call("session/message", message=lines_of(count, pause_ms))

    def reconnected(self, before, seconds=60):
        receiver = self.receiver
        receiver.wait("another socket", lambda: receiver.connections > before, seconds)
        return receiver.connections

    def cut_and_replay(self, name):
        """A cut in quiet: the last fifty come again, marked."""
        self.settle()
        last, before = self.reader.read().last, self.receiver.connections
        cut = time.monotonic()
        self.receiver.cut()
        connection = self.reconnected(before)
        waited = self.receiver.seen("socket")[-1].at - cut
        expected = list(range(max(1, last - WINDOW + 1), last + 1))
        self.receiver.wait("the replay", lambda: len(self.reader.read().connections.get(connection, [])) >= len(expected))
        replayed = self.reader.connections[connection]
        check(name, f"{len(expected)} replayed after 5 s", f"{len(replayed)} ({replayed[0]} to {replayed[-1]} of {last}) after {waited:.1f} s",
              replayed == expected and 5 - EARLY <= waited <= 5 + LATE[self.long])
        return connection

    def question(self):
        """What the agent asks is answered from here. Its end is told here too, so that a replay does not ask again."""
        known = self.reader.read().last
        self.turns += 1
        request = self.call("session/message", message="run echo x >> made")
        asked = self.receiver.wait("the question", lambda: [number for number in self.reader.read().kinds("permission_request")
                                                            if number > known])
        ask = json.loads(self.reader.updates[asked[0]])["params"]["id"]
        self.reader.answered(self.call("permission/respond", id=ask, decision="allow"))
        frame, _ = self.reader.answered(request)
        ended = [number for number in self.reader.kinds("permission_resolved") if number > known]
        check("a question that is answered from here", "one request, one end of it, the turn goes on",
              f"{len(asked)} request(s), {len(ended)} end(s), {frame.get('result', {}).get('stopReason')}",
              len(asked) == len(ended) == 1 and frame.get("result", {}).get("stopReason") == "end_turn")

    def question_replayed(self):
        self.question()
        connection = self.cut_and_replay("a cut after a question")
        replayed = [json.loads(self.reader.updates[number])["params"] for number in self.reader.connections[connection]]
        asked = [params["id"] for params in replayed if params.get("kind") == "permission_request"]
        ended = [params["id"] for params in replayed if params.get("kind") == "permission_resolved"]
        check("a question that is replayed", "with its end", f"{len(asked)} request(s), {len(set(asked) - set(ended))} without an end",
              bool(asked) and set(asked) <= set(ended))

    def settle(self):
        """A connection that held for as long as the first wait begins the waiting anew."""
        time.sleep(5.5)

    def cut_during_a_turn(self, name, count):
        self.settle()
        known, before = self.reader.read().last, self.receiver.connections
        request = self.turn(count, 1500)
        self.receiver.wait("the turn", lambda: self.reader.read().last > known)
        self.receiver.cut()
        connection = self.reconnected(before)
        frame, at = self.reader.answered(request)
        ended = self.reader.kinds("turn_end")
        exceeded = [params for on, params in self.reader.notices if on == connection]
        in_order = bool(ended) and max(ended) <= at
        check(name, f"answered after its updates, window {'exceeded and said' if count > WINDOW else 'not exceeded'}",
              f"{frame.get('result', frame.get('error'))['stopReason']}, {len(self.reader.connections.get(connection, []))} replayed,"
              f" {len(exceeded)} notice(s)",
              frame.get("result", {}).get("stopReason") == "end_turn" and in_order and bool(exceeded) == (count > WINDOW))
        return connection

    def exceeded(self):
        connection = self.cut_during_a_turn("more than the window missed", WINDOW + 10)
        replayed = self.reader.connections.get(connection, [])
        said = len(self.bridge.said("bridge: replay window exceeded"))
        check("more than the window missed: replayed", WINDOW, f"{len(replayed)}, said here {said} time(s)",
              len(replayed) == WINDOW and said >= 1)
        self.load("session/load after that")

    def load(self, name):
        before = self.reader.read().last
        number = self.call("session/load")
        frame, at = self.reader.answered(number)
        # What came before the answer is the history: as many ends as there were turns, the last ones before it.
        told = [json.loads(line)["params"] for update, line in sorted(self.reader.updates.items()) if before < update <= at]
        ends = sum(params.get("kind") == "turn_end" for params in told)
        messages = sum(params.get("kind") == "user_message" for params in told)
        check(name, f"answered after the history of {self.turns} turns", f"{ends} ends and {messages} messages in it",
              "result" in frame and ends >= self.turns and messages >= self.turns)
        self.loaded = True

    def restart(self):
        """The receiver comes back without memory: 404, then it is registered again."""
        self.settle()
        before, began = self.receiver.connections, time.monotonic()
        self.receiver.restart()
        self.reconnected(before)
        again = len(self.receiver.seen("register", began))
        # Whichever comes first is told that the session is unknown.
        refused = [request for request in self.receiver.requests if request.at >= began and request.status == 404]
        check("restarted without memory", "404 to the socket or a heartbeat, registered once more, connected",
              f"{refused}, registered {again} time(s) more", len(refused) == 1 and again == 1)
        frame, _ = self.reader.answered(self.call("session/list"))
        sessions = [listed["sessionId"] for listed in frame["result"]["sessions"]]
        check("session/list", "this one session", f"{len(sessions)}", sessions == [self.session])

    def forgotten(self):
        """A heartbeat that is answered with 404 registers the session again; the socket stays."""
        before, registered = self.receiver.connections, len(self.receiver.seen("register"))
        self.receiver.forget()
        self.receiver.wait("another registration", lambda: len(self.receiver.seen("register")) > registered, 45)
        check("404 to a heartbeat", "registered again, the socket stays",
              f"{len(self.receiver.seen('register')) - registered} more, {self.receiver.connections - before} new sockets",
              self.receiver.connections == before)

    def backoff(self, waits, status):
        self.settle()
        before, cut = self.receiver.connections, time.monotonic()
        self.receiver.instead["socket"] = status
        self.receiver.cut()
        total = sum(waits)
        self.receiver.wait("the tries", lambda: len(self.receiver.seen("socket", cut)) >= len(waits), total + 30)
        del self.receiver.instead["socket"]
        tries = [cut] + [request.at for request in self.receiver.seen("socket", cut)][:len(waits)]
        measured = [after - earlier for earlier, after in zip(tries, tries[1:])]
        good = all(wait - EARLY <= was <= wait + LATE[self.long] for wait, was in zip(waits, measured))
        how = "no answer" if status == 0 else status
        check(f"back-off, {how}", ", ".join(f"{wait}" for wait in waits), ", ".join(f"{was:.1f}" for was in measured) + " s", good)
        self.reconnected(before, 90)

    def remote_calls(self):
        refused = {}
        for method, params in (("session/new", {}), ("session/setSandbox", {"sandbox": "off"})):
            frame, _ = self.reader.answered(self.call(method, **params))
            refused[method] = frame.get("error", {}).get("message", "")
        check("session/new and session/setSandbox", "refused with the reason", refused, all(refused.values()))
        frame, _ = self.reader.answered(self.call("session/setApproval", approval="read-only"))
        banner = self.bridge.said("remote set the approval to read-only")
        check("session/setApproval", "done, and a banner here", banner[0], "result" in frame and len(banner) == 1)
        frame, _ = self.reader.answered(self.call("session/setApproval", approval="auto"))
        # Several frames in one message, with the line ends of either kind.
        numbers = [self.number + 1, self.number + 2, self.number + 3]
        self.number += 3
        status = [json.dumps({"jsonrpc": "2.0", "id": number, "method": "session/bridgeStatus",
                              "params": {"sessionId": self.session}}) for number in numbers]
        self.receiver.send(status[0] + "\r", "", status[1], status[2], end="")
        for number in numbers:
            self.reader.answered(number)
        check("three frames in one message", "three answers", "three answers", True)

    def heartbeats(self):
        beats = [request.at for request in self.receiver.seen("heartbeat")]
        # A connection that was kept open and is cut may be tried once more at once.
        beats = [at for index, at in enumerate(beats) if index == 0 or at - beats[index - 1] > 1]
        registered = self.receiver.seen("register")[0].at
        gaps = [after - before for before, after in zip([registered] + beats, beats)]
        good = bool(gaps) and all(30 - 2 * EARLY <= gap <= 30 + LATE[self.long] for gap in gaps)
        check("heartbeats", "every 30 s", f"{len(gaps)}, {min(gaps):.2f} to {max(gaps):.2f} s apart" if gaps else "none", good)
        body = sorted(json.loads(self.receiver.seen("heartbeat")[-1].body)) if beats else []
        members = ["approval", "cost_total_usd", "sandbox"]
        check("body of a heartbeat", members, body, body == members)

    def end(self):
        self.bridge.process.send_signal(signal.SIGINT)
        code = self.bridge.wait()
        left = self.receiver.seen("leave")
        check("Ctrl-C", "one DELETE with 204, exit 0", f"{left}, exit {code}",
              code == 0 and len(left) == 1 and left[0].status == 204)
        receiver, reader = self.receiver, self.reader.read()
        check("endpoints", "the contract's four and no other", receiver.noise or "the four", not receiver.noise)
        bearers = {request.headers.get("authorization") for request in receiver.requests}
        check("Authorization", "the token on every request", f"{len(receiver.requests)} requests, {len(bearers)} kind(s)",
              bearers == {f"Bearer {TOKEN}"})
        missing = set(range(1, reader.last + 1)) - set(reader.updates)
        check("updates", "all there, each once or marked as replay; missing only what a notice says",
              f"{reader.last} of {self.turns} turns; {len(missing - reader.told_missing)} missing,"
              f" {len(missing)} told to be missing, {reader.differing} replayed differently",
              not reader.differing and missing <= reader.told_missing)
        check("answers", "one for each request", f"{len(reader.answers)} of {self.number}, {reader.twice} twice",
              len(reader.answers) == self.number and not (reader.twice and self.long))

    def run(self, minutes):
        self.connect()
        self.remote_calls()
        self.reader.answered(self.turn(3))
        if minutes is None:
            self.question()
            self.exceeded()
            self.restart()
            self.second_cut()
        else:
            self.long_run(minutes)
        self.receiver.wait("a heartbeat", lambda: self.receiver.seen("heartbeat"))
        self.heartbeats()
        self.end()

    def second_cut(self):
        """A connection that did not hold for 5 s: the wait is twice the last one."""
        before, cut = self.receiver.connections, time.monotonic()
        self.receiver.cut()
        connection = self.reconnected(before)
        waited = self.receiver.seen("socket")[-1].at - cut
        self.receiver.wait("the replay", lambda: len(self.reader.read().connections.get(connection, [])) >= WINDOW)
        # After 10 s, unless the machine was so busy that the connection before held for 5 s.
        check("a cut right after that", f"{WINDOW} replayed after 10 s, or 5 s",
              f"{len(self.reader.connections[connection])} after {waited:.1f} s", 5 - EARLY <= waited)

    def long_run(self, minutes):
        until = self.began + minutes * 60
        self.cut_and_replay("a cut, fewer events than the window")
        self.reader.answered(self.turn(30))
        self.cut_and_replay("a cut, more events than the window")
        self.question_replayed()
        self.cut_during_a_turn("a cut during a turn", 5)
        self.exceeded()
        self.restart()
        self.forgotten()
        self.backoff([5, 10, 20, 40, 60, 60], 0)
        self.backoff([5, 10, 20, 40, 60, 60], 503)
        rounds = 0
        while time.monotonic() < until - 60:
            rounds += 1
            self.reader.answered(self.turn(10 + rounds % 7))
            self.cut_during_a_turn(f"round {rounds}: a cut during a turn", 2 + rounds % 9)
            self.cut_and_replay(f"round {rounds}: a cut")
            if rounds % 3 == 0:
                self.restart()
            if rounds % 4 == 0:
                self.forgotten()
            if rounds % 5 == 0:
                self.question_replayed()

    def close(self):
        self.bridge.close()
        self.receiver.close()


def life(binary, long, minutes):
    life = Life(binary, long)
    try:
        life.run(minutes)
    finally:
        if any(not good for *_, good in rows):
            print("\n".join(life.bridge.lines[-30:]), file=sys.stderr)
        life.close()


def contained(name, work, *arguments):
    try:
        work(*arguments)
    except Exception as error:  # What is not as expected is one more row.
        traceback.print_exc()
        check(name, "goes through", f"{type(error).__name__}: {error}"[:300], False)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", default=os.environ.get("ROPEWALK_BIN", "target/debug/ropewalk"))
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--table", type=pathlib.Path)
    options = parser.parse_args()
    binary, long = str(pathlib.Path(options.binary).resolve()), options.minutes is not None
    began = time.monotonic()
    parts = [threading.Thread(target=contained, args=("refusals", refusals, binary, long)),
             threading.Thread(target=contained, args=("tls", tls, binary, long)),
             threading.Thread(target=contained, args=("life", life, binary, long, options.minutes))]
    for part in parts:
        part.start()
    for part in parts:
        part.join()
    failed = [row for row in rows if not row[-1]]
    if options.table:
        cell = lambda text: text.replace("|", "\\|").replace("\n", " ")
        table = ["| what | expected | measured | |", "|---|---|---|---|"]
        table += [f"| {cell(name)} | {cell(expected)} | {cell(measured)} | {'ok' if good else 'FAILED'} |"
                  for name, expected, measured, good in rows]
        options.table.write_text("\n".join(table) + "\n")
    print(f"bridge contract: {len(rows)} checks, {len(failed)} failed, {time.monotonic() - began:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
