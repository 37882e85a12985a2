"""`memory_status`: reports how much is stored, how current the index is, and the state of the
connection.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from confide_crypto.errors import printable
from confide_daemon import __version__
from confide_daemon.retrieval.indexing.generations import ProviderStatus
from confide_daemon.spaces.space import Clash, SpaceStatus
from confide_daemon.store.rows import NoteCounts
from confide_daemon.tools.entities import label_counts
from confide_daemon.tools.tool_context import (
    COUNT,
    COUNTS,
    MAYBE_TEXT,
    NUMBER,
    TEXT,
    TEXTS,
    Definition,
    SealingFacts,
    ToolContext,
    ToolResult,
    record,
)
from confide_memory.versions import WINDOW, is_behind

_MAYBE_COUNT = {"type": ["integer", "null"], "minimum": 0}
_MAYBE_NUMBER = {"type": ["number", "null"]}

MAX_CLASHES_SHOWN = 20

DEFINITION = Definition(
    name="memory_status",
    title="Memory status",
    description="How the memory is: files, index, model, connection. Use it when results look incomplete or stale.",
    properties={},
    output=record(
        {
            "provider": MAYBE_TEXT,
            "model": MAYBE_TEXT,
            "embedder": TEXT,
            "totalChunks": COUNT,
            "totalFiles": COUNT,
            "sources": {"type": "object", "additionalProperties": record({"files": COUNT, "chunks": COUNT})},
            "notes": record(
                {
                    "total": COUNT,
                    "byType": COUNTS,
                    "byCategory": COUNTS,
                    "withProblems": {
                        **COUNT,
                        "description": "Front matter that was not understood",
                    },
                }
            ),
            "projects": TEXTS,
            "lastSync": {**MAYBE_TEXT, "description": "When this machine last compared its files"},
            "pendingUploads": {**_MAYBE_COUNT, "description": "Files changed on this machine and not confirmed yet"},
            "queuedOffline": {**_MAYBE_COUNT, "description": "Stores that wait on this machine for the daemon"},
            "deadLetters": {**_MAYBE_COUNT, "description": "Stores that the daemon has refused, kept on this machine"},
            "queuedChunks": {**COUNT, "description": "Pieces that wait for their vectors"},
            "indexAge": NUMBER,
            "dbSize": {**_MAYBE_COUNT, "description": "Bytes; null for a caller that is limited to some projects"},
            "atRest": TEXT,
            "sealing": record(
                {
                    "devices": {**COUNT, "description": "Machines and recovery codes that can open sealed secrets"},
                    "epoch": COUNT,
                    "secrets": {**_MAYBE_COUNT, "description": "null for a caller that is limited to some projects"},
                    "custody": {"type": "string", "enum": ["server", "caller"]},
                    "recoveryCodes": {**COUNT, "description": "How many of the devices are on paper"},
                },
                optional=("recoveryCodes",),
            ),
            "searchLatencyMs": record({"p50": _MAYBE_NUMBER, "p95": _MAYBE_NUMBER}),
            "daemonVersion": TEXT,
            "proxyVersion": MAYBE_TEXT,
            "link": record(
                {
                    "state": TEXT,
                    "caller": TEXT,
                    "device": {**MAYBE_TEXT, "description": "What the devices of the space call this device"},
                    "machine": MAYBE_TEXT,
                    "space": TEXT,
                    "scope": TEXT,
                },
                optional=("device",),
            ),
            "project": MAYBE_TEXT,
            "clashes": {"type": "array", "items": record({"project": TEXT, "path": TEXT, "revision": COUNT})},
            "generations": {
                "type": "array",
                "description": "Sets of vectors: live (serves), building (will serve), standby (could serve)",
                "items": record(
                    {
                        "id": COUNT,
                        "provider": TEXT,
                        "model": TEXT,
                        "dimensions": COUNT,
                        "state": {"type": "string", "enum": ["live", "building", "standby"]},
                        "done": COUNT,
                        "total": COUNT,
                    }
                ),
            },
            "providers": {
                "type": "array",
                "description": "The configured models, the wanted one first",
                "items": record(
                    {
                        "name": TEXT,
                        "model": MAYBE_TEXT,
                        "state": {"type": "string", "enum": ["loading", "ready", "down", "refused"]},
                        "reason": MAYBE_TEXT,
                        "retryIn": {**_MAYBE_NUMBER, "description": "Seconds until it is tried again"},
                        "tokensThisMonth": {**_MAYBE_COUNT, "description": "null: runs here, not counted"},
                        "costThisMonth": {**_MAYBE_NUMBER, "description": "US dollars"},
                        "monthlyTokens": {**_MAYBE_COUNT, "description": "The budget; null: none"},
                    }
                ),
            },
            "health": record(
                {
                    "state": {"type": "string", "enum": ["ok", "healing", "damaged"]},
                    "breaches": {"type": "array", "items": record({"what": TEXT, "rows": COUNT})},
                    "healed": {**COUNT, "description": "Faults of the index that were found and put right"},
                }
            ),
            "warnings": TEXTS,
        }
    ),
    read_only=True,
    idempotent=True,
)


async def call(context: ToolContext, _arguments: dict[str, Any]) -> ToolResult:
    """Describe the caller's space. Only files and chunks that the caller may read are counted."""
    grants = context.grants
    status = await context.space.status(grants.projects)
    reached = {name: count for name, count in status.sources.items() if grants.has_source(name)}
    chunks, files = (sum(getattr(count, unit) for count in reached.values()) for unit in ("chunks", "files"))
    clashes = [clash for clash in status.clashes if grants.reaches(clash.project, clash.path)]
    status = replace(status, sources=reached, chunks=chunks, files=files, clashes=clashes)
    if grants.projects is not None:
        # Counts of the whole space would reveal projects that the caller has no access to.
        providers = [replace(one, tokens=None, cost_usd=None) for one in status.providers]
        health = replace(status.health, breaches=[(what, 0) for what, _ in status.health.breaches], healed_breaches=0)
        status = replace(status, size_bytes=None, providers=providers, health=health)
    # A caller without access to memory sees no notes.
    notes = await context.space.notes.counts(grants.projects if grants.has_source("memory") else frozenset())
    facts = await context.sealing()
    sealing = await _sealing(context, facts)
    structured = _structured_result(context, status, notes, sealing, await context.machine.backlog() or {})
    structured["link"]["device"] = facts.name
    return ToolResult.with_warnings(structured, _lines(structured))


async def _sealing(context: ToolContext, facts: SealingFacts) -> dict[str, object]:
    secrets = await context.space.records.count()
    return {
        "devices": facts.devices,
        "epoch": facts.epoch,
        "secrets": secrets if context.grants.reaches_all else None,
        "custody": facts.custody,
        "recoveryCodes": facts.recovery_codes,
    }


def _structured_result(
    context: ToolContext, status: SpaceStatus, notes: NoteCounts, sealing: Mapping[str, Any], backlog: Mapping[str, Any]
) -> dict[str, Any]:
    facts = context.facts
    return {
        "provider": status.provider,
        "model": status.model,
        "embedder": status.embedder,
        "totalChunks": status.chunks,
        "totalFiles": status.files,
        "sources": {name: asdict(count) for name, count in status.sources.items()},
        "notes": {
            "total": notes.total,
            "byType": label_counts(notes.by_type),
            "byCategory": label_counts(notes.by_category),
            "withProblems": notes.with_problems,
        },
        "projects": status.projects,
        "lastSync": facts.last_sync,
        **{name: backlog.get(name) for name in ("pendingUploads", "queuedOffline", "deadLetters")},
        "queuedChunks": status.queued_pieces,
        "indexAge": round(status.index_age_s, 1),
        "dbSize": status.size_bytes,
        "atRest": status.at_rest,
        "sealing": sealing,
        "searchLatencyMs": {"p50": status.search_p50_ms, "p95": status.search_p95_ms},
        "daemonVersion": __version__,
        "proxyVersion": facts.proxy_version or None,
        # The agent reads this through a working connection.
        "link": {
            "state": "up",
            "caller": context.grants.alias,
            "machine": facts.machine or None,
            "space": facts.space,
            "scope": facts.scope,
        },
        "project": context.project,
        "clashes": [asdict(clash) for clash in status.clashes[:MAX_CLASHES_SHOWN]],
        "generations": [asdict(generation) for generation in status.generations],
        "providers": [_provider(provider) for provider in status.providers],
        "health": {
            "state": status.health.state,
            "breaches": [{"what": what, "rows": rows} for what, rows in status.health.breaches],
            "healed": status.health.healed_breaches,
        },
        "warnings": [
            *context.notes,
            *status.warnings,
            *_behind(facts.proxy_version),
            *_unknown_toolsets(context.unknown_toolsets),
            *_clash_warning(status.clashes),
            *_refusals(backlog.get("deadLetters")),
            *backlog.get("troubles", ()),
        ],
    }


def _provider(provider: ProviderStatus) -> dict[str, object]:
    return {
        "name": provider.name,
        "model": provider.model,
        "state": provider.state,
        "reason": provider.reason,
        "retryIn": None if provider.retry_in_s is None else round(provider.retry_in_s, 1),
        "tokensThisMonth": provider.tokens,
        "costThisMonth": provider.cost_usd,
        "monthlyTokens": provider.monthly_tokens,
    }


def _clash_warning(clashes: Sequence[Clash]) -> list[str]:
    if not clashes:
        return []
    count = f"over {MAX_CLASHES_SHOWN}" if len(clashes) > MAX_CLASHES_SHOWN else str(len(clashes))
    files = "file holds" if len(clashes) == 1 else "files hold"
    first = clashes[0]
    return [
        f"{count} {files} two versions of some lines ({first.path} in {first.project}{', …' if clashes[1:] else ''}): "
        "between the marks that begin with <<<<<<< confide, keep what is right, and delete the marks"
    ]


def _behind(proxy_version: str) -> list[str]:
    """Return a warning of a version gap. The newer side computes it, since an older one may not
    know the supported window.
    """
    if not is_behind(proxy_version, __version__):
        return []
    far = f"is more than {WINDOW} minor versions older than confided {__version__}"
    return [f"confide {proxy_version} on this machine {far}: upgrade it there"]


def _unknown_toolsets(names: Sequence[str]) -> list[str]:
    if not names:
        return []
    shown = ", ".join(repr(printable(name[:40])) for name in names[:MAX_CLASHES_SHOWN])
    return [
        f"toolsets in proxy.toml has {shown}, which is no group of tools; the groups are core, notes, entities, and all"
    ]


def _refusals(count: int | None) -> list[str]:
    if not count:
        return []
    stores = (
        "store that was queued on this machine was" if count == 1 else "stores that were queued on this machine were"
    )
    return [f"{count} {stores} refused later, and kept there: confide sync --queue shows why"]


def _model_lines(told: dict[str, Any]) -> list[str]:
    """Describe only unusual states of the model: a new index generation being built, and paid
    models.
    """
    lines = [
        f"building: {one['provider']}/{one['model']}, {one['done']} of {one['total']} pieces"
        for one in told["generations"]
        if one["state"] == "building"
    ]
    for one in told["providers"]:
        if one["tokensThisMonth"] is not None:
            limit = f" of {one['monthlyTokens']:,}" if one["monthlyTokens"] is not None else ""
            cost = f", ${one['costThisMonth']:.2f}" if one["costThisMonth"] is not None else ""
            lines.append(f"{one['name']} ({one['state']}): {one['tokensThisMonth']:,}{limit} tokens this month{cost}")
    return lines


def _note_lines(notes: dict[str, Any]) -> list[str]:
    if not notes["total"]:
        # Otherwise a user who has just stored something would miss it.
        return [
            "no notes: what is stored without a title, tags or another field of a note is lines of a file, and is found as well"
        ]
    kinds = ", ".join(f"{count} {name}" for name, count in notes["byCategory"].items())
    odd = f"; {notes['withProblems']} with front matter that was not understood" if notes["withProblems"] else ""
    return [f"{notes['total']} {'note' if notes['total'] == 1 else 'notes'} by category: {kinds}{odd}"]


def _waiting_lines(told: dict[str, object]) -> list[str]:
    files, stores = told["pendingUploads"], told["queuedOffline"]
    return [f"on this machine wait: {files or 0} changed files, {stores or 0} stores"] if files or stores else []


def _sealing_lines(sealing: dict[str, Any]) -> list[str]:
    if not sealing["devices"]:
        return []
    count = sealing["secrets"]
    secrets = "" if count is None else f"{count} sealed {'secret' if count == 1 else 'secrets'}, "
    codes = sealing["recoveryCodes"]
    machines = sealing["devices"] - codes
    devices = "1 device" if machines == 1 else f"{machines} devices"
    devices += f" and {codes} recovery {'code' if codes == 1 else 'codes'}" if codes else ""
    keeper = "its devices keep" if sealing["custody"] == "caller" else "the daemon keeps"
    return [f"{secrets}{devices}, epoch {sealing['epoch']}; {keeper} the key of the database"]


def _lines(told: dict[str, Any]) -> list[str]:
    size = "" if told["dbSize"] is None else f"{told['dbSize'] / 1e6:.1f} MB, "
    queued = told["queuedChunks"]
    waiting = "1 piece waits for its vector" if queued == 1 else f"{queued:,} pieces wait for their vectors"
    return [
        f"{told['totalFiles']} files in {told['totalChunks']} pieces, projects: {', '.join(told['projects']) or 'none'}",
        *_note_lines(told["notes"]),
        f"model: {told['model'] or 'none yet'} ({told['embedder']}); {waiting}",
        *_model_lines(told),
        *_sealing_lines(told["sealing"]),
        *_waiting_lines(told),
        f"database: {size}{told['atRest']}, health: {told['health']['state']}",
        f"link up: {told['link']['device'] or told['link']['caller']} in space {told['link']['space']} ({told['link']['scope']}), "
        f"daemon {told['daemonVersion']}, last file comparison {told['lastSync'] or 'none yet'}",
    ]
