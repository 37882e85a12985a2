"""Which parts of a space's database turned out to be unreadable, as its connections tell one another, so that searches go around them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, TypeVar

from confide_daemon.errors import DamagedError

T = TypeVar("T")

KEYWORDS: Final = "keywords"
VECTORS: Final = "vectors"
PAGES: Final = "pages"  # somewhere


class Damage:
    """One for each open space. May be used by any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._parts: frozenset[str] = frozenset()
        self._listener: Callable[[], None] | None = None

    @property
    def parts(self) -> frozenset[str]:
        """What is known to be unreadable."""
        return self._parts

    def listen(self, listener: Callable[[], None] | None) -> None:
        """Calls back, in whatever thread meets it, when something new is found."""
        self._listener = listener

    def note(self, part: str) -> None:
        """Something could not be read."""
        with self._lock:
            if part in self._parts:
                return
            self._parts |= {part}
        if self._listener is not None:
            self._listener()

    def clear(self) -> None:
        """Everything can be read again."""
        with self._lock:
            self._parts = frozenset()

    def around(self, read: Callable[[], T]) -> T:
        """What `read` gives, tried again as long as it meets legs that were not known to be unreadable: it leaves those out then.

        A transaction that has met a damaged page cannot read anything more, so the whole reading begins anew.
        """
        while True:
            known = self._parts
            try:
                return read()
            except DamagedError:
                if not (self._parts - known) & {KEYWORDS, VECTORS}:
                    raise

    def warnings(self) -> list[str]:
        """What a search has to say about it."""
        said = {
            KEYWORDS: "the keyword index is damaged and being rebuilt; found by meaning alone",
            VECTORS: "stored vectors are damaged and being rebuilt; found by keywords alone",
        }
        return [said[part] for part in sorted(self._parts) if part in said]
