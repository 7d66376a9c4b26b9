"""An editor that can be killed: starts the server and passes lines on, both ways."""

import subprocess
import sys
import threading

server = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def pass_on(source, sink):
    for line in iter(source.readline, b""):
        sink.write(line)
        sink.flush()
    sink.close()


threading.Thread(target=pass_on, args=(sys.stdin.buffer, server.stdin), daemon=True).start()
pass_on(server.stdout, sys.stdout.buffer)
sys.exit(server.wait())
