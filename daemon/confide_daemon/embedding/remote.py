"""Embedding models behind an HTTP API. The responses of Voyage and OpenAI have the same form; a
function `wire` builds the request, which differs.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from confide_daemon.datadir.credentials import SecretKey
from confide_daemon.embedding.embedder import BatchLimits, Purpose, Vectors, unit
from confide_daemon.embedding.http import ProviderEndpoint, UnusableAnswerError
from confide_daemon.embedding.settings import RemoteSettings
from confide_daemon.embedding.token_counts import first_tokens
from confide_daemon.errors import EmbedderError, ProviderDownError, QuotaError

log = logging.getLogger(__name__)

# Tokens are the tighter limit: 166 chunks of 48 reach it. OpenAI accepts 2,048 texts in a request,
# Voyage 1,000.
REMOTE_LIMITS = BatchLimits(texts=1000, tokens=8_000, concurrency=4)
TRIES = 5
# Tries per request in the search for the one text that a provider refuses.
SEEKING_TRIES = 2
# Below the search's own deadline (model.QUERY_DEADLINE_S), so that the error states the cause, not
# only a timeout.
QUERY_DEADLINE_S = 1.4
# A float takes up to 25 bytes in JSON and 5.4 in base64; a longer answer is invalid.
BYTES_PER_NUMBER = 32
MOST_DIMENSIONS = 16_384
# Text to check that a provider answers at all, and to find a model's dimensions.
HARMLESS = "a short sentence"
# Connections reserved for queries, which must not wait behind documents.
QUERY_CONNECTIONS = 4
# Number of times that a refused text is halved and retried.
HALVINGS = 3
REFUSALS_KEPT = 4096


# The body of a request for these texts.
Wire = Callable[[list[str], Purpose], dict[str, object]]


@dataclass(frozen=True, slots=True)
class ProviderUsage:
    """Counts of requests, tokens and refused texts of a provider since the daemon started."""

    requests: int = 0  # answered with vectors
    tokens: int = 0  # as the provider counts them, where it says
    refused_texts: int = 0  # texts it does not embed, found by words alone


class RemoteEmbedder:
    """A model that a provider runs, reached over the network.

    The provider may refuse one text while it accepts others. Such a text must not block the texts
    after it, so it is shortened and sent again. If that is refused too, it gets a random but fixed
    vector, which is similar to no query. Such a chunk is found only by its words, and
    `usage.refused_texts` counts it.

    Args:
        id: the provider's name in the configuration.
        model: the model's name under which its vectors are stored.
        dimensions: the length of the vectors; None asks the provider now.
        max_tokens: limit on one text, in `cl100k_base`; the rest is cut off.
        deadline_s: limit in seconds for a call of `embed_documents`, including retries.

    Raises EmbedderError if the provider does not return the dimensions.
    """

    def __init__(
        self,
        endpoint: ProviderEndpoint,
        wire: Wire,
        *,
        id: str,
        model: str,
        dimensions: int | None,
        max_tokens: int,
        deadline_s: float,
        limits: BatchLimits = REMOTE_LIMITS,
        query_deadline_s: float = QUERY_DEADLINE_S,
    ) -> None:
        self.id = id
        self.model = model
        self.limits = limits
        self._endpoint = endpoint
        self._wire = wire
        self._max_tokens = max_tokens
        self._deadline_s = deadline_s
        self._query_deadline_s = query_deadline_s
        self._lock = threading.Lock()
        self._usage = ProviderUsage()
        self._refused_texts: OrderedDict[bytes, None] = OrderedDict()
        self._dimensions = dimensions
        if dimensions is None:
            self._dimensions = int(self._ask([HARMLESS], Purpose.DOCUMENT, deadline_s=deadline_s, tries=1).shape[1])

    @property
    def dimensions(self) -> int:
        assert self._dimensions is not None
        return self._dimensions

    @property
    def usage(self) -> ProviderUsage:
        with self._lock:
            return self._usage

    def close(self) -> None:
        self._endpoint.close()

    def embed_query(self, text: str) -> Vectors:
        """Return the vector of a query. Sends one request, with a deadline that suits a search."""
        vectors = self._ask([self._cut(text)], Purpose.QUERY, deadline_s=self._query_deadline_s, tries=1)
        return np.asarray(vectors[0])

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        """Return the vectors of the texts. Sends one request; further ones only to find a text that
        the provider refuses.
        """
        cut = [self._cut(text) for text in texts]
        vectors = np.empty((len(cut), self.dimensions), dtype=np.float32)
        end = time.monotonic() + self._deadline_s
        known = [index for index, text in enumerate(cut) if self._is_refused(text)]
        for index in known:
            vectors[index] = _own_direction(cut[index], self.dimensions)
        rest = [index for index in range(len(cut)) if index not in set(known)]
        if rest:
            self._fill(vectors, cut, rest, end)
        return vectors

    def _fill(self, vectors: Vectors, texts: list[str], indices: list[int], end: float, tries: int = TRIES) -> None:
        """Embed some of the texts; if the provider refuses them but accepts others, find the
        refused one by halving.
        """
        try:
            vectors[indices] = self._documents([texts[index] for index in indices], end, tries=tries)
            return
        except UnusableAnswerError as error:
            self._must_answer(error, end)
        if len(indices) > 1:
            middle = len(indices) // 2
            self._fill(vectors, texts, indices[:middle], end, tries=SEEKING_TRIES)
            self._fill(vectors, texts, indices[middle:], end, tries=SEEKING_TRIES)
            return
        (index,) = indices
        vectors[index] = self._embed_shortened(texts[index], end)

    def _embed_shortened(self, text: str, end: float) -> Vectors:
        shorter = text
        for _ in range(HALVINGS):
            shorter = shorter[: len(shorter) // 2].strip()
            if not shorter:
                break
            try:
                return np.asarray(self._documents([shorter], end, tries=SEEKING_TRIES)[0])
            except UnusableAnswerError:
                continue
        with self._lock:
            self._refused_texts[_digest(text)] = None
            while len(self._refused_texts) > REFUSALS_KEPT:
                self._refused_texts.popitem(last=False)
            self._usage = ProviderUsage(self._usage.requests, self._usage.tokens, self._usage.refused_texts + 1)
        log.warning(
            "%s refuses a text of %d characters; it is found by its words alone", self._endpoint.name, len(text)
        )
        return _own_direction(text, self.dimensions)

    def _must_answer(self, error: UnusableAnswerError, end: float) -> None:
        """Embed a harmless text. If that fails too, the texts are not the cause."""
        try:
            self._documents([HARMLESS], end, tries=1)
        except UnusableAnswerError as again:
            if again.is_final:
                raise QuotaError(
                    f"{self._endpoint.name} refuses every text",
                    hint="do model, dimensions and base_url belong together?",
                ) from None
            raise ProviderDownError(error.message) from None

    def _documents(self, texts: list[str], end: float, *, tries: int = TRIES) -> Vectors:
        return self._ask(texts, Purpose.DOCUMENT, deadline_s=max(0.001, end - time.monotonic()), tries=tries)

    def _ask(self, texts: list[str], purpose: Purpose, *, deadline_s: float, tries: int) -> Vectors:
        def read(answer: Any) -> tuple[Vectors, int]:
            return _vectors(answer, len(texts), self._dimensions), _tokens(answer)

        vectors, tokens = self._endpoint.post(
            self._wire(texts, purpose),
            read,
            deadline_s=deadline_s,
            tries=tries,
            max_bytes=65_536 + len(texts) * (self._dimensions or MOST_DIMENSIONS) * BYTES_PER_NUMBER,
        )
        with self._lock:
            self._usage = ProviderUsage(
                self._usage.requests + 1, self._usage.tokens + tokens, self._usage.refused_texts
            )
        return vectors

    def _cut(self, text: str) -> str:
        # An empty text is an error to most; a full stop means as little.
        return first_tokens(text, self._max_tokens) if text.strip() else "."

    def _is_refused(self, text: str) -> bool:
        with self._lock:
            return _digest(text) in self._refused_texts


def _vectors(answer: Any, count: int, dimensions: int | None) -> Vectors:
    """Return the rows of `{"data": [{"index": 0, "embedding": [...] or base64}]}`, ordered by
    index.
    """
    data = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(data, list) or not all(isinstance(item, dict) for item in data):
        raise EmbedderError("it holds no list of vectors")
    if len(data) != count:
        raise EmbedderError(f"{count} texts were given, but {len(data)} vectors came back")
    order = [item.get("index", position) for position, item in enumerate(data)]
    if not all(type(index) is int for index in order) or sorted(order) != list(range(count)):
        raise EmbedderError("its vectors are not numbered as the texts")
    rows: list[Any] = [None] * count
    for index, item in zip(order, data, strict=True):
        rows[index] = _row(item.get("embedding"))
    return unit(rows, count=count, dimensions=dimensions)


def _row(embedding: Any) -> Any:
    if not isinstance(embedding, str):
        return embedding
    try:
        return np.frombuffer(base64.b64decode(embedding, validate=True), dtype="<f4")
    except (binascii.Error, ValueError):
        raise EmbedderError("a vector is neither numbers nor base64") from None


def _tokens(answer: Any) -> int:
    usage = answer.get("usage") if isinstance(answer, dict) else None
    total = usage.get("total_tokens") if isinstance(usage, dict) else None
    return total if type(total) is int and 0 <= total < 10**9 else 0


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", errors="replace"), digest_size=16).digest()


def _own_direction(text: str, dimensions: int) -> Vectors:
    """Return a random unit vector determined by the text; in hundreds of dimensions it is similar
    to nothing.
    """
    rows = np.random.default_rng(int.from_bytes(_digest(text), "little")).standard_normal((1, dimensions))
    return np.asarray(unit(rows, count=1, dimensions=dimensions)[0])


def connect(
    settings: RemoteSettings,
    wire: Wire,
    *,
    id: str,
    name: str,
    dimensions: int | None,
    max_tokens: int,
    model: str | None = None,
    limits: BatchLimits = REMOTE_LIMITS,
    key_is_needed: bool = True,
) -> RemoteEmbedder:
    """Return the model that a provider's settings describe, at `<base_url>/embeddings`.

    Args:
        name: the provider's name in messages.
        model: the name under which the vectors are stored, if it differs from the provider's name
            for the model.

    Raises EmbedderError if the dimensions cannot be queried. A missing API key is reported only by
    the first request, since it may be added later.
    """
    key = SecretKey(name, settings.key_file, f"{id}-key", settings.key_env, is_needed=key_is_needed)
    endpoint = ProviderEndpoint(
        f"{settings.base_url.rstrip('/')}/embeddings",
        key=key,
        name=name,
        model=settings.model,
        model_hint=f"correct the model or the dimensions in [embedding.{id}] of daemon.toml, or load the model on the server",
        connections=limits.concurrency + QUERY_CONNECTIONS,
    )
    return RemoteEmbedder(
        endpoint,
        wire,
        id=id,
        model=model or settings.model,
        dimensions=dimensions,
        max_tokens=max_tokens,
        deadline_s=settings.timeout_s,
        limits=limits,
        query_deadline_s=min(QUERY_DEADLINE_S, settings.timeout_s),
    )
