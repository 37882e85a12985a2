"""A database gets a new key while it is searched: how long that takes, and what the searches wait, against a quiet space in the same run.

    python -m bench.rekey [--pieces 10000] [--rounds 5] [--json]

A space is asked without a pause, first in peace, then while its key is changed, round after round. Times are whole searches, the
embedding of the question included, which costs next to nothing here. Seconds of a change are medians.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.hybrid import filled, percentile
from bench.spaces import PerturbedEmbedder
from bench.texts import documentation, questions
from confide_daemon.retrieval.search.query import SearchQuery
from confide_daemon.spaces.space import Space
from confide_daemon.store.database import KEY_BYTES

WARM_UP = 20
QUIET = 200


async def ask(space: Space, asked: Iterator[str], until: Callable[[int], bool]) -> list[float]:
    """Milliseconds of searches, one after the other."""
    times: list[float] = []
    while not until(len(times)):
        started = time.perf_counter()
        await space.index.searcher.search(SearchQuery(next(asked)))
        times.append((time.perf_counter() - started) * 1e3)
    return times


async def measure(pieces: int, rounds: int) -> dict[str, Any]:
    asked = itertools.cycle(questions([text for _, text in documentation(packages=True)], 2000))
    with tempfile.TemporaryDirectory(prefix="confide-rekey-") as name:
        path = Path(name) / "space.db"
        space, _ = await filled(path, pieces, PerturbedEmbedder())
        try:
            await ask(space, asked, lambda count: count == WARM_UP)
            quiet = await ask(space, asked, lambda count: count == QUIET)
            took, during = [], []
            for _ in range(rounds):
                started = time.perf_counter()
                changing = asyncio.create_task(space.rekey(os.urandom(KEY_BYTES)))
                during += await ask(space, asked, lambda _count, changing=changing: changing.done())  # type: ignore[misc]
                await changing
                took.append(time.perf_counter() - started)
            size = path.stat().st_size
        finally:
            await space.close()
    figures = {"quiet": quiet, "during": during}
    shown = {
        what: {
            "searches": len(times),
            "p50": round(statistics.median(times), 2),
            "p95": round(percentile(times, 0.95), 2),
        }
        for what, times in figures.items()
    }
    return {
        "bytes": size,
        "seconds": round(statistics.median(took), 3),
        **shown,
        "longest": {what: round(max(times), 1) for what, times in figures.items()},
        "ratio": round(shown["during"]["p95"] / shown["quiet"]["p95"], 2),
    }


def main(arguments: Sequence[str] = ()) -> None:
    """Print how long a change takes, and the searches during it beside quiet ones."""
    parser = argparse.ArgumentParser(prog="python -m bench.rekey", description="What a change of the key costs.")
    parser.add_argument("--pieces", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(arguments)
    found = asyncio.run(measure(options.pieces, options.rounds))
    if options.json:
        print(json.dumps(found))
        return
    print(f"a new key for {found['bytes'] / 1e6:.0f} MB while it is searched: {found['seconds']} s")
    for what in ("quiet", "during"):
        row = found[what]
        print(
            f"  searches {what:<6} p50 {row['p50']} ms, p95 {row['p95']} ms, longest {found['longest'][what]} ms ({row['searches']})"
        )
    print(f"  p95 during is {found['ratio']}x the quiet one")


if __name__ == "__main__":
    main(sys.argv[1:])
