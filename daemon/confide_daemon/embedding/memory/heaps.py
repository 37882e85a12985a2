"""How this process takes memory from the C library, and gives it back to the system."""

from __future__ import annotations

import contextlib
import ctypes
from typing import Final

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
