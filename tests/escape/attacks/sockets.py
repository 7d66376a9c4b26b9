"""Attempts to talk to somebody: other machines, and programs of this one.

Every attempt sends a token that the runner waits for at the other end.
"""

import errno
import os
import socket
import struct
import time

from .base import Impossible, absent, all_refused, attempt

PATIENCE_S = 2.0


def tcp(host, port, data, family=socket.AF_INET):
    with socket.socket(family, socket.SOCK_STREAM) as link:
        link.settimeout(PATIENCE_S)
        link.connect((host, port))
        link.sendall(data)
    return f"sent to {host}:{port}"


def udp(port, data):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as link:
        link.sendto(data, ("127.0.0.1", port))
    return f"sent to port {port}"


def unix(path, data, kind=socket.SOCK_STREAM):
    with socket.socket(socket.AF_UNIX, kind) as link:
        link.settimeout(PATIENCE_S)
        link.connect(path)
        link.sendall(data)
    return f"sent to {path!r}"


def dns_query(label):
    """A question for the name `label.example`, as a resolver would send it."""
    name = b"".join(bytes([len(part)]) + part for part in [label, b"example"]) + b"\0"
    return struct.pack("!6H", 0x1234, 0x0100, 1, 0, 0, 0) + name + struct.pack("!2H", 1, 1)


attempt(21, "TCP")(lambda w: tcp("127.0.0.1", w["tcp"], w.token(21)))
attempt("21s", "TCP")(lambda w: tcp("127.0.0.1", w["tcp"], w.token("21s")))
attempt(22, "UDP")(lambda w: udp(w["udp"], w.token(22)))
attempt(23, "a DNS question")(lambda w: udp(w["udp"], dns_query(w.token(23))))


def checksum(data):
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    total = (total >> 16) + (total & 0xFFFF)
    return ~(total + (total >> 16)) & 0xFFFF


def ip_packet(port, data):
    # A UDP checksum of 0 means that there is none.
    body = struct.pack("!4H", 9, port, 8 + len(data), 0) + data
    ends = socket.inet_aton("127.0.0.1") * 2
    head = struct.pack("!BBHHHBB", 0x45, 0, 20 + len(body), 1, 0, 64, socket.IPPROTO_UDP)
    return head + struct.pack("!H", checksum(head + bytes(2) + ends)) + ends + body


@attempt(24, "a raw socket")
def raw(w):
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as link:
        link.sendto(ip_packet(w["udp"], w.token(24)), ("127.0.0.1", 0))


@attempt(25, "overhear others by AF_PACKET")
def packet(w):
    every_protocol = 3
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(every_protocol)) as link:
        link.settimeout(PATIENCE_S)
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            heard = link.recv(65536)
            if heard.endswith(b"-overheard"):
                return heard[42:].decode()
    raise PermissionError("there was nothing to hear")


@attempt(26, "AF_NETLINK")
def netlink(w):
    user_socket = 2
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, user_socket) as link:
        link.bind((0, 0))
        data = w.token(26)
        link.sendto(struct.pack("=IHHII", 16 + len(data), 16, 0, 0, 0) + data, (w["netlink"], 0))


@attempt(27, "AF_VSOCK")
def vsock(w):
    if not w["vsock"]:
        raise Impossible("nobody can be reached by vsock here")
    with socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM) as link:
        link.settimeout(PATIENCE_S)
        link.connect((1, w["vsock"]))
        link.sendall(w.token(27))


attempt(28, "a Unix socket outside")(lambda w: unix(w["sockets"]["28"], w.token(28)))


@attempt("28b", "a Unix socket by the system calls of 32-bit programs")
def old_calls(w):
    """A filter that looks at the numbers of one kind of call only does not see the other kind."""
    import ctypes
    import mmap

    # int call(eax, ebx, ecx, edx) { int 0x80 }
    code = bytes.fromhex("53 89f8 89f3 87d1 cd80 4898 5b c3")
    at_low_address = 0x40
    private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | at_low_address
    room = mmap.mmap(-1, 4096, flags=private, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    address = struct.pack("=H", socket.AF_UNIX) + os.fsencode(w["sockets"]["28"]) + b"\0"
    room[:] = code.ljust(64, b"\0") + address.ljust(4032, b"\0")
    base = ctypes.addressof(ctypes.c_char.from_buffer(room))
    call = ctypes.CFUNCTYPE(ctypes.c_long, *[ctypes.c_long] * 4)(base)
    socket_call, connect_call = 359, 362
    handle = call(socket_call, socket.AF_UNIX, socket.SOCK_STREAM, 0)
    if handle == -errno.ENOSYS:
        raise Impossible("this kernel has no 32-bit calls")
    if handle < 0:
        raise OSError(-handle, os.strerror(-handle))
    refused = call(connect_call, handle, base + 64, len(address))
    if refused < 0:
        raise OSError(-refused, os.strerror(-refused))
    os.write(handle, w.token("28b"))


attempt(29, "an abstract Unix socket")(lambda w: unix("\0" + w["abstract"], w.token(29)))


@attempt(30, "listen for others")
def listen(w):
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as link:
        link.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        link.bind(("127.0.0.1", w["free"]))
        link.listen(1)
        link.settimeout(PATIENCE_S)
        other, _ = link.accept()
        other.sendall(w.token(30))
        other.close()


@attempt(60, "the session bus")
def bus(w):
    return unix(w["sockets"]["60"], b"\0AUTH EXTERNAL " + w.token(60) + b"\r\n")


@attempt(61, "docker's socket")
def docker(w):
    return unix(w["sockets"]["61"], b"POST /containers/create HTTP/1.1\r\nX: " + w.token(61) + b"\r\n\r\n")


@attempt(62, "the SSH agent")
def ssh_agent(w):
    return unix(os.environ.get("SSH_AUTH_SOCK") or w["sockets"]["62"], b"\0\0\0\x01\x0b" + w.token(62))


attempt(63, "the GPG agent")(lambda w: unix(w["sockets"]["63"], b"GETINFO " + w.token(63) + b"\n"))


@attempt(64, "X11 and Wayland")
def display(w):
    return all_refused(
        [
            lambda: unix("\0" + w["abstract-x11"], b"l\0\x0b\0" + w.token(64)),
            lambda: unix(w["sockets"]["64"], w.token(64)),
        ]
    )


@attempt(65, "tmux, reached by a relative path")
def tmux(w):
    folder, name = os.path.split(w["sockets"]["65"])
    os.chdir(folder)
    return unix(name, w.token(65))


@attempt(66, "an editor's socket, by datagram without connecting")
def editor(w):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as link:
        link.sendto(w.token(66), w["sockets"]["66"])


def paired(kind, path, data):
    """One end of a pair, turned away from the other: by a new connection, or by an address with the data."""
    near, far = socket.socketpair(socket.AF_UNIX, kind)
    with near, far:
        return all_refused([lambda: near.sendto(data, path), lambda: (near.connect(path), near.send(data))])


@attempt("66b", "an editor's socket, by a pair of datagram sockets")
def editor_by_pair(w):
    flags = [0, socket.SOCK_CLOEXEC, socket.SOCK_NONBLOCK]
    kinds = [kind | flag for kind in (socket.SOCK_DGRAM, socket.SOCK_RAW) for flag in flags]
    path, data = w["sockets"]["66"], w.token("66b")
    return all_refused([lambda kind=kind: paired(kind, path, data) for kind in kinds])


@attempt("66c", "an editor's socket, by a pair of connected sockets")
def editor_by_connected_pair(w):
    kinds = (socket.SOCK_STREAM, socket.SOCK_SEQPACKET)
    path, data = w["sockets"]["66"], w.token("66c")
    return all_refused([lambda kind=kind: paired(kind, path, data) for kind in kinds])


@attempt(88, "TCP by a shell's own means (there is no proxy to deceive yet)")
def shell_tcp(w):
    token = w.token(88).decode()
    line = f"printf '%s' '{token}' > /dev/tcp/127.0.0.1/{w['tcp']}"
    child = os.fork()
    if child == 0:
        os.execv("/bin/bash", ["bash", "-c", line])
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0:
        raise PermissionError("bash was refused the connection")


@attempt(89, "other spellings of this machine (there is no allow-list yet)")
def spellings(w):
    token = w.token(89)
    return all_refused(
        [
            lambda: tcp("::ffff:127.0.0.1", w["tcp"], token, socket.AF_INET6),
            lambda: tcp("127.0.0.2", w["tcp"], token),
            lambda: tcp("0.0.0.0", w["tcp"], token),
        ]
    )


@attempt(90, "TCP without connect: fast open (there is nobody to redirect yet)")
def fast_open(w):
    fast_open_flag = 0x20000000
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as link:
            link.sendto(w.token(90), fast_open_flag, ("127.0.0.1", w["tcp"]))
    except OSError as error:
        absent(error, errno.EOPNOTSUPP)


@attempt(91, "carry a secret out in a DNS question, by UDP and TCP")
def exfiltrate(w):
    with open(w.inside("notes.txt"), "rb") as file:
        secret = file.read(20).strip()
    question = dns_query(w.token("91-" + secret.decode()))
    framed = struct.pack("!H", len(question)) + question
    return all_refused([lambda: udp(w["udp"], question), lambda: tcp("127.0.0.1", w["tcp"], framed)])
