"""Parses a request's query, body and conditions into arguments of a tool, and runs the call."""

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
    """Return the media type of a request's body."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


async def json_of(request: Request) -> Any:
    """Return the body as JSON. Raises RefusalError if the body is not JSON or its media type is
    another.
    """
    if media_type(request) != JSON:
        raise RefusalError(415, "invalid", "the body must be application/json")
    try:
        found = json.loads(await body_of(request))
        json.dumps(found, ensure_ascii=False).encode()
    except (ValueError, RecursionError):  # half of a surrogate pair is an error of the encoding, which is one of these
        raise RefusalError(400, "invalid", "the body is not JSON") from None
    return found


async def object_of(request: Request) -> dict[str, Any]:
    """Return the body as a JSON object. Raises RefusalError if the body is not a JSON object or its
    media type is another.
    """
    found = await json_of(request)
    if not isinstance(found, dict):
        raise RefusalError(400, "invalid", "the body is not a JSON object")
    return found


def query_of(
    request: Request, properties: Mapping[str, Mapping[str, object]], *, but: Collection[str] = ()
) -> dict[str, object]:
    """Return the query as arguments of a tool. A parameter that occurs more than once becomes a
    list, a blank one is left out. Values stay strings, which the tool converts by its schema.

    `but` has the names of parameters that are not arguments of the tool; they are left out.
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
    """Return a boolean parameter of the query. Raises RefusalError if its value is not a boolean."""
    said = request.query_params.get(name, "false").lower()
    if said not in ("true", "false", "1", "0", ""):
        raise RefusalError(400, "invalid", f"'{name}' is true or false")
    return said in ("true", "1", "")


def number_of(request: Request, name: str, usual: int, most: int) -> int:
    """Return a positive whole number of the query, `usual` if it is missing. Raises RefusalError if
    it is not a number or larger than `most`.
    """
    said = request.query_params.get(name, "").strip() or str(usual)
    if not re.fullmatch(r"[0-9]{1,9}", said) or not 1 <= int(said) <= most:
        raise RefusalError(400, "invalid", f"'{name}' is a number from 1 to {most:,}")
    return int(said)


def idempotency_key(request: Request) -> str | None:
    """Return the header `Idempotency-Key`, or None. Requests with the same key are executed once.
    Raises RefusalError if the header is malformed.
    """
    said = request.headers.get("idempotency-key")
    if said is not None and not _KEY.fullmatch(said):
        raise RefusalError(400, "invalid", "Idempotency-Key has 1 to 200 printable characters")
    return said


def expected_revision(request: Request) -> int | None:
    """Return the revision in the header `If-Match`, or None. Raises RefusalError if the header is
    malformed.
    """
    said = request.headers.get("if-match")
    if said is None or said == "*":
        return None
    match = _TAG.fullmatch(said.strip())
    if match is None:
        raise RefusalError(400, "invalid", "If-Match is a revision, as ETag has it")
    return int(match[1])


async def run_change(
    gateway: GatewayShared, request: Request, tool: str, asked: dict[str, Any], *, expected: int | None = None
) -> Any:
    """Call a tool that changes something, once per `Idempotency-Key`, and return its content.

    `expected` is the revision that the document must have; None accepts any. Raises RefusalError
    with status 412 if it has another one.
    """
    key = idempotency_key(request)
    if expected is not None:
        asked = {**asked, "expectedRevision": expected}
    try:
        return await gateway.calls.tool(identity_of(request), tool, asked, idempotency_key=key)
    except RefusalError as error:
        if expected is None or error.code != "conflict":
            raise
        raise RefusalError(412, "stale", str(error), hint="read it again, and decide again") from error


def answer(found: Any, *, revision: int | None = None, status: int = 200) -> JSONResponse:
    """Build the JSON response, with the revision as its ETag."""
    return JSONResponse(found, status, {"ETag": f'"{revision}"'} if revision else None)
