"""Routes that give an overview: the token's rights, the projects and the entities."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from confide_http.local.gateway_app import GatewayShared, identity_of
from confide_http.local.rest.request_args import answer, query_of
from confide_memory.wire.revisions import PROJECTS

PROJECTS_S: Final = 10.0
QUERY: Final = "q"


async def auth_check(_gateway: GatewayShared, request: Request) -> Response:
    """Return the name and rights of the token, and do nothing else."""
    identity = identity_of(request)
    expires = None if identity.expires is None else datetime.fromtimestamp(identity.expires, UTC)
    return answer(
        {
            "status": "ok",
            "name": identity.name,
            "user": identity.name,
            "scopes": sorted(identity.scopes),
            "projects": None if identity.projects is None else sorted(identity.projects),
            "expires": None if expires is None else expires.isoformat(timespec="seconds"),
        }
    )


async def projects(gateway: GatewayShared, request: Request) -> Response:
    """List the projects that the token may access."""
    identity, own = identity_of(request), gateway.calls.project
    found = await PROJECTS.ask(gateway.calls.link, {"project": own}, timeout_s=PROJECTS_S)
    reached = [
        {name: each[name] for name in ("name", "files", "updated", "linked")}
        for each in found["projects"]
        if identity.reaches(each["name"])
    ]
    return answer({"project": own, "projects": reached, "complete": found["complete"]})


async def entities(gateway: GatewayShared, request: Request) -> Response:
    """List all entities, or those similar to `q`."""
    words = request.query_params.get(QUERY, "").strip() or None
    tool = "entity_list" if words is None else "entity_search"
    asked = query_of(request, gateway.parameters(tool), but=(QUERY,)) | ({} if words is None else {"query": words})
    return answer(await gateway.calls.tool(identity_of(request), tool, asked))
