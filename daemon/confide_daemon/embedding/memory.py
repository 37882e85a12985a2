"""Memory that was needed for a moment goes back to the system."""

from __future__ import annotations

import contextlib
import ctypes


def give_back() -> None:
    """Returns free pages of the C library's heaps; glibc keeps them else: 70 MiB behind the loading of a model. Some milliseconds."""
    with contextlib.suppress(OSError, AttributeError, TypeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)
