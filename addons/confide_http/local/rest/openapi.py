"""`GET /openapi.json`: describes the REST API, generated from the table of routes and the tools'
schemas.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from confide_http.local.gateway_app import GatewayShared, RouteGroup
from confide_http.local.rest.request_args import JSON, MARKDOWN, answer
from confide_http.local.rest.route_table import OPERATIONS, RestOperation, Schema
from confide_proxy import VERSION
from confide_proxy.mcp import catalogue as catalogues
from confide_proxy.mcp.catalogue import ToolCatalogue

Described = dict[str, Any]
"""A part of the document, in JSON Schema or OpenAPI form."""
PATH: Final = "/openapi.json"
_ALIASES: Final[Mapping[str, Schema]] = {
    "store": {
        "expanded_keywords": {"type": "string", "description": "keywords, with blanks between them"},
        "force_sensitive": {"type": "boolean"},
        "tags": {
            "anyOf": [
                {"type": "array", "items": {"type": "string", "maxLength": 100}, "maxItems": 32},
                {"type": "string"},
            ]
        },
    },
    "recall": {
        "context": {"type": "string", "description": "The same as query"},
        "expanded_query": {"type": "string", "description": "keywords, with blanks between them"},
        "sort_by": {"enum": ["relevance", "importance", "recency"]},
        "limit": {"type": "integer", "description": "The same as maxResults"},
    },
}
"""Parameters of claude-memory-mcp's clients."""
_CONDITIONS: Final[Mapping[str, str]] = {
    "Idempotency-Key": "The client's own name for what it does: under one name it is done once.",
    "If-Match": "The revision that it must have, as ETag says it; else 412.",
    "If-None-Match": "*: only if there is none yet; else 412.",
}
_STATUS: Final[Mapping[int, str]] = {
    200: "Done.",
    201: "Stored.",
    202: "Kept on this device until the daemon can be reached.",
}


def routes(_gateway: GatewayShared) -> RouteGroup:
    """Return the route of the description, which needs no authentication."""

    async def tell(_request: Request) -> Response:
        return answer(document(catalogues.packaged_catalogue()))

    return RouteGroup([Route(PATH, tell, methods=["GET"])], None)


@cache
def document(catalogue: ToolCatalogue) -> Described:
    """Return the OpenAPI 3.1 description of the REST API."""
    paths: dict[str, Described] = {}
    for each in OPERATIONS:
        paths.setdefault(each.path, {})[each.method.lower()] = _operation(each, catalogue)
    paths["/health"] = {
        "get": {
            "operationId": "health",
            "summary": "Alive, and which version; with a token how everything stands.",
            "security": [{}, {"token": []}],
            "responses": {"200": {"description": "Alive.", "content": {JSON: {"schema": {"type": "object"}}}}},
        }
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "Confide memory", "version": VERSION},
        "servers": [{"url": "/"}],
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {
                "Error": {
                    "type": "object",
                    "properties": {
                        "error": {
                            "type": "object",
                            "properties": {
                                "code": {"type": "string"},
                                "message": {"type": "string"},
                                "hint": {"type": ["string", "null"]},
                            },
                            "required": ["code", "message", "hint"],
                        }
                    },
                    "required": ["error"],
                }
            },
        },
    }


def _operation(each: RestOperation, catalogue: ToolCatalogue) -> Described:
    inner = catalogue.tools[each.tool]["inputSchema"] if each.tool else {"properties": {}}
    in_path = re.findall(r"\{(\w+)\}", each.path)
    taken = {name: schema for name, schema in inner["properties"].items() if name not in in_path}
    parameters: list[Described] = [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": inner["properties"].get(name, {"type": "string", "minLength": 1, "maxLength": 160}),
        }
        for name in in_path
    ]
    in_query = {**(taken if each.takes == "query" else {}), **each.query}
    parameters += [{"name": name, "in": "query", "schema": dict(schema)} for name, schema in in_query.items()]
    parameters += [
        {"name": name, "in": "header", "description": _CONDITIONS[name], "schema": {"type": "string"}}
        for name in each.conditions
    ]
    found: Described = {
        "operationId": each.does,
        "summary": each.summary,
        "security": [{"token": [each.scope]}],
        "parameters": parameters,
        "responses": _responses(each, catalogue),
    }
    if each.tool:
        found["x-confide-tool"] = each.tool
    if each.takes == "body" or each.body is not None:
        found["requestBody"] = {"required": True, "content": _bodies(each, inner, taken)}
    return found


def _bodies(each: RestOperation, inner: Schema, taken: Schema) -> Described:
    if each.body is not None:
        return {JSON: {"schema": dict(each.body)}, MARKDOWN: {"schema": {"type": "string"}}}
    aliases = _ALIASES.get(each.does, {})
    schema: Described = {"type": "object", "properties": {**taken, **aliases}}
    required = [name for name in inner.get("required", ()) if name in taken]
    if required and each.does != "recall":  # which takes another word for its one
        schema["required"] = required
    return {JSON: {"schema": schema}}


def _responses(each: RestOperation, catalogue: ToolCatalogue) -> Described:
    own = catalogue.outputs.get(each.tool)
    schema: Schema = each.gives
    if own is not None and each.gives.get("type") == "object" and "properties" in each.gives:
        # The route returns more than its tool: further fields, or more in each item of a list.
        schema = {**own, "properties": {**own["properties"], **each.gives["properties"]}}
        schema = {name: value for name, value in schema.items() if name != "additionalProperties"}
    elif own is not None and not each.gives:
        schema = own
    found: Described = {
        str(status): {"description": _STATUS[status], "content": {JSON: {"schema": dict(schema)}}}
        for status in each.statuses
    }
    if each.does == "read":
        found["200"]["content"][MARKDOWN] = {"schema": {"type": "string"}}
    found["default"] = {
        "description": "It is not done as asked.",
        "content": {JSON: {"schema": {"$ref": "#/components/schemas/Error"}}},
    }
    return found
