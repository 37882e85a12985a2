"""The vector leg by itself: codes in memory, then the vectors of the best from the encrypted database, against exact search.

    python -m bench.vector_leg [--questions 60] [--only 384 1024 million] [--json]

The vectors are of real text (bench/texts.py: 20,000 pieces of documentation, and questions on it, by the packaged model), extended by
copies that were perturbed to a cosine of 0.9. There is no local model of 1,024 dimensions: those vectors are the real ones of a piece
and both its neighbours put together and projected by one fixed random matrix, and a question's is its own three times. Everything is
read from an encrypted database through the product's own store; recall is against the exact product of all vectors in float32.

The reference is asked the same questions in turn, in the same process: at 100,000 pieces sqlite-vec's exact `vec0` search of the same
vectors in the same database, at 1,000,000 numpy's product of a float32 matrix in memory (1.5 GB, where the codes need what is printed).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import apsw
import numpy as np
import sqlite_vec

from bench.texts import embedded
from confide_daemon.embedding.embedder import Vectors
from confide_daemon.store.rows import Filter
from confide_daemon.store.space_store import Store
from confide_daemon.store.tables.vector_scan import VectorScan

REAL = 20_000
ASKED = 500
NEAREST = 10
COSINE_OF_COPIES = 0.9
PIECES_IN_DOCUMENT = 20
KEY = bytes(range(32))
# pieces, dimensions, the most its median may be of the reference's
CASES = {"384": (100_000, 384, 0.15), "1024": (100_000, 1024, 0.15), "million": (1_000_000, 384, 0.3)}
MIN_RECALL = 0.99
WARM_UP = 5


def vectors_of(pieces: int, dimensions: int) -> tuple[Vectors, Vectors]:
    """The pieces' and the questions' vectors, of unit length."""
    real, asked = embedded(REAL, asked=ASKED)
    chance = np.random.default_rng(1)
    if dimensions != real.shape[1]:
        projection = chance.standard_normal((3 * real.shape[1], dimensions), dtype=np.float32)
        real = unit(np.concatenate([np.roll(real, 1, 0), real, np.roll(real, -1, 0)], axis=1) @ projection)
        asked = unit(np.concatenate([asked, asked, asked], axis=1) @ projection)
    made = np.empty((pieces, dimensions), dtype=np.float32)
    made[: len(real)] = real
    away = np.sqrt(1 / COSINE_OF_COPIES**2 - 1)
    for start in range(len(real), pieces, len(real)):
        noise = unit(chance.standard_normal((min(len(real), pieces - start), dimensions), dtype=np.float32))
        made[start : start + len(real)] = unit(real[: len(noise)] + away * noise)
    return made, asked


def unit(vectors: Vectors) -> Vectors:
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), dtype=np.float32)


def filled(path: Path, vectors: Vectors) -> tuple[Store, VectorScan, int]:
    """A space's store with a piece for each vector."""
    scan = VectorScan()
    store = Store.open(path, KEY, writer=True, now=0.0, scan=scan)
    connection = store.connection  # the bench puts in rows by the thousand, past what a store does for each document
    connection.execute("PRAGMA synchronous = OFF")
    documents = range(1, len(vectors) // PIECES_IN_DOCUMENT + 2)
    with store.writing():
        generation = store.vectors.add_generation("bench", "real", vectors.shape[1], live=True, now=0.0)
        connection.execute("INSERT INTO project (id, name) VALUES (1, 'bench')")
        connection.executemany(
            """INSERT INTO document (id, project, path, revision, hash, author, updated_at, source, day)
               VALUES (?, 1, ?, 1, '', 'bench', 0, 'memory', '2026-01-01')""",
            ((document, f"memory/{document}.md") for document in documents),
        )
        connection.executemany(
            """INSERT INTO chunk (id, document, position, start_line, end_line, heading, tokens, hash, text, added_at)
               VALUES (?, ?, ?, 1, 1, '', 30, randomblob(16), hex(randomblob(60)), 0)""",
            ((row + 1, row // PIECES_IN_DOCUMENT + 1, row % PIECES_IN_DOCUMENT) for row in range(len(vectors))),
        )
        connection.executemany(
            f"INSERT INTO vector_{generation.id} (chunk, embedding) VALUES (?, ?)",
            ((row + 1, vector.tobytes()) for row, vector in enumerate(vectors)),
        )
    store.close()
    scan = VectorScan()
    return Store.open(path, KEY, writer=True, now=0.0, scan=scan), scan, generation.id


def by_vec0(store: Store, vectors: Vectors) -> Callable[[Vectors], Any]:
    """The exact search of sqlite-vec's own table, in the same database."""
    connection: apsw.Connection = store.connection
    connection.execute(
        f"CREATE VIRTUAL TABLE reference USING vec0(chunk INTEGER PRIMARY KEY, embedding FLOAT[{vectors.shape[1]}])"
    )
    with store.writing():
        rows = ((row + 1, vector.tobytes()) for row, vector in enumerate(vectors))
        connection.executemany("INSERT INTO reference VALUES (?, ?)", rows)
    sql = "SELECT chunk, distance FROM reference WHERE embedding MATCH ? AND k = ?"
    return lambda question: connection.execute(sql, (question.tobytes(), NEAREST)).fetchall()


def by_numpy(vectors: Vectors) -> Callable[[Vectors], Any]:
    """The exact product in memory."""

    def search(question: Vectors) -> Any:
        products = vectors @ question
        best = np.argpartition(products, -NEAREST)[-NEAREST:]
        return best[np.argsort(-products[best])]

    return search


def measure(name: str, count: int) -> dict[str, Any]:
    pieces, dimensions, most = CASES[name]
    vectors, asked = vectors_of(pieces, dimensions)
    with tempfile.TemporaryDirectory(prefix="confide-vectors-") as folder:
        store, scan, generation = filled(Path(folder) / "space.db", vectors)
        started = time.perf_counter()
        while store.vectors.warm(generation):
            pass
        loaded_s = time.perf_counter() - started
        reference = by_vec0(store, vectors) if name != "million" else by_numpy(vectors)

        def search(question: Vectors) -> list[tuple[int, float]]:
            with store.reading():
                return store.vectors.nearest(generation, question, Filter(), limit=NEAREST)

        ours, theirs = [], []
        for question in asked[: count + WARM_UP]:
            for times, work in ((ours, search), (theirs, reference)):
                begun = time.perf_counter()
                work(question)
                times.append((time.perf_counter() - begun) * 1e3)
        ours, theirs = ours[WARM_UP:], theirs[WARM_UP:]
        right = 0
        for question in asked:
            products = vectors @ question
            border = np.partition(products, -NEAREST)[-NEAREST]
            # Copies of one text can be equally near: any of them is right.
            right += sum(bool(products[piece - 1] >= border - 1e-6) for piece, _ in search(question))
        store.close()
    ratio = statistics.median(ours) / statistics.median(theirs)
    recall = right / (NEAREST * len(asked))
    return {
        "case": name,
        "pieces": pieces,
        "dimensions": dimensions,
        "recall_at_10": round(recall, 4),
        "questions_of_recall": len(asked),
        "p50_ms": round(statistics.median(ours), 2),
        "reference": "numpy float32 matmul (one thread)" if name == "million" else "sqlite-vec vec0, exact",
        "reference_p50_ms": round(statistics.median(theirs), 2),
        "ratio": round(ratio, 3),
        "must": most,
        "memory_mb": round(scan.size_bytes / 1e6, 1),
        "loaded_s": round(loaded_s, 1),
        "ok": ratio <= most and recall >= MIN_RECALL,
    }


def main(arguments: Sequence[str] = ()) -> int:
    """Print the numbers; 1 if one of them is not met."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.vector_leg", description="The vector leg against exact search."
    )
    parser.add_argument("--questions", type=int, default=60, help="whose times are taken")
    parser.add_argument("--only", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--json", action="store_true", help="print one JSON object for each case")
    options = parser.parse_args(arguments)
    versions = f"SQLite {apsw.sqlite_lib_version()}, sqlite-vec {sqlite_vec.__version__}, numpy {np.__version__}"
    if not options.json:
        print(
            f"{versions}; {platform.processor() or platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
        )
    well = True
    for name in options.only:
        result = measure(name, options.questions)
        well &= result["ok"]
        if options.json:
            print(json.dumps(result), flush=True)
            continue
        print(
            f"{result['pieces']:>9,} x {result['dimensions']:<4} {result['p50_ms']:6.2f} ms, "
            f"{result['reference']} {result['reference_p50_ms']:.1f} ms: "
            f"{result['ratio']:.3f} (must be <= {result['must']}); recall@10 {result['recall_at_10']:.4f} (>= {MIN_RECALL}); "
            f"{result['memory_mb']} MB in memory, loaded in {result['loaded_s']} s",
            flush=True,
        )
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
