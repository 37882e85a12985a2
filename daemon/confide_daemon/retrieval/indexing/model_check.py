"""Whether stored vectors are those that their model gives: behind a name may be another model than last week (a folder, a server)."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np

from confide_daemon.errors import EmbedderError
from confide_daemon.retrieval.indexing.backfill import in_thread
from confide_daemon.retrieval.indexing.model import Provider
from confide_daemon.retrieval.indexing.planner import Condition
from confide_daemon.store.store import Store

SAMPLE = 8
# The same text embedded again in another batch, or on another machine, is over 0.99 alike; by another model it is near 0.
ALIKE = 0.9


async def is_foreign(provider: Provider, texts: Sequence[str], vectors: Sequence[bytes]) -> bool:
    """Whether most of these texts get other vectors from the model now; False also where it cannot be asked, or asking costs money."""
    if not texts or provider.is_counted or provider.standing().condition is not Condition.READY:
        return False
    try:
        rows = await in_thread(lambda: provider.model.embed(texts))
    except EmbedderError:
        return False
    if any(len(vector) != rows[0].nbytes for vector in vectors):
        return False  # unusable ones, which are another matter
    stored = np.stack([np.frombuffer(vector, dtype=np.float32) for vector in vectors])
    return float(np.median(np.einsum("ij,ij->i", stored, rows))) < ALIKE


def sample(store: Store, name: str | None) -> tuple[list[str], list[bytes]]:
    """Some texts and their vectors, of the generation that serves if it is the newest of this name (provider/model/dimensions)."""
    with store.reading():
        newest = next((one for one in reversed(store.vectors.generations()) if one.name == name), None)
        if newest is None or not newest.live:
            return [], []  # one that is computed anew already must not begin again
        pairs = store.vectors.sample(newest.id, SAMPLE, seed=random.random())  # noqa: S311 - no secret
    return [text for text, _ in pairs], [vector for _, vector in pairs]
