"""The requests about the projects of a space: projects, links, link, unlink (PROTOCOL.md 9)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from confide_daemon.exchange import Operation, project_of
from confide_daemon.grants import Grants
from confide_daemon.projects import MAX_LISTED
from confide_daemon.search import iso
from confide_daemon.space import Space


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

    async def _projects(self, body: dict[str, Any]) -> dict[str, Any]:
        project = project_of(body)
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

    async def _links(self, body: dict[str, Any]) -> dict[str, Any]:
        project = project_of(body)
        grants = self._grants()
        grants.require_project(project)
        return self._linked(project)

    async def _link(self, body: dict[str, Any]) -> dict[str, Any]:
        project, other = self._pair(body)
        known = await self._space.status(self._grants().projects)
        self._pair(body)
        await self._space.projects.link(project, other, known=known.projects)
        return self._linked(project)

    async def _unlink(self, body: dict[str, Any]) -> dict[str, Any]:
        project, other = self._pair(body)
        await self._space.projects.unlink(project, other)
        return self._linked(project)

    def _pair(self, body: dict[str, Any]) -> tuple[str, str]:
        project, other = project_of(body), project_of({"project": body.get("other")})
        grants = self._grants()
        grants.require_scope()
        grants.require_project(project)
        grants.require_project(other)
        return project, other

    def _linked(self, project: str) -> dict[str, Any]:
        grants = self._grants()
        return {"linked": sorted(name for name in self._space.projects.linked(project) if grants.has_project(name))}
