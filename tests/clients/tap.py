"""Stands between a client and `confide mcp`, and notes what the client sends and when it is answered: `tap.py LOG COMMAND ARGS…`.

One line of JSON a message: `ms` since the start, `way` ("to server", "to client"), `line`. Standard library only: a client starts it in the
server's place.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time


def main() -> int:
    began = time.monotonic()
    log = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    child = subprocess.Popen(sys.argv[2:], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdin is not None
    assert child.stdout is not None
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda taken, _frame: child.send_signal(taken))

    def note(way: str, line: bytes) -> None:
        told = {"ms": round((time.monotonic() - began) * 1000, 1), "way": way, "line": line.decode("utf-8", "replace")}
        os.write(log, json.dumps(told).encode() + b"\n")

    def up(stdin: int, server: int) -> None:
        rest = b""
        while data := os.read(stdin, 1 << 20):
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                note("to server", line)
            os.write(server, data)
        os.close(server)

    threading.Thread(target=up, args=(0, os.dup(child.stdin.fileno())), daemon=True).start()
    child.stdin.close()
    for line in child.stdout:
        note("to client", line.rstrip(b"\n"))
        os.write(1, line)
    return child.wait()


if __name__ == "__main__":
    sys.exit(main())
