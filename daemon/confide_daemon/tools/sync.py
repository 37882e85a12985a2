"""`memory_sync`: makes the device compare its files with the daemon's, and waits until all texts
are indexed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

from confide_crypto.errors import RequestError
from confide_daemon.tools.search import SOURCES
from confide_daemon.tools.tool_context import COUNT, NUMBER, TEXT, TEXTS, Definition, ToolContext, ToolResult, record

# A whole corpus can take long on a small server. A client has usually given up by then; the work
# continues without it.
MAX_WAIT_S = 600.0
MAX_SKIPPED = 50
# Limit on what a device reports.
MAX_CODE = 32
MAX_REASON = 300

DEFINITION = Definition(
    name="memory_sync",
    title="Synchronise memory",
    description="Compare the memory files on disk with the index and bring both up to date. Use it when a search misses a recent edit.",
    properties={
        "force": {"type": "boolean", "default": False, "description": "Hash every file again"},
        "source": {"type": "string", "enum": SOURCES},
        "reembed": {"type": "boolean", "default": False, "description": "Compute all vectors again"},
    },
    shown_with=dict.fromkeys(("source", "reembed"), "notes"),
    output=record(
        {
            "filesScanned": COUNT,
            "filesSent": COUNT,
            "filesPulled": COUNT,
            "filesRemoved": COUNT,
            "chunksAdded": {**COUNT, "description": "More pieces than before"},
            "chunksRemoved": {**COUNT, "description": "Fewer pieces than before"},
            "chunksUpdated": {**COUNT, "description": "Pieces that got vectors while this call waited"},
            "duration": {**NUMBER, "description": "Seconds"},
            "skipped": {"type": "array", "items": record({"path": TEXT, "reason": TEXT})},
            "reembedding": record({"generation": COUNT, "done": COUNT, "total": COUNT}),
            "warnings": TEXTS,
            "notCompared": {**TEXT, "description": "Code of why not all files could be compared; warnings say more"},
        },
        optional=("reembedding", "notCompared"),
    ),
    idempotent=True,
    is_long=True,
)


async def call(context: ToolContext, arguments: dict[str, Any]) -> ToolResult:
    """Compare the device's files with the daemon's, rebuild the index if requested, and wait for
    the embeddings while reporting progress.

    Raises GrantError if the caller may not read the source, or requests new embeddings without full
    write access.
    """
    started = time.monotonic()
    warnings: list[str] = []
    if arguments["reembed"]:
        context.grants.require_scope()
        context.grants.require_every_project("computing the vectors again")
    source = arguments.get("source")
    if source:
        context.grants.require_source(source)
    before = await context.space.status(context.grants.projects)
    scanned: Mapping[str, Any] = {}
    not_compared: str | None = None
    if source != "sessions":
        await context.machine.progress(0, None, "comparing files")
        try:
            answer = await context.machine.scan(force=arguments["force"])
            if answer is None:
                warnings.append("this machine keeps no files here; only the index was brought up to date")
            scanned = answer or {}
        except RequestError as error:
            not_compared = error.code[:MAX_CODE]
            warnings.append(f"the files on this machine could not all be compared: {str(error)[:MAX_REASON]}")
            if error.hint:
                warnings.append(f"hint: {error.hint[:MAX_REASON]}")
    if arguments["reembed"]:
        await context.space.rebuild(reembed=True)
    embedded, is_complete = await _wait_indexed(context)
    if context.grants.projects is not None:
        embedded = max(0, before.queued_pieces - (await context.space.index.count_queued(context.grants.projects)))
    if not is_complete:
        warnings.append("some pieces still wait for their vectors; they are found by keywords meanwhile")
    after = await context.space.status(context.grants.projects)
    skipped = scanned.get("skipped", ())
    structured = {
        "filesScanned": scanned.get("filesScanned", 0),
        "filesSent": scanned.get("sent", 0),
        "filesPulled": scanned.get("pulled", 0),
        "filesRemoved": scanned.get("removed", 0),
        "chunksAdded": max(0, after.chunks - before.chunks),
        "chunksRemoved": max(0, before.chunks - after.chunks),
        "chunksUpdated": embedded,
        "duration": round(time.monotonic() - started, 2),
        "skipped": [{name: item[name] or "" for name in ("path", "reason")} for item in skipped[:MAX_SKIPPED]],
        "warnings": warnings + [warning for warning in after.warnings if warning not in warnings],
    }
    if not_compared is not None:
        structured["notCompared"] = not_compared
    if after.reembedding is not None:
        structured["reembedding"] = dict(zip(("generation", "done", "total"), after.reembedding, strict=True))
    return ToolResult.with_warnings(structured, _lines(structured))


async def _wait_indexed(context: ToolContext) -> tuple[int, bool]:
    """Wait for embeddings and report progress; return how many chunks got theirs, and True if all
    have.
    """
    seen: list[tuple[int, int]] = []
    moved = asyncio.Event()

    def note(done: int, total: int) -> None:
        if not seen or seen[-1] != (done, total):
            seen[1:] = [(done, total)]
            moved.set()

    async def tell() -> None:
        while True:
            await moved.wait()
            moved.clear()
            await report()

    async def report() -> None:
        if context.grants.projects is not None:
            return  # the numbers are of the whole space
        done, total = seen[-1]
        await context.machine.progress(done, total, f"{done} of {total} pieces embedded")

    teller = asyncio.create_task(tell())
    try:
        is_complete = await context.space.wait_indexed(timeout_s=MAX_WAIT_S, progress=note)
    finally:
        teller.cancel()
        await asyncio.gather(teller, return_exceptions=True)
    if seen:
        await report()
    embedded = seen[-1][0] - seen[0][0] if seen else 0
    return max(0, embedded), is_complete


def _reembedding_lines(told: dict[str, Any]) -> list[str]:
    now = told.get("reembedding")
    return [f"vectors computed again: {now['done']} of {now['total']}"] if now else []


def _lines(told: dict[str, Any]) -> list[str]:
    return [
        f"{told['filesScanned']} files compared in {told['duration']} s: {told['filesSent']} sent, {told['filesPulled']} received, "
        f"{told['filesRemoved']} removed; {told['chunksUpdated']} pieces embedded.",
        *_reembedding_lines(told),
        *(f"skipped {item['path']}: {item['reason']}" for item in told["skipped"]),
    ]
