"""From the spawn of `confide mcp` to its first answers, and its memory, against the smallest server on the `mcp` SDK."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

ROUNDS = 11
BIN = Path(sys.executable).parent
DEADLINE_S = 20.0


@dataclass(frozen=True, slots=True)
class Start:
    """One start: milliseconds to the answers of `initialize` and `tools/list`, and resident MiB after `settle_s`."""

    initialize_ms: float
    tools_ms: float
    rss_mib: float


def measure(command: list[str], env: dict[str, str], cwd: Path, *, settle_s: float) -> Start:
    """Spawn a server, ask both questions as a client does, let it settle, weigh it, and close it."""
    started = time.perf_counter()
    child = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=env, cwd=cwd
    )
    assert child.stdin is not None
    assert child.stdout is not None

    def send(message: dict[str, Any]) -> None:
        assert child.stdin is not None
        child.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        child.stdin.flush()

    opening = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
    send({"id": 1, "method": "initialize", "params": opening})
    assert json.loads(child.stdout.readline())["id"] == 1
    initialized = time.perf_counter()
    send({"method": "notifications/initialized"})
    send({"id": 2, "method": "tools/list"})
    assert json.loads(child.stdout.readline())["id"] == 2
    listed = time.perf_counter()
    time.sleep(settle_s)
    rss = psutil.Process(child.pid).memory_info().rss / 2**20
    child.stdin.close()
    child.wait(DEADLINE_S)
    child.stdout.close()
    return Start((initialized - started) * 1e3, (listed - started) * 1e3, rss)


def main() -> None:
    """Print the table."""
    with tempfile.TemporaryDirectory(prefix="confide-bench-") as folder:
        root = Path(folder)
        project = root / "project"
        (project / "memory").mkdir(parents=True)
        (project / "MEMORY.md").write_text("# Bench\n\nWe measure.\n")
        base = {**os.environ, "CONFIDE_HOME": str(root / "home")}
        down = {**os.environ, "CONFIDE_HOME": str(root / "down")}
        (root / "down").mkdir()
        (root / "down" / "proxy.toml").write_text("on_demand = false\n")
        mcp = [str(BIN / "confide"), "mcp"]
        # Starts the daemon and fills the cache before anything is timed.
        subprocess.run([str(BIN / "confide"), "quickstart"], env=base, cwd=project, check=True, capture_output=True)
        measure(mcp, base, project, settle_s=2.0)
        cache = root / "home" / "proxy" / "catalogue.json"
        rows: dict[str, list[Start]] = {name: [] for name in ("reference", "daemon up", "daemon down", "no cache")}
        for _ in range(ROUNDS):
            reference = [sys.executable, "-m", "bench.reference_server"]
            rows["reference"].append(measure(reference, dict(os.environ), Path.cwd(), settle_s=0.3))
            rows["daemon up"].append(
                measure(mcp, base, project, settle_s=3.0)
            )  # until what the start needed is given back
            rows["daemon down"].append(measure(mcp, down, project, settle_s=1.0))  # at 0.1 s it is still loading
            cache.unlink(missing_ok=True)
            rows["no cache"].append(measure(mcp, base, project, settle_s=3.0))
        stop_daemon(root / "home")
    show(rows)


def stop_daemon(home: Path) -> None:
    """End the daemon that the bench started."""
    address = json.loads((home / "daemon" / "daemon.address").read_bytes())
    daemon = psutil.Process(address["pid"])
    daemon.terminate()
    daemon.wait(DEADLINE_S)


def show(rows: dict[str, list[Start]]) -> None:
    """Medians, and their ratio to the reference."""
    reference = rows["reference"]
    print(f"{'start of':14} {'initialize':>18} {'tools/list':>18} {'memory':>18}")
    for name, starts in rows.items():
        cells = []
        for field, unit in (("initialize_ms", "ms"), ("tools_ms", "ms"), ("rss_mib", "MiB")):
            value = statistics.median(getattr(start, field) for start in starts)
            ratio = value / statistics.median(getattr(start, field) for start in reference)
            cells.append(f"{value:7.1f} {unit:3} {ratio:5.2f}x")
        print(f"{name:14} " + " ".join(f"{cell:>18}" for cell in cells))


if __name__ == "__main__":
    main()
