"""A memory in numbers, for people who look at it as a whole: by day, by age, and how its notes hang together."""

from __future__ import annotations

import time

from confide_daemon.store.store import Store
from confide_daemon.store.tables.overview import DayRow, RelationRow
from confide_daemon.store.threads import StoreThreads


class Overview:
    def __init__(self, threads: StoreThreads) -> None:
        self._threads = threads

    async def days(
        self, projects: frozenset[str] | None, sources: frozenset[str] | None, *, since: float, zone_s: int, limit: int
    ) -> tuple[list[DayRow], list[tuple[int | None, int]]]:
        """What was stored and recalled by day, and how old what was recalled is (`OverviewTable`), of what a caller reaches."""

        def work(store: Store) -> tuple[list[DayRow], list[tuple[int | None, int]]]:
            with store.reading():
                days = store.overview.days(projects, sources, since=since, zone_s=zone_s, limit=limit)
                return days, store.overview.ages(projects, sources, now=time.time())

        return await self._threads.read(work)

    async def relations(self, project: str, projects: frozenset[str] | None, *, limit: int) -> list[RelationRow]:
        """What the notes of a project state of others that the caller reaches."""

        def work(store: Store) -> list[RelationRow]:
            with store.reading():
                return store.overview.relations(project, projects, limit=limit)

        return await self._threads.read(work)
