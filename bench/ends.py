"""From a client that closes its end to the process of `confide mcp` being gone, with the link up; the promise is one second."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from pathlib import Path

from tests.support.programs.processes import Machine, running_daemon
from tests.support.programs.wire import Wire

ROUNDS = 20


def main() -> None:
    """Print the median and the worst of `ROUNDS` sessions."""
    times = []
    with tempfile.TemporaryDirectory(prefix="confide-bench-") as folder, running_daemon(Path(folder)) as daemon:
        machine = Machine(Path(folder), "bench", has_model=True)
        machine.run("join", daemon.invite("bench"))
        machine.write("MEMORY.md", "# Memory\n")
        for _ in range(ROUNDS):
            with Wire(machine) as wire:
                wire.open()
                wire.tool("memory_status", {})
                assert wire.process.stdin is not None
                started = time.perf_counter()
                wire.process.stdin.close()
                wire.process.wait(10)
                times.append((time.perf_counter() - started) * 1e3)
    load = os.getloadavg()[0]
    print(
        f"stdin closed -> gone: median {statistics.median(times):.0f} ms, worst {max(times):.0f} ms (load {load:.1f})"
    )


if __name__ == "__main__":
    main()
