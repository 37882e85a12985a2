"""How this process takes memory from the system, and gives it back."""

from __future__ import annotations

import contextlib
import ctypes
import re
from collections.abc import Iterator
from typing import Final

_M_ARENA_MAX: Final = -8
"""malloc.h"""
_ARENAS: Final = 2
_MADV_DONTNEED: Final = 4
"""mman.h of Linux"""
_MAPPING: Final = re.compile(r"([0-9a-f]+)-([0-9a-f]+) .(.).. \S+ \S+ (\d+)")
"""A line of /proc/self/smaps that begins a mapping: from, to, whether it can be written, and its file, 0 without one (proc(5))."""


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


def give_back_files() -> None:
    """Lets go of the pages of files that are mapped to be read, of libraries most of all: they are read again where they are used.

    Of 36 MB of libraries 28 are looked at while they are loaded, and never again. Only on Linux; some 20 milliseconds.
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
