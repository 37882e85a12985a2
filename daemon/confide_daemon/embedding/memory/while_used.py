"""What takes much memory and is soon made again, held only while it is used: a model, the tables of tokens."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

from confide_daemon.embedding.memory import heaps

T = TypeVar("T")


class WhileUsed(Generic[T]):
    """A thing that is made when it is needed, and let go when nobody has used it for a while. From any thread."""

    def __init__(self, make: Callable[[], T], rest_after_s: float, *, end: Callable[[T], None] | None = None) -> None:
        """
        Args:
            rest_after_s: without use, until it is let go; 0 keeps it.
            end: called with what is let go.
        """
        self.rest_after_s = rest_after_s
        self._make = make
        self._end = end
        self._lock = threading.Lock()
        self._making = threading.Lock()
        self._users = 0
        self._timer: threading.Timer | None = None
        self._is_closed = False
        self._held: T | None = None
        self._used_at = 0.0

    @property
    def is_there(self) -> bool:
        return self._held is not None

    @contextmanager
    def used(self) -> Iterator[T]:
        """The thing, which stays at least for as long as this takes. Raises what making it raises."""
        with self._lock:
            self._users += 1
        try:
            yield self._made()
        finally:
            with self._lock:
                self._users -= 1
                self._used_at = time.monotonic()

    def close(self) -> None:
        """Lets go of it, used or not."""
        with self._lock:
            self._is_closed = True
            if self._timer is not None:
                self._timer.cancel()
        self._let_go()

    def _made(self) -> T:
        if (held := self._held) is not None:
            return held
        with self._making:
            if (held := self._held) is not None:
                return held
            made = self._make()
            with self._lock:
                self._held, self._used_at = made, time.monotonic()
                self._look_in(self.rest_after_s)
        heaps.give_back()  # what making it needed for a moment
        return made

    def _look_in(self, pause_s: float) -> None:
        if not self._is_closed and self.rest_after_s:
            self._timer = threading.Timer(pause_s, self._look)
            self._timer.daemon = True
            self._timer.start()

    def _look(self) -> None:
        with self._lock:
            left = self._used_at + self.rest_after_s - time.monotonic()
            if self._users or left > 0:
                self._look_in(self.rest_after_s if self._users else left)
                return
        self._let_go()

    def _let_go(self) -> None:
        with self._lock:
            if self._users and not self._is_closed:
                self._look_in(self.rest_after_s)
                return
            held, self._held = self._held, None
        if held is not None and self._end is not None:
            self._end(held)
        del held
        heaps.give_back()
        heaps.give_back_files()
