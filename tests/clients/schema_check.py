#!/usr/bin/env python3
"""Validates the records of `tap.py`: every frame the server sent must follow the official schema.

usage: schema_check.py FOLDER...

Fails on any violation, on a folder without records, and on a line that is not JSON. A request
that was still open when its record ends is only mentioned: the rigs kill servers on purpose.
"""

import json
import pathlib
import sys

from acp_schema import Conversation


def check_record(path):
    conversation = Conversation()
    problems = []
    for number, entry in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        entry = json.loads(entry)
        if "ended" in entry:
            continue
        try:
            frame = json.loads(entry["line"])
        except ValueError:
            if entry["from"] == "server":
                problems.append((number, ["the line is not JSON"], entry["line"]))
            continue
        if entry["from"] == "client":
            conversation.client_frame(frame)
        else:
            found = conversation.agent_frame(frame)
            if found:
                problems.append((number, found, entry["line"]))
    return conversation, problems


def main(folders):
    frames, failed, still_open, kinds = 0, 0, [], {}
    for folder in map(pathlib.Path, folders):
        records = sorted(folder.glob("*.jsonl"))
        if not records:
            print(f"schema: no records in {folder}")
            failed += 1
        for path in records:
            conversation, problems = check_record(path)
            for what, count in conversation.counts.items():
                kinds[what] = kinds.get(what, 0) + count
                frames += count
            still_open += conversation.open_requests.values()
            for number, found, line in problems:
                failed += 1
                print(f"schema: {path.name}:{number}: {'; '.join(found)}\n    {line[:400]}")
    for what in sorted(kinds):
        print(f"schema: {kinds[what]:6} {what}")
    if still_open:
        print(f"schema: unanswered when the connection ended: {', '.join(sorted(still_open))}")
    print(f"schema: {frames} frames, {failed} problems")
    return 1 if failed or not frames else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
