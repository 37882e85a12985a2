"""Files of memory, by project and path."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import Response

from confide_http.door.refusals import RefusalError
from confide_http.local.app import identity_of
from confide_http.local.calls import Calls
from confide_http.local.door.identity import WRITE
from confide_http.local.door.limits import body_of
from confide_http.local.rest.asked import (
    MARKDOWN,
    answer,
    as_stale,
    expected_revision,
    idempotency_key,
    media_type,
    object_of,
    query_of,
)
from confide_proxy.mcp.catalogue import Catalogue

PREFIX: Final = "/api/documents/"
MOST_LINES: Final = 2000


class Documents:
    def __init__(self, calls: Calls, catalogue: Catalogue) -> None:
        self._calls = calls
        self._catalogue = catalogue

    async def read(self, request: Request) -> Response:
        project, path = place_of(request)
        properties = self._catalogue.tools["memory_read"]["inputSchema"]["properties"]
        asked = {"lines": MOST_LINES, **query_of(request, properties), "project": project, "path": path}
        found = await self._calls.tool(identity_of(request), "memory_read", asked)
        if request.headers.get("accept", "").partition(",")[0].partition(";")[0].strip() == MARKDOWN:
            tag = {"ETag": f'"{found["revision"]}"'} if found["revision"] else {}
            return Response(found["content"], media_type=MARKDOWN, headers=tag)
        return answer(found, revision=found["revision"])

    async def write(self, request: Request) -> Response:
        """The whole text: JSON with `content`, or markdown as it is."""
        identity = identity_of(request)
        identity.require(WRITE)
        project, path = place_of(request)
        if media_type(request) == MARKDOWN:
            try:
                body: dict[str, Any] = {"content": (await body_of(request)).decode("utf-8")}
            except UnicodeDecodeError:
                raise RefusalError(400, "invalid", "the body is not UTF-8 text") from None
        else:
            body = await object_of(request)
            if body.keys() != {"content"}:
                raise RefusalError(400, "invalid", "the body has 'content', and nothing else")
        expected = _expected(request)
        asked = {**body, "project": project, "path": path, "mode": "replace"}
        if expected is not None:
            asked["expectedRevision"] = expected
        key = idempotency_key(request)
        try:
            found = await self._calls.tool(identity, "memory_store", asked, idempotency_key=key)
        except RefusalError as error:
            raise as_stale(error, expected) from error
        status = 202 if found["queued"] else 201 if found["revision"] == 1 else 200
        return answer(found, revision=found["revision"], status=status)


def _expected(request: Request) -> int | None:
    """The revision that the file must have; 0: there must be none. Raises RefusalError: it is none, or both are asked."""
    expected, is_new = expected_revision(request), request.headers.get("if-none-match") == "*"
    if request.headers.get("if-match") == "*" or (is_new and expected is not None):
        raise RefusalError(
            400,
            "invalid",
            "a file is written where it has a revision (If-Match), or where there is none (If-None-Match: *)",
        )
    return 0 if is_new else expected


def place_of(request: Request) -> tuple[str, str]:
    """Project and path: a slash in a project's name is written %2F there. Raises RefusalError: one of them is missing."""
    raw = request.scope.get("raw_path") or request.url.path.encode()
    rest = raw.decode("ascii", "replace").removeprefix(PREFIX)
    project, _, path = rest.partition("/")
    if not project or not path:
        raise RefusalError(404, "not_found", "there is nothing here", hint="/api/documents/PROJECT/PATH")
    try:
        return unquote(project, errors="strict"), unquote(path, errors="strict")
    except UnicodeDecodeError:
        raise RefusalError(400, "invalid", "the address is not UTF-8 text") from None
