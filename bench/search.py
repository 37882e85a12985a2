"""`memory_search` through `confide mcp` at 10,000 pieces embedded by the real model, warm, no question asked twice."""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

from tests.support.programs.processes import Machine
from tests.support.programs.wire import Wire

from bench.texts import documentation, questions

PIECES = 10_000
QUESTIONS = 200
WARM_UP = 20
SYNC_DEADLINE_S = 1800.0


def main() -> None:
    """Index the documentation of this Python's standard library, ask, and print the medians."""
    with tempfile.TemporaryDirectory(prefix="confide-bench-") as folder:
        machine = Machine(Path(folder), "bench", has_model=True)
        try:
            with Wire(machine) as wire:
                wire.open()
                pieces, texts = fill(machine, wire)
                times = ask(wire, questions(texts, QUESTIONS + WARM_UP))
                status = wire.tool("memory_status", {})["structuredContent"]
        finally:
            machine.stop_local_daemon()
    p50, p95 = statistics.median(times), statistics.quantiles(times, n=20)[-1]
    inside = status["searchLatencyMs"]
    print(f"memory_search through the proxy, {pieces:,} pieces: p50 {p50:.1f} ms, p95 {p95:.1f} ms (goal: p50 40 ms)")
    print(f"  in the daemon: p50 {inside['p50']:.1f} ms, p95 {inside['p95']:.1f} ms (python -m bench hybrid splits it)")
    print(f"  on the way (pipes, proxy, sealed channel, MCP): p50 {p50 - inside['p50']:.1f} ms")


def fill(machine: Machine, wire: Wire) -> tuple[int, list[str]]:
    """Write files until the index holds `PIECES`; returns how many it holds, and the texts."""
    texts: list[str] = []
    pieces = 0
    started = time.perf_counter()
    for number, (module, text) in enumerate(documentation()):
        machine.write(f"memory/{number:04}-{module.rsplit('.', 1)[-1]}.md", text)
        texts.append(text)
        if number % 40 == 39:
            wire.tool("memory_sync", {}, timeout_s=SYNC_DEADLINE_S)
            pieces = wire.tool("memory_status", {})["structuredContent"]["totalChunks"]
            if pieces >= PIECES:
                break
    took = time.perf_counter() - started
    print(f"indexed {pieces:,} pieces of {len(texts)} files in {took:.0f} s ({pieces / took:.0f} pieces/s)")
    return pieces, texts


def ask(wire: Wire, asked: list[str]) -> list[float]:
    """Milliseconds of each search but the first `WARM_UP`."""
    times = []
    for question in asked:
        started = time.perf_counter()
        wire.tool("memory_search", {"query": question})
        times.append((time.perf_counter() - started) * 1e3)
    return times[WARM_UP:]


if __name__ == "__main__":
    main()
