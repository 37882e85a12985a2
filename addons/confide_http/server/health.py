"""`GET /health`, which tells anybody that this is alive, and which version; and what RFC 9728 asks of a resource."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from confide_daemon import __version__
from confide_http.door.admission import METADATA
from confide_http.server.admission import SCOPES, resource_of


def routes(origin: str) -> list[Route]:
    """Open to all; `origin`: of the addresses that clients are told."""

    async def health(_request: Request) -> Response:
        return JSONResponse({"status": "ok", "version": __version__})

    async def describe(_request: Request) -> Response:
        return JSONResponse(
            {
                "resource": resource_of(origin),
                "authorization_servers": [origin],
                "scopes_supported": list(SCOPES),
                "bearer_methods_supported": ["header"],
                "resource_name": "Confide memory",
            }
        )

    return [
        Route("/health", health, methods=["GET"]),
        Route(METADATA, describe, methods=["GET"]),
        Route(f"{METADATA}/mcp", describe, methods=["GET"]),
    ]
