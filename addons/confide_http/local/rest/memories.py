"""The routes of memories: stored, found, listed, read, changed, deleted, linked."""

from __future__ import annotations

from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from confide_crypto.errors import ConfideError
from confide_http.door.refusals import RefusalError
from confide_http.local.app import identity_of
from confide_http.local.calls import Calls
from confide_http.local.door.identity import WRITE
from confide_http.local.rest import shapes
from confide_http.local.rest.asked import (
    answer,
    as_stale,
    expected_revision,
    idempotency_key,
    object_of,
    query_of,
)
from confide_http.local.rest.texts import Texts
from confide_proxy.mcp.catalogue import Catalogue

PREVIEW_CHARS: Final = 50


class Memories:
    def __init__(self, calls: Calls, catalogue: Catalogue) -> None:
        self._calls = calls
        self._catalogue = catalogue
        self._texts = Texts(calls)

    async def store(self, request: Request) -> Response:
        asked = shapes.store_arguments(await object_of(request))
        key = idempotency_key(request)
        found = await self._calls.tool(identity_of(request), "memory_store", asked, idempotency_key=key)
        return answer(shapes.stored(found, asked), revision=found["revision"], status=202 if found["queued"] else 201)

    async def recall(self, request: Request) -> Response:
        identity = identity_of(request)
        found = await self._calls.tool(identity, "memory_search", shapes.search_arguments(await object_of(request)))
        texts = await self._texts_of(request, found["results"])
        memories = []
        for hit in found["results"]:
            text = texts.get((hit["project"], hit["path"]))
            one = shapes.memory(hit, text.note if text else None, hit["snippet"])
            memories.append({**one, "rank": hit["score"]})
        return answer({**found, "memories": memories})

    async def list(self, request: Request) -> Response:
        properties = self._catalogue.tools["memory_list"]["inputSchema"]["properties"]
        found = await self._calls.tool(identity_of(request), "memory_list", query_of(request, properties))
        texts = await self._texts_of(request, found["memories"])
        memories = []
        for each in found["memories"]:
            text = texts.get((each["project"], each["path"]))
            memories.append(
                shapes.memory(each, text.note if text else None, text.note.body.strip() if text else each["snippet"])
            )
        return answer({**found, "memories": memories})

    async def get(self, request: Request) -> Response:
        found = await self._calls.tool(identity_of(request), "memory_get", {"id": request.path_params["id"]})
        return answer(found, revision=found["revision"])

    async def update(self, request: Request) -> Response:
        expected = expected_revision(request)
        asked = {**await object_of(request), "id": request.path_params["id"]}
        if expected is not None:
            asked["expectedRevision"] = expected
        try:
            found = await self._calls.tool(
                identity_of(request), "memory_update", asked, idempotency_key=idempotency_key(request)
            )
        except RefusalError as error:
            raise as_stale(error, expected) from error
        return answer(found, revision=found.get("revision"), status=202 if found["queued"] else 200)

    async def delete(self, request: Request) -> Response:
        identity, expected = identity_of(request), expected_revision(request)
        identity.require(WRITE)
        named = {"id": request.path_params["id"]}
        preview = ""
        try:
            before = await self._calls.tool(identity, "memory_get", named)
            preview = before["content"][:PREVIEW_CHARS]
        except RefusalError as error:
            if error.status != 503:
                raise  # else the deletion waits on this machine, as it does without a look before
        key, more = idempotency_key(request), {} if expected is None else {"expectedRevision": expected}
        try:
            found = await self._calls.tool(identity, "memory_delete", {**named, **more}, idempotency_key=key)
        except RefusalError as error:
            raise as_stale(error, expected) from error
        return answer({**found, "preview": preview}, status=202 if found["queued"] else 200)

    async def history(self, request: Request) -> Response:
        properties = self._catalogue.tools["memory_history"]["inputSchema"]["properties"]
        asked = {**query_of(request, properties), "id": request.path_params["id"]}
        return answer(await self._calls.tool(identity_of(request), "memory_history", asked))

    async def link(self, request: Request) -> Response:
        asked = {**await object_of(request), "id": request.path_params["id"]}
        key = idempotency_key(request)
        found = await self._calls.tool(identity_of(request), "memory_link", asked, idempotency_key=key)
        return answer(found, status=202 if found["queued"] else 200)

    async def _texts_of(self, request: Request, places: Any) -> Any:
        try:
            return await self._texts.of(identity_of(request), places)
        except (ConfideError, TimeoutError):
            return {}  # what the answer has of them is told all the same
