"""One configured model as one space uses it: whether it can be asked now, within the space's budget."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext

from confide_crypto.errors import ConfideError
from confide_daemon.embed import BreakerState, EmbedderHandle, Limits, Vectors
from confide_daemon.embed.vectors import unit
from confide_daemon.errors import BudgetError, EmbedderError, ProviderDownError, QuotaError
from confide_daemon.indexing.budget import Budget
from confide_daemon.indexing.plan import Condition, Standing
from confide_daemon.store import model_name
from confide_daemon.tokens import count_tokens

# What a model that is down is asked, to see whether it is back: two tokens.
PROBE = "hello"


class Provider:
    """A handle with the budget it is used on."""

    def __init__(self, handle: EmbedderHandle, budget: Budget, *, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock`: seconds that only go forward."""
        self.handle = handle
        self._budget = budget
        self._clock = clock
        self._down_since: float | None = None
        self._spent_month = ""  # the month whose budget was found used up

    @property
    def label(self) -> str:
        """What it is called to people."""
        embedder = self.handle.embedder
        return self.handle.name or (embedder.id if embedder else "the embedding model")

    @property
    def model(self) -> str | None:
        """The model's own name, once it is known."""
        embedder = self.handle.embedder
        return embedder.model if embedder else None

    @property
    def name(self) -> str | None:
        """What its vectors share (provider/model/dimensions), once it is known."""
        embedder = self.handle.embedder
        return model_name(embedder.id, embedder.model, embedder.dimensions) if embedder else None

    @property
    def limits(self) -> Limits:
        """How much one call may hold."""
        embedder = self.handle.embedder
        return embedder.limits if embedder else Limits()

    @property
    def is_free(self) -> bool:
        """Whether a token costs nothing, as with models on this machine."""
        return self.handle.price_per_million == 0.0

    @property
    def is_counted(self) -> bool:
        """Whether its tokens are counted."""
        return not self.is_free or self.handle.monthly_tokens > 0

    @property
    def is_spent(self) -> bool:
        """Whether this month's budget is used up."""
        limit = self.handle.monthly_tokens
        return limit > 0 and (self._spent_month == self._budget.month or self.tokens_used >= limit)

    @property
    def tokens_used(self) -> int:
        """This month, by this space."""
        return self._budget.used(self.label)

    @property
    def reason(self) -> ConfideError | None:
        """Why it cannot be used now."""
        if self.handle.embedder is None:
            return self.handle.failure
        if self.is_spent:
            return BudgetError(self.label, self.handle.monthly_tokens, self._budget.month)
        return self.handle.breaker.status.reason

    @property
    def retry_in_s(self) -> float | None:
        """How long until it is tried again by itself; None: that is not a matter of time."""
        breaker = self.handle.breaker.status
        return None if breaker.state is BreakerState.CLOSED else breaker.retry_in_s

    def standing(self) -> Standing:
        """How it stands now."""
        condition = self._condition()
        now = self._clock()
        if condition is not Condition.DOWN:
            self._down_since = None
        elif self._down_since is None:
            self._down_since = now
        # Whoever knows it under its breaker's pause only has an old reason: it is asked before anything is made of it.
        return Standing(
            name=self.name,
            condition=condition,
            is_due=self.handle.embedder is not None and condition is not Condition.READY and self._is_due(),
            outage_s=0.0 if self._down_since is None else now - self._down_since,
            is_free=self.is_free,
        )

    def query_vector(self, text: str) -> Vectors | None:
        """The vector of a question, or None while there is no model. Answers within the handle's deadline.

        Raises:
            EmbedderError: the model failed, is left alone, or its budget is used up.
        """
        if not self.is_counted or self.handle.remembers(text):
            return self.handle.query_vector(text)
        return self._counted(count_tokens(text), lambda: self.handle.query_vector(text))

    def embed(self, texts: Sequence[str], *, in_turn: bool = True) -> Vectors:
        """The vectors of documents; what they cost has been counted by `spend`. It is given back by `give_back`, when this fails.

        Args:
            in_turn: behind what others have it embed; not for a few texts that an agent waits for.

        Raises:
            EmbedderError: as the model's `embed_documents`, or its vectors cannot be used.
        """
        embedder = self.handle.embedder
        if embedder is None:
            raise EmbedderError("there is no embedding model yet")
        # In this order: a call that waits for its turn must not be taken for a probe that hangs.
        with self.handle.turn() if in_turn else nullcontext(), self.handle.breaker.call():
            try:
                rows = embedder.embed_documents(texts)
            except EmbedderError:
                raise
            except Exception as error:  # a library's own classes, which nobody here can tell apart
                raise EmbedderError(f"{self.label} failed: {type(error).__name__}") from None
            return unit(rows, count=len(texts), dimensions=embedder.dimensions)

    def spend(self, tokens: int) -> None:
        """Counts tokens that are about to be sent. Raises BudgetError."""
        embedder = self.handle.embedder
        if self.is_counted and embedder is not None:
            try:
                self._budget.spend(self.label, embedder.model, tokens, limit=self.handle.monthly_tokens)
            except BudgetError as error:
                # Also where some are left: what does not fit now will not fit later this month.
                self._spent_month = error.month
                raise

    def give_back(self, tokens: int) -> None:
        """They were not used."""
        embedder = self.handle.embedder
        if self.is_counted and embedder is not None:
            self._budget.give_back(self.label, embedder.model, tokens)

    def probe(self) -> None:
        """Asks whether it is back. Raises as `embed`."""
        self._counted(count_tokens(PROBE), lambda: self.embed([PROBE]))

    def forgive(self) -> None:
        """Somebody has acted: what it refused before may be tried again."""
        if isinstance(self.handle.breaker.status.reason, QuotaError):
            self.handle.breaker.reset()
        if self.handle.embedder is None:
            self.handle.load_again()

    def _counted(self, tokens: int, call: Callable[[], Vectors | None]) -> Vectors | None:
        self.spend(tokens)
        try:
            return call()
        except EmbedderError:
            self.give_back(tokens)
            raise

    def _condition(self) -> Condition:
        if self.handle.embedder is None:
            if self.handle.state == "failed":
                return Condition.REFUSED
            return Condition.DOWN if isinstance(self.handle.failure, ProviderDownError) else Condition.LOADING
        if self.is_spent:
            return Condition.REFUSED
        breaker = self.handle.breaker.status
        if breaker.state is BreakerState.CLOSED:
            return Condition.READY
        return Condition.REFUSED if isinstance(breaker.reason, QuotaError) else Condition.DOWN

    def _is_due(self) -> bool:
        breaker = self.handle.breaker.status
        return not self.is_spent and breaker.state is not BreakerState.CLOSED and breaker.retry_in_s <= 0
