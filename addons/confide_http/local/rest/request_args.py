"""What a request asks: its query, its body and its conditions, as arguments of a tool; and the call."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse

from confide_http.door.refusals import RefusalError
from confide_http.door.request_limits import body_of
from confide_http.local.gateway_app import GatewayShared, identity_of
from confide_memory.tools.call import is_blank

_TAG: Final = re.compile(r'(?:W/)?"?([1-9]\d{0,14})"?')
_KEY: Final = re.compile(r"[\x21-\x7e]{1,200}")
MARKDOWN: Final = "text/markdown"
JSON: Final = "application/json"


def media_type(request: Request) -> str:
    """Of the body."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


async def json_of(request: Request) -> Any:
    """The body as JSON. Raises RefusalError: it is none, or says that it is something else."""
    if media_type(request) != JSON:
        raise RefusalError(415, "invalid", "the body must be application/json")
    try:
        found = json.loads(await body_of(request))
        json.dumps(found, ensure_ascii=False).encode()
    except (ValueError, RecursionError):  # half of a surrogate pair is an error of the encoding, which is one of these
        raise RefusalError(400, "invalid", "the body is not JSON") from None
    return found


async def object_of(request: Request) -> dict[str, Any]:
    """The body as a JSON object. Raises as `json_of`."""
    found = await json_of(request)
    if not isinstance(found, dict):
        raise RefusalError(400, "invalid", "the body is not a JSON object")
    return found


def query_of(
    request: Request, properties: Mapping[str, Mapping[str, object]], *, but: Collection[str] = ()
) -> dict[str, object]:
    """The query as arguments: what stands there more than once is a list, what is blank is not given. Strings stay so: the tool's check
    reads them by its schema.

    `but`: names that are not the tool's, and are left out.
    """
    found: dict[str, Any] = {}
    for name in dict.fromkeys(request.query_params.keys()):
        if name in but:
            continue
        values: list[str] = request.query_params.getlist(name)
        is_list = properties.get(name, {}).get("type") == "array"
        if is_list and len(values) == 1:  # as lists are written in one parameter
            values = [part.strip() for part in values[0].split(",") if part.strip()]
        if is_blank(values):
            continue
        found[name] = values if is_list or len(values) > 1 else values[0]
    return found


def flag_of(request: Request, name: str) -> bool:
    """A yes or no of the query. Raises RefusalError: it is neither."""
    said = request.query_params.get(name, "false").lower()
    if said not in ("true", "false", "1", "0", ""):
        raise RefusalError(400, "invalid", f"'{name}' is true or false")
    return said in ("true", "1", "")


def number_of(request: Request, name: str, usual: int, most: int) -> int:
    """A number of the query, from 1 on. Raises RefusalError: it is none, or too large."""
    said = request.query_params.get(name, "").strip() or str(usual)
    if not re.fullmatch(r"[0-9]{1,9}", said) or not 1 <= int(said) <= most:
        raise RefusalError(400, "invalid", f"'{name}' is a number from 1 to {most:,}")
    return int(said)


def idempotency_key(request: Request) -> str | None:
    """The client's own name for what it does: a repeated request is done once. Raises RefusalError: it is none."""
    said = request.headers.get("idempotency-key")
    if said is not None and not _KEY.fullmatch(said):
        raise RefusalError(400, "invalid", "Idempotency-Key has 1 to 200 printable characters")
    return said


def expected_revision(request: Request) -> int | None:
    """The revision of `If-Match`. Raises RefusalError: it is none."""
    said = request.headers.get("if-match")
    if said is None or said == "*":
        return None
    match = _TAG.fullmatch(said.strip())
    if match is None:
        raise RefusalError(400, "invalid", "If-Match is a revision, as ETag has it")
    return int(match[1])


async def changed(
    gateway: GatewayShared, request: Request, tool: str, asked: dict[str, Any], *, expected: int | None = None
) -> Any:
    """What a tool tells that changes something, done once for each `Idempotency-Key`.

    `expected`: the revision that it must have; where it has another one, RefusalError is 412.
    """
    key = idempotency_key(request)
    if expected is not None:
        asked = {**asked, "expectedRevision": expected}
    try:
        return await gateway.calls.tool(identity_of(request), tool, asked, idempotency_key=key)
    except RefusalError as error:
        if expected is None or error.code != "conflict":
            raise
        raise RefusalError(412, "stale", str(error), hint="read it again, and decide anew") from error


def answer(found: Any, *, revision: int | None = None, status: int = 200) -> JSONResponse:
    """The answer, with the revision as its ETag."""
    return JSONResponse(found, status, {"ETag": f'"{revision}"'} if revision else None)
