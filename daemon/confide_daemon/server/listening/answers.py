"""What plain HTTP gets on the port of the machines: `/health`, `/ready`, and nothing else."""

from __future__ import annotations

import http
import json
from collections.abc import Callable

from websockets.datastructures import Headers
from websockets.http11 import Request, Response

from confide_daemon import __version__


class Answers:
    """The same to everybody: behind a tunnel or a proxy every stranger comes from this machine."""

    def __init__(self, ailments: Callable[[], set[str]], unready: Callable[[], str | None]) -> None:
        """
        Args:
            ailments: what does not work as it should.
            unready: why no sessions are taken now; None where they are.
        """
        self._ailments = ailments
        self._unready = unready

    def __call__(self, request: Request) -> Response:
        path = request.path.partition("?")[0]
        # websockets before 16 knows no other method than GET.
        is_get = getattr(request, "method", "GET") in ("GET", "HEAD")
        if is_get and path.rstrip("/").endswith("/health"):
            return self._health()
        if is_get and path.rstrip("/").endswith("/ready"):
            return self._readiness()
        return not_found(request)

    def _health(self) -> Response:
        ailments = sorted(self._ailments())
        if not ailments:
            return response(http.HTTPStatus.OK, {"status": "ok", "version": __version__})
        body = {"status": "degraded", "reason": ", ".join(ailments), "version": __version__}
        return response(http.HTTPStatus.SERVICE_UNAVAILABLE, body)

    def _readiness(self) -> Response:
        """For balancers. A damaged space is no reason to send everybody elsewhere: that is `/health`."""
        why = self._unready()
        if why is not None:
            return response(http.HTTPStatus.SERVICE_UNAVAILABLE, {"status": "unready", "reason": why})
        return response(http.HTTPStatus.OK, {"status": "ready"})


def not_found(_request: Request) -> Response:
    """All that there is at the address for nodes, besides their websockets."""
    return response(http.HTTPStatus.NOT_FOUND, {"error": "not found"})


def response(status: http.HTTPStatus, body: dict[str, str]) -> Response:
    """A JSON answer, after which the connection ends."""
    data = json.dumps(body).encode() + b"\n"
    headers = Headers({"Content-Type": "application/json", "Content-Length": str(len(data)), "Connection": "close"})
    headers["Cache-Control"] = "no-store"
    return Response(status, status.phrase, headers, data)
