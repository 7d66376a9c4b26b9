#!/usr/bin/python3
"""The attacker: one attempt to leave the sandbox, by number.

    attacker.py N WORLD.json

prints one line of JSON: what it tried, and how it looked from within. The runner does not believe it:
it looks for the effect from outside (see judge.py). "impossible" means that this kernel or this user
cannot do it even without a sandbox, for example a raw socket without root.

Only the standard library, and only modules that an attempt needs: it starts several hundred times.
"""

import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from attacks import base  # noqa: E402

ROOMS = {
    "files": [*range(0, 21), 48, 50, 51, 53, 67, 68, 69, 70, 71, 72, 73, 74, 75, 76, 77, 78],
    "sockets": [*range(21, 31), *range(60, 67), 88, 89, 90, 91],
    "processes": [*range(32, 40), 43, 47, 54, 93],
    "kernel": [31, 40, 41, 42, 44, 45, 46, 49, 52, 55, 56, 57, 58, 59],
    "limits": [*range(80, 88)],
}


def main():
    # A letter after the number is a variant of the same attempt.
    key, world = sys.argv[1], base.World(sys.argv[2])
    number = int(key.rstrip("abcdefghijklmnopqrstuvwxyz"))
    room = "kernel" if key == "50b" else next(name for name, numbers in ROOMS.items() if number in numbers)
    __import__(f"attacks.{room}")
    name, work = base.ATTEMPTS[key]
    try:
        outcome, detail = "succeeded", work(world)
    except base.Impossible as error:
        outcome, detail = "impossible", str(error)
    except OSError as error:
        outcome, detail = "refused", str(error)
    line = {"n": key, "name": name, "outcome": outcome, "detail": detail}
    os.write(1, (json.dumps(line) + "\n").encode())


main()
