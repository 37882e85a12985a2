"""One configured model as one space uses it: whether it can be asked now, within the space's budget."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from confide_crypto.errors import ConfideError
from confide_daemon.embedding import BreakerState, Limits, Model, Vectors
from confide_daemon.embedding.tokens import count_tokens
from confide_daemon.errors import BudgetError, ProviderDownError, QuotaError
from confide_daemon.retrieval.indexing.budget import Budget
from confide_daemon.retrieval.indexing.planner import Condition, Standing
from confide_daemon.store.rows import model_name

# What a model that is down is asked, to see whether it is back: two tokens.
PROBE = "hello"


class Provider:
    """A model with the budget it is used on."""

    def __init__(self, model: Model, budget: Budget, *, clock: Callable[[], float] = time.monotonic) -> None:
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
    def limits(self) -> Limits:
        """How much one call may hold."""
        embedder = self.model.embedder
        return embedder.limits if embedder else Limits()

    @property
    def is_free(self) -> bool:
        """Whether a token costs nothing, as with models on this machine."""
        return self.model.price_per_million == 0.0

    @property
    def is_counted(self) -> bool:
        """Whether its tokens are counted."""
        return not self.is_free or self.model.monthly_tokens > 0

    @property
    def is_spent(self) -> bool:
        """Whether this month's budget is used up."""
        limit = self.model.monthly_tokens
        return limit > 0 and (self._spent_month == self._budget.month or self.tokens_used >= limit)

    @property
    def tokens_used(self) -> int:
        """This month, by this space."""
        return self._budget.used(self.model.label)

    @property
    def reason(self) -> ConfideError | None:
        """Why it cannot be used now."""
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
            is_due=self.model.embedder is not None and condition is not Condition.READY and self._is_due(),
            outage_s=0.0 if self._down_since is None else now - self._down_since,
            is_free=self.is_free,
        )

    def query_vector(self, text: str) -> Vectors | None:
        """The vector of a question, or None while there is no model. Answers within the model's deadline.

        Raises:
            EmbedderError: the model failed, is left alone, or its budget is used up.
        """
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

    def probe(self) -> None:
        """Asks whether it is back. Raises as `Model.embed`."""
        with self.paying(count_tokens(PROBE)):
            self.model.embed([PROBE])

    def forgive(self) -> None:
        """Somebody has acted: what it refused before may be tried again."""
        if isinstance(self.model.breaker.status.reason, QuotaError):
            self.model.breaker.reset()
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
