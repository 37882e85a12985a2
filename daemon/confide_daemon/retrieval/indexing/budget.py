"""How many tokens a space may still have embedded this month.

Tokens are counted before they are sent, in `cl100k_base`, and given back when the call fails: the stop comes before the bill. What a
provider counts itself differs by some percent (`embedding.embedder.Limits`), so a budget is not exact to the token.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime

from confide_daemon.errors import BudgetError
from confide_daemon.store.store import Store

# (month, provider, model)
Key = tuple[str, str, str]


class Budget:
    """The count of one space; from any thread. `flush` brings it to the database."""

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
        """Takes up what was counted before."""
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
        """Counts tokens that are about to be sent.

        Raises:
            BudgetError: they would be more than the limit (0: none).
        """
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
        """Writes what was counted since; in a transaction of its own.

        Raises:
            StorageError: it is written the next time.
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
        return sum(tokens for key, tokens in self._used.items() if key[:2] == (month, provider))

    def _add(self, key: Key, tokens: int) -> None:
        used = self._used.get(key, 0)
        # No less than nothing: what is given back may have been counted in the month before.
        tokens = max(-used, tokens)
        self._used[key] = used + tokens
        self._unwritten[key] = self._unwritten.get(key, 0) + tokens
