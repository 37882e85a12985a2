"""Plain HTTP on the daemon's port: answers to `/health` and `/ready`, and nothing else."""

from __future__ import annotations

import http
import json
from typing import Protocol

from websockets.datastructures import Headers
from websockets.http11 import Request, Response

from confide_daemon import __version__


class Answering(Protocol):
    """The daemon's methods that the health endpoint uses."""

    def health_problems(self) -> set[str]:
        """Return the daemon's current problems, in the words that `/health` uses."""

    def why_unready(self) -> str | None:
        """Return the reason why the daemon accepts no sessions now, or None if it does."""


class Answers:
    """Answers HTTP requests. All clients get the same answers: behind a tunnel or proxy, every
    client seems to be on this computer.
    """

    def __init__(self, daemon: Answering | None = None) -> None:
        """Create the handler. Without `daemon`, as at the address for nodes, every path is not
        found.
        """
        self._daemon = daemon

    def __call__(self, request: Request) -> Response:
        if self._daemon is None:
            return not_found()
        path = request.path.partition("?")[0]
        # websockets before 16 accepts GET only and has no `method`.
        is_get = getattr(request, "method", "GET") in ("GET", "HEAD")
        if is_get and path.rstrip("/").endswith("/health"):
            return _health(self._daemon.health_problems())
        if is_get and path.rstrip("/").endswith("/ready"):
            return _readiness(self._daemon.why_unready())
        return not_found()


def _health(health_problems: set[str]) -> Response:
    if not health_problems:
        return response(http.HTTPStatus.OK, {"status": "ok", "version": __version__})
    body = {"status": "degraded", "reason": ", ".join(sorted(health_problems)), "version": __version__}
    return response(http.HTTPStatus.SERVICE_UNAVAILABLE, body)


def _readiness(why: str | None) -> Response:
    """Return the answer for load balancers. A damaged space does not affect it: `/health` reports
    that.
    """
    if why is not None:
        return response(http.HTTPStatus.SERVICE_UNAVAILABLE, {"status": "unready", "reason": why})
    return response(http.HTTPStatus.OK, {"status": "ready"})


def not_found() -> Response:
    """Return the response for all other paths."""
    return response(http.HTTPStatus.NOT_FOUND, {"error": "not found"})


def response(status: http.HTTPStatus, body: dict[str, str]) -> Response:
    """Return a JSON response that also closes the connection."""
    data = json.dumps(body).encode() + b"\n"
    headers = Headers({"Content-Type": "application/json", "Content-Length": str(len(data)), "Connection": "close"})
    headers["Cache-Control"] = "no-store"
    return Response(status, status.phrase, headers, data)
