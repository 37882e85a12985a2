"""Maps failures of the daemon, or of the connection to it, to HTTP responses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from confide_crypto.errors import ConfideError, DeniedError, LinkError, RequestError
from confide_http.door.refusals import STATUS as OF_ALL
from confide_http.door.refusals import RefusalError
from confide_proxy.errors import (
    BlockedError,
    NotJoinedError,
    OfflineError,
    ToolError,
    UnfitAnswerError,
    UnsealableError,
)

STATUS: Final[Mapping[str, int]] = {**OF_ALL, "internal": 502}
"""The status of each code; the daemon is a server behind this gateway."""


def refusal_of(error: BaseException) -> RefusalError:
    """Return the refusal for a known failure. Raises any other error again, since it is a bug."""
    if isinstance(error, RefusalError):
        return error
    if isinstance(error, TimeoutError):
        return RefusalError(
            504, "unavailable", "the daemon did not answer in time", hint="confide status shows how it is"
        )
    if isinstance(error, RequestError):
        return RefusalError(STATUS.get(error.code, 502), error.code, str(error), hint=error.hint)
    if isinstance(error, BlockedError | UnsealableError):
        return RefusalError(403, "denied", str(error), hint=error.hint)
    if isinstance(error, ToolError):
        return RefusalError(400, "invalid", str(error), hint=error.hint)
    if isinstance(error, UnfitAnswerError):
        return RefusalError(502, "internal", str(error), hint=error.hint)
    if isinstance(error, LinkError | DeniedError | NotJoinedError | OfflineError):
        return RefusalError(503, "unavailable", str(error), hint=error.hint)
    if isinstance(error, ConfideError):
        return RefusalError(STATUS.get(error.code, 503), error.code, str(error), hint=error.hint)
    raise error
