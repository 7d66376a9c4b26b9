"""A receiver of bridges, written from the bridge's public contract alone: four endpoints, a bearer token, and
newline-delimited JSON-RPC on a WebSocket. Everything else is answered with 404. It remembers nothing over a restart.

Standard library only, with a WebSocket server of its own, so that nothing here is shared with what it tests.
"""

import base64
import hashlib
import json
import re
import socket
import ssl
import struct
import threading
import time

REGISTER = re.compile(r"^/api/sessions$")
SOCKET = re.compile(r"^/ws/([^/?]+)$")
HEARTBEAT = re.compile(r"^/api/sessions/([^/?]+)/heartbeat$")
LEAVE = re.compile(r"^/api/sessions/([^/?]+)$")
REASONS = {101: "Switching Protocols", 200: "OK", 204: "No Content", 400: "Bad Request", 401: "Unauthorized",
           403: "Forbidden", 404: "Not Found", 503: "Service Unavailable"}


class Request:
    """One request, and what it was answered; 0 is no answer at all."""

    def __init__(self, endpoint, method, path, headers, body):
        self.at = time.monotonic()
        self.endpoint, self.method, self.path, self.headers, self.body = endpoint, method, path, headers, body
        self.status = None

    def __repr__(self):
        return f"{self.method} {self.path} -> {self.status}"


class Receiver:
    def __init__(self, token, tls=None, host="127.0.0.1"):
        self.token, self.host = token, host
        self.context = None
        if tls:
            self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.context.load_cert_chain(*tls)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        scheme = "https" if tls else "http"
        self.url = f"{scheme}://{host}:{self.port}"
        self.changed = threading.Condition()
        self.requests = []
        self.frames = []  # (time, connection, line)
        self.noise = []  # what a receiver by the contract must not see
        self.sessions = {}
        self.sockets = []
        self.connections = 0
        self.instead = {}  # endpoint -> status, 0 for a connection that is cut
        self.closing = False
        threading.Thread(target=self._accept, daemon=True).start()

    # What a test does to it.

    def cut(self):
        """The network fails: no farewell, a reset."""
        with self.changed:
            sockets, self.sockets = self.sockets, []
        for web in sockets:
            web.reset()

    def restart(self):
        """Another process with nothing in its memory."""
        with self.changed:
            self.sessions.clear()
        self.cut()

    def forget(self):
        """The sessions are gone; the sockets stay."""
        with self.changed:
            self.sessions.clear()

    def send(self, *lines, end="\n"):
        """Several lines are one message."""
        self.sockets[-1].text("\n".join(lines) + end)

    def call(self, number, method, **params):
        self.send(json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}))

    def wait(self, what, is_so, seconds=60):
        """Waits until `is_so()` gives something, and gives it."""
        until = time.monotonic() + seconds
        with self.changed:
            while True:
                found = is_so()
                if found:
                    return found
                left = until - time.monotonic()
                if left <= 0:
                    raise AssertionError(f"{what} did not come in {seconds} s; the last requests: {self.requests[-5:]}")
                self.changed.wait(min(left, 0.2))

    def seen(self, endpoint, since=0.0):
        return [request for request in self.requests if request.endpoint == endpoint and request.at >= since]

    def close(self):
        self.closing = True
        self.listener.close()
        self.cut()

    # Its work.

    def _accept(self):
        while not self.closing:
            try:
                stream, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(stream,), daemon=True).start()

    def _serve(self, stream):
        try:
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self.context:
                stream = self.context.wrap_socket(stream, server_side=True)
            reader = stream.makefile("rb")
            while self._one(stream, reader):
                pass
        except (OSError, ssl.SSLError, ValueError):
            pass
        finally:
            # The descriptor must not stay open for as long as something refers to it.
            stream.close()

    def _one(self, stream, reader):
        head = reader.readline(8192).decode("latin-1").split()
        if len(head) != 3:
            return False
        headers = {}
        while line := reader.readline(8192).decode("latin-1").strip():
            name, _, value = line.partition(":")
            headers[name.strip().lower()] = value.strip()
        body = reader.read(int(headers.get("content-length", 0)))
        method, path = head[0], head[1]
        endpoint, session = self._endpoint(method, path)
        request = Request(endpoint, method, path, headers, body.decode())
        status, answer = self._answer(request, session)
        request.status = status
        with self.changed:
            if endpoint is None:
                self.noise.append(request)
            self.requests.append(request)
            self.changed.notify_all()
        if status == 0:
            _reset(stream)
            return False
        if status == 101:
            self._upgrade(stream, reader, headers)
            return False
        text = json.dumps(answer).encode() if answer is not None else b""
        reason = REASONS.get(status, "Status")
        stream.sendall(f"HTTP/1.1 {status} {reason}\r\ncontent-type: application/json\r\n"
                       f"content-length: {len(text)}\r\n\r\n".encode() + text)
        return True

    @staticmethod
    def _endpoint(method, path):
        for name, verb, pattern in (("register", "POST", REGISTER), ("socket", "GET", SOCKET),
                                    ("heartbeat", "POST", HEARTBEAT), ("leave", "DELETE", LEAVE)):
            found = pattern.match(path)
            if method == verb and found:
                return name, found.group(1) if found.groups() else None
        return None, None

    def _answer(self, request, session):
        if request.endpoint is None:
            return 404, {"error": "not found"}
        if request.endpoint in self.instead:
            return self.instead[request.endpoint], {"error": "so it was told to say"}
        if request.headers.get("authorization") != f"Bearer {self.token}":
            return 401, {"error": "unauthorized"}
        if request.endpoint == "register":
            told = json.loads(request.body)
            session = told["session_id"]
            self.sessions[session] = told
            scheme = "wss" if self.context else "ws"
            return 200, {"ui_url": f"{self.url}/s/{session}", "ws_url": f"{scheme}://{self.host}:{self.port}/ws/{session}"}
        if session not in self.sessions:
            return 404, {"error": "no such session"}
        if request.endpoint == "socket":
            return (101, None) if request.headers.get("upgrade", "").lower() == "websocket" else (400, None)
        if request.endpoint == "heartbeat":
            self.sessions[session].update(json.loads(request.body))
        if request.endpoint == "leave":
            self.sessions[session]["detached"] = True
        return 204, None

    def _upgrade(self, stream, reader, headers):
        accept = hashlib.sha1((headers["sec-websocket-key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode())
        accept = base64.b64encode(accept.digest()).decode()
        stream.sendall(f"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\n"
                       f"sec-websocket-accept: {accept}\r\n\r\n".encode())
        web = Web(stream, reader)
        with self.changed:
            self.connections += 1
            number = self.connections
            self.sockets.append(web)
            self.changed.notify_all()
        rest = ""
        for text in web.messages():
            # Lines, wherever messages begin and end.
            *lines, rest = (rest + text).split("\n")
            with self.changed:
                now = time.monotonic()
                self.frames += [(now, number, line) for line in lines if line.strip()]
                self.changed.notify_all()
        if rest:
            with self.changed:
                self.noise.append(f"a frame without a newline at its end: {rest[:200]}")


class Web:
    """The server's end of a WebSocket (RFC 6455), without extensions."""

    def __init__(self, stream, reader):
        self.stream, self.reader, self.lock = stream, reader, threading.Lock()

    def messages(self):
        whole = b""
        try:
            while True:
                first, second = self._read(2)
                length = second & 0x7F
                if length == 126:
                    (length,) = struct.unpack(">H", self._read(2))
                elif length == 127:
                    (length,) = struct.unpack(">Q", self._read(8))
                if not second & 0x80:
                    raise ValueError("a client masks what it sends")
                mask = self._read(4)
                data = self._read(length)
                data = bytes(byte ^ mask[index % 4] for index, byte in enumerate(data))
                kind = first & 0x0F
                if kind == 0x8:
                    self._write(0x8, data[:2])
                    return
                if kind == 0x9:
                    self._write(0xA, data)
                elif kind in (0x0, 0x1, 0x2):
                    whole += data
                    if first & 0x80:
                        yield whole.decode()
                        whole = b""
        except (OSError, ValueError, EOFError):
            return

    def text(self, text):
        self._write(0x1, text.encode())

    def reset(self):
        _reset(self.stream)

    def _read(self, count):
        data = self.reader.read(count)
        if len(data) != count:
            raise EOFError
        return data

    def _write(self, kind, data):
        head = bytes([0x80 | kind])
        if len(data) < 126:
            head += bytes([len(data)])
        elif len(data) < 1 << 16:
            head += bytes([126]) + struct.pack(">H", len(data))
        else:
            head += bytes([127]) + struct.pack(">Q", len(data))
        with self.lock:
            self.stream.sendall(head + data)


def _reset(stream):
    try:
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        stream.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
    stream.close()
