"""Routes for documents by project and path."""

from __future__ import annotations

from typing import Final
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import Response

from confide_http.door.refusals import RefusalError
from confide_http.door.request_limits import body_of
from confide_http.local.gateway_app import GatewayShared, identity_of
from confide_http.local.request_identity import WRITE
from confide_http.local.rest.request_args import (
    MARKDOWN,
    answer,
    expected_revision,
    media_type,
    object_of,
    query_of,
    run_change,
)

PREFIX: Final = "/api/documents/"
MOST_LINES: Final = 2000


async def read(gateway: GatewayShared, request: Request) -> Response:
    """Return a document as JSON, or its bare text if the client prefers markdown."""
    project, path = place_of(request)
    asked = {
        "lines": MOST_LINES,
        **query_of(request, gateway.parameters("memory_read")),
        "project": project,
        "path": path,
    }
    found = await gateway.calls.tool(identity_of(request), "memory_read", asked)
    if request.headers.get("accept", "").partition(",")[0].partition(";")[0].strip() == MARKDOWN:
        tag = {"ETag": f'"{found["revision"]}"'} if found["revision"] else {}
        return Response(found["content"], media_type=MARKDOWN, headers=tag)
    return answer(found, revision=found["revision"])


async def write(gateway: GatewayShared, request: Request) -> Response:
    """Store the whole text of a document; the body is JSON with `content`, or the markdown itself."""
    identity_of(request).require(WRITE)
    project, path = place_of(request)
    if media_type(request) == MARKDOWN:
        try:
            content = (await body_of(request)).decode("utf-8")
        except UnicodeDecodeError:
            raise RefusalError(400, "invalid", "the body is not UTF-8 text") from None
    else:
        body = await object_of(request)
        if body.keys() != {"content"}:
            raise RefusalError(400, "invalid", "the body has 'content', and nothing else")
        content = body["content"]
    asked = {"content": content, "project": project, "path": path, "mode": "replace"}
    found = await run_change(gateway, request, "memory_store", asked, expected=_expected_revision(request))
    status = 202 if found["queued"] else 201 if found["revision"] == 1 else 200
    return answer(found, revision=found["revision"], status=status)


def _expected_revision(request: Request) -> int | None:
    """Return the revision that the document must have; 0: it must not exist. Raises RefusalError:
    malformed, or both conditions.
    """
    expected, absent = expected_revision(request), request.headers.get("if-none-match")
    is_new = absent is not None and absent.strip() == "*"
    is_other = absent is not None and not is_new  # a condition that cannot be kept is no wish for none
    if request.headers.get("if-match") == "*" or is_other or (is_new and expected is not None):
        raise RefusalError(
            400,
            "invalid",
            "a file is written where it has a revision (If-Match), or where there is none (If-None-Match: *)",
        )
    return 0 if is_new else expected


def place_of(request: Request) -> tuple[str, str]:
    """Return the project and path that the address of a request names. A slash in a project's name
    is written %2F. Raises RefusalError if one of them is missing.
    """
    raw = request.scope.get("raw_path") or request.url.path.encode()
    rest = raw.decode("ascii", "replace").removeprefix(PREFIX)
    project, _, path = rest.partition("/")
    if not project or not path:
        raise RefusalError(404, "not_found", "there is nothing here", hint="/api/documents/PROJECT/PATH")
    try:
        return unquote(project, errors="strict"), unquote(path, errors="strict")
    except UnicodeDecodeError:
        raise RefusalError(400, "invalid", "the address is not UTF-8 text") from None
