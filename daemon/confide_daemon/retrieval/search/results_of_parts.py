"""Joins the results of searches for several parts of a query into one result."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Any

from confide_daemon.retrieval.search.engine import SearchResult
from confide_daemon.retrieval.search.query import SearchQuery
from confide_daemon.retrieval.search.results import SearchHit


def joined_result(query: SearchQuery, parts: Sequence[str], found: Sequence[SearchResult]) -> SearchResult:
    """Return the hits of all parts. They are taken from each part in turn, the best first, until
    there are enough.

    If some parts found nothing while others did, a warning names each of them.
    """
    chosen: dict[tuple[int, int], tuple[SearchHit, Any]] = {}
    seen: set[tuple[int, int]] = set()
    for hit, explained in _in_turn(found):
        lines = [(hit.document, line) for line in range(hit.start_line, hit.end_line + 1)]
        if not seen.isdisjoint(lines):
            continue
        if len(chosen) == query.max_results:
            break
        seen.update(lines)
        chosen[lines[0]] = hit, explained
    best_first = sorted(chosen.values(), key=lambda pair: -_order(pair[0]))
    warnings = list(dict.fromkeys(warning for one in found for warning in one.warnings))
    if chosen:
        warnings += [f"nothing was found for: {part}" for part, one in zip(parts, found, strict=True) if not one.hits]
    modes = {one.mode for one in found}
    timings: dict[str, float] = {}
    for one in found:
        for stage, elapsed in one.timings.items():
            timings[stage] = timings.get(stage, 0.0) + elapsed
    return SearchResult(
        [hit for hit, _ in best_first],
        "hybrid" if "hybrid" in modes else found[0].mode,
        warnings,
        max(one.index_age_s for one in found),
        timings,
        _explanation(parts, found, [explained for _, explained in best_first]) if query.explain else None,
    )


def _in_turn(found: Sequence[SearchResult]) -> Iterator[tuple[SearchHit, Any]]:
    """Yield each hit with its explanation: the best of each search, then the second of each, ..."""
    explained = [(one.explanation or {}).get("hits") or [None] * len(one.hits) for one in found]
    pairs = [list(zip(one.hits, told, strict=True)) for one, told in zip(found, explained, strict=True)]
    for turn in zip_longest(*pairs):
        yield from (pair for pair in turn if pair is not None)


def _order(hit: SearchHit) -> float:
    return hit.score if hit.order is None else hit.order


def _explanation(parts: Sequence[str], found: Sequence[SearchResult], hits: list[Any]) -> dict[str, Any]:
    each = [one.explanation or {} for one in found]
    return {
        "parts": list(parts),
        "matched": "; ".join(one.get("matched", "") for one in each),
        "exact": "; ".join(one["exact"] for one in each if one.get("exact")),
        "days": next((one["days"] for one in each if one.get("days")), None),
        "keywordCandidates": sum(one.get("keywordCandidates", 0) for one in each),
        "vectorCandidates": sum(one.get("vectorCandidates", 0) for one in each),
        "hits": hits,
    }
