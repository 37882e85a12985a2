"""How much slower a search is while 10,000 chunks are being indexed by the local model: its 95th percentile against that of a quiet space.

    python -m bench.search_while_indexing [--pieces 10000] [--chunks 10000] [--json]

A space of 10,000 pieces is asked at a steady pace, first in peace, then while documents of 10,000 further chunks come in and are cut,
stored and embedded by the real model as fast as this machine can, then in peace again; the quiet figures are of both quiet rounds.
Times are whole searches, the embedding of the question by the same model included; without it they are shown beside.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.hybrid import filled, percentile
from bench.spaces import PerturbedEmbedder, texts
from bench.texts import documentation, questions
from confide_daemon.embedding.embedder import BatchLimits, Vectors
from confide_daemon.retrieval.search.query import SearchQuery
from confide_daemon.spaces.space import Space

MOST_RATIO = 2.0
WARM_UP = 20
QUIET = 150  # questions in each quiet round
PAUSE_S = 0.1  # between two questions
AHEAD = 2_000  # chunks that may wait for their vectors while documents come in
DEADLINE_S = 480.0
LOOK_EVERY = 5


class Switched(PerturbedEmbedder):
    """Quick vectors for what is there before, the real model for what comes while it is measured."""

    is_real = False

    @property
    def limits(self) -> BatchLimits:
        return self._model.limits if self.is_real else super().limits

    def embed_documents(self, pieces: Sequence[str]) -> Vectors:
        return self._model.embed_documents(pieces) if self.is_real else super().embed_documents(pieces)


async def ask(space: Space, asked: Iterator[str], until: Callable[[int], bool]) -> tuple[list[float], list[float]]:
    """Milliseconds of whole searches, and of those without the embedding, at a steady pace."""
    whole, rest = [], []
    while not until(len(whole)):
        await asyncio.sleep(PAUSE_S)
        started = time.perf_counter()
        result = await space.index.searcher.search(SearchQuery(next(asked)))
        whole.append((time.perf_counter() - started) * 1e3)
        rest.append(whole[-1] - result.timings.get("embed", 0.0))
    return whole, rest


async def come_in(space: Space, documents: Iterator[tuple[str, str]], chunks: int) -> int:
    """Puts in documents of so many chunks and waits until all of them have their vectors."""
    before = count = (await space.status(None)).chunks
    for number, (name, text) in enumerate(documents, 1):
        await space.documents.put("bench", f"later/{name}", text, base=0, author="bench")
        if number % LOOK_EVERY == 0:
            status = await space.status(None)
            count = status.chunks - before
            if count >= chunks:
                break
            while status.queued_pieces > AHEAD:
                await asyncio.sleep(0.2)
                status = await space.status(None)
    await space.wait_indexed(timeout_s=DEADLINE_S)
    return count


async def measure(pieces: int, chunks: int) -> dict[str, Any]:
    asked = iter(questions([text for _, text in documentation(packages=True)], 9_000))
    with tempfile.TemporaryDirectory(prefix="confide-busy-") as folder:
        embedder = Switched()
        space, _ = await filled(Path(folder) / "space.db", pieces, embedder)
        embedder.is_real = True
        # Documents nobody has seen yet: the shuffled ones of a later turn.
        documents = ((f"again/{name}", text) for name, text in itertools.islice(texts(), 3_000, None))
        await ask(space, asked, lambda count: count >= WARM_UP)
        quiet = await ask(space, asked, lambda count: count >= QUIET)
        started = time.perf_counter()
        coming = asyncio.create_task(come_in(space, documents, chunks))
        busy = await ask(space, asked, lambda _count: coming.done())
        indexed, took = await coming, time.perf_counter() - started
        await asyncio.sleep(1.0)
        again = await ask(space, asked, lambda count: count >= QUIET)
        await space.close()
    quiet = (quiet[0] + again[0], quiet[1] + again[1])
    figures: dict[str, Any] = {"indexed": indexed, "indexed_s": round(took, 1), "searches_meanwhile": len(busy[0])}
    for which, name in enumerate(("whole", "without_embedding")):
        p95, quiet_p95 = percentile(busy[which], 0.95), percentile(quiet[which], 0.95)
        figures[name] = {
            "p50_ms": round(statistics.median(busy[which]), 2),
            "p95_ms": round(p95, 2),
            "quiet_p50_ms": round(statistics.median(quiet[which]), 2),
            "quiet_p95_ms": round(quiet_p95, 2),
            "ratio": round(p95 / quiet_p95, 2),
        }
    return figures | {"must": MOST_RATIO, "ok": figures["whole"]["ratio"] <= MOST_RATIO and indexed >= chunks}


def main(arguments: Sequence[str] = ()) -> int:
    """Print the numbers; 1 if one of them is not met."""
    parser = argparse.ArgumentParser(prog="python -m bench.search_while_indexing", description="Search while indexing.")
    parser.add_argument("--pieces", type=int, default=10_000)
    parser.add_argument("--chunks", type=int, default=10_000)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(arguments)
    load = os.getloadavg()[0]
    result = asyncio.run(measure(options.pieces, options.chunks))
    if options.json:
        print(json.dumps(result))
        return 0 if result["ok"] else 1
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, load {load:.1f} before")
    print(
        f"{result['searches_meanwhile']} searches while {result['indexed']:,} chunks were indexed in {result['indexed_s']:.0f} s"
    )
    for name in ("whole", "without_embedding"):
        row = result[name]
        must = f" (must be <= {MOST_RATIO:.0f})" if name == "whole" else ""
        print(
            f"{name.replace('_', ' '):<18} p95 {row['p95_ms']:.1f} ms, quiet {row['quiet_p95_ms']:.1f}: {row['ratio']:.2f}{must}; "
            f"p50 {row['p50_ms']:.1f}, quiet {row['quiet_p50_ms']:.1f}"
        )
    return 0 if result["ok"] else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
