"""An MCP server on standard input and output that behaves as its first argument says."""
import json
import os
import subprocess
import sys
import time

HOW = sys.argv[1]
NOTES = sys.argv[2] if len(sys.argv) > 2 else None
OBJECT = {"type": "object", "properties": {"text": {"type": "string"}}}


def send(message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def note(text):
    if NOTES:
        with open(NOTES, "a") as notes:
            notes.write(text + "\n")


def tool(name, **more):
    return {"name": name, "description": "Does " + name, "inputSchema": OBJECT, **more}


TOOLS = [tool("echo"), tool("look", annotations={"readOnlyHint": True})]


def call(ident, name, arguments, token):
    if name == "env":
        return {"content": [{"type": "text", "text": json.dumps(dict(os.environ), sort_keys=True)}]}
    if name == "where":
        return {"content": [{"type": "text", "text": os.getcwd()}]}
    if name == "steps":
        for step in (1, 2):
            send({"method": "notifications/progress", "params": {
                "progressToken": token, "progress": step, "total": 2, "message": "step \x1b[31m" + str(step)}})
            time.sleep(0.05)
    if name == "grow":
        TOOLS.append(tool("grown"))
        send({"method": "notifications/tools/list_changed"})
    if name == "die":
        print("I am done", file=sys.stderr, flush=True)
        os._exit(9)
    if name == "huge":
        chunk = "x" * (1 << 20)
        sys.stdout.write('{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"' % json.dumps(ident))
        for _ in range(100):
            sys.stdout.write(chunk)
        sys.stdout.write('"}]}}\n')
        sys.stdout.flush()
        return None
    if name == "hang":
        return None
    if name == "fail":
        return {"isError": True, "content": [{"type": "text", "text": "it is broken"}]}
    if name == "image":
        return {"content": [{"type": "image", "mimeType": "image/png", "data": "iVBORw0KGgo="}]}
    return {"content": [{"type": "text", "text": "you said " + arguments.get("text", "")}]}


def main():
    note(f"started {os.getpid()}")
    if HOW == "dies":
        print("no licence\x1b[31m found", file=sys.stderr)
        sys.exit(3)
    if HOW == "family":
        child = subprocess.Popen(["sleep", "1000"])
        note(f"child {child.pid}")
    if HOW == "garbage":
        print("Welcome! {not json\n\n[]\n{}\n\x00\xff")
    if HOW == "hostile":
        TOOLS[:] = [
            tool("same"), tool("same"), tool("SAME"), tool("with space/and:more"), tool("x" * 300), tool("y" * 100),
            tool(""), tool("talks", description="a\x1b[2Jb\u0000" + "c" * 10000),
            {**tool("wide"), "inputSchema": {"type": "object", "title": "z" * 100000}},
            {**tool("odd"), "inputSchema": {"type": "string"}},
        ] + [tool(f"t{number}") for number in range(500)]
    if HOW == "all":
        TOOLS.extend(tool(name) for name in (
            "env", "where", "steps", "grow", "die", "huge", "hang", "fail", "image"))
    for line in sys.stdin:
        message = json.loads(line)
        method, ident, params = message.get("method"), message.get("id"), message.get("params") or {}
        if method == "notifications/cancelled":
            note("cancelled " + str(params.get("reason")))
        if ident is None or method is None or HOW == "hangs":
            continue
        if method == "initialize":
            send({"id": ident, "result": {"protocolVersion": params["protocolVersion"],
                  "capabilities": {"tools": {"listChanged": True}}, "serverInfo": {"name": "s", "version": "1"}}})
        elif method == "tools/list" and HOW == "endless":
            send({"id": ident, "result": {"tools": [tool("t")], "nextCursor": "more"}})
        elif method == "tools/list":
            send({"id": ident, "result": {"tools": TOOLS}})
        elif method == "tools/call":
            note("call " + params["name"])
            token = params.get("_meta", {}).get("progressToken")
            result = call(ident, params["name"], params.get("arguments") or {}, token)
            if result is not None:
                send({"id": ident, "result": result})
        else:
            send({"id": ident, "error": {"code": -32601, "message": "unknown"}})
    note("end of input")


main()
