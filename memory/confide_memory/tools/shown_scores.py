"""The scores of hits as they are shown: none is higher than that of a hit above it."""

from __future__ import annotations

from collections.abc import Sequence


def falling(scores: Sequence[float]) -> list[float]:
    """The nearest scores that do not rise: where one stands above a higher one, both get their mean (isotonic regression by pooling of
    neighbours; Ayer et al., Ann. Math. Statist. 26 (4), 1955). None leaves the bounds of what was given, so a threshold that each has
    passed is passed by all of these."""
    pools: list[tuple[float, int]] = []
    for score in scores:
        mean, count = score, 1
        while pools and pools[-1][0] < mean:
            above, more = pools.pop()
            mean, count = (above * more + mean * count) / (more + count), more + count
        pools.append((mean, count))
    return [mean for mean, count in pools for _ in range(count)]
