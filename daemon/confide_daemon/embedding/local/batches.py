"""Embeds documents in batches, on threads of low priority."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from confide_daemon.embedding.embedder import Vectors

# On CPU, batches of one to four texts of like length beat 8 to 32 both in speed and in memory:
# padding is what costs.
BATCH = 4
# Long texts run alone: four of 256 word pieces at once take 130 MiB that are never freed, and gain
# nothing.
BATCH_CHARACTERS = 2400
# Model runs share the machine with the agent's own work; more threads than this gain little on
# pieces of 60 tokens. Each runs batches of its own: two threads on one batch take a tenth more CPU
# time and are slower, and a question would wait for both.
THREADS = 2
# Documents give way to searches, and to the agent: a question asked meanwhile takes as long as in
# peace, not twice to three times. Not the least there is, since such a thread may hold Python's
# lock on a machine that is busy with other things.
NICE = 10


class Batches:
    """The worker threads that embed documents with one local model, in batches of texts of similar
    length.

    On Linux, they run at a lower priority than the threads that answer searches.
    """

    def __init__(self, threads: int = THREADS) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="confide-model", initializer=_give_way)

    def vectors(self, texts: Sequence[str], run: Callable[[list[str]], Vectors], *, dimensions: int) -> Vectors:
        """Return the vectors of the texts, in order, with shape (texts, dimensions). `run` computes
        them; it is called with a few texts of similar length at a time.
        """
        vectors = np.empty((len(texts), dimensions), dtype=np.float32)
        # Longest first, so that no thread waits at the end for a long text on another.
        batches = list(_batches(texts))[::-1]
        # An agent waits for a single note, which is one batch, so it runs on the caller's thread at
        # normal priority.
        run_all = map if len(batches) == 1 else self._pool.map
        runs = run_all(run, [[texts[index] for index in batch] for batch in batches])
        for batch, rows in zip(batches, runs, strict=True):
            vectors[batch] = rows
        return vectors

    def close(self) -> None:
        """Stop the threads after their current batch. Batches that have not begun are cancelled."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def _give_way() -> None:
    """Lower the priority of this thread, which Linux keeps per thread."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)


def _batches(texts: Sequence[str]) -> Iterator[list[int]]:
    """Yield the indexes of texts of similar length, as many as fit well into a batch."""
    order = sorted(range(len(texts)), key=lambda index: len(texts[index]))
    start = 0
    while start < len(order):
        size = BATCH
        # The last of a batch is its longest, to which padding extends all.
        while size > 1 and size * len(texts[order[min(start + size, len(order)) - 1]]) > BATCH_CHARACTERS:
            size -= 1
        yield order[start : start + size]
        start += size
