"""What metrics cost a search: the same questions with figures noted and without, in turn, in one space and one run; and what they take.

python -m bench.metrics [--pieces N] [--searches N]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tests.support.daemon.loopback import machine, serving

from confide_daemon import figures
from confide_daemon.config import DaemonConfig
from confide_daemon.spaces import models

WORDS = [f"word{number}" for number in range(2000)]


@contextlib.contextmanager
def unnoted() -> Iterator[None]:
    """As if there were no figures."""
    nothing: Any = _Nothing()
    with contextlib.ExitStack() as stack:
        stack.enter_context(patch.object(figures, "searched", lambda _timings: None))
        stack.enter_context(patch.object(figures.WRITE_WAIT, "observe", nothing.observe))
        for one in (figures.TOOL_DURATION, figures.EMBEDDING_TOKENS):
            stack.enter_context(patch.object(one, "labels", lambda *_labels: nothing))
        yield


class _Nothing:
    def observe(self, _value: float) -> None:
        """Nothing."""

    inc = observe


async def measure(pieces: int, searches: int) -> None:
    drawn = random.Random(7)
    handle = models.start(DaemonConfig().embedding)
    with tempfile.TemporaryDirectory() as folder:
        async with serving(Path(folder) / "data", embedder=handle) as daemon, machine(daemon) as laptop:
            await laptop.attach()
            for number in range(pieces // 10):
                lines = [f"## {drawn.choice(WORDS)}\n\n{' '.join(drawn.choices(WORDS, k=30))}" for _ in range(10)]
                await laptop.put(f"memory/{number}.md", "\n\n".join(lines) + "\n")
            space = await daemon.daemon.spaces.get(next(iter(daemon.state.registry.spaces().values())))
            await space.wait_indexed(timeout_s=1800)
            async with laptop.mcp() as agent:
                noted, plain, scraped = [], [], []
                for number in range(searches):
                    for took, is_noted in (
                        ((noted, True), (plain, False)) if number % 2 else ((plain, False), (noted, True))
                    ):
                        with contextlib.nullcontext() if is_noted else unnoted():
                            took.append(await _search(agent, drawn))
                for _ in range(50):
                    started = time.perf_counter()
                    text = await daemon.daemon.operator.metrics.text()
                    scraped.append(time.perf_counter() - started)
    series = sum(not line.startswith("#") for line in text.splitlines())
    print(f"{pieces:,} pieces, {searches:,} searches of each kind, in turn")
    for name, took in (("noted", noted), ("not noted", plain)):
        print(f"  {name:<10} p50 {_ms(took, 0.5):6.2f} ms   p95 {_ms(took, 0.95):6.2f} ms")
    print(f"  ratio of the p50: {_ms(noted, 0.5) / _ms(plain, 0.5):.3f}")
    print(f"one scrape: {1e3 * statistics.median(scraped):.2f} ms, {series} series, {len(text) / 1024:.1f} KiB")
    print(f"prometheus_client behind the daemon's other modules: {_import()}")


async def _search(agent: Any, drawn: random.Random) -> float:
    query = " ".join(drawn.choices(WORDS, k=3))
    started = time.perf_counter()
    await agent.call_tool("memory_search", {"query": query, "minScore": 0})
    return time.perf_counter() - started


def _ms(took: list[float], share: float) -> float:
    return 1e3 * sorted(took)[int(len(took) * share)]


def _import() -> str:
    """In processes of their own, behind what a daemon has loaded without it."""
    script = (
        "import asyncio, http.client, ssl, time, httpx2, mcp.server.lowlevel.server, pydantic, sys\n"
        "assert 'prometheus_client' not in sys.modules\n"
        "def rss(): return next(int(line.split()[1]) for line in open('/proc/self/status') if line.startswith('VmRSS'))\n"
        "before, began = rss(), time.process_time(); import prometheus_client\n"
        "print((time.process_time() - began) * 1e3, rss() - before)"
    )
    rounds = []
    for _ in range(7):
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        rounds.append([float(word) for word in done.stdout.split()])
    ms, kib = (statistics.median(column) for column in zip(*rounds, strict=True))
    return f"{ms:.1f} ms of CPU, {kib / 1024:.1f} MiB"


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pieces", type=int, default=3000)
    parser.add_argument("--searches", type=int, default=600)
    options = parser.parse_args()
    asyncio.run(measure(options.pieces, options.searches))


if __name__ == "__main__":
    main()
