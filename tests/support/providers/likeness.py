"""A model whose cosines a test says: texts on one topic are as near as their numbers tell, texts on different ones are not."""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Sequence

import numpy as np
from tests.support.deadline import DEADLINE_S

from confide_daemon.embedding import BatchLimits, Vectors
from confide_daemon.embedding.providers.hashed import HashedEmbedder
from confide_daemon.errors import EmbedderError

PLACE = re.compile(r"@(\w+)(?::(\d+|i+))?")


class LikenessEmbedder:
    """`@deploy:30` in a text turns it 30 degrees away from `@deploy`, and `@deploy:iii` 3 degrees, without a number; a text without such a
    mark is its words, hashed.

    Attributes:
        failure: what every call for documents raises while it is set.
        open: cleared, calls for documents wait.
        embedded: how often each text was embedded as a document.
    """

    id = "likeness"
    model = "degrees"
    dimensions = 192
    limits = BatchLimits()

    def __init__(self) -> None:
        self.failure: EmbedderError | None = None
        self.open = threading.Event()
        self.open.set()
        self.embedded: Counter[str] = Counter()
        self._words = HashedEmbedder(64)
        self._lock = threading.Lock()

    def embed_query(self, text: str) -> Vectors:
        return np.asarray(self._vectors([text])[0])

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        assert self.open.wait(DEADLINE_S)
        if self.failure is not None:
            raise self.failure
        with self._lock:
            self.embedded.update(texts)
        return self._vectors(texts)

    def _vectors(self, texts: Sequence[str]) -> Vectors:
        rows = np.zeros((len(texts), self.dimensions), dtype=np.float32)
        for row, text in zip(rows, texts, strict=True):
            place = PLACE.search(text)
            if place is None:
                row[128:] = self._words.embed_query(text)
                continue
            topic = self._words.embed_query(place[1])
            angle = np.radians(int(place[2]) if place[2] and place[2].isdecimal() else len(place[2] or ""))
            row[:64], row[64:128] = np.cos(angle) * topic, np.sin(angle) * topic
        return rows
