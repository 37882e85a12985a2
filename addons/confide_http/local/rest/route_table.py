"""The table of routes: parameters, responses, scopes and handlers. `openapi` is generated from it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from confide_http.local.gateway_app import GatewayShared, RouteGroup, identity_of
from confide_http.local.request_identity import READ, SECRETS, WRITE, Scope
from confide_http.local.rest import change_feed, document_routes, imports, memories, overview_routes
from confide_http.local.rest.request_args import answer, expected_revision, object_of, query_of, run_change

Schema = Mapping[str, Any]
Answering = Callable[[GatewayShared, Request], Awaitable[Response]]
_NOTHING: Final[Schema] = MappingProxyType({})
_TEXT: Final[Schema] = {"type": "string"}
_WHOLE: Final[Schema] = {"type": "integer"}
_FLAG: Final[Schema] = {"type": "boolean", "default": False}
_PERHAPS: Final[Schema] = {"type": ["string", "null"]}
_TIME: Final[Schema] = {
    "type": "string",
    "description": "A time (ISO 8601), or what 'next' said; left out: from the beginning",
}
_ONCE: Final = ("Idempotency-Key",)
_WHERE: Final = ("Idempotency-Key", "If-Match")


class RestOperation(NamedTuple):
    """A route of the REST API.

    Attributes:
        does: the name of the operation.
        scope: the scope that it requires.
        tool: the tool whose parameters and structured content it has; "" for none.
        takes: where the tool's parameters are, except for those in the path.
        by: its handler; None if it only calls the tool.
        query: further parameters.
        body: the schema of a body that is not the tool's.
        gives: the schema of a response that is not the tool's; with a tool, of additional fields.
        statuses: the statuses of successful responses.
        conditions: the conditional headers that it supports.
    """

    method: str
    path: str
    does: str
    summary: str
    scope: Scope
    tool: str = ""
    takes: Literal["query", "body", "none"] = "none"
    by: Answering | None = None
    query: Mapping[str, Schema] = _NOTHING
    body: Schema | None = None
    gives: Schema = _NOTHING
    statuses: Sequence[int] = (200,)
    conditions: Sequence[str] = ()


def _object(**properties: Schema) -> Schema:
    return {"type": "object", "properties": properties, "required": list(properties)}


def _list(**properties: Schema) -> Schema:
    return {"type": "array", "items": _object(**properties)}


_MEMORY: Final = {
    "id": _PERHAPS,
    "content": _TEXT,
    "category": _TEXT,
    "tags": {"type": "string", "description": "With commas between them"},
    "expanded_keywords": _TEXT,
    "importance": {"type": "number"},
    "is_sensitive": {"type": "boolean"},
    "created_at": _TEXT,
    "updated_at": _TEXT,
}
_WHO: Final = _object(
    status=_TEXT,
    name=_TEXT,
    user=_TEXT,
    scopes={"type": "array", "items": _TEXT},
    projects={"type": ["array", "null"], "items": _TEXT},
    expires=_PERHAPS,
)
_STORED: Final = _object(category=_PERHAPS, importance={"type": "number"})
_PAGE: Final[Schema] = {
    "type": "integer",
    "minimum": 1,
    "maximum": change_feed.MOST,
    "description": "Of a page; left out: up to 5,000",
}
_CHANGES: Final = _object(
    memories=_list(**_MEMORY, revision=_WHOLE, deleted_at=_PERHAPS),
    changes=_list(
        change=_WHOLE, path=_TEXT, id=_PERHAPS, revision=_WHOLE, author=_TEXT, time=_TEXT, deleted={"type": "boolean"}
    ),
    next=_TEXT,
    complete={"type": "boolean"},
    server_time=_TEXT,
)
_BROUGHT: Final[Schema] = {"description": "JSON as an export or another system writes it, or markdown (text/markdown)"}
_MIGRATED: Final = _object(migrated=_WHOLE, found=_WHOLE, dryRun={"type": "boolean"})
_SECRET: Final = _object(id=_TEXT, content=_TEXT, source={"enum": ["sealed", "plaintext"]})
_PROJECTS: Final = _object(
    project=_TEXT,
    projects=_list(name=_TEXT, files=_WHOLE, updated=_TEXT, linked={"type": "boolean"}),
    complete={"type": "boolean"},
)
_LIKE: Final[Schema] = {"type": "string", "minLength": 1, "maxLength": 100}

OPERATIONS: Final = (
    RestOperation(
        "GET", "/api/auth-check", "auth_check", "Who asks, and what it may.", READ, by=overview_routes.auth_check, gives=_WHO
    ),
    RestOperation(
        "POST", "/api/memories", "store",
        "Store a note, or with path, heading or mode a text in a file. Takes tags as one string too, expanded_keywords, force_sensitive.",
        WRITE, "memory_store", "body", memories.store, gives=_STORED, statuses=(201, 202), conditions=_ONCE
    ),
    RestOperation(
        "GET", "/api/memories", "list", "List notes.", READ, "memory_list", "query", memories.list_notes,
        gives=_object(memories=_list(**_MEMORY))
    ),
    RestOperation(
        "POST", "/api/memories/recall", "recall",
        "Search. Also takes context for query, expanded_query, sort_by and limit.",
        READ, "memory_search", "body", memories.recall,
        gives=_object(memories=_list(**_MEMORY, rank={"type": "number"}))
    ),
    RestOperation(
        "GET", "/api/memories/sync", "sync", "What has changed, deletions too, in order and in pages.", READ,
        by=change_feed.sync, query={"since": _TIME, "project": _TEXT, "limit": _PAGE}, gives=_CHANGES
    ),
    RestOperation(
        "POST", "/api/memories/import", "bring", "Import memories from the body: without confirm a preview.", WRITE,
        by=imports.bring, query={"confirm": _FLAG}, body=_BROUGHT, gives={"type": ["object", "array"]}
    ),
    RestOperation(
        "POST", "/api/memories/migrate-secrets", "migrate",
        "Seal credentials that were stored in clear; with dryRun only look.", SECRETS,
        by=imports.migrate, query={"dryRun": _FLAG}, gives=_MIGRATED
    ),
    RestOperation("GET", "/api/memories/{id}", "get", "Read a note.", READ, "memory_get"),
    RestOperation(
        "PATCH", "/api/memories/{id}", "update", "Change a note.", WRITE, "memory_update", "body",
        statuses=(200, 202), conditions=_WHERE
    ),
    RestOperation(
        "DELETE", "/api/memories/{id}", "delete", "Delete a note; it can be restored for 90 days.", WRITE,
        "memory_delete", by=memories.delete, gives=_object(preview=_TEXT), statuses=(200, 202), conditions=_WHERE
    ),
    RestOperation(
        "GET", "/api/memories/{id}/history", "history", "The revisions of a note.", READ, "memory_history", "query"
    ),
    RestOperation(
        "POST", "/api/memories/{id}/links", "link", "Relate a note to another one.", WRITE, "memory_link", "body",
        statuses=(200, 202), conditions=_ONCE
    ),
    RestOperation(
        "POST", "/api/memories/{id}/secret", "secret",
        "A sealed secret in clear, or a note with its secrets in their places.", SECRETS,
        by=imports.secret, gives=_SECRET
    ),
    RestOperation(
        "GET", "/api/documents/{project}/{path}", "read",
        "Read a file of memory; with Accept: text/markdown its text alone. A slash in a project's name is written %2F.",
        READ, "memory_read", "query", document_routes.read
    ),
    RestOperation(
        "PUT", "/api/documents/{project}/{path}", "write",
        "Write a whole file of memory, as JSON or as text/markdown.", WRITE, "memory_store", by=document_routes.write,
        body=_object(content=_TEXT), statuses=(200, 201, 202), conditions=(*_WHERE, "If-None-Match")
    ),
    RestOperation("GET", "/api/status", "status", "How the memory and its index are.", READ, "memory_status"),
    RestOperation(
        "GET", "/api/projects", "projects", "The projects of the memory.", READ, by=overview_routes.projects, gives=_PROJECTS
    ),
    RestOperation(
        "GET", "/api/entities", "entities", "The entities of the memory, or with q those of a name like it.", READ,
        "entity_list", "query", overview_routes.entities, query={"q": _LIKE}, gives={"type": "object"}
    ),
    RestOperation(
        "GET", "/api/tasks", "tasks",
        "What is queued for the night, and how it stands. To add, approve or cancel takes a person: confide task.",
        READ, "task_list", "query"
    ),
    RestOperation("GET", "/api/tasks/results", "results", "What came of tasks.", READ, "task_results", "query"),
)  # fmt: skip
"""Routes with a fixed path come before those with `{id}`: the first match answers."""


def routes(gateway: GatewayShared) -> RouteGroup:
    """Return the REST routes, which require a token."""
    routes = [
        Route(_pattern(each.path), partial(each.by or partial(_by_tool, each), gateway), methods=[each.method])
        for each in OPERATIONS
    ]
    return RouteGroup(routes, gateway.by_token)


async def _by_tool(each: RestOperation, gateway: GatewayShared, request: Request) -> Response:
    """Call the route's tool with the parameters in path and query or body."""
    asked: dict[str, Any] = {}
    if each.takes == "query":
        asked = query_of(request, gateway.parameters(each.tool))
    elif each.takes == "body":
        asked = await object_of(request)
    asked |= request.path_params
    if not each.conditions:
        found = await gateway.calls.tool(identity_of(request), each.tool, asked)
        return answer(found, revision=found.get("revision"))
    expected = expected_revision(request) if "If-Match" in each.conditions else None
    found = await run_change(gateway, request, each.tool, asked, expected=expected)
    return answer(found, revision=found.get("revision"), status=202 if found["queued"] else each.statuses[0])


def _pattern(path: str) -> str:
    return path.replace("/{project}/{path}", "/{rest:path}")
