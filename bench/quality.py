"""How well `Space.search` finds what it should, by the harness in /work/shared/eval (or CONFIDE_EVAL), without MCP in between.

    python bench/quality.py [--data locomo_dev devmembench_dev] [--model local|hashed|none] [--size 64 --overlap 0] [--set neighbours=0.5]

LoCoMo is CC BY-NC 4.0: it is read where it lies and never copied. Figures repeat exactly; times do not.
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
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from confide_daemon.chunks import ChunkSettings
from confide_daemon.embed import EmbedderHandle
from confide_daemon.embed.hashed import HashedEmbedder
from confide_daemon.embed.local import load_minilm
from confide_daemon.search import Weights
from confide_daemon.space import IndexSettings, SearchQuery, Space

EVAL = Path(os.environ.get("CONFIDE_EVAL", "/work/shared/eval"))
SETS = ("locomo_dev", "devmembench_dev", "devbench_dev", "longmem_mini_dev")


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

    def __init__(self, hit: Any, handle: EmbedderHandle, settings: IndexSettings, min_score: float) -> None:
        self._hit, self._handle, self._settings, self._min_score = hit, handle, settings, min_score
        self._folder = tempfile.TemporaryDirectory(prefix="confide-quality-")
        self._loop = asyncio.new_event_loop()

    def index(self, space: dict[str, Any], view: str) -> None:
        assert view == "files"
        self._loop.run_until_complete(self._index(space))

    async def _index(self, space: dict[str, Any]) -> None:
        path = Path(self._folder.name) / "space.db"
        self._space = await Space.open(
            path, os.urandom(32), space_id="bench", settings=self._settings, embedder=self._handle
        )
        for file in space["files"]:
            await self._space.put("bench", file["path"], file["text"], base=0, author="bench")
        if self._handle.state == "ready":
            assert await self._space.wait_indexed(timeout_s=3600)

    def search(self, text: str, k: int) -> list[Any]:
        query = SearchQuery(text, max_results=k, min_score=self._min_score)
        result = self._loop.run_until_complete(self._space.search(query))
        return [self._hit(hit.path, hit.start_line, hit.end_line, hit.score, hit.snippet) for hit in result.hits]

    def close(self) -> None:
        self._loop.run_until_complete(self._space.close())
        self._loop.close()
        self._folder.cleanup()


def answered(system: Any, bundle: dict[str, Any], threshold: float) -> dict[str, float]:
    """What a threshold does: right first hits lost, answerable questions left empty, unanswerable ones left empty."""
    right = lost = empty = answerable = silent = unanswerable = 0
    for space in bundle["spaces"]:
        one = system()
        one.index(space, "files")
        for query in space["queries"]:
            hits = one.search(query["text"], 8)
            kept = [hit for hit in hits if hit.score >= threshold]
            if not query["gold"]:
                unanswerable += 1
                silent += not kept
                continue
            answerable += 1
            empty += not kept
            gold = [space["units"][unit] for unit in query["gold"]]
            if hits and any(hits[0].path == p and hits[0].first <= b and a <= hits[0].last for p, a, b in gold):
                right += 1
                lost += hits[0].score < threshold
        one.close()
    share = lambda part, whole: round(100 * part / whole, 1) if whole else float("nan")  # noqa: E731
    return {
        "right first hits lost": share(lost, right),
        "answerable left empty": share(empty, answerable),
        "unanswerable answered with nothing": share(silent, unanswerable),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", default=["locomo_dev", "devmembench_dev"])
    parser.add_argument("--model", choices=["local", "hashed", "none"], default="local")
    parser.add_argument("--size", type=int, nargs="+", default=[ChunkSettings().size])
    parser.add_argument("--overlap", type=int, default=0)
    parser.add_argument("--set", nargs="*", default=[], help="weights to change, such as neighbours=0.5")
    parser.add_argument("--threshold", type=float, help="also show what this min_score does")
    parser.add_argument("--json", type=Path, help="write the figures there")
    arguments = parser.parse_args()
    module = harness()
    changes = {name: json.loads(value) for name, value in (entry.split("=", 1) for entry in arguments.set)}
    if arguments.model == "none":
        handle = EmbedderHandle.none()
    else:
        inner = HashedEmbedder() if arguments.model == "hashed" else load_minilm()
        handle = EmbedderHandle.ready(RememberingEmbedder(inner))
    figures = {}
    for name in arguments.data:
        bundle = module.load(EVAL / f"{name}.json.gz")
        print(f"\n## {name}\n{'':34s} " + " ".join(f"{column:>6s}"[:9] for column in module.COLS))
        for size in arguments.size:
            settings = IndexSettings(ChunkSettings(size, arguments.overlap), Weights(**changes))
            started = time.perf_counter()
            result = module.run(lambda s=settings: SpaceSystem(module.Hit, handle, s, 0.0), bundle, "files")
            label = f"{arguments.model} {size}/{arguments.overlap} {' '.join(arguments.set)}"
            print(module.line(label[:34], result), f"auc {result['auc_abstain'] or 0:.3f}", end="  ")
            print(f"{time.perf_counter() - started:.0f} s", flush=True)
            figures[f"{name} {label}"] = {key: value for key, value in result.items() if not key.startswith("_")}
            if arguments.threshold is not None:
                system = lambda s=settings: SpaceSystem(module.Hit, handle, s, 0.0)  # noqa: E731
                print(f"{'':34s} at {arguments.threshold}: {answered(system, bundle, arguments.threshold)}", flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
