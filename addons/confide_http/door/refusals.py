"""Error responses: a status, and `{"error": {"code", "message", "hint"}}`.

Codes are those of PROTOCOL.md 7.2, and some that exist only in HTTP. Responses never repeat text of
the request, a token or a project's name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ExceptionHandler

from confide_crypto.errors import ConfideError

STATUS: Final[Mapping[str, int]] = {
    "invalid": 400,
    "denied": 403,
    "not_found": 404,
    "conflict": 409,
    "stale": 412,
    "too_large": 413,
    "busy": 503,
    "unavailable": 503,
    "locked": 503,
    "cancelled": 503,
    "internal": 500,
    "storage_full": 507,
}
"""The HTTP status of each code."""
RETRY_S: Final = 2
"""`Retry-After` of temporary failures."""


class RefusalError(ConfideError):
    """A refused request. `status` is the HTTP status; `headers` are added to the response."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        hint: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.status, self.code = status, code
        self.headers = dict(headers or {})
        if status in (429, 503):
            self.headers.setdefault("Retry-After", str(RETRY_S))
        if status == 429:  # free the connection for other clients
            self.headers.setdefault("Connection", "close")

    @property
    def body(self) -> dict[str, object]:
        return {"error": {"code": self.code, "message": str(self), "hint": self.hint}}

    def response(self) -> JSONResponse:
        """Return the response with status, headers and JSON body."""
        return JSONResponse(self.body, status_code=self.status, headers=self.headers)


def refusal_of(error: ConfideError) -> RefusalError:
    """Return the refusal for a Confide error, chosen by the error's code."""
    if isinstance(error, RefusalError):
        return error
    return RefusalError(STATUS.get(error.code, 503), error.code, str(error), hint=error.hint)


def handlers(told: Callable[[ConfideError], RefusalError] = refusal_of) -> dict[Any, ExceptionHandler]:
    """Return the exception handlers of an application, for exceptions in routes and for unknown
    routes.

    `told` maps a failure to the refusal that the client gets.
    """

    async def refuse_internal(_request: Request, error: Exception) -> Response:
        assert isinstance(error, ConfideError)
        return told(error).response()

    return {HTTPException: _no_route, ConfideError: refuse_internal}


async def _no_route(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    words = {404: ("not_found", "there is nothing here"), 405: ("invalid", "this takes another method")}
    code, message = words.get(error.status_code, ("invalid", "the request is not one that is answered here"))
    return RefusalError(error.status_code, code, message, headers=error.headers).response()
