"""What all attempts share: the world they attack, the list of them, and raw system calls."""

import errno
import json
import os

ATTEMPTS = {}


class Impossible(Exception):
    """Not a refusal: this kernel or this user cannot do it with or without a sandbox."""


def attempt(key, name):
    """Puts a function on the list. It returns what it did, or lets the OSError of its refusal through."""

    def put(work):
        ATTEMPTS[str(key)] = (name, work)
        return work

    return put


class World:
    """The scratch world as the runner built it."""

    def __init__(self, path):
        with open(path, encoding="utf-8") as file:
            self.facts = json.load(file)

    def __getitem__(self, name):
        return self.facts[name]

    def victim(self, key):
        """A file outside the workspace that belongs to this attempt alone."""
        return os.path.join(self["out"], f"v{key}")

    def inside(self, *names):
        return os.path.join(self["workspace"], *names)

    def token(self, key):
        """What the runner waits for at its sockets."""
        return f"<{self['secret']}-{key}>".encode()


def overwrite(path):
    with open(path, "w", encoding="utf-8") as file:
        file.write("pwned\n")
    return f"wrote {path!r}"


def append(path, text="pwned\n"):
    with open(path, "a", encoding="utf-8") as file:
        file.write(text)
    return f"wrote {path!r}"


def all_refused(works):
    """Runs every one of several ways; fails with the last refusal if none of them worked."""
    done, refusal = [], None
    for work in works:
        try:
            done.append(str(work()))
        except OSError as error:
            refusal = error
    if not done and refusal:
        raise refusal
    return "; ".join(done)


def libc():
    import ctypes

    return ctypes.CDLL(None, use_errno=True)


def syscall(number, *arguments):
    """A raw system call; -1 becomes an OSError."""
    import ctypes

    function = libc().syscall
    function.restype = ctypes.c_long
    words = [ctypes.c_long(word) if isinstance(word, int) else word for word in arguments]
    result = function(ctypes.c_long(number), *words)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"system call {number}: {os.strerror(code)}")
    return result


def absent(error, *codes):
    """Turns the errors of a missing kernel feature into `Impossible`, whatever the sandbox."""
    if error.errno in codes or error.errno == errno.ENOSYS:
        raise Impossible(str(error)) from error
    raise error
