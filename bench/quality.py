"""How well `Space.search` finds what it should, by the harness in the folder that CONFIDE_EVAL names, without MCP in between.

    python -m bench.quality [--data locomo_dev devmembench_dev] [--model local|hashed|none] [--view files|records]
                            [--chunks 48/0] [--set vector=0.4] [--threshold 0.25]

`records` is one note a turn, each a document of its own. LoCoMo is CC BY-NC 4.0: it is read where it lies and never copied. Vectors are
kept in the folder for temporary files, so that only the first run asks the model. Figures repeat exactly; times do not.
`python -m bench.evaluation` measures the same through the product's own tool.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import importlib.util
import json
import os
import sqlite3
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from confide_daemon.config import ChunkSettings
from confide_daemon.embedding import LoadedModel
from confide_daemon.embedding.local.minilm import load_minilm
from confide_daemon.embedding.providers.hashed import HashedEmbedder
from confide_daemon.retrieval.search.query import SearchQuery
from confide_daemon.retrieval.search.ranking import ORIGINAL, Weights
from confide_daemon.retrieval.search.results import SearchHit
from confide_daemon.spaces.models import IndexSettings
from confide_daemon.spaces.space import Space, SpaceShared

EVAL = Path(os.environ.get("CONFIDE_EVAL", "eval"))
"""Where the data sets and their harness lie; `eval` below the current folder unless CONFIDE_EVAL names another place."""


def harness() -> ModuleType:
    """The harness as a module; it lies outside of the repository."""
    spec = importlib.util.spec_from_file_location("eval_retrieval", EVAL / "eval_retrieval.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.dont_write_bytecode = True
    spec.loader.exec_module(module)
    return module


class RememberingEmbedder:
    """The real model, asked once for each text on this machine: repeated runs cost no model time."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.id, self.model, self.dimensions, self.limits = inner.id, inner.model, inner.dimensions, inner.limits
        self.leaves_blanks = getattr(inner, "leaves_blanks", False)
        self._file = sqlite3.connect(Path(tempfile.gettempdir()) / "confide-quality.db", check_same_thread=False)
        self._file.execute("CREATE TABLE IF NOT EXISTS known (name BLOB PRIMARY KEY, vector BLOB NOT NULL)")
        self._lock = threading.Lock()

    def embed_query(self, text: str) -> Any:
        return self._all([text], lambda texts: [self._inner.embed_query(text) for text in texts], kind="query")[0]

    def embed_documents(self, texts: list[str]) -> Any:
        return self._all(texts, self._inner.embed_documents, kind="document")

    def _all(self, texts: list[str], embed: Callable[[list[str]], Any], *, kind: str) -> Any:
        with self._lock:
            known = {text: self._known(text, kind) for text in dict.fromkeys(texts)}
            new = [text for text, vector in known.items() if vector is None]
            if new:
                for text, vector in zip(new, embed(new), strict=True):
                    known[text] = np.asarray(vector, dtype=np.float32)
                    values = (self._name(text, kind), known[text].tobytes())
                    self._file.execute("INSERT OR REPLACE INTO known VALUES (?, ?)", values)
                self._file.commit()
        return np.stack([known[text] for text in texts])

    def _known(self, text: str, kind: str) -> Any:
        sql = "SELECT vector FROM known WHERE name = ?"
        row = self._file.execute(sql, (self._name(text, kind),)).fetchone()
        return None if row is None else np.frombuffer(row[0], dtype=np.float32)

    def _name(self, text: str, kind: str) -> bytes:
        return hashlib.blake2b(f"{self.id}/{self.model}\0{kind}\0{text}".encode(), digest_size=16).digest()


class SpaceSystem:
    """A space as the harness drives it: `index` and `search`."""

    def __init__(self, module: ModuleType, handle: LoadedModel, settings: IndexSettings) -> None:
        self._module, self._handle, self._settings = module, handle, settings
        self._folder = tempfile.TemporaryDirectory(prefix="confide-quality-")
        self._loop = asyncio.new_event_loop()
        self._records: dict[str, dict[str, Any]] = {}

    def index(self, space: dict[str, Any], view: str) -> None:
        files = [(file["path"], file["text"]) for file in space["files"]]
        if view == "records":
            records = self._module.records_of(space)
            self._records = {f"memory/notes/{number:05}.md": record for number, record in enumerate(records)}
            files = [(path, record["text"]) for path, record in self._records.items()]
        self._loop.run_until_complete(self._index(files))

    async def _index(self, files: list[tuple[str, str]]) -> None:
        path, key = Path(self._folder.name) / "space.db", os.urandom(32)
        self._space = await Space.open(path, key, SpaceShared(self._settings, self._handle), space_id="bench")
        for name, text in files:
            await self._space.documents.put("bench", name, text, base=0, author="bench")
        if self._handle.state == "ready":
            assert await self._space.wait_indexed(timeout_s=3600)

    def search(self, text: str, k: int) -> list[Any]:
        result = self._loop.run_until_complete(
            self._space.index.searcher.search(SearchQuery(text, max_results=k, min_score=0.0))
        )
        return [self._hit(hit) for hit in result.hits]

    def _hit(self, hit: SearchHit) -> Any:
        record = self._records.get(hit.path)
        if record is None:
            return self._module.Hit(hit.path, hit.start_line, hit.end_line, hit.score, hit.snippet)
        place = (record["path"], record["first"], record["last"])
        return self._module.Hit(*place, hit.score, hit.snippet, [record["unit"]])

    def close(self) -> None:
        self._loop.run_until_complete(self._space.close())
        self._loop.close()
        self._folder.cleanup()


class Thresholds:
    """What a threshold would do to the answers that go by: right first hits lost, and questions left empty."""

    def __init__(self, threshold: float) -> None:
        self._threshold = threshold
        self._right = self._lost = self._empty = self._answerable = self._silent = self._unanswerable = 0

    def watching(self, system: Any) -> Any:
        """The system, with its answers counted."""
        index, search = system.index, system.search

        def indexed(space: dict[str, Any], view: str) -> None:
            self._units = space["units"]
            self._queries = {query["text"]: query for query in space["queries"]}
            index(space, view)

        def searched(text: str, k: int) -> list[Any]:
            hits: list[Any] = search(text, k)
            self._count(self._queries[text], hits)
            return hits

        system.index, system.search = indexed, searched
        return system

    def _count(self, query: dict[str, Any], hits: list[Any]) -> None:
        is_empty = not any(hit.score >= self._threshold for hit in hits)
        if not query["gold"]:
            self._unanswerable += 1
            self._silent += is_empty
            return
        self._answerable += 1
        self._empty += is_empty
        gold = [self._units[unit] for unit in query["gold"]]
        if hits and any(hits[0].path == p and hits[0].first <= b and a <= hits[0].last for p, a, b in gold):
            self._right += 1
            self._lost += hits[0].score < self._threshold

    @property
    def shares(self) -> dict[str, float | None]:
        """In percent; None where there was nothing to count."""

        def share(part: int, whole: int) -> float | None:
            return round(100 * part / whole, 1) if whole else None

        return {
            "right first hits lost": share(self._lost, self._right),
            "answerable left empty": share(self._empty, self._answerable),
            "unanswerable answered with nothing": share(self._silent, self._unanswerable),
        }


def embedder(model: str) -> LoadedModel:
    """The model of that name, its vectors remembered."""
    if model == "none":
        return LoadedModel.none()
    return LoadedModel.ready(RememberingEmbedder(HashedEmbedder() if model == "hashed" else load_minilm()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", default=["locomo_dev", "devmembench_dev"])
    parser.add_argument("--model", choices=["local", "hashed", "none"], default="local")
    parser.add_argument("--view", choices=["files", "records"], default="files")
    parser.add_argument("--chunks", nargs="+", default=["small"])
    parser.add_argument("--set", nargs="*", default=[], help="weights to change, such as vector=0.4")
    parser.add_argument("--original", action="store_true", help="the original plan's ranking")
    parser.add_argument("--threshold", type=float, default=0.25, help="what this min_score would do")
    parser.add_argument("--json", type=Path, help="write the figures there")
    arguments = parser.parse_args()
    module = harness()
    changes = {name: json.loads(value) for name, value in (entry.split("=", 1) for entry in arguments.set)}
    weights = replace(ORIGINAL if arguments.original else Weights(), **changes)
    handle = embedder(arguments.model)
    figures = {}
    for name in arguments.data:
        bundle = module.load(EVAL / f"{name}.json.gz")
        print(f"\n## {name}\n{'':34s} " + " ".join(f"{column:>6s}"[:9] for column in module.COLS))
        for chunks in arguments.chunks:
            settings = IndexSettings(ChunkSettings.parse(chunks), weights)
            started = time.perf_counter()
            counted = Thresholds(arguments.threshold)
            system = lambda s=settings, c=counted: c.watching(SpaceSystem(module, handle, s))  # noqa: E731
            result = module.run(system, bundle, arguments.view)
            label = f"{arguments.model} {arguments.view} {chunks} {' '.join(arguments.set)}"
            print(module.line(label[:34], result), f"auc {result['auc_abstain'] or 0:.3f}", end="  ")
            print(
                f"{time.perf_counter() - started:.0f} s\n{'':34s} at {arguments.threshold}: {counted.shares}",
                flush=True,
            )
            figures[f"{name} {label}"] = {key: value for key, value in result.items() if not key.startswith("_")}
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
