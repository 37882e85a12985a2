"""What plain HTTP gets on the port of the machines: `/health`, `/ready`, and nothing else."""

from __future__ import annotations

import http
import json
from typing import Protocol

from websockets.datastructures import Headers
from websockets.http11 import Request, Response

from confide_daemon import __version__


class Answering(Protocol):
    """The daemon, as strangers may hear of it."""

    def health_problems(self) -> set[str]:
        """What does not work as it should, in the words of `/health`."""

    def why_unready(self) -> str | None:
        """Why no sessions are taken now; None where they are."""


class Answers:
    """The same to everybody: behind a tunnel or a proxy every stranger comes from this machine."""

    def __init__(self, daemon: Answering | None = None) -> None:
        """`daemon`: None where not even that is told, as at the address for nodes."""
        self._daemon = daemon

    def __call__(self, request: Request) -> Response:
        if self._daemon is None:
            return not_found()
        path = request.path.partition("?")[0]
        # websockets before 16 knows no other method than GET.
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
    """For balancers. A damaged space is no reason to send everybody elsewhere: that is `/health`."""
    if why is not None:
        return response(http.HTTPStatus.SERVICE_UNAVAILABLE, {"status": "unready", "reason": why})
    return response(http.HTTPStatus.OK, {"status": "ready"})


def not_found() -> Response:
    """What is told of everything else."""
    return response(http.HTTPStatus.NOT_FOUND, {"error": "not found"})


def response(status: http.HTTPStatus, body: dict[str, str]) -> Response:
    """A JSON answer, after which the connection ends."""
    data = json.dumps(body).encode() + b"\n"
    headers = Headers({"Content-Type": "application/json", "Content-Length": str(len(data)), "Connection": "close"})
    headers["Cache-Control"] = "no-store"
    return Response(status, status.phrase, headers, data)
