"""The query of a search, with all its filters."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from confide_daemon.store.rows import Filter


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """A query and its filters. `since` and `until` are whole days, both included, since documents
    are dated by day.
    """

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
    project: str | None = None  # of the caller: its chunks win ties, and gain in rank "balanced"
    explain: bool = False
    # Filters on notes; `Filter` describes each of them.
    tags: frozenset[str] = frozenset()
    types: frozenset[str] | None = None
    category: str | None = None
    entity: str | None = None
    without_tasks: bool = False
    task: str | None = None
    task_projects: frozenset[str] | None = None
    # Projects of the notes that may be named as related to a hit or as superseding it; None: all
    # projects.
    reach: frozenset[str] | None = None
    with_related: bool = False
    # Classes that hits, related notes and superseding notes may have; None: all classes.
    classes: frozenset[str] | None = None
    is_unasked: bool = False  # for a prompt without an explicit search: scores say if a hit helps
    is_limited: bool = False  # the caller may read only a part, and scores must not reveal the rest


def filter_of(query: SearchQuery) -> Filter:
    """Return the query's filters in the form that the store takes."""
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
