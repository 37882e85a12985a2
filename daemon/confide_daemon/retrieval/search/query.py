"""The query of a search, with all its filters, and their form for the store."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo

from confide_daemon.store.rows import Filter


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """The text of a query and its filters. `since` and `until` are whole days, both included,
    because documents are dated by day.
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
    zone: tzinfo | None = None  # in which days begin and end: of who asks; None: the daemon's
    is_limited: bool = False  # the caller may read only a part, and scores must not reveal the rest


def filter_of(query: SearchQuery) -> Filter:
    """Return the query's filters in the form that the store accepts."""
    return Filter(
        projects=query.projects,
        sources=query.sources,
        path=query.path,
        since=None if query.since is None else query.since.astimezone(query.zone).date().isoformat(),
        until=None if query.until is None else query.until.astimezone(query.zone).date().isoformat(),
        zone_s=0 if (query.since or query.until) is None else zone_seconds(query.zone),
        tags=query.tags,
        types=query.types,
        category=query.category,
        entity=query.entity,
        without_tasks=query.without_tasks,
        task=query.task,
        task_projects=query.task_projects,
        classes=query.classes,
    )


def wide_filter_of(query: SearchQuery) -> Filter:
    """Return the filters that limit where the query searches (projects, tasks, trust classes),
    without those that describe what it searches for.
    """
    return Filter(
        projects=query.projects,
        without_tasks=query.without_tasks,
        task=query.task,
        task_projects=query.task_projects,
        classes=query.classes,
    )


def zone_seconds(zone: tzinfo | None) -> int:
    """Return how many seconds the days of a time zone begin before those of UTC, at the present
    time. None stands for the daemon's time zone.
    """
    offset = datetime.now(UTC).astimezone(zone).utcoffset()
    return int(offset.total_seconds()) if offset else 0
