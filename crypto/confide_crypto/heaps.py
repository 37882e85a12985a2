"""Functions that keep the memory of this process small.

They work on glibc or Linux only, and do nothing on other systems.
"""

from __future__ import annotations

import contextlib
import ctypes
import re
from collections.abc import Iterator
from typing import Final

_M_ARENA_MAX: Final = -8
"""From glibc's malloc.h."""
_MADV_DONTNEED: Final = 4
"""From Linux's mman.h."""
_MAPPING: Final = re.compile(r"([0-9a-f]+)-([0-9a-f]+) .(.).. \S+ \S+ (\d+)")
"""The header line of a mapping in /proc/self/smaps (proc(5)): start, end, the write flag, and the
inode, which is 0 for a mapping without a file.
"""


def share(count: int) -> None:
    """Make all threads share `count` glibc heaps; call this before the first thread starts.

    By default glibc makes a heap for each thread, up to eight for each core. Memory that is freed
    in one heap cannot be reused by another.
    """
    with contextlib.suppress(OSError, AttributeError, TypeError):  # another C library
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, count)


def give_back() -> None:
    """Return unused heap pages to the system, which glibc would keep. Takes some milliseconds."""
    with contextlib.suppress(OSError, AttributeError, TypeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)


def give_back_files() -> None:
    """Remove unchanged pages of mapped files from memory, mostly those of shared libraries.

    The system reads a page from the file again when it is next used. Most pages are used only while
    a library is loaded: without them an idle daemon needs 77 MB instead of 106, and a `confide mcp`
    session 31 MB instead of 43. Linux only; takes some 20 milliseconds.
    """
    with contextlib.suppress(OSError, AttributeError, TypeError, ValueError):
        library = ctypes.CDLL(None)
        for start, end in list(_unmodified_mappings()):
            library.madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), _MADV_DONTNEED)


def _unmodified_mappings() -> Iterator[tuple[int, int]]:
    """Yield start and end of each mapping of a file that is read-only and has no page that differs
    from the file (the dynamic linker changes some).
    """
    found: re.Match[str] | None = None
    with open("/proc/self/smaps", encoding="utf-8", errors="replace") as file:
        for line in file:
            if line.startswith("Anonymous:"):
                if found is not None and found[3] == "-" and found[4] != "0" and line.split()[1] == "0":
                    yield int(found[1], 16), int(found[2], 16)
                found = None
            elif (begun := _MAPPING.match(line)) is not None:
                found = begun
