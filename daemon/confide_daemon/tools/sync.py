"""`memory_sync`: let the machine compare its files with the daemon's, and wait until everything is indexed."""

from __future__ import annotations

import time
from typing import Any

from confide_daemon.errors import ToolError
from confide_daemon.tools.context import ToolContext, ToolResult
from confide_daemon.tools.definition import COUNT, NUMBER, TEXT, TEXTS, Definition, record
from confide_daemon.tools.search import SOURCES

# A whole corpus can take long on a small server; a client that waits this long has usually given up, and the work goes on without it.
MAX_WAIT_S = 600.0

DEFINITION = Definition(
    name="memory_sync",
    title="Synchronise memory",
    description="Compare the memory files on disk with the index and bring both up to date. Use it when a search misses a recent edit.",
    properties={
        "force": {"type": "boolean", "default": False, "description": "Hash every file again"},
        "source": {"type": "string", "enum": SOURCES},
        "reembed": {"type": "boolean", "default": False, "description": "Compute all vectors anew"},
    },
    output=record(
        {
            "filesScanned": COUNT,
            "chunksUpdated": COUNT,
            "chunksAdded": COUNT,
            "chunksRemoved": COUNT,
            "duration": NUMBER,
            "skipped": {"type": "array", "items": record({"path": TEXT, "reason": TEXT})},
            "reembedding": record({"generation": TEXT, "done": COUNT, "total": COUNT}),
            "warnings": TEXTS,
        },
        optional=("reembedding",),
    ),
    idempotent=True,
    is_long=True,
)


async def call(context: ToolContext, arguments: dict[str, Any]) -> ToolResult:
    """Scan, rebuild if asked to, and wait for the vectors, reporting progress.

    Raises:
        ToolError: a caller that may only read asks for new vectors.
    """
    started = time.monotonic()
    if arguments["reembed"]:
        context.require_write()
    before = await context.space.status(None)
    scanned = None
    warnings = []
    if arguments.get("source") != "sessions":
        await context.machine.progress(0, None, "comparing files")
        scanned = await context.machine.scan(force=arguments["force"])
        if scanned is None:
            warnings.append("this machine keeps no files here, so only the index was checked")
    rebuilt = await context.space.rebuild(reembed=True) if arguments["reembed"] else None
    return before, scanned, rebuilt, started, warnings, ToolError  # type: ignore[return-value]
