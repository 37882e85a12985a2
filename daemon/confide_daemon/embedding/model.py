"""A configured model, which may be loading or down, with a circuit breaker. One model serves all
spaces of a daemon; the budget and state of each space are in `retrieval.indexing.indexed_model`.

While the circuit breaker (Nygard, Release It!) is closed, it lets every call through. After some
failures in a row it opens, and refuses calls at once. After a pause that grows with every opening,
it lets one call through as a probe. If that succeeds the breaker closes, otherwise it opens again
for longer.
"""

from __future__ import annotations

import random
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from enum import StrEnum

from confide_crypto import heaps
from confide_crypto.errors import ConfideError
from confide_daemon.embedding.embedder import Embedder, Vectors, unit
from confide_daemon.embedding.memory.idle_unload import RestingEmbedder
from confide_daemon.errors import EmbedderError, ProviderDownError, QuotaError

# One lost connection is not an outage; three in a row, each after its retries, are.
FAILURES = 3
FIRST_PAUSE_S = 5.0
MAX_PAUSE_S = 300.0
# Interval of probes for problems that need a person, so that a raised quota is noticed without a
# restart.
QUOTA_PAUSE_S = 900.0
# A provider may ask for a pause, but not for a day.
MAX_ASKED_PAUSE_S = 3600.0
# A probe without an outcome (its thread died) must not keep the breaker half open forever.
PROBE_S = 180.0


class BreakerState(StrEnum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


@dataclass(frozen=True, slots=True)
class BreakerStatus:
    state: BreakerState
    failures: int  # in a row, up to now
    retry_in_s: float  # until the next call is let through; 0 when it would be now
    reason: EmbedderError | None  # the last error, None after a success


class CircuitBreaker:
    """Stops calls to one model for a while after repeated failures. Usable from any thread. `clock`
    is monotonic, in seconds.
    """

    def __init__(
        self,
        name: str,
        *,
        failures: int = FAILURES,
        first_pause_s: float = FIRST_PAUSE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self._limit = failures
        self._first_pause_s = first_pause_s
        self._clock = clock
        self._lock = threading.Lock()
        self._state = BreakerState.CLOSED
        self._failures = 0
        self._openings = 0
        self._until = 0.0
        self._reason: EmbedderError | None = None

    @property
    def status(self) -> BreakerStatus:
        with self._lock:
            waits = 0.0 if self._state is BreakerState.CLOSED else max(0.0, self._until - self._clock())
            return BreakerStatus(self._state, self._failures, waits, self._reason)

    @contextmanager
    def call(self) -> Iterator[None]:
        """Guard one call within a `with` block: refuse it if the breaker is open, else record its
        outcome. Only an `EmbedderError` counts as a failure of the model.

        Raises ProviderDownError if the breaker is open (`retry_after_s` says for how long);
        QuotaError if a person has to act.
        """
        self.admit()
        with self.watch():
            yield

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Record the outcome of a call within a `with` block. `admit` must have let the call
        through before.
        """
        try:
            yield
        except EmbedderError as error:
            self.record_failure(error)
            raise
        except BaseException:
            self.gave_up()
            raise
        self.record_success()

    def admit(self) -> None:
        """Let one call through, or refuse it. After the call, use `watch`, `record_success`,
        `record_failure` or `gave_up`. Raises ProviderDownError if the breaker is open; QuotaError
        if a person has to act.
        """
        with self._lock:
            now = self._clock()
            if self._state is BreakerState.CLOSED:
                return
            if now >= self._until:
                # Open: the pause is over, so this call probes. Half open: the last probe never
                # returned.
                self._state = BreakerState.HALF_OPEN
                self._until = now + PROBE_S
                return
            raise self._refusal(self._until - now)

    def record_success(self) -> None:
        """Close the breaker, because a call succeeded or a person acted."""
        with self._lock:
            self._state = BreakerState.CLOSED
            self._failures = self._openings = 0
            self._until = 0.0  # a probe had set it far ahead, and the next pause begins from what it finds here
            self._reason = None

    def record_failure(self, error: EmbedderError) -> None:
        """Record a failed call. If the quota is exhausted or the provider requested a pause, the
        breaker opens at once, otherwise after several failures in a row.
        """
        with self._lock:
            self._failures += 1
            self._reason = error
            asked = error.retry_after_s if isinstance(error, ProviderDownError) else None
            must_act = isinstance(error, QuotaError)
            is_probe = self._state is BreakerState.HALF_OPEN
            # Calls that were under way when it opened must not extend the pause.
            if self._state is BreakerState.OPEN and not must_act and asked is None:
                return
            if not (must_act or asked is not None or is_probe or self._failures >= self._limit):
                return
            pause = min(self._first_pause_s * 2**self._openings, MAX_PAUSE_S)
            # Jitter, so that daemons that failed together do not retry together.
            pause = max(pause * random.uniform(0.8, 1.2), min(asked or 0.0, MAX_ASKED_PAUSE_S))  # noqa: S311
            if must_act:
                pause = QUOTA_PAUSE_S
            if self._state is not BreakerState.OPEN:
                self._openings += 1
            self._state = BreakerState.OPEN
            self._until = max(self._until, self._clock() + pause) if not is_probe else self._clock() + pause

    def gave_up(self) -> None:
        """Record that a call ended without showing if the model works, such as when it was
        cancelled.
        """
        with self._lock:
            if self._state is BreakerState.HALF_OPEN:
                self._state = BreakerState.OPEN
                self._until = self._clock()

    def _refusal(self, waits_s: float) -> EmbedderError:
        if isinstance(self._reason, QuotaError):
            return QuotaError(self._reason.message, hint=self._reason.hint)
        why = f": {self._reason}" if self._reason is not None else ""
        return ProviderDownError(
            f"{self.name} is left alone for another {waits_s:.0f} s{why}",
            hint=self._reason.hint if self._reason is not None else None,
            retry_after_s=waits_s,
        )


# Cache of query vectors, for repeated queries with other filters. Held in memory only.
QUERIES_KEPT = 256
# Deadline for a query's vector, after which the search uses keywords alone.
QUERY_DEADLINE_S = 1.5
PATIENCE_S = 60.0
# Deadline for an unloaded model to load again, which takes less on an idle computer.
WAKE_S = 0.3
# Limits on concurrent and on queued queries; a further one is refused at once.
QUERY_THREADS = 4
QUERIES_WAITING = 64
# Deadline for one space's documents to wait behind others', whose calls take ten minutes at most.
TURN_S = 1800.0
# Delays between attempts to load a model whose server does not answer yet.
FIRST_LOAD_PAUSE_S = 1.0
MAX_LOAD_PAUSE_S = 60.0
# A model refused until a person acts has failed meanwhile, and is probed as rarely as by the
# breaker.
REFUSED_LOAD_PAUSE_S = QUOTA_PAUSE_S


class LoadedModel:
    """A configured model, which a separate thread loads. Its state is `loading`, `ready`, or
    `failed` with a reason.

    Attributes:
        name: the provider's name in the configuration.
        breaker: the circuit breaker for all calls. It refuses them at once while the model keeps
            failing.
        monthly_tokens: the monthly limit of each space on tokens of documents and queries; 0 for
            none. The spaces enforce it (`indexing.indexed_model`).
        price_per_million: US dollars for a million tokens; None if unknown, 0.0 for a local model.
        query_deadline_s: limit in seconds for computing a query's vector.
        is_aside: True for the multilingual model, which serves only texts that the other models do
            not understand, and never replaces them.
    """

    def __init__(
        self,
        load: Callable[[], Embedder],
        *,
        name: str = "",
        query_deadline_s: float | None = None,
        monthly_tokens: int = 0,
        price_per_million: float | None = 0.0,
        breaker: CircuitBreaker | None = None,
        is_aside: bool = False,
    ) -> None:
        """Start loading at once. An error of `load` becomes the reason of the failure.

        `query_deadline_s`: None for `QUERY_DEADLINE_S`.
        """
        self.name = name
        self.breaker = breaker or CircuitBreaker(name or "the embedding model")
        self.monthly_tokens = monthly_tokens
        self.price_per_million = price_per_million
        self.query_deadline_s = QUERY_DEADLINE_S if query_deadline_s is None else query_deadline_s
        self.is_aside = is_aside
        self._load = load
        self._embedder: Embedder | None = None
        self._failure: ConfideError | None = None
        self._settled = threading.Event()
        self._closed = threading.Event()
        self._hurry = threading.Event()  # ends a pause between two attempts to load
        self._listeners: list[Callable[[], None]] = []
        self._lock = threading.Lock()
        self._queries: OrderedDict[str, Vectors] = OrderedDict()
        self._asking: dict[str, Future[Vectors]] = {}
        self._turns: threading.BoundedSemaphore | None = None
        self._pool = ThreadPoolExecutor(QUERY_THREADS, thread_name_prefix="confide-query")
        self._thread = threading.Thread(target=self._run, name="confide-embedder-load", daemon=True)
        self._thread.start()

    @classmethod
    def ready(cls, embedder: Embedder) -> LoadedModel:
        """Wrap an embedder that is already loaded, without a deadline for queries. For benchmarks
        and tests, where a busy computer must not look like a slow provider.
        """
        model = cls(lambda: embedder, name=embedder.id, query_deadline_s=PATIENCE_S)
        model.wait(PATIENCE_S)
        return model

    @classmethod
    def none(cls) -> LoadedModel:
        """Return a stand-in for no model. Searches use keywords alone then, and their results say
        so.
        """

        def refuse() -> Embedder:
            raise EmbedderError("no embedding model is configured")

        model = cls(refuse, name="none")
        model.wait(5.0)
        return model

    @property
    def label(self) -> str:
        return self.name or (self._embedder.id if self._embedder else "the embedding model")

    @property
    def state(self) -> str:
        """The state of the model: `loading`, `ready` or `failed`."""
        if self._embedder is not None:
            return "ready"
        return "failed" if self._settled.is_set() else "loading"

    @property
    def is_up(self) -> bool:
        """True if the model is loaded and its last call succeeded."""
        return self._embedder is not None and self.breaker.status.state is BreakerState.CLOSED

    @property
    def failure(self) -> ConfideError | None:
        """The reason why the model cannot be used, or why the last attempt to load it failed. None
        if there is no such error.
        """
        return self._failure

    @property
    def embedder(self) -> Embedder | None:
        """The model itself; None until it is loaded."""
        return self._embedder

    @property
    def is_resting(self) -> bool:
        """True if the model is unloaded because it was idle. The next query or document loads it
        again.
        """
        return isinstance(self._embedder, RestingEmbedder) and not self._embedder.is_awake

    def wait(self, timeout_s: float) -> bool:
        """Wait until loading has succeeded or failed. Return False on timeout, else True."""
        return self._settled.wait(timeout_s)

    def on_settled(self, call: Callable[[], None]) -> None:
        """Register a callback for when loading has succeeded or failed. It is called on the loading
        thread, or at once if that has happened.

        It is called once more if a model that could not be loaded at first becomes ready later.
        """
        with self._lock:
            if self._embedder is None:
                self._listeners.append(call)
            is_settled = self._settled.is_set()
        if is_settled:
            call()

    def call_no_longer(self, call: Callable[[], None]) -> None:
        """Remove a callback that `on_settled` registered, because a space may close long before the
        model.
        """
        with self._lock:
            if call in self._listeners:
                self._listeners.remove(call)

    def load_again(self) -> None:
        """Try to load a failed model again now, because a person has acted. Does nothing if that
        cannot help.
        """
        self._hurry.set()

    def close(self) -> None:
        """Stop loading, and close the model's connections and threads."""
        self._closed.set()
        self._hurry.set()
        self._pool.shutdown(wait=False, cancel_futures=True)
        close = getattr(self._embedder, "close", None)
        if close is not None:
            close()

    def remembers(self, text: str) -> bool:
        """Return True if the vector of this query is cached, so that it costs nothing."""
        with self._lock:
            return text in self._queries

    def forget_questions(self) -> None:
        """Drop all cached queries and their vectors."""
        with self._lock:
            self._queries.clear()

    def query_vector(self, text: str) -> Vectors | None:
        """Return the vector of a query, or None if the model is not ready within the deadline. The
        vector is zero (`is_blank`) if the model did not understand the text.

        Raises EmbedderError if the model fails; ProviderDownError while the circuit breaker is
        open; QuotaError if a person has to act.
        """
        embedder = self._embedder
        if embedder is None:
            return None
        with self._lock:
            known = self._queries.get(text)
            if known is not None:
                self._queries.move_to_end(text)
                return known
        if isinstance(embedder, RestingEmbedder) and not embedder.wake(WAKE_S):
            return None
        with self._lock:
            asking = self._asking.get(text)
            if asking is None:
                if self._closed.is_set() or len(self._asking) >= QUERIES_WAITING:
                    raise ProviderDownError(f"{self.breaker.name} is still busy with other questions")
                self.breaker.admit()
                asking = self._asking[text] = self._pool.submit(self._ask, embedder, text)
        try:
            return asking.result(self.query_deadline_s)
        except (TimeoutError, CancelledError):
            if asking.cancel():  # still queued, and its caller no longer waits
                self._forget(text, asking)
                self.breaker.gave_up()
            raise ProviderDownError(
                f"{self.breaker.name} did not answer a question within {self.query_deadline_s:g} s"
            ) from None

    def embed(self, texts: Sequence[str], *, in_turn: bool = True) -> Vectors:
        """Return the vectors of documents. If `in_turn` is True, the call waits behind those of
        other spaces. Pass False for a few texts that an agent waits for.

        Raises EmbedderError if the model fails or its vectors are unusable; ProviderDownError if
        the call's turn does not come in time.
        """
        embedder = self._embedder
        if embedder is None:
            raise EmbedderError("there is no embedding model yet")
        # In this order, so that a queued call is not mistaken for a hanging probe.
        with self._turn(embedder) if in_turn else nullcontext(), self.breaker.call():
            with self._name_errors(self.label):
                rows = embedder.embed_documents(texts)
            leaves_blanks = getattr(embedder, "leaves_blanks", False)
            return unit(rows, count=len(texts), dimensions=embedder.dimensions, may_be_blank=leaves_blanks)

    @contextmanager
    def _turn(self, embedder: Embedder) -> Iterator[None]:
        """Limit concurrent calls for documents, over all spaces, to `limits.concurrency`."""
        with self._lock:
            turns = self._turns = self._turns or threading.BoundedSemaphore(embedder.limits.concurrency)
        if not turns.acquire(timeout=TURN_S):
            raise ProviderDownError(f"{self.breaker.name} is still busy with other texts")
        try:
            yield
        finally:
            turns.release()

    @contextmanager
    def _name_errors(self, name: str) -> Iterator[None]:
        """Turn errors of a library's own classes into one that names the cause, and no more."""
        try:
            yield
        except EmbedderError:
            raise
        except Exception as error:
            raise EmbedderError(f"{name} failed: {type(error).__name__}") from None

    def _ask(self, embedder: Embedder, text: str) -> Vectors:
        try:
            with self._name_errors(self.breaker.name), self.breaker.watch():
                vector = embedder.embed_query(text)
        except EmbedderError:
            self._forget(text)
            raise
        with self._lock:
            # Cached even without a waiting caller, for the next same query.
            self._queries[text] = vector
            while len(self._queries) > QUERIES_KEPT:
                self._queries.popitem(last=False)
            self._asking.pop(text, None)
        return vector

    def _forget(self, text: str, asking: Future[Vectors] | None = None) -> None:
        with self._lock:
            if asking is None or self._asking.get(text) is asking:
                self._asking.pop(text, None)

    def _run(self) -> None:
        pause = FIRST_LOAD_PAUSE_S
        while True:
            try:
                self._embedder = self._load()
                self._failure = None
                heaps.give_back()  # what loading needed for a moment
            except ConfideError as error:
                self._failure = error
            except Exception as error:  # a broken library must not leave it "loading" for ever
                self._failure = EmbedderError(f"cannot load the embedding model: {type(error).__name__}")
            if isinstance(self._failure, ProviderDownError):
                self._hurry.wait(pause)
                pause = min(2 * pause, MAX_LOAD_PAUSE_S)
            else:
                self._settle()
                if not isinstance(self._failure, QuotaError):
                    return
                self._hurry.wait(REFUSED_LOAD_PAUSE_S)
            self._hurry.clear()
            if self._closed.is_set():
                self._settle()
                return

    def _settle(self) -> None:
        with self._lock:
            self._settled.set()
            listeners = list(self._listeners)
            if self._embedder is not None:
                self._listeners.clear()
        for call in listeners:
            call()
