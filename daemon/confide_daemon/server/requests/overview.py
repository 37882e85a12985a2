"""The requests about a memory as a whole (PROTOCOL.md 9): days, relations, what a session begins with."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from confide_daemon.access.callers import Grants
from confide_daemon.addons import Operation
from confide_daemon.spaces.space import Space
from confide_daemon.store.rows import HitRow
from confide_memory import front_matter
from confide_memory.documents import GLOBAL_PROJECT, iso
from confide_memory.forms import MAX_DAYS


class OverviewRequests:
    """One connection's. What its caller has no grant for is not counted."""

    def __init__(self, space: Space, grants: Callable[[], Grants]) -> None:
        """`grants` is asked at each step."""
        self._space = space
        self._grants = grants
        self.operations: dict[str, Operation] = {
            "days": self._days,
            "relations": self._relations,
            "briefing": self._briefing,
        }

    async def _days(self, since: str, zone: int) -> dict[str, Any]:
        moment = datetime.fromisoformat(since).timestamp()
        grants = self._grants()
        days, ages = await self._space.listing.days(
            grants.projects, grants.sources, since=moment, zone_s=60 * zone, limit=MAX_DAYS
        )
        grants = self._grants()
        return {
            "days": [
                {"day": row.day, "project": row.project, "kind": row.kind, "count": row.number}
                for row in days
                if grants.has_project(row.project)
            ],
            "ages": [{"days": days, "recalls": recalls} for days, recalls in ages],
        }

    async def _relations(self, project: str, limit: int) -> dict[str, Any]:
        grants = self._grants()
        grants.require_project(project)
        grants.require_source("memory")
        found = await self._space.listing.relations(project, grants.projects, limit=limit)
        grants = self._grants()
        grants.require_project(project)
        return {
            "relations": [
                {
                    "id": row.id,
                    "title": row.title,
                    "relation": row.relation,
                    "otherId": row.other,
                    "otherTitle": row.other_title,
                    "otherProject": row.other_project,
                }
                for row in found
                if grants.has_project(row.other_project)
            ]
        }

    async def _briefing(self, project: str) -> dict[str, Any]:
        grants = self._grants()
        grants.require_project(project)
        grants.require_source("memory")
        found = await self._space.listing.briefing(project, with_global=grants.has_project(GLOBAL_PROJECT))
        grants = self._grants()
        grants.require_project(project)
        grants.require_source("memory")
        return {
            name: [piece for row in rows if grants.has_project(row.project) and (piece := _piece(row)) is not None]
            for name, rows in (("head", found.head), ("newest", found.newest))
        }


def _piece(row: HitRow) -> dict[str, Any] | None:
    """As it is sent; None where it is all front matter."""
    fields, text = front_matter.split(f"{row.text}\n") if row.position == 0 else ("", row.text)
    if not text.strip():
        return None
    return {
        "path": row.path,
        "project": row.project,
        "startLine": row.start_line + fields.count("\n"),
        "endLine": row.end_line,
        "snippet": text.rstrip("\n"),
        "heading": row.heading,
        "author": row.author,
        "updatedAt": iso(row.updated_at),
        "class": row.class_,
    }
