"""What the encryption of a database costs: searches and indexing, against the same database unencrypted, in the same run.

    python -m bench.at_rest [--pieces 10000] [--questions 150] [--rounds 5] [--json]

Two spaces of the same documents and vectors, one as the product makes them (AEGIS-256, SQLite3 Multiple Ciphers), one whose connections
are given no key, which nothing in the product can do: the bench puts a function of its own in the place of the one that gives it. The same
questions are put to both in turn, none twice. `search` is a whole search but the embedding of the question, which is the same model's work
in both; `first` is opening a space until its first search is answered, with nothing in SQLite's caches; `storing` is documents until each
of their pieces has its vector, with vectors that cost nothing; `indexing` is the same with the packaged model, as it is for people.
Rounds alternate, and figures are medians.
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
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import apsw

from bench.hybrid import KEY, filled
from bench.spaces import PerturbedEmbedder, texts
from bench.texts import documentation, questions
from confide_daemon.embedding import LoadedModel
from confide_daemon.embedding.local.minilm import load_minilm
from confide_daemon.retrieval.search.query import SearchQuery
from confide_daemon.spaces.models import IndexSettings
from confide_daemon.spaces.space import Space, SpaceShared
from confide_daemon.store import database as connections

MOST_SEARCH, MOST_INDEXING = 1.2, 1.3
WARM_UP = 20
DEADLINE_S = 280.0
STORED = 60  # documents in a round
INDEXED = 12
PLAIN = "plain.db"
BOTH = ("encrypted", "plain")

_give_key = connections.give_key


def give_key_or_none(connection: apsw.Connection, key: bytes) -> None:
    """None to the reference, which is known by its name."""
    if Path(connection.filename).name != PLAIN:
        _give_key(connection, key)


def file_of(folder: Path, which: str) -> Path:
    return folder / (PLAIN if which == "plain" else "encrypted.db")


async def search(space: Space, question: str) -> float:
    """Milliseconds without the embedding."""
    started = time.perf_counter()
    result = await space.index.searcher.search(SearchQuery(question))
    return (time.perf_counter() - started) * 1e3 - result.timings.get("embed", 0.0)


async def searches(folder: Path, pieces: int, asked: list[str], rounds: int, embedder: Any) -> dict[str, Any]:
    """Milliseconds of searches, and of first ones."""
    spaces, size = {}, {}
    for which in BOTH:
        spaces[which], _ = await filled(file_of(folder, which), pieces, embedder)
    times: dict[str, list[float]] = {which: [] for which in BOTH}
    for number, question in enumerate(asked):
        for which in BOTH if number % 2 else reversed(BOTH):
            took = await search(spaces[which], question)
            if number >= WARM_UP:
                times[which].append(took)
    first: dict[str, list[float]] = {which: [] for which in BOTH}
    for which in BOTH:
        await spaces[which].close()
        size[which] = file_of(folder, which).stat().st_size
    if file_of(folder, "plain").read_bytes()[:15] != b"SQLite format 3":
        raise SystemExit("bench: the reference is encrypted as well")
    for turn, question in enumerate(asked[:rounds]):
        for which in BOTH if turn % 2 else reversed(BOTH):
            started = time.perf_counter()
            space = await opened(file_of(folder, which), embedder)
            await space.index.searcher.search(SearchQuery(question))
            first[which].append((time.perf_counter() - started) * 1e3)
            await space.close()
    return {"search": times, "first": first, "bytes": size}


async def opened(path: Path, embedder: Any) -> Space:
    handle = LoadedModel.ready(embedder)
    return await Space.open(path, KEY, SpaceShared(IndexSettings(), handle), space_id="bench")


async def indexing(folder: Path, count: int, rounds: int, embedder: Any) -> dict[str, list[float]]:
    """Seconds from the first document until every piece has its vector, in a new space each time."""
    documents = list(itertools.islice(texts(), count))
    times: dict[str, list[float]] = {which: [] for which in BOTH}
    for turn in range(rounds):
        for which in BOTH if turn % 2 else reversed(BOTH):
            place = folder / f"{turn}-{which}"
            place.mkdir()
            space = await opened(file_of(place, which), embedder)
            started = time.perf_counter()
            for name, text in documents:
                await space.documents.put("bench", name, text, base=0, author="bench")
            if not await space.wait_indexed(timeout_s=DEADLINE_S):
                raise SystemExit("bench: the pieces have no vectors")
            times[which].append(time.perf_counter() - started)
            await space.close()
    return times


async def measure(pieces: int, count: int, rounds: int) -> dict[str, Any]:
    asked = questions([text for _, text in documentation(packages=True)], count + WARM_UP)
    quick = PerturbedEmbedder()
    connections.give_key = give_key_or_none
    with tempfile.TemporaryDirectory(prefix="confide-at-rest-") as name:
        folder = Path(name)
        found = await searches(folder, pieces, asked, rounds, quick)
        (folder / "storing").mkdir()
        found["storing"] = await indexing(folder / "storing", STORED, rounds, quick)
        (folder / "indexing").mkdir()
        found["indexing"] = await indexing(folder / "indexing", INDEXED, rounds, load_minilm())
    sizes = found.pop("bytes")
    figures: dict[str, Any] = {"bytes": {**sizes, "ratio": round(sizes["encrypted"] / sizes["plain"], 3)}}
    for what, times in found.items():
        medians = {which: statistics.median(times[which]) for which in BOTH}
        ratio = round(medians["encrypted"] / medians["plain"], 3)
        figures[what] = {**{which: round(value, 3) for which, value in medians.items()}, "ratio": ratio}
    figures["ok"] = figures["search"]["ratio"] <= MOST_SEARCH and figures["indexing"]["ratio"] <= MOST_INDEXING
    return figures


def main(arguments: Sequence[str] = ()) -> int:
    """Print the ratios; 1 if one is over its target."""
    parser = argparse.ArgumentParser(prog="python -m bench.at_rest", description="What encryption at rest costs.")
    parser.add_argument("--pieces", type=int, default=10_000)
    parser.add_argument("--questions", type=int, default=150)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(arguments)
    load = os.getloadavg()[0]
    figures = asyncio.run(measure(options.pieces, options.questions, options.rounds))
    if options.json:
        print(json.dumps(figures))
        return 0 if figures["ok"] else 1
    print(f"{options.pieces:,} pieces, {options.questions} questions, {options.rounds} rounds, load {load:.1f} before")
    for what, unit, must in (
        ("search", "ms", f" (must be <= {MOST_SEARCH})"),
        ("first", "ms", ""),
        ("storing", "s", ""),
        ("indexing", "s", f" (must be <= {MOST_INDEXING})"),
        ("bytes", "", ""),
    ):
        row = figures[what]
        print(
            f"{what:<9} encrypted {row['encrypted']:,} {unit}, plain {row['plain']:,} {unit}: {row['ratio']:.2f}x{must}"
        )
    return 0 if figures["ok"] else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
