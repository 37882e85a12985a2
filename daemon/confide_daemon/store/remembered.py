"""What was counted or listed in one state of the database, for the searches that follow while nobody changes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar, cast

import apsw

T = TypeVar("T")

# Filters differ with every caller and day.
MOST_KEPT = 64


class Remembered:
    """One for each connection."""

    def __init__(self) -> None:
        self._kept: dict[object, object] = {}
        self._version: object = None
        self._is_in_view = False

    @contextmanager
    def view(self, connection: apsw.Connection) -> Iterator[None]:
        """Around the reads of a transaction that has begun; what other connections have committed since the last one is noticed."""
        version = connection.execute("PRAGMA data_version").fetchall()[0][0]
        if version != self._version:
            self._kept.clear()
            self._version = version
        self._is_in_view = True
        try:
            yield
        finally:
            self._is_in_view = False

    def forget(self) -> None:
        """This connection itself is about to write, which the version does not tell."""
        self._kept.clear()

    def get(self, key: object, compute: Callable[[], T]) -> T:
        """What was computed under the key in this state, else what is computed now; outside of a view it is always computed."""
        if not self._is_in_view:
            return compute()
        if key not in self._kept:
            if len(self._kept) >= MOST_KEPT:
                self._kept.clear()
            self._kept[key] = compute()
        return cast("T", self._kept[key])
