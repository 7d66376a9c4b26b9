"""The scratch world of one run: a workspace, things outside that are worth attacking, and somebody
listening wherever an attempt might call.

Everything is made anew in a temporary folder and belongs to the user whom the server runs as.
**Invariant:** `close` leaves no file, mount, key, socket or process of the run behind.
"""

import ctypes
import json
import os
import pwd
import secrets
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
# Secrets start in a way that no redaction knows, or the output would be clean for the wrong reason.
SECRET_PREFIX = "zq"
SEQUENCES = (
    "\x1b[2J\x1b]52;c;cHduZWQ=\x07\x1b]8;;http://evil\x1b\\click\x1b]8;;\x1b\\"
    "\x1bP1$r0m\x1b\\\u009b2J\u009d0;pwned\u009c\u202eesrever\u202c\u2066x\u2069\x1bc\x08\x08\x7f\n"
)
SYSCTL = "/proc/sys/fs/lease-break-time"

HOLDER = """
import ctypes, json, os, sys
secret = os.environ["HELD_WORDS"].encode()
memory = ctypes.create_string_buffer(secret, 64)
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o600)
os.write(file, secret)
os.unlink(sys.argv[1])
facts = {"pid": os.getpid(), "address": ctypes.addressof(memory), "handle": file}
print(json.dumps(facts), flush=True)
sys.stdin.read()
"""


# A fence gives its command such places of its own: what is worth attacking would be gone there, not guarded.
PRIVATE = ("/tmp", "/var/tmp", "/run", "/var/run", "/dev")


def scratch_place(uid):
    """A folder for the world that a command can see, and that this user can reach."""
    home = pwd.getpwuid(os.getuid()).pw_dir
    places = [os.environ.get("TMPDIR"), os.environ.get("ESCAPE_SCRATCH"), "/srv", "/opt", home]
    for place in filter(None, places):
        place = os.path.realpath(place)
        private = any(os.path.commonpath([place, known]) == known for known in PRIVATE)
        if not private and os.access(place, os.W_OK | os.X_OK) and is_reachable(place, uid):
            return place
    raise SystemExit("no folder for the scratch world; set TMPDIR to one that is not below /tmp")


def is_reachable(place, uid):
    for_others = 0o001
    while place != "/":
        state = os.stat(place)
        if state.st_uid != uid and not state.st_mode & for_others:
            return False
        place = os.path.dirname(place)
    return True


class World:
    def __init__(self, uid):
        self.uid = uid
        self.account = {"user": uid, "group": uid, "extra_groups": []} if uid != os.getuid() else {}
        self.base = tempfile.mkdtemp(prefix="ropewalk-escape-", dir=scratch_place(uid))
        self.mark = os.path.basename(self.base)
        self.secret = SECRET_PREFIX + secrets.token_hex(8)
        self.children = []
        self.listeners = []
        self.heard = b""
        self.lock = threading.Lock()
        self.open = True
        try:
            self._build()
        except BaseException:
            self.close()
            raise

    def path(self, *names):
        return os.path.join(self.base, *names)

    def inside(self, *names):
        return self.path("home", "project", *names)

    def folder(self, session):
        """The folder of a session, by its name."""
        return self.path("home") if session == "home" else self.path("home", session)

    def victim(self, key):
        return self.path("out", f"v{key}")

    def token(self, key):
        return f"<{self.secret}-{key}>".encode()

    def hears(self, token, patience_s):
        """Whether somebody was called with this token."""
        deadline = time.monotonic() + patience_s
        while True:
            with self.lock:
                if token in self.heard:
                    return True
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.005)

    def environment(self, **more):
        """What the server is started with: some of it must not reach a command."""
        planted = {
            # With this key alone the attacks would be told to a model of that provider.
            "ROPEWALK_OFFLINE": "1",
            "OPENAI_API_KEY": f"SECRET-{self.secret}-38",
            "MY_SETTING": f"SECRET-{self.secret}-38",
            "GIT_CONFIG_PARAMETERS": "'planted.planted=planted'",
            "GIT_SSH_COMMAND": "planted",
            "NODE_OPTIONS": "--title=planted",
            "PYTHONSTARTUP": "/planted",
            "BASH_ENV": "/planted",
            "PERL5OPT": "-Mplanted",
            "LD_BIND_NOT": "planted",
            "SSH_AUTH_SOCK": self.facts["sockets"]["62"],
            "DBUS_SESSION_BUS_ADDRESS": "unix:path=" + self.facts["sockets"]["60"],
            "XDG_RUNTIME_DIR": self.path("run"),
        }
        basics = {"PATH": "/usr/bin:/bin", "HOME": self.path("home"), "LANG": "C.UTF-8", "TERM": "xterm"}
        return {**basics, "ROPEWALK_HOME": self.path("state"), **planted, **more}

    def attack(self, key):
        """The command line of an attempt."""
        return f"/usr/bin/python3 -E -s -S {self.path('bin', 'attacker.py')} {key} {self.path('bin', 'world.json')}"

    def processes(self, word):
        """The living processes with a word in their command line, wherever they are."""
        found = []
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{name}/cmdline", "rb") as file:
                    if word.encode() in file.read() and int(name) != os.getpid():
                        found.append(int(name))
            except OSError:
                continue
        return found

    # Building.

    def _build(self):
        os.chmod(self.base, 0o755)
        for folder in ("home", "out", "run", "state", "bin", "home/project", "home/plain", "out/d9", "home/root75"):
            os.makedirs(self.path(folder), exist_ok=True)
        self._files()
        self._repositories()
        for folder, folders, files in os.walk(self.base):
            for name in [".", *folders, *files]:
                os.lchown(os.path.join(folder, name), self.uid, self.uid)
        os.chown(self.base, os.getuid(), os.getgid())
        self.facts = {
            "workspace": self.inside(),
            "worktree": self.path("home", "worktree"),
            "plain": self.path("home", "plain"),
            "linked": self.path("home", "linked"),
            "out": self.path("out"),
            "home": self.path("home"),
            "state": self.path("state"),
            "secret": self.secret,
            "mark": self.mark,
            "sequences": SEQUENCES.encode().hex(),
            "pid-outside": os.getpid(),
            "shm-key": int(self.secret[2:9], 16),
            "processes-try": 1500,
            "memory-try": 5 << 30,
            "file-try": 5 << 30,
            "output-try": 64 << 20,
        }
        self._mount()
        self._sockets()
        self._setuid()
        self._others()
        self._terminal()
        self._attacker()

    def write(self, text, *names):
        path = self.path(*names)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)

    def _files(self):
        for number in range(95):
            self.write("original\n", "out", f"v{number}")
        for number in (15, 74, 75, 78):
            os.unlink(self.victim(number))
        self.write(f"{self.secret}-79", "out", "secret79")
        for name in (".bashrc", ".profile", ".gitconfig"):
            self.write("original\n", "home", name)
        for name in (".ssh/id_rsa", ".netrc", ".aws/credentials", ".gnupg/secring"):
            self.write(f"{self.secret}-47", "home", *name.split("/"))
        for name in ("mount42", "mount58", "mounted"):
            os.mkdir(self.path("out", name))
        self.write("the secret of notes\n", "home", "project", "notes.txt")
        self.write("inside\n", "home", "project", "f8")
        self.write(f"ROPEWALK_HOME={self.path('out', 'evil')}\n", "home", "project", ".env")
        os.symlink(self.victim(3), self.inside("link3"))
        os.symlink(self.path("out"), self.inside("dir4"))
        for number in ("12b", "1s", "1t", "2t", "3t", "4t", "5t"):
            self.write("original\n", "out", f"v{number}")
        os.symlink(self.victim("3t"), self.inside("link3t"))

    def _repositories(self):
        def git(folder, *words):
            identity = ["-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "init.defaultBranch=main"]
            path = os.environ.get("PATH", "/usr/bin:/bin")
            clean = {"PATH": path, "HOME": self.path("home"), "GIT_CONFIG_NOSYSTEM": "1"}
            command = ["git", *identity, *words]
            subprocess.run(command, cwd=folder, env=clean, check=True, capture_output=True)

        os.rename(self.path("home", ".gitconfig"), self.path("gitconfig"))
        project = self.inside()
        git(project, "init", "-q")
        git(project, "commit", "-q", "--allow-empty", "-m", "first")
        git(project, "config", "core.hooksPath", ".githooks")
        git(project, "worktree", "add", "-q", self.path("home", "worktree"))
        os.makedirs(self.path("home", "linked"))
        git(self.path("home", "linked"), "init", "-q")
        os.rename(self.path("gitconfig"), self.path("home", ".gitconfig"))
        self.write("original\n", "home", "project", ".githooks", "pre-commit")
        # A submodule as git lays it out.
        settings = "[core]\n\tbare = false\n\tworktree = ../../../sub\n"
        self.write(settings, "home", "project", ".git", "modules", "sub", "config")
        self.write("ref: refs/heads/main\n", "home", "project", ".git", "modules", "sub", "HEAD")
        self.write('[submodule "sub"]\n\tpath = sub\n\turl = ./sub\n', "home", "project", ".gitmodules")
        for name in ("objects", "refs"):
            os.makedirs(self.inside(".git", "modules", "sub", name))
        os.makedirs(self.inside(".git", "modules", "sub", "hooks"))
        self.write("gitdir: ../.git/modules/sub\n", "home", "project", "sub", ".git")
        os.makedirs(self.inside(".git", "hooks"), exist_ok=True)
        hooks = self.path("home", "linked", ".git", "hooks")
        shutil.rmtree(hooks, ignore_errors=True)
        os.makedirs(self.path("home", "linked", "shared-hooks"))
        os.symlink("../shared-hooks", hooks)

    def _mount(self):
        """Another file system below the outside: what holds for a folder must hold for what is mounted in it."""
        self.facts["mounted"] = ""
        if os.getuid() != 0:
            return
        path = self.path("out", "mounted")
        if ctypes.CDLL(None).mount(b"tmpfs", os.fsencode(path), b"tmpfs", 0, b"size=1m,mode=0777") == 0:
            self.facts["mounted"] = path
            self.write("original\n", "out", "mounted", "v1m")
            os.chown(os.path.join(path, "v1m"), self.uid, self.uid)

    # Somebody to talk to.

    def _sockets(self):
        tcp = socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)
        udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        udp.bind(("127.0.0.1", 0))
        free = socket.create_server(("127.0.0.1", 0))
        self.facts.update(tcp=tcp.getsockname()[1], udp=udp.getsockname()[1], free=free.getsockname()[1])
        free.close()
        netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 2)
        netlink.bind((0, 0))
        self.facts["netlink"] = netlink.getsockname()[0]
        paths = {
            "28": self.path("run", "socket28"),
            "60": self.path("run", "bus"),
            "61": self.path("run", "docker.sock"),
            "62": self.path("run", "agent.62"),
            "63": self.path("home", ".gnupg", "S.gpg-agent"),
            "64": self.path("run", "wayland-0"),
            "65": self.path("run", "tmux"),
            "66": self.path("run", "editor.sock"),
        }
        self.facts["sockets"] = paths
        self.facts["abstract"] = f"{self.mark}-29"
        self.facts["abstract-x11"] = f"{self.mark}-x11"
        listeners = [tcp]
        for key, path in paths.items():
            kind = socket.SOCK_DGRAM if key == "66" else socket.SOCK_STREAM
            listeners.append(self._unix(path, kind))
            os.chown(path, self.uid, self.uid)
        listeners += [self._unix("\0" + self.facts[name]) for name in ("abstract", "abstract-x11")]
        listeners += [udp, netlink]
        self.facts["vsock"] = self._vsock(listeners)
        self.listeners = listeners
        threading.Thread(target=self._hear, daemon=True).start()

    @staticmethod
    def _unix(path, kind=socket.SOCK_STREAM):
        listener = socket.socket(socket.AF_UNIX, kind)
        listener.bind(path)
        if kind == socket.SOCK_STREAM:
            listener.listen(8)
        return listener

    @staticmethod
    def _vsock(listeners):
        """The port of a listener that can be reached from this machine, or 0: most kernels lack the loopback."""
        try:
            listener = socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)
            listener.bind((socket.VMADDR_CID_ANY, socket.VMADDR_PORT_ANY))
            listener.listen(1)
            port = listener.getsockname()[1]
            with socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM) as probe:
                probe.settimeout(1)
                probe.connect((1, port))
        except OSError:
            return 0
        listeners.append(listener)
        return port

    def _hear(self):
        """Takes calls and keeps whatever is said."""
        accepting = {entry for entry in self.listeners if entry.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)}
        talking = list(self.listeners)
        while self.open:
            ready, _, _ = select.select(talking, [], [], 0.1)
            for entry in ready:
                try:
                    if entry in accepting:
                        talking.append(entry.accept()[0])
                        continue
                    data = entry.recv(65536)
                except OSError:
                    data = b""
                if data:
                    with self.lock:
                        self.heard += data
                elif entry not in self.listeners:
                    talking.remove(entry)
                    entry.close()

    # Somebody to attack.

    def _setuid(self):
        self.facts["setuid"] = self.facts["root-secret"] = ""
        if os.getuid() != 0 or self.uid == 0:
            return
        program, secret = self.path("bin", "setuid-cat"), self.path("root-secret")
        shutil.copy("/bin/cat", program)
        os.chown(program, 0, 0)
        os.chmod(program, 0o4755)
        self.write(f"{self.secret}-43", "root-secret")
        os.chmod(secret, 0o400)
        self.facts.update({"setuid": program, "root-secret": secret})

    def _others(self):
        secret = f"{self.secret}-held".ljust(48, ".")
        holder = subprocess.Popen(
            ["/usr/bin/python3", "-I", "-S", "-c", HOLDER, self.path("run", "held")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={"HELD_WORDS": secret},
            **self.account,
        )
        self.children.append(holder)
        self.facts["holder"] = json.loads(holder.stdout.readline())
        self.sleeper = subprocess.Popen(["/bin/sleep", "600"], **self.account)
        self.children.append(self.sleeper)
        self.facts["sleeper"] = self.sleeper.pid
        with open(SYSCTL, encoding="ascii") as file:
            self.sysctl = file.read().strip()
        self.facts["sysctl"] = {"path": SYSCTL, "evil": str(int(self.sysctl) + 1)}

    def _terminal(self):
        self.facts["terminal"] = ""
        self.master = self.slave = None
        try:
            with open("/proc/sys/dev/tty/legacy_tiocsti", encoding="ascii") as file:
                if file.read(1) != "1":
                    return
        except OSError:
            pass
        import pty
        import tty

        self.master, self.slave = pty.openpty()
        tty.setraw(self.slave)
        os.set_blocking(self.slave, False)
        os.fchown(self.slave, self.uid, self.uid)
        self.facts["terminal"] = os.ttyname(self.slave)

    def _attacker(self):
        shutil.copy(os.path.join(HERE, "attacker.py"), self.path("bin"))
        built = shutil.ignore_patterns("__pycache__")
        shutil.copytree(os.path.join(HERE, "attacks"), self.path("bin", "attacks"), ignore=built)
        with open(self.path("bin", "world.json"), "w", encoding="utf-8") as file:
            json.dump(self.facts, file)
        compile_all = ["/usr/bin/python3", "-I", "-m", "compileall", "-q", self.path("bin", "attacks")]
        subprocess.run(compile_all, check=True)

    # The end.

    def unmount(self, path):
        detach = 2
        return ctypes.CDLL(None).umount2(os.fsencode(path), detach) == 0

    def close(self):
        self.open = False
        for child in self.children:
            child.kill()
            child.wait()
            for stream in (child.stdin, child.stdout):
                if stream:
                    stream.close()
        for left in self.processes(self.mark):
            os.kill(left, signal.SIGKILL)
        for listener in self.listeners:
            listener.close()
        for handle in (getattr(self, "master", None), getattr(self, "slave", None)):
            if handle is not None:
                os.close(handle)
        for name in ("mount42", "mount58", "mounted"):
            if os.getuid() == 0:
                self.unmount(self.path("out", name))
        for planted in (f"/dev/shm/{self.mark}-50", f"/tmp/{self.mark}-77"):
            if os.path.lexists(planted):
                os.unlink(planted)
        shutil.rmtree(self.base, ignore_errors=True)
