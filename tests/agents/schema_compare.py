#!/usr/bin/env python3
"""Judges two records of one scenario by the official schema: an agent alone, and behind the server.

usage: schema_compare.py DIRECT.jsonl THROUGH.jsonl

What the agent alone does against the schema is its own affair and is passed on unchanged. The server
must not add to it: a violation that only the second record has is a failure.
"""

import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "clients"))

from schema_check import check_record

# Names of one run, which stand inside of the messages.
OWN = re.compile(r"'[^']*'|\"[^\"]*\"|\d+")


def violations(path):
    _, problems = check_record(pathlib.Path(path))
    return {(OWN.sub("_", text), text) for _, found, _ in problems for text in found}


def main(direct, through):
    own = {shape for shape, _ in violations(direct)}
    new = sorted(text for shape, text in violations(through) if shape not in own)
    for text in new:
        print(f"schema: only behind the server: {text}")
    print(f"schema: {len(own)} kinds of violations are the agent's own, {len(new)} are new")
    return 1 if new else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
