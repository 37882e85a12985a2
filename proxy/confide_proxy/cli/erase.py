"""The command `confide rm --erase`: delete documents with all revisions from the daemon at once,
and never send them again (docs/history.md).

The files on the devices stay as they are.
"""

from __future__ import annotations

import asyncio
import difflib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from confide_crypto.errors import ConfideError, RequestError
from confide_memory.documents import GLOBAL_PROJECT
from confide_memory.globs import normal
from confide_memory.note_names import is_id
from confide_memory.wire.revisions import FORGET, PROJECTS, ForgetAnswer, ForgetRequest
from confide_memory.wire.sealing import ERASE
from confide_proxy.cli.console import (
    DEADLINE_S,
    CommandContext,
    Output,
    agreed,
    counted,
    identified,
    note,
    row,
)
from confide_proxy.cli.search import document_of
from confide_proxy.hooks.server import usage
from confide_proxy.sync.project import Project

if TYPE_CHECKING:
    from confide_proxy.mcp.client import CommandClient
_SHOWN: Final = 8
_ERASE_DEADLINE_S: Final = 600.0
_MOST_STEPS: Final = 20_000
"""The most requests for one command: more than the largest space needs, one batch each."""


async def erase(
    here: CommandContext, names: Sequence[str], of: str, *, undo: bool, dry_run: bool, yes: bool, is_global: bool
) -> Output:
    """Erase documents from the daemon, or allow erased ones to be sent again.

    Args:
        of: a project's name or folder; without names, the whole project is erased.

    Raises typer.BadParameter if nothing is named or a name is empty, and RequestError if nothing is
    stored under these names.
    """
    asked = list(dict.fromkeys(names))
    if not asked and not of and not is_global:
        raise typer.BadParameter("name a file, a folder or a glob, or --project NAME for all of a project")
    if any(not normal(name) for name in asked):
        raise typer.BadParameter("a name is empty; to erase everything: --project NAME, without a path")
    if not (undo or dry_run or sys.stdin.isatty()):
        await agreed("", is_sure=yes)  # fails before any search
    folder = Path(of) if of and Path(of).is_dir() else Path()
    this = await identified(here, folder)
    async with here.client(this) as client:
        project = GLOBAL_PROJECT if is_global else await _project(client, this, of)
        paths = [await _path(client, this, name, project) for name in asked]
        body: ForgetRequest = {"project": project, "paths": paths}
        if undo:
            return _taken_again(
                project, await FORGET.ask(client.connection, {**body, "undo": True}, timeout_s=DEADLINE_S)
            )
        look = await FORGET.ask(client.connection, {**body, "dryRun": True}, timeout_s=DEADLINE_S)
        if not look["total"] and paths:
            named = ", ".join(paths[:_SHOWN])
            raise RequestError(
                "not_found", f"nothing of {project} is stored under {named}", "confide ls --all lists it"
            )
        if dry_run:
            return _output(project, look["documents"], look["total"], is_done=False)
        await agreed(_question(project, look), is_sure=yes)
        done: list[str] = []
        for _ in range(_MOST_STEPS):
            step = await FORGET.ask(client.connection, body, timeout_s=DEADLINE_S)
            done += step["documents"]
            if step["complete"]:
                break
        await asyncio.to_thread(client.files.note_forgotten, project, done)
        await asyncio.to_thread(usage.forget, here.paths.state, project, done if asked else ())
        warnings = await _erased(client)
    return _output(project, done, len(done), is_done=True, warnings=warnings)


async def _project(client: CommandClient, this: Project, of: str) -> str:
    """Return the project that the user gave by name or by folder."""
    if not of:
        return this.name
    answer = await PROJECTS.ask(client.connection, {"project": this.name}, timeout_s=DEADLINE_S)
    known = [entry["name"] for entry in answer["projects"]]
    is_folder = Path(of).is_dir()
    if is_folder and (this.name == of or of not in known):
        return this.name
    if is_folder:
        raise typer.BadParameter(
            f"{of} is a project and a folder here; for the folder's project, {this.name}: ./{of}",
            param_hint="--project",
        )
    if of not in known:
        near = difflib.get_close_matches(of, known, n=3)
        hint = f"did you mean {', '.join(near)}?" if near else "confide project ls lists them"
        raise RequestError("not_found", f"there is no project {of}", hint)
    return of


async def _path(client: CommandClient, this: Project, name: str, project: str) -> str:
    """Return the daemon's path for a name: relative to the project's folder; for a note's id, the
    path of its file.
    """
    if is_id(name):
        return (await document_of(client, name, project))[1]
    if Path(name).is_absolute():
        try:
            name = Path(name).relative_to(this.root).as_posix()
        except ValueError:
            raise typer.BadParameter(f"{name} is not in {this.root}") from None
    return normal(name)


def _question(project: str, look: ForgetAnswer) -> str:
    named = ", ".join(look["documents"][:_SHOWN])
    more = f" and {look['total'] - _SHOWN:,} more" if look["total"] > _SHOWN else ""
    files = f": {named}{more}" if named else ""
    return (
        f"erase {counted(look['total'], 'file')} of {project}{files}?\n"
        "This deletes them from the daemon for good, with all revisions. The files on your devices stay, and are not sent again."
    )


async def _erased(client: CommandClient) -> list[str]:
    """Have the daemon rewrite its database, so that no page contains erased text.

    Returns sentences for the user if that fails.
    """
    try:
        answer = await ERASE.ask(client.connection, {}, timeout_s=_ERASE_DEADLINE_S)
    except (ConfideError, TimeoutError) as error:
        return [
            f"searches and histories no longer have it, but the daemon's database file may still hold traces: {error}",
            "hint: confide secrets scan --stored cleans the file",
        ]
    damaged = answer["damagedCopies"]
    return (
        [f"{counted(damaged, 'damaged copy', 'damaged copies')} of the daemon's database file may still hold it"]
        if damaged
        else []
    )


def _taken_again(project: str, answer: ForgetAnswer) -> Output:
    def print_text() -> None:
        for name in answer["documents"]:
            row(f"{name or 'all of it'} of {project} can be sent again")
        if answer["documents"]:
            note("confide sync sends what this device has of it")
        else:
            row(f"nothing of {project} was erased under that name")

    return Output({"project": project, "takenAgain": answer["documents"]}, print_text)


def _output(
    project: str, documents: list[str], total: int, *, is_done: bool, warnings: list[str] | None = None
) -> Output:
    def print_text() -> None:
        if not is_done:
            for path in documents:
                row(path)
        what = "erased" if is_done else "would be erased"
        row(f"{counted(total, 'file')} of {project} {what}")
        if is_done:
            note("backups of the daemon still hold it: docs/history.md")

    return Output(
        {"project": project, "documents": documents, "total": total, "forgotten": is_done}, print_text, warnings or ()
    )
