"""Models whose vectors can be told apart, and which can be down: so that a ranking of two models, or a text embedded twice, is noticed."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
from tests.support.deadline import DEADLINE_S

from confide_daemon.datadir.disk import Disk
from confide_daemon.embedding import BatchLimits, CircuitBreaker, LoadedModel, Vectors
from confide_daemon.embedding.providers.hashed import HashedEmbedder
from confide_daemon.errors import EmbedderError, ProviderDownError
from confide_daemon.retrieval.indexing.generations import Patience
from confide_daemon.retrieval.search.engine import SearchResult
from confide_daemon.retrieval.search.query import SearchQuery
from confide_daemon.spaces.models import IndexSettings
from confide_daemon.spaces.space import Space, SpaceShared, SpaceStatus

WORDS = 48
AT_ONCE = IndexSettings(patience=Patience(0.0, 0.0))
KEY = os.urandom(32)
QUERY = "pool number"
DOWN = ProviderDownError("cannot reach the provider")


class MarkedEmbedder(HashedEmbedder):
    """Hashed words in a subspace of its own, with a share of a mark that all its vectors have in common.

    Two models are orthogonal to each other, and a cosine tells which model it was computed with.

    Attributes:
        failure: what every call raises while it is set.
        open: cleared, calls wait.
        embedded: how often each text that begins with "note " was embedded; others are of the daemon's own, such as probes.
    """

    def __init__(self, model: str, place: int, *, limits: BatchLimits | None = None, provider: str = "marked") -> None:
        super().__init__(WORDS, model=model)
        self.id = provider
        self.limits = limits or BatchLimits(texts=8)
        self.dimensions = 3 * (WORDS + 1)
        self._place = place
        self._share = (0.0, 0.5, 0.8)[place]
        self.failure: EmbedderError | None = None
        self.open = threading.Event()
        self.open.set()
        self.embedded: Counter[str] = Counter()
        self.calls = 0
        self._lock = threading.Lock()

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        with self._lock:
            self.calls += 1
        self._check()
        with self._lock:
            self.embedded.update(text for text in texts if text.startswith("note "))
        return self._vectors(texts)

    def embed_query(self, text: str) -> Vectors:
        with self._lock:
            self.calls += 1
        self._check()
        return np.asarray(self._vectors([text])[0])

    def _check(self) -> None:
        assert self.open.wait(DEADLINE_S)
        if self.failure is not None:
            raise self.failure

    def _vectors(self, texts: Sequence[str]) -> Vectors:
        short = HashedEmbedder(WORDS, model=self.model).embed_documents(texts)
        rows = np.zeros((len(texts), self.dimensions), dtype=np.float32)
        start = self._place * (WORDS + 1)
        rows[:, start : start + WORDS] = short * np.sqrt(1 - self._share)
        rows[:, start + WORDS] = np.sqrt(self._share)
        return rows

    def cosine(self, query: str, text: str) -> float:
        """What a search must show for a piece of this text."""
        return float(self._vectors([query])[0] @ self._vectors([text])[0])


def model_of(query: str, result: SearchResult, models: Sequence[MarkedEmbedder]) -> str | None:
    """The one model that all cosines of a result are of; None when it has none. Fails when they are of several, or of none."""
    shown = [(hit.snippet, hit.vector) for hit in result.hits if hit.vector is not None]
    if not shown:
        return None
    fitting = [
        model.model for model in models if all(abs(model.cosine(query, text) - cosine) < 2e-3 for text, cosine in shown)
    ]
    assert len(fitting) == 1, (fitting, shown)
    return fitting[0]


def handle(
    embedder: MarkedEmbedder, *, price: float | None = 0.0, monthly_tokens: int = 0, pause_s: float = 0.05
) -> LoadedModel:
    """A handle whose breaker opens at the first failure and soon tries again."""
    made = LoadedModel(
        lambda: embedder,
        name=embedder.id,
        monthly_tokens=monthly_tokens,
        price_per_million=price,
        breaker=CircuitBreaker(embedder.id, failures=1, first_pause_s=pause_s),
    )
    assert made.wait(DEADLINE_S)
    return made


@asynccontextmanager
async def opened(
    path: Path,
    handles: Sequence[LoadedModel],
    *,
    settings: IndexSettings = AT_ONCE,
    clock: Callable[[], float] = time.time,
    disk: Disk | None = None,
) -> AsyncIterator[Space]:
    """A space with these models, the wanted one first; closed at the end."""
    space = await Space.open(path, KEY, SpaceShared(settings, handles, clock=clock, disk=disk), space_id="s")
    try:
        yield space
    finally:
        await space.close()


async def fill(space: Space, count: int, *, start: int = 0) -> None:
    """Stores so many notes, each with a word of its own."""
    for number in range(start, start + count):
        await space.documents.put(
            "p", f"memory/{number}.md", f"note number{number} about the pool\n", base=0, author="a"
        )


async def until(space: Space, met: Callable[[SpaceStatus], bool], *, timeout_s: float = DEADLINE_S) -> SpaceStatus:
    """Waits until the status is so; what it is then."""
    deadline = time.monotonic() + timeout_s
    while True:
        status = await space.status(None)
        if met(status):
            return status
        assert time.monotonic() < deadline, repr(
            (status.provider, status.queued_pieces, status.generations, status.providers)
        )
        await asyncio.sleep(0.02)


async def ask(space: Space, models: Sequence[MarkedEmbedder]) -> tuple[str, str | None, list[str]]:
    """(mode, model, warnings) of a search; fails when its cosines are of more than one model."""
    result = await space.index.searcher.search(SearchQuery(QUERY, min_score=0.0, max_results=50))
    assert result.hits
    return result.mode, model_of(QUERY, result, models), result.warnings


def models(count: int = 2, **options: BatchLimits) -> list[MarkedEmbedder]:
    """So many models, each of a provider of its own."""
    return [MarkedEmbedder(f"model-{place}", place, provider=f"provider-{place}", **options) for place in range(count)]
