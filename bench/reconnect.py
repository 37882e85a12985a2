"""A link that comes back: how long until 10,000 unchanged files are known to be the same at both ends, and what it costs on the wire.

    python -m bench.reconnect [--files 10000] [--rounds 5]

A real daemon, a real `confide sync --watch`, and a relay between them that is cut and restored; it counts the bytes of both directions.
The time is from the link being up to the end of the comparison; then one file is changed while the cable is out.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.support.network.relay import RecordingRelay
from tests.support.programs.pair import joined
from tests.support.programs.processes import Machine, running_daemon
from tests.support.programs.watch import Watching, watching

MAX_S = 2.0
MAX_BYTES = 1_000_000
LOAD_DEADLINE_S = 600.0


def fill(machine: Machine, files: int) -> None:
    """Notes of a few lines, a hundred in a folder."""
    for number in range(files):
        text = f"# Note {number}\n\nNumber {number} of the {number % 97} herons fishes at dawn, by the bridge.\n"
        machine.write(f"memory/{number // 100:03}/{number}.md", text)


def reconnect(relay: RecordingRelay, watch: Watching, project: str) -> tuple[float, int]:
    """Seconds and bytes of one break."""
    relay.cut()
    watch.until("down")
    before = len(relay.captured)
    relay.mend()
    watch.until("up", timeout_s=60)
    started = time.perf_counter()
    watch.until("compared", timeout_s=60, project=project)
    return time.perf_counter() - started, len(relay.captured) - before


def measure(root: Path, files: int, rounds: int) -> dict[str, float]:
    with running_daemon(root, has_model=True) as daemon, RecordingRelay(daemon.port) as relay:
        (machine,) = joined(root, daemon, "laptop", port=relay.port)
        fill(machine, files)
        with watching(machine) as watch:
            started = time.perf_counter()
            watch.until("compared", timeout_s=LOAD_DEADLINE_S, project="shared")
            loaded_s = time.perf_counter() - started
            unchanged = [reconnect(relay, watch, "shared") for _ in range(rounds)]
            relay.cut()
            machine.write("memory/000/0.md", "# Note 0\n\nChanged while the cable was out.\n")
            changed = reconnect(relay, watch, "shared")
    return {
        "load_s": loaded_s,
        "unchanged_s": statistics.median(seconds for seconds, _ in unchanged),
        "unchanged_worst_s": max(seconds for seconds, _ in unchanged),
        "unchanged_bytes": max(count for _, count in unchanged),
        "changed_s": changed[0],
        "changed_bytes": changed[1],
    }


def main(arguments: Sequence[str] = ()) -> int:
    """Print the figures; 1 if the budget is not met."""
    parser = argparse.ArgumentParser(prog="python -m bench.reconnect", description="What a reconnection costs.")
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="confide-bench-") as folder:
        told = measure(Path(folder), options.files, options.rounds)
    print(
        f"first load of {options.files:,} files: {told['load_s']:.1f} s ({options.files / told['load_s']:.0f} files/s)"
    )
    print(
        f"reconnected, all unchanged: {told['unchanged_s']:.2f} s, worst {told['unchanged_worst_s']:.2f} s,"
        f" {told['unchanged_bytes'] / 1e3:.0f} kB on the wire"
    )
    print(f"reconnected, one file changed: {told['changed_s']:.2f} s, {told['changed_bytes'] / 1e3:.0f} kB")
    print(f"  must be <= {MAX_S:.0f} s and <= {MAX_BYTES / 1e6:.0f} MB")
    is_met = max(told["unchanged_worst_s"], told["changed_s"]) <= MAX_S
    return 0 if is_met and max(told["unchanged_bytes"], told["changed_bytes"]) <= MAX_BYTES else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
