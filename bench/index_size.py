"""How large the database of six months of daily logs is: 182 files with 305 kB of real text, embedded at 384 dimensions.

    python -m bench.index_size [--days 182] [--kilobytes 305] [--beside] [--json]

The logs are made of sentences of documentation, the same amount each day. Each log grows as logs do, by entries that are appended, so
the history holds its revisions too. A sentence is an item of a list, and so a chunk of its own: such a log has as many chunks as one
can. Vectors are hashed words, which take as much room as any. The size is that of the database file when it is closed, its parts as
SQLite's `dbstat` counts them. With `--beside` the same is shown, without a limit, for ten times the text, once cut as now and once as
the original plan cut it (400 tokens, 80 of them twice).
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import re
import sys
import tempfile
from collections.abc import Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import Any

from bench.texts import documentation
from confide_daemon.config import ChunkSettings
from confide_daemon.embedding import LoadedModel
from confide_daemon.embedding.providers.hashed import HashedEmbedder
from confide_daemon.spaces.models import IndexSettings
from confide_daemon.spaces.space import Space, SpaceShared
from confide_daemon.store.database import connect

MOST_MB = 10.0
DIMENSIONS = 384
FIRST_DAY = date(2026, 1, 1)
ENTRIES = 4  # appended one after the other, each a revision
INDEX_DEADLINE_S = 300.0
KEY = bytes(range(32))
ORIGINAL = ChunkSettings(400, 80)
# What each table and index belongs to; the first match counts.
PARTS = (
    ("vectors", r"vector_\d+"),
    ("keyword index", r"keyword"),
    ("pieces", r"chunk|sqlite_autoindex_chunk"),
    ("documents and their revisions", r"document|revision|sqlite_autoindex_(document|revision)|project"),
    ("cache of vectors", r"vector_cache|sqlite_autoindex_vector_cache"),
)


def logs(days: int, kilobytes: int) -> list[tuple[str, list[str]]]:
    """(path, entries) of each day, about as many as make up the text."""
    sentences = [" ".join(s.split()) for _, text in documentation() for s in re.split(r"(?<=[.])\s+", text)]
    lines = itertools.cycle(f"- {s}" for s in sentences if 30 <= len(s) <= 400)
    made, done = [], 0
    for day in range(days):
        held: list[str] = [f"# {FIRST_DAY + timedelta(day)}", ""]
        while done < kilobytes * 1000 * (day + 1) / days:
            held.append(next(lines))
            done += len(held[-1].encode()) + 1
        step = max(1, len(held) // ENTRIES)
        entries = ["\n".join(held[start : start + step]) + "\n" for start in range(0, len(held), step)]
        made.append((f"memory/{FIRST_DAY + timedelta(day)}.md", entries))
    return made


async def size(written: list[tuple[str, list[str]]], settings: ChunkSettings) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="confide-size-") as folder:
        path = Path(folder) / "space.db"
        embedder = LoadedModel.ready(HashedEmbedder(DIMENSIONS))
        space = await Space.open(path, KEY, SpaceShared(IndexSettings(chunks=settings), embedder), space_id="bench")
        for name, entries in written:
            text, base = "", 0
            for entry in entries:
                text += entry
                base = (await space.documents.put("bench", name, text, base=base, author="bench")).revision
            await space.wait_indexed(timeout_s=INDEX_DEADLINE_S)
        chunks = (await space.status(None)).chunks
        await space.close()
        connection = connect(path, KEY, writer=False)
        rows = connection.execute("SELECT name, sum(pgsize) FROM dbstat GROUP BY name").fetchall()
        free = connection.execute("PRAGMA freelist_count").fetchall()[0][0] * 4096
        connection.close()
        total = sum(file.stat().st_size for file in path.parent.iterdir())
    parts: dict[str, float] = {}
    for name, pages in rows:
        part = next((part for part, names in reversed(PARTS) if re.match(names, str(name))), "other")
        parts[part] = parts.get(part, 0.0) + pages / 1e6
    parts["free pages"] = free / 1e6
    text_mb = sum(len(entry.encode()) for _, entries in written for entry in entries) / 1e6
    return {
        "chunks": chunks,
        "files": len(written),
        "text_mb": round(text_mb, 2),
        "size_mb": round(total / 1e6, 2),
        "parts_mb": {part: round(mb, 2) for part, mb in sorted(parts.items(), key=lambda item: -item[1])},
    }


def main(arguments: Sequence[str] = ()) -> int:
    """Print the numbers; 1 if the size is over the limit."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.index_size", description="The size of six months of daily logs."
    )
    parser.add_argument("--days", type=int, default=182)
    parser.add_argument("--kilobytes", type=int, default=305)
    parser.add_argument(
        "--beside", action="store_true", help="also ten times the text, and as the original plan cut it"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(arguments)
    now = ChunkSettings()
    ours = asyncio.run(size(logs(options.days, options.kilobytes), now))
    beside: dict[str, dict[str, Any]] = {}
    if options.beside:
        larger = logs(options.days, 10 * options.kilobytes)
        beside["ten times the text, cut as now"] = asyncio.run(size(larger, now))
        beside["the same, cut into 400/80"] = asyncio.run(size(larger, ORIGINAL))
    well = ours["size_mb"] <= MOST_MB
    if options.json:
        print(json.dumps({**ours, "must_mb": MOST_MB, "ok": well, "beside": beside}))
        return 0 if well else 1
    print(f"{ours['files']} logs, {ours['chunks']:,} chunks: {ours['size_mb']} MB (must be <= {MOST_MB:.0f})")
    for name, result in {"": ours, **beside}.items():
        if name:
            print(f"{name}: {result['text_mb']} MB of text, {result['chunks']:,} chunks, {result['size_mb']} MB")
        for part, mb in result["parts_mb"].items():
            print(f"   {part:<30} {mb:6.2f} MB")
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
