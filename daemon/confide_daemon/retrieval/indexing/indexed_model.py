"""A configured embedding model as one space uses it: its availability, its token budget, and the
vectors of queries.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum, auto
from typing import TypeVar

import numpy as np

from confide_crypto.errors import ConfideError
from confide_daemon import figures
from confide_daemon.embedding import BatchLimits, BreakerState, LoadedModel, Vectors
from confide_daemon.embedding.token_counts import count_tokens
from confide_daemon.errors import BudgetError, EmbedderError, ProviderDownError, QuotaError
from confide_daemon.store.space_store import Store
from confide_daemon.store.tables.pieces import model_name

# (month, provider, model)
Key = tuple[str, str, str]


class MonthlyBudget:
    """Counts the tokens that a space has embedded this month. Thread-safe; `flush` saves the count
    to the database.

    Tokens are counted in `cl100k_base` before they are sent, and subtracted again if the call
    fails, so the limit stops a call before it is billed. A provider's own count differs by some
    percent (`embedding.embedder.Limits`), so the limit is not exact.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock`: seconds since 1970."""
        self._clock = clock
        self._lock = threading.Lock()
        self._used_tokens: dict[Key, int] = {}
        self._unwritten: dict[Key, int] = {}

    @property
    def month(self) -> str:
        """The current calendar month in UTC, such as 2026-11."""
        return datetime.fromtimestamp(self._clock(), UTC).strftime("%Y-%m")

    def load(self, store: Store) -> None:
        month = self.month
        with self._lock:
            for provider, model, tokens in store.tokens.used_tokens(month):
                self._used_tokens[month, provider, model] = tokens

    def used_tokens(self, provider: str) -> int:
        """Return how many tokens were sent to a provider this month, for all its models together."""
        month = self.month
        with self._lock:
            return self._sum(month, provider)

    def spend(self, provider: str, model: str, tokens: int, *, limit: int) -> None:
        """Count tokens before they are sent. Raises BudgetError if they would exceed `limit` (0 for
        no limit).
        """
        month = self.month
        with self._lock:
            if limit and self._sum(month, provider) + tokens > limit:
                raise BudgetError(provider, limit, month)
            self._add((month, provider, model), tokens)

    def give_back(self, provider: str, model: str, tokens: int) -> None:
        """Subtract tokens that were counted for a call that has failed."""
        with self._lock:
            self._add((self.month, provider, model), -tokens)

    @property
    def is_written(self) -> bool:
        """True if all counted tokens are saved in the database."""
        with self._lock:
            return not self._unwritten

    def flush(self, store: Store) -> None:
        """Save the tokens that were counted since the last flush, in a transaction of its own.
        Raises StorageError if the database cannot be written; the next flush then saves them.
        """
        with self._lock:
            taken, self._unwritten = self._unwritten, {}
        if not taken:
            return
        try:
            with store.writing_derived():
                for (month, provider, model), tokens in taken.items():
                    store.tokens.count(month, provider, model, tokens)
        except BaseException:
            with self._lock:
                for key, tokens in taken.items():
                    self._unwritten[key] = self._unwritten.get(key, 0) + tokens
            raise

    def _sum(self, month: str, provider: str) -> int:
        return sum(tokens for key, tokens in self._used_tokens.items() if key[:2] == (month, provider))

    def _add(self, key: Key, tokens: int) -> None:
        used = self._used_tokens.get(key, 0)
        # Never below zero: returned tokens may have been counted in the month before.
        tokens = max(-used, tokens)
        self._used_tokens[key] = used + tokens
        self._unwritten[key] = self._unwritten.get(key, 0) + tokens


T = TypeVar("T")


class Condition(Enum):
    """The availability of a model: loading, ready, down or refused."""

    LOADING = auto()  # not known yet
    READY = auto()
    DOWN = auto()  # fails, and may come back by itself
    REFUSED = auto()  # until the user acts or the month ends


@dataclass(frozen=True, slots=True)
class ModelStatus:
    """The status of a configured model, from which the next steps are planned."""

    name: str | None  # of its vectors (provider/model/dimensions); None: unknown yet
    condition: Condition
    is_due: bool = False  # it is down, and it is time to try it again
    outage_s: float = 0.0  # how long it has been down
    is_free: bool = True  # a token costs nothing
    is_aside: bool = False  # it has vectors beside those of the others, and never serves in their place

    @property
    def can_embed(self) -> bool:
        return self.name is not None and (self.condition is Condition.READY or self.is_due)


# The text sent to a model that is down to check if it is back: two tokens.
PROBE = "hello"


class BudgetedModel:
    """An embedding model together with one space's token budget."""

    def __init__(self, model: LoadedModel, budget: MonthlyBudget) -> None:
        self.model = model
        self._budget = budget
        self._down_since: float | None = None
        self._spent_month = ""  # the month whose budget is spent

    @property
    def model_name(self) -> str | None:
        """The model's own name; None until the model is loaded."""
        embedder = self.model.embedder
        return embedder.model if embedder else None

    @property
    def name(self) -> str | None:
        """The name under which the model's vectors are stored (provider/model/dimensions); None
        until the model is loaded.
        """
        embedder = self.model.embedder
        return model_name(embedder.id, embedder.model, embedder.dimensions) if embedder else None

    @property
    def limits(self) -> BatchLimits:
        embedder = self.model.embedder
        return embedder.limits if embedder else BatchLimits()

    @property
    def is_free(self) -> bool:
        """True if the model's tokens cost nothing, as with models on this computer."""
        return self.model.price_per_million == 0.0

    @property
    def is_counted(self) -> bool:
        return not self.is_free or self.model.monthly_tokens > 0

    @property
    def is_spent(self) -> bool:
        """True if this month's token budget is used up."""
        limit = self.model.monthly_tokens
        return limit > 0 and (self._spent_month == self._budget.month or self.tokens_used >= limit)

    @property
    def tokens_used(self) -> int:
        return self._budget.used_tokens(self.model.label)

    @property
    def reason(self) -> ConfideError | None:
        if self.model.embedder is None:
            return self.model.failure
        if self.is_spent:
            return BudgetError(self.model.label, self.model.monthly_tokens, self._budget.month)
        return self.model.breaker.status.reason

    @property
    def retry_in_s(self) -> float | None:
        """Seconds until the next automatic retry; None if the model does not fail."""
        breaker = self.model.breaker.status
        return None if breaker.state is BreakerState.CLOSED else breaker.retry_in_s

    def standing(self) -> ModelStatus:
        condition = self._condition()
        now = time.monotonic()
        if condition is not Condition.DOWN:
            self._down_since = None
        elif self._down_since is None:
            self._down_since = now
        # A breaker whose pause is over only holds an old reason: probe the model before deciding on
        # it.
        return ModelStatus(
            name=self.name,
            condition=condition,
            is_due=self.model.embedder is not None and condition is not Condition.READY and self._is_due(),
            outage_s=0.0 if self._down_since is None else now - self._down_since,
            is_free=self.is_free,
            is_aside=self.model.is_aside,
        )

    def query_vector(self, text: str) -> Vectors | None:
        """Return the vector of a query, or None if the model is not ready within its deadline.
        Counts the tokens. Raises EmbedderError if the model fails or the budget is used up.
        """
        if not self.is_counted or self.model.remembers(text):
            return self.model.query_vector(text)
        with self.paying(count_tokens(text)):
            return self.model.query_vector(text)

    def spend(self, tokens: int) -> None:
        """Count tokens before they are sent. Raises BudgetError if they would exceed the month's
        budget.
        """
        embedder = self.model.embedder
        if self.is_counted and embedder is not None:
            try:
                self._budget.spend(self.model.label, embedder.model, tokens, limit=self.model.monthly_tokens)
            except BudgetError as error:
                # Even if some tokens are left: a call that exceeds the budget now would exceed it
                # for the rest of the month.
                self._spent_month = error.month
                raise

    def give_back(self, tokens: int) -> None:
        """Subtract tokens that were counted but not used."""
        embedder = self.model.embedder
        if self.is_counted and embedder is not None:
            self._budget.give_back(self.model.label, embedder.model, tokens)

    @contextmanager
    def paying(self, tokens: int) -> Iterator[None]:
        """Count tokens for a call within a `with` block, and subtract them again if it fails.
        Raises BudgetError if they would exceed the month's budget.
        """
        self.spend(tokens)
        try:
            yield
        except ConfideError:
            self.give_back(tokens)
            raise
        self.note(tokens)

    def note(self, tokens: int) -> None:
        """Add embedded tokens to the metrics, including those of models that cost nothing."""
        figures.EMBEDDING_TOKENS.labels(self.model.label).inc(tokens)

    def probe(self) -> None:
        """Check whether a failed model works again, with a short text. Raises EmbedderError if it
        still fails.
        """
        with self.paying(count_tokens(PROBE)):
            self.model.embed([PROBE])

    def forgive(self) -> None:
        """Use a model again that has refused or could not be loaded, because a user has acted."""
        if isinstance(self.model.breaker.status.reason, QuotaError):
            self.model.breaker.record_success()
        if self.model.embedder is None:
            self.model.load_again()

    def _condition(self) -> Condition:
        if self.model.embedder is None:
            if self.model.state == "failed":
                return Condition.REFUSED
            return Condition.DOWN if isinstance(self.model.failure, ProviderDownError) else Condition.LOADING
        if self.is_spent:
            return Condition.REFUSED
        breaker = self.model.breaker.status
        if breaker.state is BreakerState.CLOSED:
            return Condition.READY
        return Condition.REFUSED if isinstance(breaker.reason, QuotaError) else Condition.DOWN

    def _is_due(self) -> bool:
        breaker = self.model.breaker.status
        return not self.is_spent and breaker.state is not BreakerState.CLOSED and breaker.retry_in_s <= 0


async def in_thread(work: Callable[[], T]) -> T:
    """Run `work` in a daemon thread and return its result. Such a thread does not delay the end of
    the process, even if a network call takes a minute.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if done.done():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        try:
            result, error = work(), None
        except BaseException as caught:  # passed on to the caller
            result, error = None, caught
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(settle, result, error)

    threading.Thread(target=run, name="confide-embed", daemon=True).start()
    return await done


SAMPLE = 8
# A text embedded again, in another batch or on another computer, has a cosine over 0.99; with
# another model it is near 0.
ALIKE = 0.9


async def is_foreign(provider: BudgetedModel, texts: Sequence[str], vectors: Sequence[bytes]) -> bool:
    """Return True if the model now gives most of these texts other vectors than the stored ones. A
    folder or server may have got another model under the same name.

    Return False also if the model is unavailable or costs money, since it is not called then.
    """
    if not texts or provider.is_counted or provider.standing().condition is not Condition.READY:
        return False
    try:
        rows = await in_thread(lambda: provider.model.embed(texts))
    except EmbedderError:
        return False
    if any(len(vector) != rows[0].nbytes for vector in vectors):
        return False  # damaged vectors, which the upkeep handles
    stored = np.stack([np.frombuffer(vector, dtype=np.float32) for vector in vectors])
    return float(np.median(np.einsum("ij,ij->i", stored, rows))) < ALIKE


def sample(store: Store, name: str | None) -> tuple[list[str], list[bytes]]:
    """Return some texts and their stored vectors from the live generation, if that is the newest
    one of the model with this name (provider/model/dimensions).
    """
    with store.reading():
        newest = next((one for one in reversed(store.vectors.generations()) if one.name == name), None)
        if newest is None or not newest.live:
            return [], []  # a recomputation in progress must not start again
        pairs = store.vectors.sample(newest.id, SAMPLE, seed=random.random())  # noqa: S311 - no secret
    return [text for text, _ in pairs], [vector for _, vector in pairs]
