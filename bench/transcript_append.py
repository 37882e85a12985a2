"""What one more line in a long transcript costs: bytes on the wire, and bytes read from the disk.

    python -m bench.transcript_append [--mb 50]

A relay between proxy and daemon counts what passes, both ways, from the line's being written to its being found by another machine; the
kernel counts what the proxy reads. Once in a running `confide mcp`; once with the line written while none ran, where the connection and
what Python reads of itself count too. The budget: 64 KiB in the first case, and nothing near the whole file read in either.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.support.documents.transcripts import ClaudeSession
from tests.support.network.relay import RecordingRelay
from tests.support.programs.processes import Machine, running_daemon, wait_until
from tests.support.programs.wire import Wire

from bench.transcript_load import machine_with, projects_of, write_session

MAX_WIRE_BYTES = 64 * 1024
SETTLE_S = 5.0


def bytes_read(pid: int) -> int:
    """What a process has read, from the disk or its cache, and from sockets."""
    counters = Path(f"/proc/{pid}/io").read_text(encoding="ascii").split()
    return int(counters[counters.index("rchar:") + 1])


def measure(root: Path, megabytes: float) -> dict[str, int]:
    """Bytes by case."""
    with running_daemon(root, has_model=True) as daemon, RecordingRelay(daemon.port) as relay:
        machine = machine_with(root, daemon, port=relay.port)
        desk = Machine(root, "desk", has_model=True)
        desk.run("join", daemon.invite("desk", "--space", "laptop"))
        session = ClaudeSession(projects_of(machine), machine.project, "long-session")
        write_session(session, round(megabytes * 1e6), 1, output_words=20_000)
        machine.run("sync")
        result = {"file": session.path.stat().st_size}

        def is_found(word: str) -> bool:
            return word in str(desk.json("search", word, "--all-projects")["results"])

        with Wire(machine) as wire:
            wire.open()
            time.sleep(SETTLE_S)
            wire_before, read_before = len(relay.captured), bytes_read(wire.process.pid)
            session.user("the zyxrunning word")
            wait_until("the line to be found", lambda: is_found("zyxrunning"), 60)
            result["running_wire"] = len(relay.captured) - wire_before
            result["running_read"] = bytes_read(wire.process.pid) - read_before
        session.user("the zyxrestarted word")
        wire_before = len(relay.captured)
        with Wire(machine) as wire:
            wire.open()
            wait_until("the line to be found", lambda: is_found("zyxrestarted"), 60)
            result["restarted_wire"] = len(relay.captured) - wire_before
            result["restarted_read"] = bytes_read(wire.process.pid)
    return result


def main(arguments: Sequence[str] = ()) -> int:
    """Print the numbers; 1 if the budget is not met."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.transcript_append", description="One more line in a transcript."
    )
    parser.add_argument("--mb", type=float, default=50)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="confide-bench-") as folder:
        result = measure(Path(folder), options.mb)
    within = (
        result["running_wire"] <= MAX_WIRE_BYTES
        and max(result["running_read"], result["restarted_read"]) < result["file"] / 2
    )
    print(f"one line more in a transcript of {result['file'] / 1e6:.0f} MB")
    for case in ("running", "restarted"):
        print(
            f"{case:<10} on the wire {result[f'{case}_wire'] / 1024:8.1f} KiB   read {result[f'{case}_read'] / 1024:8.0f} KiB"
        )
    print(f"budget     on the wire {MAX_WIRE_BYTES / 1024:8.1f} KiB: {'met' if within else 'NOT MET'}")
    return 0 if within else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
