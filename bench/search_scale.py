"""How fast `Space.search` is at 10,000 pieces, warm, no question asked twice, and where the time goes.

    python bench/search_scale.py [--pieces 10000] [--questions 200] [--json OUT]

The text is real (the documentation in this Python's standard library); questions are sentences of it, shortened and spread over it.
Questions are embedded by the real model; the pieces' vectors are hashed words instead, because embedding 10,000 pieces takes minutes
and their content does not change what a scan costs. The reference is FTS5 alone: the same questions as a plain OR on the same rows.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import json
import os
import random
import re
import statistics
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from confide_daemon.embed import EmbedderHandle
from confide_daemon.embed.hashed import HashedEmbedder
from confide_daemon.embed.local import load_minilm
from confide_daemon.space import IndexSettings, SearchQuery, Space
from confide_daemon.store.connection import connect
from confide_daemon.words import keyword_query

SEED = 7


class QuestionsOnly:
    """Questions by the real model, pieces by hashed words of the same dimensions."""

    def __init__(self) -> None:
        self._model = load_minilm()
        self._hashed = HashedEmbedder(self._model.dimensions)
        self.id, self.model, self.dimensions = "bench", "questions-only", self._model.dimensions
        self.limits = self._model.limits

    def embed_query(self, text: str) -> Any:
        return self._model.embed_query(text)

    def embed_documents(self, texts: list[str]) -> Any:
        return self._hashed.embed_documents(texts)


def documentation() -> Iterator[tuple[str, str]]:
    """(module, markdown) of the standard library's docstrings, in a fixed order."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    for path in sorted(folder.rglob("*.py")):
        if "site-packages" in path.parts or "test" in path.parts:
            continue
        try:
            tree = ast.parse(path.read_text(encoding="utf-8"))
        except (SyntaxError, UnicodeDecodeError):
            continue
        sections = []
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and (text := ast.get_docstring(node)):
                sections.append(f"## {getattr(node, 'name', path.stem)}\n\n{text}\n")
        if sections:
            yield str(path.relative_to(folder).with_suffix("")), "\n".join(sections)


def questions(texts: list[str], count: int) -> list[str]:
    """Sentences of the text cut to five to twelve words."""
    chance = random.Random(SEED)
    sentences = [s for text in texts for s in re.split(r"(?<=[.])\s+", text) if 6 <= len(s.split()) <= 40]
    return [" ".join(s.split()[: chance.randint(5, 12)]) for s in chance.sample(sentences, count)]


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


async def measure(pieces: int, count: int) -> dict[str, Any]:
    key = os.urandom(32)
    with tempfile.TemporaryDirectory(prefix="confide-scale-") as folder:
        path = Path(folder) / "space.db"
        space = await Space.open(
            path, key, space_id="bench", settings=IndexSettings(), embedder=EmbedderHandle.ready(QuestionsOnly())
        )
        texts: list[str] = []
        chunks = 0
        started = time.perf_counter()
        for module, text in documentation():
            await space.put("bench", f"memory/{module}.md", text, base=0, author="bench")
            texts.append(text)
            chunks = (await space.status(None)).chunks
            if chunks >= pieces:
                break
        stored_s = time.perf_counter() - started
        await space.wait_indexed(timeout_s=3600)
        indexed_s = time.perf_counter() - started
        asked = questions(texts, count + 20)
        for text in asked[:20]:
            await space.search(SearchQuery(text))
        steps: dict[str, list[float]] = {}
        filtered: list[float] = []
        found = 0
        for text in asked[20:]:
            result = await space.search(SearchQuery(text))
            found += bool(result.hits)
            for step, milliseconds in result.timings.items():
                steps.setdefault(step, []).append(milliseconds)
        for text in asked[20:]:
            result = await space.search(SearchQuery(text, path="memory/asyncio"))
            filtered.append(result.timings["total"])
        size = (await space.status(None)).size_bytes
        await space.close()
        reference = plain_keywords(path, key, asked)
    total = steps.pop("total")
    return {
        "pieces": chunks,
        "questions": count,
        "answered": found,
        "p50_ms": round(statistics.median(total), 2),
        "p95_ms": round(percentile(total, 0.95), 2),
        "steps_p50_ms": {step: round(statistics.median(values), 2) for step, values in steps.items()},
        "filtered_p50_ms": round(statistics.median(filtered), 2),
        "keywords_alone_p50_ms": round(reference, 2),
        "stored_s": round(stored_s, 1),
        "indexed_s": round(indexed_s, 1),
        "size_mib": round(size / 2**20, 1),
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
    }


def plain_keywords(path: Path, key: bytes, asked: list[str]) -> float:
    """The median milliseconds of FTS5 alone."""
    connection = connect(path, key, writer=False)
    times = []
    for text in asked:
        started = time.perf_counter()
        sql = "SELECT rowid, bm25(keyword) FROM keyword WHERE keyword MATCH ? ORDER BY rank LIMIT 10"
        connection.execute(sql, (keyword_query(text),)).fetchall()
        times.append((time.perf_counter() - started) * 1e3)
    connection.close()
    return statistics.median(times[20:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pieces", type=int, default=10_000)
    parser.add_argument("--questions", type=int, default=200)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    figures = asyncio.run(measure(arguments.pieces, arguments.questions))
    print(json.dumps(figures, indent=1))
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
