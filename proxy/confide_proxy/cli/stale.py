"""The commands `confide stale` and `confide fresh`: list the notes about files that have changed
here, and confirm notes that are still true (docs/notes.md).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from time import monotonic

from confide_memory import front_matter
from confide_memory.documents import is_note
from confide_memory.note import SEEN
from confide_proxy.cli.completion import PathsOf
from confide_proxy.cli.console import (
    CommandContext,
    Output,
    ProjectDir,
    command,
    count_noun,
    one_line,
    project_of,
    remark,
    row,
)
from confide_proxy.cli.search import send_queue, ties_of
from confide_proxy.cli.typed_paths import to_project_path
from confide_proxy.errors import ToolError
from confide_proxy.freshness.late_ties import LateTies
from confide_proxy.freshness.note_ties import TieState
from confide_proxy.mcp.client import CommandClient
from confide_proxy.offline.operations import new_meta


@command
async def stale(here: CommandContext, project: ProjectDir = Path()) -> Output:
    """List the notes of this project that are about something that has changed here, or no longer
    exists.
    """
    this = await project_of(here, project)
    ties = await asyncio.to_thread(ties_of, here, this)
    found = await asyncio.to_thread(lambda: list(ties.notes.all()))
    listed = [
        {"path": path, "state": verdict.state.name.lower(), "since": verdict.since, "mark": verdict.mark}
        for path, verdict in sorted(found, key=lambda each: -each[1].state.value)
        if verdict.state is not TieState.FRESH
    ]

    def print_text() -> None:
        for each in listed:
            row(one_line(f"{each['path']}  {each['mark']}"))
        if not found:
            remark("no note of this project names a file of it")
        elif not listed:
            remark(f"nothing has changed since: {count_noun(len(found), 'note')} checked")
        else:
            remark(
                "hint: confide fresh PATH confirms a note, confide edit PATH corrects it, confide rm PATH deletes it"
            )

    return Output({"project": this.name, "checked": len(found), "notes": listed}, print_text)


@command
async def fresh(here: CommandContext, paths: PathsOf, project: ProjectDir = Path()) -> Output:
    """Confirm that notes are true of the files as they are here now."""
    this = await project_of(here, project, is_written=True)
    named = [to_project_path(here, project, path) for path in paths]
    async with here.client(this) as client:
        await send_queue(client, here)
        await client.files.compare()
        wanted = [await asyncio.to_thread(_find_note, client.ties, name) for name in dict.fromkeys(named)]
        done = []
        for path, seen in wanted:
            if is_note(path):
                await client.call("memory_update", {"id": path}, more_meta=new_meta())
            else:
                await asyncio.to_thread(_write_seen, client, this.name, path, seen)
                await client.files.compare()
            kept = await asyncio.to_thread(client.ties.notes.ties.unchecked, seen)
            done.append({"path": path, "parts": [name for name in seen if name not in kept], "unchecked": list(kept)})

    def print_text() -> None:
        for each in done:
            told = ", ".join(each["parts"]) or "nothing of what it was about exists any more"
            more = f"; not checked: {', '.join(each['unchecked'])}" if each["unchecked"] else ""
            row(one_line(f"{each['path']} is confirmed: {told}{more}"))

    return Output({"project": this.name, "confirmed": done}, print_text)


def _find_note(ties: LateTies, name: str) -> tuple[str, Mapping[str, str]]:
    """Return the path of a note, and what it is tied to now. Raises ToolError."""
    path = ties.notes.path_of(name)
    seen = ties.notes.again(path) if path is not None else None
    if path is None or (seen is None and ties.notes.text(path) is None):
        raise ToolError(
            f"{name} is no note of this project on this device", hint="confide stale lists some, confide ls all"
        )
    if seen is None:
        hint = "name a file of this project in its text, or in its field about"
        raise ToolError(f"{path} names no file of this project", hint=hint)
    verdict = ties.notes.ties.verdict(seen, until=monotonic() + 60)
    if verdict is not None and verdict.state is TieState.UNCHECKED and len(verdict.parts) == len(seen):
        hint = "a part that can never be checked here is for you to take out of the note's field seen"
        raise ToolError(f"{path} cannot be confirmed here; {verdict.mark}", hint=hint)
    return path, seen


def _write_seen(client: CommandClient, project: str, path: str, seen: Mapping[str, str]) -> None:
    """Write the field `seen` of a memory file that is no note, which no tool can change. Blocks."""
    folder = next(each for each in client.files.folders if each.project == project)
    content = folder.read(path)
    if content is not None:
        folder.write(path, front_matter.edit(content.text, {SEEN: dict(seen) or None}), over=content)
