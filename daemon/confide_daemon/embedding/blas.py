"""What numpy's BLAS is told before it is loaded."""

from __future__ import annotations

import os
import platform
from typing import Final

_AVX512: Final = frozenset({"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"})
"""What OpenBLAS's kernels for SkylakeX take for granted, by the names of /proc/cpuinfo."""


def prepare() -> None:
    """Sets what OpenBLAS reads as it is loaded, where the user has not."""
    # Two threads turn a quarter of a millisecond into 8 to 16 on a busy machine (retrieval.md 2).
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # The one in numpy's wheels takes a processor of AMD's that has AVX-512 for one without, at half the speed.
    if platform.machine() == "x86_64" and _AVX512 <= _flags():
        os.environ.setdefault("OPENBLAS_CORETYPE", "SkylakeX")


def _flags() -> set[str]:
    """What the first processor has, as Linux tells; nothing elsewhere."""
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
            return set(next((line for line in file if line.startswith("flags")), "").split())
    except OSError:
        return set()
