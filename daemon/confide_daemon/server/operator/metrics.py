"""The daemon's metrics in Prometheus' text format: recorded values (`confide_daemon.figures`) and
current ones (`live_status`).

There are at most 450 series. With `per_space` the largest spaces have two each, labelled with their
ids only.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from confide_daemon import __version__
from confide_daemon.figures import PREFIX, RECORDED
from confide_daemon.server.operator.live_status import LiveStatus, Looking

MOST_SERIES: Final = 450
MOST_SPACES: Final = 25
"""Limit on the spaces with series of their own: the largest, whose selection also changes least."""

Value = Callable[[], float | None]
"""Read at every scrape on the event loop; None hides the series."""


class Metrics(Collector):
    """Collects the metrics of one daemon."""

    def __init__(self, looking: Looking, *, per_space: bool) -> None:
        self._looking = looking
        self._per_space = per_space
        self._now: LiveStatus | None = None
        self._values: dict[str, tuple[str, Value]] = {}
        self._registry = CollectorRegistry(auto_describe=False)
        for recorded in RECORDED:
            self._registry.register(recorded)
        self._registry.register(ProcessCollector(registry=None))
        self._registry.register(self)
        self._began_at = time.time()

    def add(self, name: str, says: str, value: Value) -> None:
        """Add a gauge without labels. `name`: its name without the common prefix; `says`: its help
        text.
        """
        self._values[name] = says, value

    async def text(self) -> str:
        """Return all metrics in Prometheus' text format."""
        self._now = await self._looking.look()
        return generate_latest(self._registry).decode()

    async def top(self) -> dict[str, object]:
        """Return the numbers for `confided status --watch`; some of them are not among the metrics."""
        self._now = now = await self._looking.look()
        samples = [
            [sample.name, sample.labels, sample.value]
            for metric in self._registry.collect()
            for sample in metric.samples
        ]
        return {
            "version": __version__,
            "pid": os.getpid(),
            "upS": round(time.time() - self._began_at, 1),
            "health": list(now.health_problems),
            "diskBytes": now.sizes.total,
            "samples": samples,
        }

    def collect(self) -> Iterator[Metric]:
        """Yield the current metrics, from the last collected state."""
        now = self._now
        assert now is not None
        yield _gauge("build_info", "The version that runs.", {(__version__,): 1.0}, "version")
        yield _gauge("sessions", "Connections of devices.", {(): now.sessions})
        yield _gauge("spaces", "Spaces, by how they are.", {(state,): n for state, n in now.spaces.items()}, "state")
        yield _gauge("index_pieces_waiting", "Pieces of open spaces that wait for their vectors.", {(): now.waiting})
        yield _gauge(
            "embedding_up",
            "Whether the model can be asked now.",
            {(name,): float(is_up) for name, is_up in now.providers.items()},
            "provider",
        )
        yield _gauge("data_bytes", "Databases on the disk, without their logs.", {(): now.sizes.data})
        yield _gauge("wal_bytes", "Logs of the databases.", {(): now.sizes.wal})
        yield _gauge("disk_free_bytes", "Free where the data folder is.", {(): now.sizes.free})
        yield _gauge("disk_bytes", "The size of that file system.", {(): now.sizes.total})
        yield _gauge(
            "jobs", "The last 100 jobs of the operator.", {(state,): n for state, n in now.jobs.items()}, "state"
        )
        yield _gauge(
            "loop_lag_seconds", "How late the event loop was at worst in the last minute or two.", {(): now.lag_s}
        )
        yield _gauge(
            "unhealthy",
            "What does not work as it should, in the words of /health.",
            {(word,): 1.0 for word in now.health_problems},
            "what",
        )
        yield _gauge(
            "waiting_for_room",
            "What is put off until the disk has room.",
            {(what,): 1.0 for what in now.postponed},
            "what",
        )
        for name, (says, value) in self._values.items():
            if (found := value()) is not None:
                yield _gauge(name, says, {(): found})
        if self._per_space:
            largest = sorted(now.sizes.spaces, key=lambda one: (-now.sizes.spaces[one], one))[:MOST_SPACES]
            yield _gauge(
                "space_bytes",
                "A space's database with its log; the largest spaces alone.",
                {(space_id,): now.sizes.spaces[space_id] for space_id in largest},
                "space",
            )
            yield _gauge(
                "space_pieces_waiting",
                "Its pieces that wait for their vectors.",
                {(space_id,): now.waiting_of.get(space_id, 0) for space_id in largest},
                "space",
            )


def _gauge(name: str, says: str, values: dict[tuple[str, ...], float], *labels: str) -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"{PREFIX}_{name}", says, labels=labels)
    for labelled, value in values.items():
        family.add_metric(labelled, value)
    return family
