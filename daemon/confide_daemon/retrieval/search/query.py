"""What a search is asked for, with all that narrows it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from confide_daemon.store.rows import Filter


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """What is asked for. `since` and `until` count by whole days, both included: documents are dated by the day."""

    text: str
    projects: frozenset[str] | None = None
    max_results: int = 8
    min_score: float = 0.25
    sources: frozenset[str] | None = None
    path: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    keywords: tuple[str, ...] = ()
    rank: str = "relevance"
    max_tokens: int | None = None
    project: str | None = None  # the asking one: among equals its pieces come first, and in rank "balanced" they gain
    explain: bool = False
    # Of notes; `Filter` says how each narrows the search.
    tags: frozenset[str] = frozenset()
    types: frozenset[str] | None = None
    category: str | None = None
    entity: str | None = None
    without_tasks: bool = False
    task: str | None = None
    task_projects: frozenset[str] | None = None
    # Where notes may lie that hits are superseded by or related with; None: anywhere.
    reach: frozenset[str] | None = None
    with_related: bool = False
    # What may come back, in the hits and in what is told beside them; None: all classes.
    classes: frozenset[str] | None = None
    is_unasked: bool = False  # a prompt that nobody asked the memory about: scores say whether a hit helps with it
    is_limited: bool = False  # the caller reaches a part of the space, and its scores may tell nothing of the rest


def filter_of(query: SearchQuery) -> Filter:
    """The query's limits as the store takes them."""
    return Filter(
        projects=query.projects,
        sources=query.sources,
        path=query.path,
        since=_day(query.since),
        until=_day(query.until),
        tags=query.tags,
        types=query.types,
        category=query.category,
        entity=query.entity,
        without_tasks=query.without_tasks,
        task=query.task,
        task_projects=query.task_projects,
        classes=query.classes,
    )


def _day(moment: datetime | None) -> str | None:
    return None if moment is None else moment.astimezone(UTC).date().isoformat()
