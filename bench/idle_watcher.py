"""What a session costs while nothing happens: CPU time of real `confide mcp` processes over a folder of 1,000 files.

    python -m bench.idle_watcher [--seconds 60] [--files 1000]

Two sessions of one folder: one of them watches it, the other waits for its seat. Both are measured by the kernel's own count
(`/proc/PID/stat`, threads included) once the index is complete. The budget is for the one that watches.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.support.programs.processes import Machine, wait_until
from tests.support.programs.wire import Wire

MAX_SHARE = 0.001
SETTLE_S = 5.0


def cpu_s(pid: int) -> float:
    """User and system time of a process, in seconds; a tick is 10 ms."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def is_watching(pid: int) -> bool:
    """Whether the process holds watches of inotify."""
    return any("inotify wd:" in fd.read_text() for fd in Path(f"/proc/{pid}/fdinfo").iterdir())


def measure(root: Path, files: int, seconds: float) -> dict[str, float]:
    """The share of a core of each of the two."""
    machine = Machine(root, "laptop", has_model=True)
    for number in range(files):
        machine.write(f"memory/{number // 100}/{number}.md", f"# Note {number}\n\nNumber {number} is about herons.\n")
    try:
        with Wire(machine) as first:
            first.open()
            first.tool("memory_sync", {}, timeout_s=300)
            with Wire(machine) as second:
                second.open()
                second.tool("memory_status", {})
                wait_until("one that watches", lambda: is_watching(first.process.pid))
                time.sleep(SETTLE_S)
                pids = {"watching": first.process.pid, "waiting": second.process.pid}
                before = {name: cpu_s(pid) for name, pid in pids.items()}
                time.sleep(seconds)
                return {name: (cpu_s(pid) - before[name]) / seconds for name, pid in pids.items()}
    finally:
        machine.stop_local_daemon()


def main(arguments: Sequence[str] = ()) -> int:
    """Print the shares; 1 if the budget is not met."""
    parser = argparse.ArgumentParser(prog="python -m bench.idle_watcher", description="CPU time of an idle session.")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--files", type=int, default=1000)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="confide-bench-") as folder:
        shares = measure(Path(folder), options.files, options.seconds)
    for name, share in shares.items():
        print(f"a session that is {name}, {options.files:,} files: {share:.3%} of a core over {options.seconds:.0f} s")
    print(f"  must be <= {MAX_SHARE:.1%} for the one that watches")
    return 0 if shares["watching"] <= MAX_SHARE else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
