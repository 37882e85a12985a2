"""What a process weighs over time, and whether it grows."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

MIB: Final = 2**20
HOUR_S: Final = 3600.0


@dataclass(frozen=True, slots=True)
class Sample:
    """A process and its folder at one moment. Sizes in bytes; `at` as `time.monotonic`."""

    at: float
    resident: int
    descriptors: int
    threads: int
    largest_wal: int

    @classmethod
    def taken(cls, process: psutil.Process, data: Path) -> Sample:
        """Raises psutil.Error: it has ended."""
        with process.oneshot():
            resident, descriptors, threads = (
                process.memory_info().rss,
                process.num_fds(),
                process.num_threads(),
            )
        wals = (_size(path) for path in data.rglob("*-wal"))
        return cls(time.monotonic(), resident, descriptors, threads, max(wals, default=0))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0  # closed meanwhile


def slope(samples: Sequence[Sample]) -> float:
    """MiB an hour by which resident memory grows: the median of the slopes of all pairs (Theil and Sen), which a few peaks do not move."""
    thinned = samples[:: max(1, len(samples) // 200)]
    slopes = [
        (later.resident - earlier.resident) / MIB / (later.at - earlier.at) * HOUR_S
        for place, earlier in enumerate(thinned)
        for later in thinned[place + 1 :]
        if later.at > earlier.at
    ]
    return statistics.median(slopes) if slopes else 0.0


def p95(values: Sequence[float]) -> float:
    """The 95th percentile; 0 of nothing."""
    return statistics.quantiles(values, n=20)[-1] if len(values) > 1 else sum(values)
