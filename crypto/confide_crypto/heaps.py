"""How a process takes memory from the C library, and gives back what it does not use. Elsewhere than on glibc and Linux little is done."""

from __future__ import annotations

import contextlib
import ctypes
import re
from collections.abc import Iterator
from typing import Final

_M_ARENA_MAX: Final = -8
"""malloc.h"""
_MADV_DONTNEED: Final = 4
"""mman.h of Linux"""
_MAPPING: Final = re.compile(r"([0-9a-f]+)-([0-9a-f]+) .(.).. \S+ \S+ (\d+)")
"""A line of /proc/self/smaps that begins a mapping: from, to, whether it can be written, and its file, 0 without one (proc(5))."""


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


def give_back_files() -> None:
    """Let go of the pages of files that are mapped to be read, of libraries most of all: they are read again where they are used.

    Most are looked at while a library is loaded, and never again. A daemon at rest has 106 MB with them and 77 without, a session of
    `confide mcp` 43 and 31. Only on Linux; some 20 milliseconds.
    """
    with contextlib.suppress(OSError, AttributeError, TypeError, ValueError):
        library = ctypes.CDLL(None)
        for start, end in list(_unchanged()):
            library.madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), _MADV_DONTNEED)


def _unchanged() -> Iterator[tuple[int, int]]:
    """The mappings of files that cannot be written, and of which no page is another than in the file, as the linker's are."""
    found: re.Match[str] | None = None
    with open("/proc/self/smaps", encoding="utf-8", errors="replace") as file:
        for line in file:
            if line.startswith("Anonymous:"):
                if found is not None and found[3] == "-" and found[4] != "0" and line.split()[1] == "0":
                    yield int(found[1], 16), int(found[2], 16)
                found = None
            elif (begun := _MAPPING.match(line)) is not None:
                found = begun
