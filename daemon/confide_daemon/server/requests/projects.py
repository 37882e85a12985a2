"""The requests about the projects of a space: projects, links, link, unlink (PROTOCOL.md 9)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from confide_daemon.access.grants import Grants
from confide_daemon.documents.projects import MAX_LISTED
from confide_daemon.server.requests.router import Operation
from confide_daemon.spaces.space import Space
from confide_memory.timestamps import iso


class ProjectRequests:
    """One connection's requests about projects. What its caller has no grant for does not exist to it."""

    def __init__(self, space: Space, grants: Callable[[], Grants]) -> None:
        """`grants` is asked at each step."""
        self._space = space
        self._grants = grants
        self.operations: dict[str, Operation] = {
            "projects": self._projects,
            "links": self._links,
            "link": self._link,
            "unlink": self._unlink,
        }

    async def _projects(self, project: str) -> dict[str, Any]:
        grants = self._grants()
        found = await self._space.projects.listed(grants.projects, grants.sources)
        linked = self._space.projects.linked(project)
        grants = self._grants()
        return {
            "projects": [
                {
                    "name": row.name,
                    "files": row.files,
                    "updated": iso(row.updated_at),
                    "linked": row.name in linked,
                }
                for row in found
                if grants.has_project(row.name)
            ],
            "complete": len(found) < MAX_LISTED,
        }

    async def _links(self, project: str) -> dict[str, Any]:
        self._grants().require_project(project)
        return self._linked(project)

    async def _link(self, project: str, other: str) -> dict[str, Any]:
        self._require_both(project, other)
        known = await self._space.status(self._grants().projects)
        self._require_both(project, other)
        await self._space.projects.link(project, other, known=known.projects)
        return self._linked(project)

    async def _unlink(self, project: str, other: str) -> dict[str, Any]:
        self._require_both(project, other)
        await self._space.projects.unlink(project, other)
        return self._linked(project)

    def _require_both(self, project: str, other: str) -> None:
        grants = self._grants()
        grants.require_scope()
        grants.require_project(project)
        grants.require_project(other)

    def _linked(self, project: str) -> dict[str, Any]:
        grants = self._grants()
        return {"linked": sorted(name for name in self._space.projects.linked(project) if grants.has_project(name))}
