"""The daemon's counters and timers: objects of the Prometheus client library, with the names under
which they are published.

Every package counts its events here, and `server.operator.metrics` publishes the values. There is
one set for the whole process. No label contains a name from outside, and each label has few values.
So metrics reveal no stored text, and there are at most 450 time series.
"""

from __future__ import annotations

import threading
from typing import Final

from prometheus_client import Counter, Histogram, Summary, disable_created_metrics
from prometheus_client.metrics import MetricWrapperBase

PREFIX: Final = "confided"
MOST_PAIRS: Final = 48
"""Limit on the pairs of a tool and a code. There are 200 at worst; an operator with more has seen
the first of them.
"""
OTHER: Final = "other"


# The library adds a creation time per series: a third more series without a use.
disable_created_metrics()  # type: ignore[no-untyped-call]


def _counter(name: str, says: str, *labels: str) -> Counter:
    return Counter(name, says, labels, namespace=PREFIX, registry=None)


def _times(name: str, says: str, *labels: str, buckets: tuple[float, ...]) -> Histogram:
    return Histogram(name, says, labels, namespace=PREFIX, buckets=buckets, registry=None)


TOOL_DURATION: Final = _times(
    "tool_duration_seconds", "Tool calls, whatever their outcome.", "tool", buckets=(0.01, 0.05, 0.25, 1.0, 5.0)
)
TOOL_ERRORS: Final = _counter("tool_errors", "Tool calls that failed, by the code of the error.", "tool", "code")
SEARCH_STAGE: Final = _times(
    "search_stage_seconds", "Stages of searches.", "stage", buckets=(0.001, 0.005, 0.025, 0.1, 0.5)
)
WRITE_WAIT: Final = _times(
    "write_wait_seconds",
    "Waits of a write for the one writer of its space.",
    buckets=(0.001, 0.01, 0.05, 0.25, 1.0, 5.0),
)
STORE_APPEND: Final = Summary(
    "store_append_seconds", "Round trips of a write to the database of the store.", namespace=PREFIX, registry=None
)
TAKEOVERS: Final = _counter("store_takeovers", "Spaces taken from nodes that refuse connections.")
RELAYED: Final = _counter("relayed_sessions", "Sessions passed on to the node that holds their space.")
EMBEDDING_TOKENS: Final = _counter("embedding_tokens", "Tokens that were embedded.", "provider")
HANDSHAKES: Final = _counter("handshakes", "Handshakes, by what became of them.", "result")
REFUSED: Final = _counter("refused", "Connections refused before or in their handshake.", "reason")
BREACHES: Final = _counter("breaches", "Rows found that broke an invariant of a database.", "what")

RECORDED: Final[tuple[MetricWrapperBase, ...]] = (
    TOOL_DURATION,
    TOOL_ERRORS,
    SEARCH_STAGE,
    WRITE_WAIT,
    STORE_APPEND,
    TAKEOVERS,
    RELAYED,
    EMBEDDING_TOKENS,
    HANDSHAKES,
    REFUSED,
    BREACHES,
)
"""All recorded metrics."""

_pairs: set[tuple[str, str]] = set()
_pairs_lock = threading.Lock()


def count_failure(tool: str, code: str) -> None:
    """Count a failed call of a tool in the metrics, by the tool's name and the error code."""
    with _pairs_lock:
        if len(_pairs) < MOST_PAIRS:
            _pairs.add((tool, code))
        known = (tool, code) in _pairs
    TOOL_ERRORS.labels(tool if known else OTHER, code).inc()
