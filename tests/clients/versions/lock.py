#!/usr/bin/env python3
"""Writes the lock files of `versions.json`: run it after changing the list.

`package.json` and `package-lock.json` for TypeScript (each version under a name of its own), `python.txt` with
the checksums of the wheels. Hosts stay out of them: where a registry is reached is the machine's business.
"""

import hashlib
import json
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).parent
ZOD = "3.25.76"


def alias(package):
    return re.sub(r"[@/]", "-", package)[1:]


def lock_typescript(packages):
    dependencies = {alias(package): f"npm:{package}" for package in packages}
    manifest = {"name": "sdk-versions", "private": True, "dependencies": {**dependencies, "zod": ZOD}}
    (HERE / "package.json").write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    lock = HERE / "package-lock.json"
    lock.unlink(missing_ok=True)
    command = ["npm", "install", "--package-lock-only", "--ignore-scripts", "--no-audit", "--loglevel=error"]
    subprocess.run(command, cwd=HERE, check=True)
    lines = [line for line in lock.read_text(encoding="utf-8").splitlines() if '"resolved": ' not in line]
    lock.write_text("\n".join(lines) + "\n", encoding="utf-8")


def lock_python(versions):
    lines = ["# Written by lock.py."]
    for version in versions:
        with tempfile.TemporaryDirectory() as folder:
            wanted = f"agent-client-protocol=={version}"
            command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", "-d", folder]
            subprocess.run([*command, wanted], check=True)
            (wheel,) = pathlib.Path(folder).iterdir()
            checksum = hashlib.sha256(wheel.read_bytes()).hexdigest()
        lines.append(f"{wanted} --hash=sha256:{checksum}")
    (HERE / "python.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    listed = json.loads((HERE / "versions.json").read_text(encoding="utf-8"))
    lock_typescript(listed["typescript"])
    lock_python(listed["python"])
