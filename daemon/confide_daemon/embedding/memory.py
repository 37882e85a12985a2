"""How this process takes memory from the C library, gives it back to the system, and holds what is large only while that is used."""

from __future__ import annotations

import contextlib
import ctypes
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Generic, TypeVar

T = TypeVar("T")

_M_ARENA_MAX: Final = -8
"""malloc.h"""
_ARENAS: Final = 2


def share_heaps() -> None:
    """Has all threads take memory from two heaps, before there are threads.

    glibc makes one for each thread, up to eight for each core, and what is freed in one of them is of no use to the others: a daemon with
    its model takes a tenth more.
    """
    with contextlib.suppress(OSError, AttributeError, TypeError):  # another C library
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, _ARENAS)


def give_back() -> None:
    """Returns free pages of the C library's heaps; glibc keeps them else: 70 MiB behind the loading of a model. Some milliseconds."""
    with contextlib.suppress(OSError, AttributeError, TypeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)


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
        give_back()  # what making it needed for a moment
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
        give_back()
