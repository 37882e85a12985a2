"""Routes for memories whose response has more than the result of the tool: store, search, list,
delete.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from confide_crypto.errors import ConfideError
from confide_http.door.refusals import RefusalError
from confide_http.local.gateway_app import GatewayShared, identity_of
from confide_http.local.request_identity import WRITE
from confide_http.local.rest import shapes
from confide_http.local.rest.request_args import answer, expected_revision, object_of, query_of, run_change
from confide_http.local.rest.texts import NewestText, texts_of

PREVIEW_CHARS: Final = 50


async def store(gateway: GatewayShared, request: Request) -> Response:
    """Store a note, or a text in a file if the client names a file."""
    asked = shapes.store_arguments(await object_of(request))
    found = await run_change(gateway, request, "memory_store", asked)
    return answer(shapes.store_answer(found, asked), revision=found["revision"], status=202 if found["queued"] else 201)


async def recall(gateway: GatewayShared, request: Request) -> Response:
    """Search the memory, and return the results in the form that the client expects."""
    asked = shapes.search_arguments(await object_of(request))
    found = await gateway.calls.tool(identity_of(request), "memory_search", asked)
    texts = await _texts_of(gateway, request, found["results"])
    memories = []
    for hit in found["results"]:
        text = texts.get((hit["project"], hit["path"]))
        one = shapes.memory(hit, text.note if text else None, hit["snippet"])
        memories.append({**one, "rank": hit["score"]})
    return answer({**found, "memories": memories})


async def list_notes(gateway: GatewayShared, request: Request) -> Response:
    """List notes by their fields, each with its whole text."""
    asked = query_of(request, gateway.parameters("memory_list"))
    found = await gateway.calls.tool(identity_of(request), "memory_list", asked)
    texts = await _texts_of(gateway, request, found["memories"])
    memories = []
    for each in found["memories"]:
        text = texts.get((each["project"], each["path"]))
        shown = text.note.body.strip() if text else each["snippet"]
        memories.append(shapes.memory(each, text.note if text else None, shown))
    return answer({**found, "memories": memories})


async def delete(gateway: GatewayShared, request: Request) -> Response:
    """Delete a note; the response has the beginning of its text."""
    identity, expected = identity_of(request), expected_revision(request)
    identity.require(WRITE)
    named = {"id": request.path_params["id"]}
    preview = ""
    try:
        before = await gateway.calls.tool(identity, "memory_get", named)
        preview = before["content"][:PREVIEW_CHARS]
    except RefusalError as error:
        if error.status != 503:
            raise  # otherwise the deletion is queued on this device, as without this lookup
    found = await run_change(gateway, request, "memory_delete", named, expected=expected)
    return answer({**found, "preview": preview}, status=202 if found["queued"] else 200)


async def _texts_of(
    gateway: GatewayShared, request: Request, places: Sequence[Mapping[str, object]]
) -> Mapping[tuple[str, str], NewestText]:
    try:
        return await texts_of(gateway.calls, identity_of(request), places)
    except (ConfideError, TimeoutError):
        return {}  # the response still has the tool's own fields
