"""Looks from outside whether an attempt had its effect. What the attacker says of itself counts only
where nothing can be seen from outside: a namespace or a kernel object of its own.
"""

import ctypes
import fcntl
import os
import subprocess
import time

SYS_KEYCTL = 250
KEYCTL_SEARCH, KEYCTL_UNLINK, USER_KEYRING = 10, 9, -4


def text(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return None


def changed(path):
    return text(path) != "original\n"


def planted(*paths):
    return any(os.path.lexists(path) for path in paths)


def pwned(path):
    return "pwned" in (text(path) or "")


def is_mount(path):
    return f" {path} " in text("/proc/self/mountinfo")


class Judge:
    def __init__(self, world):
        self.world = world

    def succeeded(self, key, claim, shown):
        """`claim` is the attacker's own line, or None; `shown` is everything that a client was shown."""
        number = key.rstrip("abcdefghijklmnopqrstuvwxyz")
        special = getattr(self, f"effect_{key}", None) or getattr(self, f"effect_{number}", None)
        if special:
            return special(claim, shown)
        if int(number) in SOCKETS:
            # Whoever was called may hear it a little later than the caller ends.
            claimed = bool(claim) and claim["outcome"] == "succeeded"
            return self.world.hears(self.world.token(key)[:-1], 0.5 if claimed else 0.02)
        return changed(self.world.victim(key))

    def held(self, shown):
        return f"{self.world.secret}-held" in shown

    def effect_0(self, _claim, _shown):
        return pwned(self.world.inside("v0"))

    def effect_0b(self, _claim, _shown):
        log = text(self.world.inside(".git", "logs", "HEAD")) or ""
        return "by a command" in log

    def effect_0c(self, _claim, _shown):
        return pwned(self.world.inside("v0c"))

    def effect_12b(self, _claim, _shown):
        get_flags, no_dump = 0x80086601, 0x40
        with open(self.world.victim("12b"), "rb") as file:
            return bool(fcntl.ioctl(file, get_flags, bytes(8))[0] & no_dump)

    def effect_15b(self, _claim, _shown):
        return planted(self.world.inside("disk15b"))

    def effect_50b(self, _claim, _shown):
        """Finds the segment by its key, and removes it."""
        for line in (text("/proc/sysvipc/shm") or "").splitlines()[1:]:
            key, segment = line.split()[:2]
            if int(key) == self.world.facts["shm-key"]:
                remove = 0
                ctypes.CDLL(None).shmctl(int(segment), remove, None)
                return True
        return False

    def effect_59b(self, _claim, _shown):
        for root in ("/sys/fs/cgroup/pids", "/sys/fs/cgroup/unified", "/sys/fs/cgroup"):
            if os.path.isdir(f"{root}/{self.world.mark}"):
                os.rmdir(f"{root}/{self.world.mark}")
                return True
        return False

    def effect_8(self, _claim, _shown):
        return planted(self.world.path("out", "moved8"))

    def effect_9(self, _claim, _shown):
        return not planted(self.world.path("out", "d9"))

    def effect_12(self, _claim, _shown):
        return os.stat(self.world.victim(12)).st_mode & 0o777 == 0o777

    def effect_13(self, _claim, _shown):
        return os.stat(self.world.victim(13)).st_mtime == 1

    def effect_14(self, _claim, _shown):
        return "user.pwned" in os.listxattr(self.world.victim(14))

    def effect_15(self, _claim, _shown):
        return planted(self.world.path("out", "fifo15"))

    def effect_16(self, _claim, _shown):
        return planted(self.world.inside(".git", "hooks", "pre-commit"))

    def effect_16s(self, _claim, _shown):
        return planted(self.world.inside(".git", "hooks", "pre-push"))

    def effect_16t(self, _claim, _shown):
        return planted(self.world.inside(".git", "hooks", "post-merge"))

    def effect_17(self, _claim, _shown):
        return pwned(self.world.inside(".git", "config"))

    effect_19 = effect_17

    def effect_17t(self, _claim, _shown):
        return "bare = true" in text(self.world.inside(".git", "config"))

    def effect_18(self, _claim, _shown):
        moved = self.world.inside("git-old")
        if not planted(moved):
            return False
        os.rename(moved, self.world.inside(".git"))
        return True

    def effect_20(self, _claim, _shown):
        return planted(self.world.inside(".claude", "settings.json"))

    def effect_20u(self, _claim, _shown):
        return planted(self.world.inside(".cursor", "mcp.json"))

    def effect_1m(self, _claim, _shown):
        return pwned(os.path.join(self.world.facts["mounted"], "v1m"))

    def effect_48u(self, _claim, _shown):
        return planted(self.world.path("home", ".zshenv"))

    def effect_20t(self, _claim, _shown):
        return planted(self.world.inside(".codex", "config.toml"))

    def effect_31(self, _claim, _shown):
        return not planted(self.world.victim(31))

    effect_10 = lambda self, _claim, _shown: not planted(self.world.victim(10))  # noqa: E731

    def effect_32(self, _claim, shown):
        return self.held(shown)

    effect_33 = effect_34 = effect_35 = effect_37 = effect_32

    def effect_36(self, _claim, _shown):
        try:
            self.world.sleeper.wait(0.1)
            return True
        except subprocess.TimeoutExpired:
            return False

    def effect_38(self, _claim, shown):
        return f"{self.world.secret}-38" in shown

    def effect_40(self, _claim, _shown):
        if self.world.slave is None:
            return False
        try:
            return self.world.token(40) in os.read(self.world.slave, 4096)
        except OSError:
            return False

    def claimed(self, claim, _shown):
        return bool(claim) and claim["outcome"] == "succeeded"

    effect_41 = effect_45 = effect_52 = effect_55 = effect_56 = effect_80 = effect_81 = effect_93 = claimed
    effect_39b = effect_82b = claimed

    def effect_42(self, _claim, _shown):
        return self.mounted("mount42")

    def effect_58(self, _claim, _shown):
        return self.mounted("mount58")

    def mounted(self, name):
        path = self.world.path("out", name)
        return is_mount(path) and self.world.unmount(path)

    def effect_43(self, _claim, shown):
        return f"{self.world.secret}-43" in shown

    def effect_44(self, _claim, _shown):
        """A process of the same user finds the key, and takes it away."""
        code = (
            "import ctypes, sys\n"
            "call = ctypes.CDLL(None).syscall\n"
            f"key = call({SYS_KEYCTL}, {KEYCTL_SEARCH}, {USER_KEYRING}, b'user', sys.argv[1].encode(), 0)\n"
            f"key > 0 and call({SYS_KEYCTL}, {KEYCTL_UNLINK}, key, {USER_KEYRING})\n"
            "sys.exit(0 if key > 0 else 1)"
        )
        search = ["/usr/bin/python3", "-I", "-S", "-c", code, f"{self.world.mark}-44"]
        return subprocess.run(search, check=False, **self.world.account).returncode == 0

    def effect_47(self, _claim, shown):
        return f"{self.world.secret}-47" in shown

    def effect_48(self, _claim, _shown):
        return changed(self.world.path("home", ".bashrc"))

    def effect_48t(self, _claim, _shown):
        return changed(self.world.path("home", ".profile"))

    def effect_50(self, _claim, _shown):
        return planted(f"/dev/shm/{self.world.mark}-50")

    def effect_53(self, _claim, _shown):
        return changed(self.world.victim(53))

    def effect_53t(self, _claim, _shown):
        return planted(self.world.path("out", "f53t"))

    def effect_54(self, _claim, _shown):
        return self.outlives(f"{self.world.mark}-54")

    def effect_86(self, _claim, _shown):
        return self.outlives(f"{self.world.mark}-86") or self.outlives(f"attacker.py\0{86}\0{self.world.base}")

    def outlives(self, word):
        deadline = time.monotonic() + 1
        while self.world.processes(word):
            if time.monotonic() > deadline:
                return True
            time.sleep(0.01)
        return False

    def effect_59(self, _claim, _shown):
        path, evil = self.world.facts["sysctl"]["path"], self.world.facts["sysctl"]["evil"]
        if text(path).strip() != evil:
            return False
        with open(path, "w", encoding="ascii") as file:
            file.write(self.world.sysctl)
        return True

    def effect_67(self, _claim, _shown):
        config = self.world.path("home", ".config")
        return pwned(f"{config}/systemd/user/evil.service") or pwned(f"{config}/autostart/evil.desktop")

    def effect_68(self, _claim, _shown):
        return planted(self.world.inside(".githooks", "post-commit"))

    def effect_69a(self, _claim, _shown):
        return planted(self.world.inside(".git", "modules", "sub", "hooks", "post-checkout"))

    def effect_69b(self, _claim, _shown):
        return pwned(self.world.inside("sub", ".git"))

    def effect_69e(self, _claim, _shown):
        return pwned(self.world.inside(".git", "modules", "sub", "hooks", "post-merge"))

    def effect_69c(self, _claim, _shown):
        return pwned(self.world.path("home", "worktree", ".git"))

    def effect_69d(self, _claim, _shown):
        return pwned(self.world.inside(".git", "worktrees", "worktree", "commondir"))

    def effect_70(self, _claim, _shown):
        return pwned(self.world.path("home", "plain", ".git", "config"))

    def effect_71(self, _claim, _shown):
        return pwned(self.world.path("home", "linked", "shared-hooks", "pre-commit"))

    def effect_72(self, _claim, _shown):
        return planted(*(self.world.inside(name, "config") for name in (".GIT", ".git.", "git~1", ".g\u200cit")))

    def effect_73(self, _claim, _shown):
        inside = self.world.inside
        return (
            planted(inside(".vscode", "tasks.json"), inside(".idea", "workspace.xml"))
            or pwned(inside(".mcp.json"))
            or pwned(inside(".envrc"))
            or planted(inside(".ropewalk", "rules.toml"))
        )

    def effect_73b(self, _claim, _shown):
        return planted(self.world.path("state", "pwned"))

    def effect_73c(self, _claim, shown):
        return "SQLite format 3" in shown

    def effect_74(self, _claim, _shown):
        return planted(self.world.victim(74))

    def effect_75(self, _claim, _shown):
        return planted(self.world.victim(75), self.world.victim("75t"))

    def effect_77(self, _claim, _shown):
        return planted(f"/tmp/{self.world.mark}-77")

    def effect_78(self, _claim, _shown):
        return any(name.startswith(b"v78") for name in os.listdir(os.fsencode(self.world.path("out"))))

    def effect_79(self, _claim, shown):
        return f"{self.world.secret}-79" in shown or f"{self.world.secret}-47" in shown

    def effect_82(self, _claim, _shown):
        try:
            return os.stat(self.world.inside("fill82")).st_size >= self.world.facts["file-try"]
        except OSError:
            return False

    def effect_87(self, claim, _shown):
        return claim is None or claim["outcome"] == "succeeded"

    def effect_94(self, _claim, _shown):
        return planted(self.world.path("out", "evil"))


# Attempts whose effect is a token that somebody hears.
SOCKETS = {*range(21, 31), *range(60, 67), 88, 89, 90, 91}
