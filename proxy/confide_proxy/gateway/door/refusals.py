"""What a request is refused with: a status, and `{"error": {"code", "message", "hint"}}`.

Codes are those of PROTOCOL.md 7.2, and some that only HTTP has. No text of what was asked, no token and no project's name is repeated.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from starlette.responses import JSONResponse

from confide_crypto.errors import ConfideError, DeniedError, LinkError, RequestError
from confide_proxy.errors import (
    BlockedError,
    NotJoinedError,
    OfflineError,
    ToolError,
    UnfitAnswerError,
    UnsealableError,
)

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
    "internal": 502,
    "storage_full": 507,
}
"""The status of each code."""
RETRY_S: Final = 2
"""`Retry-After` of what is only for now."""


class RefusalError(ConfideError):
    """A request that is not answered as asked. `status` is HTTP's; `headers` go with the answer."""

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
        if status == 429:  # whoever asks too much keeps no connection that others could have
            self.headers.setdefault("Connection", "close")

    @classmethod
    def of(cls, error: BaseException) -> RefusalError:
        """What a request is told of a failure on its way to the daemon or there. Re-raises what is a fault of ours."""
        if isinstance(error, RefusalError):
            return error
        if isinstance(error, TimeoutError):
            return cls(504, "unavailable", "the daemon did not answer in time", hint="confide status shows how it is")
        if isinstance(error, RequestError):
            return cls(STATUS.get(error.code, 502), error.code, str(error), hint=error.hint)
        if isinstance(error, BlockedError | UnsealableError):
            return cls(403, "denied", str(error), hint=error.hint)
        if isinstance(error, ToolError):
            return cls(400, "invalid", str(error), hint=error.hint)
        if isinstance(error, UnfitAnswerError):
            return cls(502, "internal", str(error), hint=error.hint)
        if isinstance(error, LinkError | DeniedError | NotJoinedError | OfflineError):
            return cls(503, "unavailable", str(error), hint=error.hint)
        if isinstance(error, ConfideError):
            return cls(STATUS.get(error.code, 503), error.code, str(error), hint=error.hint)
        raise error

    @classmethod
    def scope_missing(cls, scope: str) -> RefusalError:
        """403 of RFC 6750, with the scope that it takes."""
        what = {"memory:read": "read", "memory:write": "write", "memory:secrets": "open sealed secrets"}[scope]
        return cls(
            403,
            "denied",
            f"this token may not {what}",
            hint=f"confide token new NAME --scope {scope.removeprefix('memory:')} makes one that may",
            headers={"WWW-Authenticate": f'Bearer error="insufficient_scope", scope="{scope}"'},
        )

    def response(self) -> JSONResponse:
        """The whole answer."""
        return JSONResponse(self.body, status_code=self.status, headers=self.headers)

    @property
    def body(self) -> dict[str, Any]:
        return {"error": {"code": self.code, "message": str(self), "hint": self.hint}}
