"""The table of routes: what each takes and gives, who may, and what answers it. `openapi` is made of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple

from starlette.routing import Route

from confide_http.local.app import Gateway, Handler, Room
from confide_http.local.door.identity import READ, SECRETS, WRITE, Scope
from confide_http.local.rest.bringing import Bringing
from confide_http.local.rest.documents import Documents
from confide_http.local.rest.following import MOST, Following
from confide_http.local.rest.memories import Memories
from confide_http.local.rest.overview import Overview

Schema = Mapping[str, Any]
_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})
_TEXT: Final[Schema] = {"type": "string"}
_FLAG: Final[Schema] = {"type": "boolean", "default": False}
_TIME: Final[Schema] = {
    "type": "string",
    "description": "A time (ISO 8601), or what 'next' said; left out: from the beginning",
}


class Operation(NamedTuple):
    """A route.

    Attributes:
        does: the name of what answers it, in `handlers`.
        scope: that it takes.
        tool: whose parameters and structured content these are; "" where it is no tool's.
        takes: where the tool's parameters stand, those of the path apart.
        query: further parameters.
        body: the schema of a body that is no tool's.
        gives: of an answer that is no tool's: its schema; beside the tool's own fields where there is a tool.
        statuses: of answers that are no errors.
        conditions: headers that it understands.
    """

    method: str
    path: str
    does: str
    summary: str
    scope: Scope
    tool: str = ""
    takes: Literal["query", "body", "none"] = "none"
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
    "id": {"type": ["string", "null"]},
    "content": _TEXT,
    "category": _TEXT,
    "tags": {"type": "string", "description": "With commas between them"},
    "expanded_keywords": _TEXT,
    "importance": {"type": "number"},
    "is_sensitive": {"type": "boolean"},
    "created_at": _TEXT,
    "updated_at": _TEXT,
}
_SECRET: Final = _object(id=_TEXT, content=_TEXT, source={"enum": ["sealed", "plaintext"]})

OPERATIONS: Final = (
    Operation(
        "GET",
        "/api/auth-check",
        "auth_check",
        "Who asks, and what it may.",
        READ,
        gives=_object(
            status=_TEXT,
            name=_TEXT,
            user=_TEXT,
            scopes={"type": "array", "items": _TEXT},
            projects={"type": ["array", "null"], "items": _TEXT},
            expires={"type": ["string", "null"]},
        ),
    ),
    Operation(
        "POST",
        "/api/memories",
        "store",
        "Store a note, or with path, heading or mode a text in a file. Takes tags as one string too, expanded_keywords, force_sensitive.",
        WRITE,
        "memory_store",
        "body",
        gives=_object(category={"type": ["string", "null"]}, importance={"type": "number"}),
        statuses=(201, 202),
        conditions=("Idempotency-Key",),
    ),
    Operation(
        "GET",
        "/api/memories",
        "list_",
        "List notes.",
        READ,
        "memory_list",
        "query",
        gives=_object(memories=_list(**_MEMORY)),
    ),
    Operation(
        "POST",
        "/api/memories/recall",
        "recall",
        "Search. Also takes context for query, expanded_query, sort_by and limit.",
        READ,
        "memory_search",
        "body",
        gives=_object(memories=_list(**_MEMORY, rank={"type": "number"})),
    ),
    Operation(
        "GET",
        "/api/memories/sync",
        "sync",
        "What has changed, deletions too, in order and in pages.",
        READ,
        query={
            "since": _TIME,
            "project": _TEXT,
            "limit": {
                "type": "integer",
                "minimum": 1,
                "maximum": MOST,
                "description": "Of a page; left out: up to 5,000",
            },
        },
        gives=_object(
            memories=_list(**_MEMORY, revision={"type": "integer"}, deleted_at={"type": ["string", "null"]}),
            changes=_list(
                change={"type": "integer"},
                path=_TEXT,
                id={"type": ["string", "null"]},
                revision={"type": "integer"},
                author=_TEXT,
                time=_TEXT,
                deleted={"type": "boolean"},
            ),
            next=_TEXT,
            complete={"type": "boolean"},
            server_time=_TEXT,
        ),
    ),
    Operation(
        "POST",
        "/api/memories/import",
        "bring",
        "Import memories from the body: without confirm a preview.",
        WRITE,
        query={"confirm": _FLAG},
        body={"description": "JSON as an export or another system writes it, or markdown (text/markdown)"},
        gives={"type": ["object", "array"]},
    ),
    Operation(
        "POST",
        "/api/memories/migrate-secrets",
        "migrate",
        "Seal credentials that were stored in clear; with dryRun only look.",
        SECRETS,
        query={"dryRun": _FLAG},
        gives=_object(migrated={"type": "integer"}, found={"type": "integer"}, dryRun={"type": "boolean"}),
    ),
    Operation("GET", "/api/memories/{id}", "get", "Read a note.", READ, "memory_get"),
    Operation(
        "PATCH",
        "/api/memories/{id}",
        "update",
        "Change a note.",
        WRITE,
        "memory_update",
        "body",
        statuses=(200, 202),
        conditions=("Idempotency-Key", "If-Match"),
    ),
    Operation(
        "DELETE",
        "/api/memories/{id}",
        "delete",
        "Delete a note; it can be restored for 90 days.",
        WRITE,
        "memory_delete",
        gives=_object(preview=_TEXT),
        statuses=(200, 202),
        conditions=("Idempotency-Key", "If-Match"),
    ),
    Operation(
        "GET", "/api/memories/{id}/history", "history", "The revisions of a note.", READ, "memory_history", "query"
    ),
    Operation(
        "POST",
        "/api/memories/{id}/links",
        "link",
        "Relate a note to another one.",
        WRITE,
        "memory_link",
        "body",
        statuses=(200, 202),
        conditions=("Idempotency-Key",),
    ),
    Operation(
        "POST",
        "/api/memories/{id}/secret",
        "secret",
        "A sealed secret in clear, or a note with its secrets in their places.",
        SECRETS,
        gives=_SECRET,
    ),
    Operation(
        "GET",
        "/api/documents/{project}/{path}",
        "read",
        "Read a file of memory; with Accept: text/markdown its text alone. A slash in a project's name is written %2F.",
        READ,
        "memory_read",
        "query",
    ),
    Operation(
        "PUT",
        "/api/documents/{project}/{path}",
        "write",
        "Write a whole file of memory, as JSON or as text/markdown.",
        WRITE,
        "memory_store",
        body=_object(content=_TEXT),
        statuses=(200, 201, 202),
        conditions=("Idempotency-Key", "If-Match", "If-None-Match"),
    ),
    Operation("GET", "/api/status", "status", "How the memory and its index are.", READ, "memory_status"),
    Operation(
        "GET",
        "/api/projects",
        "projects",
        "The projects of the memory.",
        READ,
        gives=_object(
            project=_TEXT,
            projects=_list(name=_TEXT, files={"type": "integer"}, updated=_TEXT, linked={"type": "boolean"}),
            complete={"type": "boolean"},
        ),
    ),
    Operation(
        "GET",
        "/api/entities",
        "entities",
        "The entities of the memory, or with q those of a name like it.",
        READ,
        "entity_list",
        "query",
        query={"q": {"type": "string", "minLength": 1, "maxLength": 100}},
        gives={"type": "object"},
    ),
    Operation(
        "GET",
        "/api/tasks",
        "tasks",
        "What is queued for the night, and how it stands. To add, approve or cancel takes a person: confide task.",
        READ,
        "task_list",
        "query",
    ),
    Operation("GET", "/api/tasks/results", "results", "What came of tasks.", READ, "task_results", "query"),
)
"""Those with a fixed path before those with `{id}`: the first that fits answers."""


def room(gateway: Gateway) -> Room:
    """For whoever has a token."""
    does = handlers(gateway)
    routes = [Route(_pattern(each.path), does[each.does], methods=[each.method], name=each.does) for each in OPERATIONS]
    return Room(routes, gateway.by_token)


def handlers(gateway: Gateway) -> Mapping[str, Handler]:
    """What answers each route, by the names of `Operation.does`."""
    calls, exchange = gateway.calls, gateway.exchange
    memories = Memories(calls, exchange.catalogue)
    documents = Documents(calls, exchange.catalogue)
    overview = Overview(calls, exchange.catalogue)
    bringing = Bringing(gateway.paths, gateway.config, calls, exchange)
    return {
        "auth_check": overview.auth_check,
        "status": overview.status,
        "projects": overview.projects,
        "entities": overview.entities,
        "tasks": overview.tasks,
        "results": overview.results,
        "store": memories.store,
        "list_": memories.list,
        "recall": memories.recall,
        "get": memories.get,
        "update": memories.update,
        "delete": memories.delete,
        "history": memories.history,
        "link": memories.link,
        "sync": Following(calls, exchange).sync,
        "secret": bringing.secret,
        "migrate": bringing.migrate,
        "bring": bringing.bring,
        "read": documents.read,
        "write": documents.write,
    }


def _pattern(path: str) -> str:
    return path.replace("/{project}/{path}", "/{rest:path}")
