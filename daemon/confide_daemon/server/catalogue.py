"""The catalogue: everything that a client learns about this server before it calls a tool.

A pure function of the toolsets. The proxy ships a generated copy (`python -m confide_daemon catalogue`) and caches the daemon's, so
that an agent gets its tools before the daemon is reached.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from confide_daemon import __version__
from confide_daemon.errors import ToolsetError
from confide_daemon.server import prompts, resources
from confide_daemon.tools import (
    dedupe,
    delete,
    entities,
    get,
    link,
    machine_tools,
    read,
    search,
    status,
    store,
    sync,
    update,
)
from confide_daemon.tools import (
    list as listing,
)
from confide_daemon.tools.context import Definition, ToolContext, ToolResult


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool: how it is described, and what carries it out."""

    definition: Definition
    # gets arguments that were checked against the definition. Raises ConfideError.
    call: Callable[[ToolContext, dict[str, Any]], Awaitable[ToolResult]]


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
    "core": (
        Tool(search.DEFINITION, search.call),
        Tool(read.DEFINITION, read.call),
        Tool(store.DEFINITION, store.call),
        Tool(status.DEFINITION, status.call),
        Tool(sync.DEFINITION, sync.call),
    ),
    "notes": (
        Tool(get.DEFINITION, get.call),
        Tool(listing.DEFINITION, listing.call),
        Tool(update.DEFINITION, update.call),
        Tool(delete.DEFINITION, delete.call),
        Tool(read.HISTORY, read.history),
        Tool(link.DEFINITION, link.call),
        Tool(dedupe.DEFINITION, dedupe.call),
        Tool(machine_tools.IMPORT, machine_tools.import_notes),
        Tool(machine_tools.SECRET_GET, machine_tools.secret_get),
    ),
    "entities": (
        Tool(entities.SUMMARY, entities.project_summary),
        Tool(entities.CONTEXT, entities.context_info),
        Tool(entities.LIST, entities.list_entities),
        Tool(entities.SEARCH, entities.find_entities),
    ),
}


def definitions(toolsets: Sequence[str]) -> tuple[Definition, ...]:
    """How the tools of these groups are described. Raises as `tools`."""
    return tuple(tool.definition for tool in tools(toolsets))


def tools(toolsets: Sequence[str]) -> tuple[Tool, ...]:
    """The tools of these groups, in the order of the catalogue; `all` stands for every group.

    Raises ToolsetError where there is no group of that name.
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

    Raises ToolsetError where there is no group of that name.
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
