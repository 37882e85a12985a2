"""`GET /health`: to anybody that this is alive, and which version; with a token how all stands. And what RFC 9728 asks of a resource."""

from __future__ import annotations

import resource
import sys
import time
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from confide_proxy import VERSION
from confide_proxy.gateway.app import Gateway, Room
from confide_proxy.gateway.door.admission import METADATA
from confide_proxy.gateway.door.identity import SCOPES


def room(gateway: Gateway) -> Room:
    """Open to all."""
    health = Health(gateway)
    routes = [
        Route("/health", health.tell, methods=["GET"]),
        Route(METADATA, health.describe, methods=["GET"]),
        Route(f"{METADATA}/mcp", health.describe, methods=["GET"]),
    ]
    return Room(routes, None)


class Health:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def tell(self, request: Request) -> Response:
        """Alive and version; the rest for who may read."""
        told: dict[str, Any] = {"status": "ok", "version": VERSION}
        if "authorization" in request.headers:
            self._gateway.by_token(request)
            told["gateway"] = {
                "uptimeS": round(time.monotonic() - self._gateway.began, 1),
                "memoryBytes": memory_bytes(),
            }
        return JSONResponse(told)

    async def describe(self, _request: Request) -> Response:
        """Protected resource metadata (RFC 9728). No authorization server: tokens of this machine are made by `confide token new`."""
        origin = self._gateway.origin
        return JSONResponse(
            {
                "resource": f"{origin}/mcp",
                "scopes_supported": list(SCOPES),
                "bearer_methods_supported": ["header"],
                "resource_name": "Confide memory",
            }
        )


def memory_bytes() -> int:
    """What this process has resident now; on systems that do not say, the most that it had."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    except (OSError, ValueError, IndexError):
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024
