"""`memory_import`, `secret_get` and `memory_forget`: import files of the agent's device as notes,
decrypt a placeholder, and forget texts for good.

The proxy runs these tools, since only it can read the files, decrypt a secret, ask its user, and
sign a record of what is forgotten. The daemon only describes them.
"""

from __future__ import annotations

from typing import Final

from confide_daemon.errors import ToolError
from confide_daemon.tools.tool_context import (
    COUNT,
    COUNTS,
    FLAG,
    TEXT,
    TEXTS,
    Definition,
    ToolContext,
    ToolResult,
    record,
)

_SKIPPED: dict[str, object] = {"type": "array", "items": record({"origin": TEXT, "reason": TEXT})}

IMPORT = Definition(
    name="memory_import",
    title="Import memories",
    description="Make notes of local files: markdown, JSON, other memory systems' stores. Previews; `confirm` stores, nothing twice.",
    properties={
        "paths": {"type": "array", "items": {"type": "string", "minLength": 1, "maxLength": 4096}, "maxItems": 32},
        "confirm": {"type": "boolean", "default": False},
    },
    required=("paths",),
    output=record(
        {
            "project": TEXT,
            "confirmed": FLAG,
            "stores": {
                "type": "array",
                "items": record(
                    {
                        "path": TEXT,
                        "system": TEXT,
                        "notes": COUNT,
                        "projects": {**COUNTS, "description": "Notes for each"},
                        "categories": COUNTS,
                        "importance": COUNTS,
                        "tags": COUNTS,
                        "titles": {**TEXTS, "description": "Of the first few"},
                        "skippedCount": COUNT,
                        "skipped": _SKIPPED,
                        "problem": TEXT,
                    },
                    optional=("problem",),
                ),
            },
            "results": record({"new": COUNT, "known": COUNT, "identical": COUNT, "deleted": COUNT, "refused": COUNT}),
            "refused": _SKIPPED,
            "sealed": COUNT,
        }
    ),
    idempotent=True,
    is_long=True,
)


async def import_notes(_context: ToolContext, _arguments: dict[str, object]) -> ToolResult:
    """Raise ToolError, since only the proxy can run this tool."""
    raise ToolError(
        "memory_import reads files of the machine that the agent runs on, and its proxy has not done so",
        hint="update confide there, or run in a terminal: confide import",
    )


MAX_ID_CHARS = 80
"""Longest accepted id. A whole placeholder has 75 characters at most: the longest kind has 32."""

SECRET_GET = Definition(
    name="secret_get",
    title="Open a sealed secret",
    description="A sealed value. Use it only where `confide run --env X=secret:ID -- …` cannot; never repeat it.",
    properties={
        "id": {
            "type": "string",
            "minLength": 32,
            "maxLength": MAX_ID_CHARS,
            "description": "The placeholder or its id",
        }
    },
    required=("id",),
    output=record({"id": TEXT, "kind": TEXT, "value": TEXT}),
    # It changes nothing, but a client that approves all read-only tools would give every secret to
    # its model.
    read_only=False,
    asks_a_person=True,
    idempotent=True,
)


async def secret_get(_context: ToolContext, _arguments: dict[str, object]) -> ToolResult:
    """Raise ToolError, since only the proxy can run this tool."""
    raise ToolError(
        "secret_get opens a secret on the machine that the agent runs on, and its proxy has not done so",
        hint="update confide there; the daemon has no key to it",
    )


MOST_FORGOTTEN: Final = 16
"""Names of one call."""
MOST_TEXT_CHARS: Final = 400
"""Longest text of one call: the question to the user shows all of it."""

FORGET = Definition(
    name="memory_forget",
    title="Forget for good",
    description="Remove files, notes or a text from every device, for good; the user is asked. What may come back: memory_delete.",
    properties={
        "names": {
            "type": "array",
            "items": {"type": "string", "minLength": 1, "maxLength": 512},
            "maxItems": MOST_FORGOTTEN,
            "description": "Paths, folders, ids",
        },
        "text": {"type": "string", "maxLength": MOST_TEXT_CHARS, "description": "Or this text, wherever it is"},
        "project": {"type": "string", "maxLength": 256},
    },
    output=record(
        {
            "forgotten": {**FLAG, "description": "False while a part of it is not removed yet"},
            "total": COUNT,
            "documents": {**TEXTS, "description": "The first of them"},
            "shared": {**TEXTS, "description": "Where the same words stay"},
            "waiting": {**TEXTS, "description": "Devices that lose it when they connect"},
            "snapshots": {**COUNT, "description": "Of the server that still hold it"},
            "receipt": {**TEXT, "description": "A file"},
        }
    ),
    destructive=True,
    asks_a_person=True,
)


async def forget(_context: ToolContext, _arguments: dict[str, object]) -> ToolResult:
    """Raise ToolError, since only the proxy can run this tool."""
    raise ToolError(
        "memory_forget asks the user on the machine that the agent runs on, and its proxy has not done so",
        hint="update confide there, or run in a terminal: confide forget",
    )
