"""What keeps `confide mcp` small: a session of it runs for every agent on a machine, all day.

Both measures here are about libraries and the C allocator, not about our own code; `bench/start.py` shows what they are worth.
"""

from __future__ import annotations

import sys
import types

_M_ARENA_MAX = -8  # malloc.h


def one_arena() -> None:
    """Let all threads allocate from one arena of glibc's: each of a dozen idle threads would keep one of its own (0.7 MB here)."""
    if sys.platform != "linux":
        return
    import ctypes

    try:
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)
    except AttributeError:
        return  # not glibc


def give_back() -> None:
    """Return what was freed to the system, after something large has gone: glibc keeps it for this process otherwise."""
    if sys.platform != "linux":
        return
    import ctypes

    try:
        ctypes.CDLL(None).malloc_trim(0)
    except AttributeError:
        return  # not glibc


def without_package_metadata() -> None:
    """Spare `websockets` the import of `importlib.metadata`, with `email`, `zipfile` and `csv` behind it (36 ms, 1 MB here).

    A released `websockets` imports it and uses it only for its own version, which nothing here reads.
    """
    name = "websockets.version"
    if name not in sys.modules:
        stand_in = types.ModuleType(name)
        stand_in.__dict__.update(tag="", version="", commit="")
        sys.modules[name] = stand_in
