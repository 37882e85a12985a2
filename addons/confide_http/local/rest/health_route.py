"""`GET /health`, which returns the version to all clients and details to those with a token; and
the resource metadata of RFC 9728.
"""

from __future__ import annotations

import sys
import time
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from confide_http.door.refusals import RefusalError
from confide_http.local.gateway_app import GatewayShared, RouteGroup
from confide_http.local.request_identity import RequestIdentity
from confide_proxy import VERSION


def routes(gateway: GatewayShared) -> RouteGroup:
    """Return the routes; they need no authentication."""
    health = HealthRoutes(gateway)
    # No authorization server: `confide http token new` creates the tokens.
    return RouteGroup([Route("/health", health.answer, methods=["GET"]), *gateway.by_token.metadata_routes()], None)


class HealthRoutes:
    """Reports the state of this gateway and of its daemon."""

    def __init__(self, gateway: GatewayShared) -> None:
        self._gateway = gateway

    async def answer(self, request: Request) -> Response:
        """Answer that the gateway runs, with its version; with details if the client has the read
        scope.
        """
        told: dict[str, object] = {"status": "ok", "version": VERSION}
        if "authorization" not in request.headers:
            return JSONResponse(told)
        identity = await self._gateway.by_token(request)
        told |= {
            "uptimeS": round(time.monotonic() - self._gateway.began, 1),
            "memoryBytes": memory_bytes(),
            **{name: count() for name, count in self._gateway.counts.items()},
            "streams": self._gateway.streams.uses,
            "requests": self._gateway.exchange.waiting,
        }
        health_problems = await self._daemon(identity, told)
        if health_problems:
            told |= {"status": "degraded", "reason": ", ".join(health_problems)}
        return JSONResponse(told)

    async def _daemon(self, identity: RequestIdentity, told: dict[str, Any]) -> list[str]:
        """Add the state of the link and of the daemon to `told`; return the problems."""
        link = self._gateway.exchange.link
        told["link"] = {"state": "up" if link.is_up else "down", "sinceS": round(time.time() - link.since, 1)}
        if not link.is_up:
            return ["link"]
        try:
            status = await self._gateway.calls.tool(identity, "memory_status", {})
        except RefusalError:
            return ["daemon"]
        told |= {
            "daemonVersion": status["daemonVersion"],
            "database": {"bytes": status["dbSize"], "atRest": status["atRest"]},
            "index": {
                "state": status["health"]["state"],
                "pieces": status["totalChunks"],
                "waiting": status["queuedChunks"],
                "ageS": status["indexAge"],
                "legs": {"keyword": "up", "vector": "up" if status["provider"] else "down"},
            },
            "models": status["providers"],
            "generations": status["generations"],
            "searchLatencyMs": status["searchLatencyMs"],
            "queue": {name: status[name] for name in ("queuedOffline", "deadLetters", "pendingUploads")},
            "custody": status["sealing"]["custody"],
        }
        dead = status["health"]["state"] == "damaged"
        if dead:
            told["index"]["legs"]["keyword"] = "down"
        found = {"index": dead, "vectors": not status["provider"], "queue": bool(status["deadLetters"])}
        return [name for name, is_so in found.items() if is_so]


def memory_bytes() -> int:
    """Return this process's resident memory in bytes, or its peak on systems that report only the
    peak.
    """
    try:
        import resource
    except ImportError:
        return 0  # Windows
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    except (OSError, ValueError, IndexError):
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024
