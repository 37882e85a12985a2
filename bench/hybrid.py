"""`memory_search` in the daemon at 10,000 and 100,000 pieces, the embedding of the question apart: its median and 95th percentile.

    python -m bench.hybrid [--pieces 10000 100000] [--questions 150] [--json]

The tool is called as the daemon calls it (`Space.search` in its threads, hits made into what goes over the wire), warm, no question
asked twice. Text and questions are real, vectors lie as real ones do (bench/spaces.py). In turn with it, on the same rows and in the same
process, FTS5 alone is asked: the same words as a plain OR, its ten best by `rank`. Searches of a part of the documents are shown beside.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import apsw

from bench.spaces import PerturbedEmbedder, texts
from bench.texts import documentation, questions
from confide_daemon.embedding import LoadedModel
from confide_daemon.retrieval.search.query import SearchQuery
from confide_daemon.spaces.models import IndexSettings
from confide_daemon.spaces.space import Space, SpaceShared
from confide_daemon.store.database import connect
from confide_daemon.tools import search as tool
from confide_memory.documents import STOP_WORDS
from confide_memory.tools.search_text import text_of

# The median, in ms, by the size of the space.
MOST_MS = {10_000: 5.0, 100_000: 15.0}
MOST_SPREAD = 3.0
WARM_UP = 20
LOOK_EVERY = 20
INDEX_DEADLINE_S = 600.0
KEY = bytes(range(32))


async def filled(path: Path, pieces: int, embedder: Any) -> tuple[Space, int]:
    """A space of at least so many pieces, with their vectors in memory."""
    space = await Space.open(path, KEY, SpaceShared(IndexSettings(), LoadedModel.ready(embedder)), space_id="bench")
    count = 0
    for number, (name, text) in enumerate(texts(), 1):
        await space.documents.put("bench", name, text, base=0, author="bench")
        if number % LOOK_EVERY == 0 and (count := (await space.status(None)).chunks) >= pieces:
            break
    if not await space.wait_indexed(timeout_s=INDEX_DEADLINE_S):
        sys.exit("bench: the pieces have no vectors")
    return space, count


def plain_or(text: str) -> str:
    words = [
        word for word in "".join(c if c.isalnum() else " " for c in text.lower()).split() if word not in STOP_WORDS
    ]
    return " OR ".join(f'"{word}"' for word in dict.fromkeys(words))


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


async def measure(pieces: int, count: int, embedder: Any) -> dict[str, Any]:
    asked = questions([text for _, text in documentation(packages=True)], count + WARM_UP)
    with tempfile.TemporaryDirectory(prefix="confide-hybrid-") as folder:
        path = Path(folder) / "space.db"
        space, present = await filled(path, pieces, embedder)
        connection = connect(path, KEY, writer=False)
        sql = "SELECT rowid, bm25(keyword) FROM keyword WHERE keyword MATCH ? ORDER BY rank LIMIT 10"
        times: dict[str, list[float]] = {"search": [], "filtered": [], "reference": []}
        steps: dict[str, list[float]] = {}
        for number, text in enumerate(asked):
            for name, query in (
                ("search", SearchQuery(text)),
                ("filtered", SearchQuery(text, path="memory/shuffled-1/1*")),
            ):
                started = time.perf_counter()
                result = await space.index.searcher.search(query)
                text_of(tool._structured_result(result), project="bench", nothing="")
                took = (time.perf_counter() - started) * 1e3 - result.timings.get("embed", 0.0)
                if number >= WARM_UP:
                    times[name].append(took)
                    for step, milliseconds in result.timings.items() if name == "search" else ():
                        steps.setdefault(step, []).append(milliseconds)
            words = plain_or(text)
            started = time.perf_counter()
            if words:
                connection.execute(sql, (words,)).fetchall()
            if number >= WARM_UP:
                times["reference"].append((time.perf_counter() - started) * 1e3)
        mode, warnings = result.mode, result.warnings
        connection.close()
        await space.close()
    p50, p95 = statistics.median(times["search"]), percentile(times["search"], 0.95)
    most = MOST_MS.get(pieces, 15.0)
    return {
        "pieces": present,
        "mode": mode,
        "warnings": warnings,
        "p50_ms": round(p50, 2),
        "p95_ms": round(p95, 2),
        "must_p50_ms": most,
        "must_spread": MOST_SPREAD,
        "filtered_p50_ms": round(statistics.median(times["filtered"]), 2),
        "reference_p50_ms": round(statistics.median(times["reference"]), 2),
        "reference_p95_ms": round(percentile(times["reference"], 0.95), 2),
        "steps_p50_ms": {step: round(statistics.median(values), 2) for step, values in steps.items()},
        "ok": p50 <= most and p95 <= MOST_SPREAD * p50 and mode == "hybrid",
    }


def main(arguments: Sequence[str] = ()) -> int:
    """Print the numbers; 1 if one of them is not met."""
    parser = argparse.ArgumentParser(prog="python -m bench.hybrid", description="memory_search, its embedding apart.")
    parser.add_argument("--pieces", type=int, nargs="+", default=list(MOST_MS))
    parser.add_argument("--questions", type=int, default=150)
    parser.add_argument("--json", action="store_true", help="print one JSON object for each size")
    options = parser.parse_args(arguments)
    embedder = PerturbedEmbedder()
    if not options.json:
        machine = f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
        print(f"SQLite {apsw.sqlite_lib_version()}; {machine}")
    well = True
    for pieces in options.pieces:
        result = asyncio.run(measure(pieces, options.questions, embedder))
        well &= result["ok"]
        if options.json:
            print(json.dumps(result), flush=True)
            continue
        spread = result["p95_ms"] / result["p50_ms"]
        print(
            f"{result['pieces']:>8,} pieces, {result['mode']}: p50 {result['p50_ms']:.2f} ms (must be <= {result['must_p50_ms']:.0f}), "
            f"p95 {result['p95_ms']:.2f} = {spread:.1f} x p50 (<= {MOST_SPREAD:.0f}); one folder p50 {result['filtered_p50_ms']:.2f}\n"
            f"         FTS5 alone, plain OR: p50 {result['reference_p50_ms']:.2f} ms, p95 {result['reference_p95_ms']:.2f}; "
            f"steps {result['steps_p50_ms']} {'; '.join(result['warnings'])}",
            flush=True,
        )
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
