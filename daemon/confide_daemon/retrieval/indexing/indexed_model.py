"""One configured model as one space uses it: whether it can be asked now, within the space's budget, and gives what it gave."""

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
    """How many tokens a space may still have embedded this month; from any thread. `flush` brings the count to the database.

    Tokens are counted before they are sent, in `cl100k_base`, and given back when the call fails: the stop comes before the bill. What a
    provider counts itself differs by some percent (`embedding.embedder.Limits`), so a budget is not exact to the token.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock`: seconds since 1970."""
        self._clock = clock
        self._lock = threading.Lock()
        self._used: dict[Key, int] = {}
        self._unwritten: dict[Key, int] = {}

    @property
    def month(self) -> str:
        """The calendar month in UTC, such as 2026-11."""
        return datetime.fromtimestamp(self._clock(), UTC).strftime("%Y-%m")

    def load(self, store: Store) -> None:
        month = self.month
        with self._lock:
            for provider, model, tokens in store.tokens.used(month):
                self._used[month, provider, model] = tokens

    def used(self, provider: str) -> int:
        """This month's tokens of a provider, whatever its model."""
        month = self.month
        with self._lock:
            return self._sum(month, provider)

    def spend(self, provider: str, model: str, tokens: int, *, limit: int) -> None:
        """Counts tokens that are about to be sent. Raises BudgetError: they would be more than the limit (0: none)."""
        month = self.month
        with self._lock:
            if limit and self._sum(month, provider) + tokens > limit:
                raise BudgetError(provider, limit, month)
            self._add((month, provider, model), tokens)

    def give_back(self, provider: str, model: str, tokens: int) -> None:
        """The call failed: what was counted for it was not used."""
        with self._lock:
            self._add((self.month, provider, model), -tokens)

    @property
    def is_written(self) -> bool:
        """Whether the database has it all."""
        with self._lock:
            return not self._unwritten

    def flush(self, store: Store) -> None:
        """Writes what was counted since; in a transaction of its own. Raises StorageError: it is written the next time."""
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
        return sum(tokens for key, tokens in self._used.items() if key[:2] == (month, provider))

    def _add(self, key: Key, tokens: int) -> None:
        used = self._used.get(key, 0)
        # No less than nothing: what is given back may have been counted in the month before.
        tokens = max(-used, tokens)
        self._used[key] = used + tokens
        self._unwritten[key] = self._unwritten.get(key, 0) + tokens


T = TypeVar("T")


class Condition(Enum):
    """What can be expected of a model."""

    LOADING = auto()  # not known yet
    READY = auto()
    DOWN = auto()  # fails, and may come back by itself
    REFUSED = auto()  # does not come back until somebody acts or the month ends


@dataclass(frozen=True, slots=True)
class ModelStatus:
    """A configured model as the plan sees it."""

    name: str | None  # of its vectors (provider/model/dimensions); None: not known yet
    condition: Condition
    is_due: bool = False  # it is down, and it is time to try it again
    outage_s: float = 0.0  # how long it has been down
    is_free: bool = True  # a token costs nothing

    @property
    def can_embed(self) -> bool:
        return self.name is not None and (self.condition is Condition.READY or self.is_due)


# What a model that is down is asked, to see whether it is back: two tokens.
PROBE = "hello"


class BudgetedModel:
    """A model with the budget it is used on."""

    def __init__(
        self, model: LoadedModel, budget: MonthlyBudget, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`clock`: seconds that only go forward."""
        self.model = model
        self._budget = budget
        self._clock = clock
        self._down_since: float | None = None
        self._spent_month = ""  # the month whose budget was found used up

    @property
    def model_name(self) -> str | None:
        """The model's own, once it is known."""
        embedder = self.model.embedder
        return embedder.model if embedder else None

    @property
    def name(self) -> str | None:
        """What its vectors share (provider/model/dimensions), once it is known."""
        embedder = self.model.embedder
        return model_name(embedder.id, embedder.model, embedder.dimensions) if embedder else None

    @property
    def limits(self) -> BatchLimits:
        embedder = self.model.embedder
        return embedder.limits if embedder else BatchLimits()

    @property
    def is_free(self) -> bool:
        """Whether a token costs nothing, as with models on this machine."""
        return self.model.price_per_million == 0.0

    @property
    def is_counted(self) -> bool:
        return not self.is_free or self.model.monthly_tokens > 0

    @property
    def is_spent(self) -> bool:
        """Whether this month's budget is used up."""
        limit = self.model.monthly_tokens
        return limit > 0 and (self._spent_month == self._budget.month or self.tokens_used >= limit)

    @property
    def tokens_used(self) -> int:
        return self._budget.used(self.model.label)

    @property
    def reason(self) -> ConfideError | None:
        if self.model.embedder is None:
            return self.model.failure
        if self.is_spent:
            return BudgetError(self.model.label, self.model.monthly_tokens, self._budget.month)
        return self.model.breaker.status.reason

    @property
    def retry_in_s(self) -> float | None:
        """How long until it is tried again by itself; None: that is not a matter of time."""
        breaker = self.model.breaker.status
        return None if breaker.state is BreakerState.CLOSED else breaker.retry_in_s

    def standing(self) -> ModelStatus:
        condition = self._condition()
        now = self._clock()
        if condition is not Condition.DOWN:
            self._down_since = None
        elif self._down_since is None:
            self._down_since = now
        # Whoever knows it under its breaker's pause only has an old reason: it is asked before anything is made of it.
        return ModelStatus(
            name=self.name,
            condition=condition,
            is_due=self.model.embedder is not None and condition is not Condition.READY and self._is_due(),
            outage_s=0.0 if self._down_since is None else now - self._down_since,
            is_free=self.is_free,
        )

    def query_vector(self, text: str) -> Vectors | None:
        """The vector of a question, or None while there is no model, within the model's deadline. Raises EmbedderError."""
        if not self.is_counted or self.model.remembers(text):
            return self.model.query_vector(text)
        with self.paying(count_tokens(text)):
            return self.model.query_vector(text)

    def spend(self, tokens: int) -> None:
        """Counts tokens that are about to be sent. Raises BudgetError."""
        embedder = self.model.embedder
        if self.is_counted and embedder is not None:
            try:
                self._budget.spend(self.model.label, embedder.model, tokens, limit=self.model.monthly_tokens)
            except BudgetError as error:
                # Also where some are left: what does not fit now will not fit later this month.
                self._spent_month = error.month
                raise

    def give_back(self, tokens: int) -> None:
        """They were not used."""
        embedder = self.model.embedder
        if self.is_counted and embedder is not None:
            self._budget.give_back(self.model.label, embedder.model, tokens)

    @contextmanager
    def paying(self, tokens: int) -> Iterator[None]:
        """Around what costs so many tokens; they are given back when it fails. Raises BudgetError."""
        self.spend(tokens)
        try:
            yield
        except ConfideError:
            self.give_back(tokens)
            raise
        self.note(tokens)

    def note(self, tokens: int) -> None:
        """They were embedded: for the figures, of models that cost nothing too."""
        figures.EMBEDDING_TOKENS.labels(self.model.label).inc(tokens)

    def probe(self) -> None:
        """Asks whether it is back. Raises as `LoadedModel.embed`."""
        with self.paying(count_tokens(PROBE)):
            self.model.embed([PROBE])

    def forgive(self) -> None:
        """Somebody has acted: what it refused before may be tried again."""
        if isinstance(self.model.breaker.status.reason, QuotaError):
            self.model.breaker.succeeded()
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
    """Runs in a thread of its own, which nobody has to wait for when the process ends: a call over the network may take a minute."""
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
        except BaseException as caught:  # whatever it is belongs to who waits
            result, error = None, caught
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(settle, result, error)

    threading.Thread(target=run, name="confide-embed", daemon=True).start()
    return await done


SAMPLE = 8
# The same text embedded again in another batch, or on another machine, is over 0.99 alike; by another model it is near 0.
ALIKE = 0.9


async def is_foreign(provider: BudgetedModel, texts: Sequence[str], vectors: Sequence[bytes]) -> bool:
    """Whether most of these texts get other vectors from the model now: behind its name may be another one (a folder, a server).

    False also where it cannot be asked, or asking costs money.
    """
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
