"""An MCP server over HTTP: answers in JSON, tells which headers it was sent, and redirects on request."""
import http.server
import json
import sys

HOW = sys.argv[1]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.answer(405)

    def do_DELETE(self):
        self.answer(200)

    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if HOW.startswith("http") and self.path == "/mcp":
            return self.answer(307, Location=HOW)
        if self.headers.get("Authorization") != "Bearer sesame":
            return self.answer(401)
        method, ident = message.get("method"), message.get("id")
        if ident is None:
            return self.answer(202)
        if method == "initialize":
            result = {"protocolVersion": message["params"]["protocolVersion"], "capabilities": {"tools": {}},
                      "serverInfo": {"name": "web", "version": "1"}}
        elif method == "tools/list":
            names = ["headers", "flood"]
            result = {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in names]}
        elif message["params"]["name"] == "flood":
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            try:
                for _ in range(200):
                    self.wfile.write(b" " * (1 << 20))
            except OSError:
                pass
            self.close_connection = True
            return None
        else:
            sent = {name.lower(): value for name, value in self.headers.items()}
            kept = {name: sent.get(name) for name in ("authorization", "x-key")}
            result = {"content": [{"type": "text", "text": json.dumps(kept)}]}
        body = json.dumps({"jsonrpc": "2.0", "id": ident, "result": result}).encode()
        return self.answer(200, body, Content_Type="application/json")


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()
