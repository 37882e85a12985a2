"""A machine's requests (PROTOCOL.md 9 and 10), one module a family.

Here is which of them one is, what it carries, and what its error says.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from confide_crypto.errors import ConfideError, RequestError
from confide_memory.requests import read

Operation = Callable[..., Awaitable[dict[str, Any]]]
"""Answers a request; gets its fields as `confide_memory.requests` has them."""


async def answer(operations: Mapping[str, Operation], op: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """Answer one request. Raises RequestError where it cannot be done; the code says why."""
    operation = operations.get(op)
    if operation is None:
        hint = "do the versions of confide and confided fit?"
        raise RequestError("invalid", "this daemon does not know that request", hint)
    try:
        return await operation(**read(op, body))
    except ConfideError as error:
        raise as_request_error(error) from error


def as_request_error(error: ConfideError) -> RequestError:
    """The answer for an error: a code that the proxy acts on, and the sentence for a person."""
    return error if isinstance(error, RequestError) else RequestError(error.code, str(error), error.hint)
