"""What a request is refused with: a status, and `{"error": {"code", "message", "hint"}}`, as `confide serve` does.

Codes are those of PROTOCOL.md 7.2, and some that only HTTP has. No text of what was asked, no token and no project's name is repeated.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from starlette.responses import JSONResponse

from confide_crypto.errors import ConfideError

STATUS: Final[Mapping[str, int]] = {
    "invalid": 400,
    "denied": 403,
    "not_found": 404,
    "too_large": 413,
    "busy": 503,
    "unavailable": 503,
    "locked": 503,
    "internal": 500,
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

    @classmethod
    def of(cls, error: ConfideError) -> RefusalError:
        """What a request is told of a failure."""
        if isinstance(error, RefusalError):
            return error
        return cls(STATUS.get(error.code, 503), error.code, str(error), hint=error.hint)

    def response(self) -> JSONResponse:
        """The whole answer."""
        body: dict[str, Any] = {"error": {"code": self.code, "message": str(self), "hint": self.hint}}
        return JSONResponse(body, status_code=self.status, headers=self.headers)
