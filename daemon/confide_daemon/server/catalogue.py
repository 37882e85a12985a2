"""The catalogue: everything that a client learns about this server before it calls a tool.

A pure function of the toolsets. The proxy ships a generated copy (`python -m confide_daemon catalogue`) and caches the daemon's, so
that an agent gets its tools before the daemon is reached.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any, Protocol

from confide_daemon import __version__, prompts, resources
from confide_daemon.errors import ToolsetError
from confide_daemon.tools import (
    context_info,
    dedupe,
    delete,
    entity_list,
    entity_search,
    get,
    import_notes,
    link,
    listing,
    note_history,
    project_summary,
    read,
    search,
    secret_get,
    status,
    store,
    sync,
    update,
)
from confide_daemon.tools.context import ToolContext, ToolResult
from confide_daemon.tools.definition import Definition


class Tool(Protocol):
    """A module of one tool."""

    DEFINITION: Definition

    async def call(self, context: ToolContext, arguments: dict[str, Any], /) -> ToolResult:
        """Carry it out, with arguments that were checked against the definition. Raises ConfideError."""
        ...


SERVER_NAME = "confide"
SERVER_TITLE = "Confide memory"
INSTRUCTIONS = (
    "Confide is the lasting memory of this user and project. Call memory_search before you answer or start work that may depend on "
    "earlier decisions, preferences, people, dates or problems. Call memory_store when something worth keeping is decided, learned or "
    "asked to be remembered."
)

# Revisions of MCP that are opened by `initialize` (oldest first) and those that carry their version in every request. Stated here and not
# imported, so that the catalogue needs no SDK; a test compares them with the SDK's.
HANDSHAKE_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
MODERN_VERSIONS = ("2026-07-28",)

# In the later era lists that change are told of by `subscriptions/listen`.
CAPABILITIES: dict[str, Any] = {
    "prompts": {"listChanged": True},
    "resources": {"subscribe": True, "listChanged": True},
    "tools": {"listChanged": True},
}

TOOLSETS: dict[str, tuple[Tool, ...]] = {
    "core": (search, read, store, status, sync),
    "notes": (get, listing, update, delete, note_history, link, dedupe, import_notes, secret_get),
    "entities": (project_summary, context_info, entity_list, entity_search),
}


def definitions(toolsets: Sequence[str]) -> tuple[Definition, ...]:
    """How the tools of these groups are described. Raises as `tools`."""
    return tuple(tool.DEFINITION for tool in tools(toolsets))


def tools(toolsets: Sequence[str]) -> tuple[Tool, ...]:
    """The tools of these groups, in the order of the catalogue; `all` stands for every group.

    Raises:
        ToolsetError: there is no group of that name.
    """
    for name in toolsets:
        if name != "all" and name not in TOOLSETS:
            raise ToolsetError(name, known=tuple(TOOLSETS))
    return tuple(tool for group in groups(toolsets) for tool in TOOLSETS[group])


def groups(toolsets: Sequence[str]) -> tuple[str, ...]:
    """The groups that these names mean, in the order of the catalogue."""
    return tuple(group for group in TOOLSETS if group in toolsets or "all" in toolsets)


def catalogue(toolsets: Sequence[str]) -> dict[str, Any]:
    """What `initialize`, `server/discover`, `tools/list`, `prompts/list` and `resources/templates/list` answer, as JSON on the wire.

    Raises:
        ToolsetError: there is no group of that name.
    """
    return {
        "serverInfo": {"name": SERVER_NAME, "title": SERVER_TITLE, "version": __version__},
        "capabilities": CAPABILITIES,
        "instructions": INSTRUCTIONS,
        "tools": [tool.wire(groups(toolsets)) for tool in definitions(toolsets)],
        "prompts": list(prompts.PROMPTS),
        "resourceTemplates": list(resources.TEMPLATES),
        "protocolVersions": list(HANDSHAKE_VERSIONS),
        "discover": {
            "supportedVersions": list(MODERN_VERSIONS),
            "capabilities": CAPABILITIES,
            "instructions": INSTRUCTIONS,
        },
    }


def fingerprint(toolsets: Sequence[str]) -> str:
    """SHA-256 (hex) of the catalogue's canonical JSON: what a proxy compares its cached copy with."""
    return hashlib.sha256(canonical(catalogue(toolsets))).hexdigest()


def canonical(value: Any) -> bytes:
    """JSON with sorted keys and no spaces."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
