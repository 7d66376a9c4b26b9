"""What is expected of each attempt: the contract of the sandbox, one line per attempt.

`root` and `user` say what happens without a fence: S it succeeds, R it does not (the kernel keeps it for
root, or we refuse it in every mode), A either. With a fence nothing succeeds but what `allowed` names.
`event` says whether a refusal by a fence leaves its line in the session's log. Where nothing is asked
of the kernel (an environment that was cleaned, a handle that was closed, a limit) there is none.
"""

from dataclasses import dataclass

READ_ONLY, WRITE, NETWORK, OFF = "read-only", "workspace-write", "workspace-write-network", "off"
MODES = (READ_ONLY, WRITE, NETWORK, OFF)
WRITING, ONLINE = (WRITE, NETWORK), (NETWORK,)


@dataclass(frozen=True)
class Row:
    key: str
    root: str = "S"
    user: str = "S"
    allowed: tuple = ()
    event: bool = True
    # Which folder the session works in.
    session: str = "project"
    # Refused in every mode: that the attempt bites is shown by running it without us.
    control: bool = False
    # Where it runs, unless it is asked for by name.
    modes: tuple = MODES
    # What takes long runs as the user who started the suite only.
    long: bool = False


def rows(numbers, **options):
    return [Row(str(number), **options) for number in numbers]


TABLE = [
    *rows([0], allowed=WRITING),
    # What must work. Without these, a fence that lets nothing run would pass.
    *rows(["0b", "0c"], allowed=WRITING, modes=(WRITE, NETWORK, OFF)),
    *rows(range(1, 13)),
    *rows(["12b"], event=False),
    *rows([13, 14, 15]),
    *rows(["15b"], user="R", event=False),
    # The same by another door, which keeps no log.
    *rows(["1s", "16s"], event=False),
    *rows(["1u"]),
    *rows(["21s"], allowed=ONLINE, event=False),
    # The same through our own tools, which no kernel fences.
    *rows(["1t", "2t", "3t", "4t", "5t", "16t", "17t", "20t", "47t", "48t"]),
    *rows(range(16, 21)),
    # Its events are in the log of another session.
    *rows(["20u"], event=False),
    *rows(["1m"]),
    *rows(range(21, 24), allowed=ONLINE),
    *rows([24, 25], user="R"),
    *rows([26]),
    *rows([27]),
    *rows([28]),
    # Whoever uses calls of another kind is killed on the spot.
    *rows(["28b"], event=False),
    *rows([29]),
    *rows([30], allowed=ONLINE),
    *rows([31]),
    *rows([32, 35, 36]),
    # Where other processes cannot be seen, nobody is refused anything.
    *rows([33, 34, 37], event=False),
    *rows([38, 39], root="R", user="R", event=False, control=True),
    *rows([40]),
    *rows([41]),
    *rows([42], user="R"),
    *rows([43], root="R", event=False),
    *rows([44]),
    *rows([45, 46], user="R"),
    *rows([47, "47b", 48]),
    *rows(["48u"], session="home"),
    *rows(["39b"], root="R", user="R", event=False),
    *rows([49], user="R"),
    # A place of the command's own, which is gone with it.
    *rows([50, "50b", 77], event=False),
    *rows([51]),
    *rows([52], root="A", user="R", event=False),
    *rows([53]),
    *rows(["53t"], root="A", user="A", event=False),
    *rows([54], root="R", user="R", event=False, control=True),
    *rows([55]),
    # The filter says that there is no such call, so that programs use the older one.
    *rows([56], event=False),
    *rows([57, 58, 59, "59b"], user="R"),
    *rows(range(60, 67)),
    *rows(["66b"]),
    # Such a pair stays a pair, with a fence or without.
    *rows(["66c"], root="R", user="R", event=False),
    *rows([67, 68, "69a", "69b", "69d", "69e"]),
    *rows(["69c"], session="worktree"),
    *rows([70], session="plain"),
    *rows([71], session="linked"),
    *rows([72, 73, "73b", "73c"]),
    *rows([74], session="race74", event=False),
    *rows([75], session="root75", event=False),
    *rows([76]),
    *rows([78]),
    *rows(["78t"], root="R", user="R", event=False),
    *rows([79], root="A", user="A", event=False),
    *rows([80, 82], root="A", user="A", event=False, control=True),
    # Five gigabytes take their time.
    *rows([81], root="A", user="A", event=False, modes=(WRITE,), long=True),
    *rows(["82b"], root="A", user="A", event=False),
    *rows([83, 84, 85, 86, 87], root="R", user="R", event=False),
    *rows([88, 89, 90], allowed=ONLINE),
    *rows([91], allowed=ONLINE),
    *rows([92]),
    *rows([93], root="R", user="R", event=False, control=True),
    *rows([94], root="R", user="R", event=False),
]
