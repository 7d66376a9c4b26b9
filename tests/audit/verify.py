#!/usr/bin/env python3
"""Verifies an audit chain without Ropewalk: only Python's standard library.

usage: verify.py FOLDER KEYFILE

Prints how many rows are genuine and exits with 0, or names the first row that is not and exits with 1.
It reads the chain as its format is written down in docs/audit.md, not as Ropewalk's own code does.
"""

import glob
import gzip
import hashlib
import hmac
import json
import os
import sys

FIELDS = {
    "timestamp", "event_type", "actor", "resource_type", "resource_id", "details", "prev_hmac", "hmac",
}


def files(folder):
    archived = sorted(glob.glob(os.path.join(folder, "archive", "*.jsonl.gz")))
    for path in archived:
        with gzip.open(path, "rb") as file:
            yield os.path.relpath(path, folder), file.read()
    for path in sorted(glob.glob(os.path.join(folder, "*.jsonl"))):
        with open(path, "rb") as file:
            yield os.path.relpath(path, folder), file.read()


def main(folder, key_file):
    with open(key_file, "rb") as file:
        key = file.read().strip()
    prev, rows = "0" * 64, 0
    for name, content in files(folder):
        if content and not content.endswith(b"\n"):
            sys.exit(f"{name}: the last line has no end")
        for number, line in enumerate(content.split(b"\n")[:-1], start=1):
            try:
                row = json.loads(line)
            except ValueError as error:
                sys.exit(f"{name}:{number}: not JSON: {error}")
            if set(row) != FIELDS:
                sys.exit(f"{name}:{number}: the fields are {sorted(row)}")
            if json.dumps(row, sort_keys=True).encode() != line:
                sys.exit(f"{name}:{number}: not canonical")
            stated = row.pop("hmac")
            if row["prev_hmac"] != prev:
                sys.exit(f"{name}:{number}: does not follow the row before it")
            payload = prev + json.dumps(row, sort_keys=True)
            if hmac.new(key, payload.encode(), hashlib.sha256).hexdigest() != stated:
                sys.exit(f"{name}:{number}: was changed")
            prev, rows = stated, rows + 1
    print(f"{rows} rows {prev}")


if __name__ == "__main__":
    main(*sys.argv[1:])
