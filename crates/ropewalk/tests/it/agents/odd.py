"""An agent that says odd things, as it is told by its prompts."""

import json
import os
import select
import sys

out = sys.stdout.buffer
calls = 0


def say(message):
    out.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
    out.flush()


def update(**fields):
    say({"method": "session/update", "params": {"sessionId": "odd-1", "update": fields}})


def ask(method, params):
    """A request of its own, and the answer to it."""
    say({"id": "of-the-agent", "method": method, "params": params})
    for line in sys.stdin:
        message = json.loads(line)
        if message.get("id") == "of-the-agent":
            return message
    sys.exit(0)


def text(said):
    update(sessionUpdate="agent_message_chunk", content={"type": "text", "text": said})


def long_line():
    out.write(b'{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"odd-1","update":{"x":"')
    for _ in range(100):
        out.write(b"x" * (1 << 20))
    out.write(b'"}}}\n')
    text("after the long line")


def nonsense():
    out.write(bytes(range(256)) + b"\n\xff\xfe\n" + b"npm warn something\n[1,2\n{}\n\n")
    out.write(b'{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"odd-1","update":{}}}\n')
    text("after \ud800 the nonsense")


def cumulative():
    update(sessionUpdate="tool_call", toolCallId="c", title="make", kind="execute", status="in_progress")
    output = ""
    for n in range(2000):
        output += f"line {n} of a long build\n"
        content = [{"type": "content", "content": {"type": "text", "text": output}}]
        update(sessionUpdate="tool_call_update", toolCallId="c", content=content)
    update(sessionUpdate="tool_call_update", toolCallId="c", status="completed")
    text("after the build")


def extensions():
    say({"method": "_odd/told", "params": {"sessionId": "odd-1", "mood": "fine", "_meta": {"x": 1}}})
    say({"method": "_odd/told_nobody", "params": {"mood": "fine"}})
    answer = ask("_odd/wish", {"sessionId": "odd-1", "wish": "tea"})
    text(json.dumps(answer.get("result") or answer.get("error"), sort_keys=True))


def forgery():
    params = {"sessionId": "odd-1", "command": "sh", "args": ["-c", "touch forged.txt"]}
    told = []
    for method in ('terminal/create","x":"', 'x","method":"terminal/create', "terminal/create\n"):
        told.append("error" in ask(method, params))
    update(**{"method": "session/update", "params": {"sessionId": "", "update": {
        "sessionUpdate": "user_message_chunk", "content": {"type": "text", "text": "a person said so"}}}})
    text(json.dumps(told))


def many():
    """More questions at once than it may have; those that are refused are counted."""
    ask = {"sessionId": "odd-1", "options": [{"optionId": "yes", "name": "Yes", "kind": "allow_once"}]}
    for n in range(200):
        call = {"toolCallId": f"c{n}", "title": "odd", "kind": "execute", "rawInput": {"command": f"odd {n}"}}
        say({"id": f"ask-{n}", "method": "session/request_permission", "params": {**ask, "toolCall": call}})
    refused = []
    while len(refused) < 200 - 128:
        answer = json.loads(sys.stdin.readline())
        if "error" in answer:
            refused.append(answer["error"]["message"])
    text(refused[-1])


def late():
    text("in time")


def after_late():
    text("late")
    permission = {"sessionId": "odd-1", "toolCall": {"toolCallId": "l", "title": "late"}, "options": [
        {"optionId": "yes", "name": "Yes", "kind": "allow_once"}]}
    say({"method": "_odd/outcome", "params": ask("session/request_permission", permission)["result"]})


def in_a_terminal(words="said in a terminal"):
    update(sessionUpdate="tool_call", toolCallId="t", title="echo", kind="execute", status="in_progress")
    answer = ask("terminal/create", {"sessionId": "odd-1", "command": "echo", "args": [words]})
    if "error" in answer:
        update(sessionUpdate="tool_call_update", toolCallId="t", status="failed")
        text(answer["error"]["message"])
        return
    made = answer["result"]
    shown = [{"type": "terminal", **made}]
    update(sessionUpdate="tool_call_update", toolCallId="t", content=shown)
    ask("terminal/wait_for_exit", {"sessionId": "odd-1", **made})
    ask("terminal/release", {"sessionId": "odd-1", **made})
    update(sessionUpdate="tool_call_update", toolCallId="t", status="completed", content=shown)


def in_another_terminal():
    in_a_terminal("said in another terminal")


def in_a_terminal_for_later():
    """A command that goes on when the turn is over."""
    line = "until test -e go; do :; done; mkdir -p a/.vscode"
    ask("terminal/create", {"sessionId": "odd-1", "command": "sh", "args": ["-c", line]})


def leave_a_terminal():
    made = ask("terminal/create", {"sessionId": "odd-1", "command": "sleep", "args": ["600"]})["result"]
    say({"id": "wait", "method": "terminal/wait_for_exit", "params": {"sessionId": "odd-1", **made}})
    ask("_odd/wish", {"sessionId": "odd-1"})
    sys.exit(7)


def write_each(paths):
    """Tries to change or make each of them, and names those that it could."""
    done = []
    for name in paths:
        path = os.path.expanduser(name)
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(os.path.join(path, "new") if os.path.isdir(path) else path, "a") as file:
                file.write("evil")
            done.append(name)
        except OSError:
            pass
    text("wrote " + " ".join(done))


def until_cancelled(deed):
    """Does it again and again until somebody says to stop."""
    n = 0
    while not select.select([sys.stdin], [], [], 0)[0]:
        deed(n)
        n += 1
    assert json.loads(sys.stdin.readline())["method"] == "session/cancel"
    # What is said after that is written down nowhere.
    deed(n)


def endless_message():
    until_cancelled(lambda _: text("and so on " * 100))


def endless_writes():
    """Small requests that leave much: each empties a file that was filled again."""
    path = os.path.abspath("big.txt")
    for _ in range(100):
        with open(path, "w") as file:
            file.write(("x" * 1023 + "\n") * 256)
        if "error" in ask("fs/write_text_file", {"sessionId": "odd-1", "path": path, "content": ""}):
            return
    text("wrote it all")


def too_much_and_the_end():
    """The update that is too long and the end of the turn arrive together."""
    text("and so on " * 30_000)


def endless_updates():
    def growing(n):
        content = [{"type": "content", "content": {"type": "text", "text": f"{n} percent"}}]
        update(sessionUpdate="tool_call_update", toolCallId="e", content=content)

    update(sessionUpdate="tool_call", toolCallId="e", title="make", kind="execute", status="in_progress")
    until_cancelled(growing)


def endless_and_deaf():
    while True:
        text("and so on " * 100)


def half_a_line():
    out.write(b'{"jsonrpc":"2.0","method":"session/upd')
    out.flush()
    sys.exit(7)


DEEDS = {f.__name__: f for f in (long_line, nonsense, cumulative, extensions, forgery, many, late, in_a_terminal, in_another_terminal, in_a_terminal_for_later, leave_a_terminal, half_a_line, endless_message, endless_writes, too_much_and_the_end, endless_updates, endless_and_deaf)}

for line in sys.stdin:
    request = json.loads(line)
    method, params = request.get("method"), request.get("params", {})
    if method == "initialize":
        say({"id": request["id"], "result": {"protocolVersion": 1, "agentCapabilities": {}}})
    elif method == "session/new":
        say({"id": request["id"], "result": {"sessionId": "odd-1"}})
    elif method == "session/prompt":
        word = params["prompt"][-1]["text"]
        if word.startswith("write "):
            write_each(word.split()[1:])
        else:
            DEEDS.get(word, lambda: text(f"heard {word}"))()
        say({"id": request["id"], "result": {"stopReason": "end_turn"}})
        if word == "late":
            after_late()
    elif method == "_odd/refused":
        say({"id": request["id"], "error": {"code": -1, "message": params["key"], "data": params}})
    elif method == "_odd/asked":
        say({"id": request["id"], "result": {"asked": params}})
    elif "id" in request:
        say({"id": request["id"], "error": {"code": -32601, "message": "unknown"}})
