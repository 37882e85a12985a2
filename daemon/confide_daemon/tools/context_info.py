"""`context_info`: where the agent works, and what its memory takes that for."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from confide_daemon.tools.context import GLOBAL_PROJECT, ToolContext, ToolResult
from confide_daemon.tools.definition import MAYBE_TEXT, TEXT, TEXTS, Definition, record

MAX_CHARS = 256

DEFINITION = Definition(
    name="context_info",
    title="Where am I",
    description="The project, machine, git repository and branch this session works in. Use it to choose a project or scope.",
    properties={},
    output=record(
        {
            "project": TEXT,
            "linked": TEXTS,
            "space": TEXT,
            "machine": TEXT,
            "platform": MAYBE_TEXT,
            "directory": MAYBE_TEXT,
            "git": {
                **record({"repository": MAYBE_TEXT, "branch": MAYBE_TEXT, "remote": MAYBE_TEXT}),
                "type": ["object", "null"],
            },
            "time": TEXT,
        }
    ),
    read_only=True,
)


async def call(context: ToolContext, _arguments: dict[str, Any]) -> ToolResult:
    """Say where the agent works, as its machine tells."""
    project = context.project or GLOBAL_PROJECT
    said = await context.machine.workplace(project) or {}
    told = said.get("git")
    git = {name: _text(told, name) for name in ("repository", "branch", "remote")} if isinstance(told, dict) else None
    structured = {
        "project": project,
        "linked": sorted(context.linked),
        "space": context.facts.space,
        "machine": context.facts.machine,
        "platform": _text(said, "platform"),
        "directory": _text(said, "directory"),
        "git": git,
        "time": _text(said, "time") or datetime.now(UTC).isoformat(timespec="seconds"),
    }
    lines = [f"project {project}, on {context.facts.machine or 'a machine without a name'} ({structured['platform']})"]
    if git is not None:
        found = {name: value or "none" for name, value in git.items()}
        lines.append(f"git: {found['repository']}, branch {found['branch']}, remote {found['remote']}")
    return ToolResult(structured, "\n".join([*lines, f"time {structured['time']}"]))


def _text(said: Mapping[str, Any], name: str) -> str | None:
    value = said.get(name)
    return value[:MAX_CHARS] if isinstance(value, str) else None
