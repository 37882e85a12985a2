"""What there is: status, projects, entities, and who asks."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from confide_http.local.app import identity_of
from confide_http.local.calls import Calls
from confide_http.local.rest.asked import answer, query_of
from confide_memory.answers import ask
from confide_proxy.mcp.catalogue import Catalogue

PROJECTS_S: Final = 10.0
QUERY: Final = "q"


class Overview:
    def __init__(self, calls: Calls, catalogue: Catalogue) -> None:
        self._calls = calls
        self._catalogue = catalogue

    async def auth_check(self, request: Request) -> Response:
        """Who asks, and what it may; nothing is done."""
        identity = identity_of(request)
        expires = identity.expires
        return answer(
            {
                "status": "ok",
                "name": identity.name,
                "user": identity.name,
                "scopes": sorted(identity.scopes),
                "projects": None if identity.projects is None else sorted(identity.projects),
                "expires": None
                if expires is None
                else datetime.fromtimestamp(expires, UTC).isoformat(timespec="seconds"),
            }
        )

    async def status(self, request: Request) -> Response:
        return answer(await self._calls.tool(identity_of(request), "memory_status", {}))

    async def tasks(self, request: Request) -> Response:
        """What is queued for runners, and how it stands."""
        return await self._read(request, "task_list")

    async def results(self, request: Request) -> Response:
        """What came of it."""
        return await self._read(request, "task_results")

    async def _read(self, request: Request, tool: str) -> Response:
        properties = self._catalogue.tools[tool]["inputSchema"]["properties"]
        return answer(await self._calls.tool(identity_of(request), tool, query_of(request, properties)))

    async def projects(self, request: Request) -> Response:
        identity = identity_of(request)
        found = await ask(self._calls.link, "projects", {"project": self._calls.project}, timeout_s=PROJECTS_S)
        reached = [
            {name: each[name] for name in ("name", "files", "updated", "linked")}
            for each in found["projects"]
            if identity.reaches(each["name"])
        ]
        return answer({"project": self._calls.project, "projects": reached, "complete": found["complete"]})

    async def entities(self, request: Request) -> Response:
        """All, or those that are alike to `q`."""
        words = request.query_params.get(QUERY, "").strip() or None
        tool = "entity_list" if words is None else "entity_search"
        properties = self._catalogue.tools[tool]["inputSchema"]["properties"]
        asked = query_of(request, properties, but=(QUERY,)) | ({} if words is None else {"query": words})
        return answer(await self._calls.tool(identity_of(request), tool, asked))
