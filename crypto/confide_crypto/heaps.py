"""How a process takes memory from the C library, and gives it back. Elsewhere than on glibc nothing is done."""

from __future__ import annotations

import contextlib
import ctypes
from typing import Final

_M_ARENA_MAX: Final = -8
"""malloc.h"""


def share(count: int) -> None:
    """Have all threads take memory from so many heaps, before there are threads.

    glibc makes one for each thread, up to eight for each core, and what is freed in one is of no use to the others.
    """
    with contextlib.suppress(OSError, AttributeError, TypeError):  # another C library
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, count)


def give_back() -> None:
    """Return the free pages of the heaps to the system, which glibc keeps else. Some milliseconds."""
    with contextlib.suppress(OSError, AttributeError, TypeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)
