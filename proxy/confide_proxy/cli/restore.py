"""The command `confide restore`: restore an older text of one file, deleted files, or a project's
memory as it was at a time (docs/history.md).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Final

import typer

from confide_crypto.errors import RequestError
from confide_memory.documents import GLOBAL_PROJECT, local_time
from confide_memory.globs import is_glob, matches, normal
from confide_memory.note_names import is_id
from confide_memory.wire.revisions import DELETED, RESTORE, DeletedRow, RestoreRequest
from confide_proxy.cli.completion import Meant
from confide_proxy.cli.console import (
    DEADLINE_S,
    CommandContext,
    IsGlobal,
    Output,
    asking,
    command,
    count_noun,
    project_of,
    remark,
    row,
)
from confide_proxy.cli.listing import moment_of
from confide_proxy.cli.past_memory import Restored, restore_all, restore_at, restore_output
from confide_proxy.cli.search import document_of
from confide_proxy.cli.typed_paths import to_project_path
from confide_proxy.errors import FolderError
from confide_proxy.mcp.client import CommandClient
from confide_proxy.sync.folder import Folder

_MOST_LISTS: Final = 200
"""The most lists of deleted files (500 each); each request lists those that are still deleted."""


@command
async def restore(
    here: CommandContext,
    names: Meant = None,
    revision: Annotated[
        int | None,
        typer.Option("--revision", "-r", min=1, help="Which one, of one file; the last other text if left out."),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="TIME", help="What was deleted from then on: 2h, 3d, or a date."),
    ] = None,
    at: Annotated[
        str | None,
        typer.Option("--at", metavar="TIME", help="The texts of that time: 2d, 12h, or a date, meaning its end."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would come back.")] = False,
    is_list: Annotated[bool, typer.Option("--list", "-l", help="List what was deleted and can be restored.")] = False,
    is_global: IsGlobal = False,
    project: Annotated[
        Path | None,
        typer.Option("--project", "-p", metavar="DIR", help="The project's folder; alone or with --at: all of it."),
    ] = None,
) -> Output:
    """Make an older text of a file its newest revision, restore deleted files, or bring back memory
    as it was at a time, on every device.
    """
    place = project or Path()
    asked = list(dict.fromkeys(to_project_path(here, place, name) for name in names or ()))
    moment = None if since is None else datetime.fromisoformat(moment_of(since))
    then = None if at is None else moment_of(at, option="--at", is_end=True)
    if then is not None and (revision is not None or moment is not None or is_list):
        raise typer.BadParameter("goes without --revision, --since and --list", param_hint="--at")
    if is_list:
        return await _list_deleted(here, asked, moment, is_global=is_global, project=place)
    _check_named(asked, is_all=moment is not None or project is not None or is_global)
    is_one = moment is None and _is_one_file(asked)
    if revision is not None and not is_one:
        raise typer.BadParameter("goes with one file", param_hint="--revision")
    this = await project_of(here, place)
    async with here.client(this) as client:
        name = GLOBAL_PROJECT if is_global else this.name
        if is_one and not dry_run and then is None:
            name, path = await document_of(client, asked[0], name)
            return await _one(client, _folder(client, name, path, this.name), path, revision)
        paths = [(await document_of(client, each, name))[1] if is_id(each) else normal(each) for each in asked]
        folder = _folder(client, name, paths[0] if paths else "", this.name)
        if then is not None:
            return await restore_at(client, folder, paths, then, is_dry=dry_run)
        return await _many(client, folder, paths, moment, is_dry=dry_run)


def _check_named(names: Sequence[str], *, is_all: bool) -> None:
    """Raise typer.BadParameter if no file is named, unless all are meant, or if a name is a number."""
    if not names and not is_all:
        raise typer.BadParameter(
            "name files, folders or globs, or --project DIR for all; with --since TIME, all deleted since then; "
            "--list shows what was deleted"
        )
    if number := next((name for name in names if name.isdecimal()), None):
        raise typer.BadParameter(f"unexpected argument: {number}; for an older text: --revision {number}")


def _is_one_file(names: Sequence[str]) -> bool:
    """Return True if the names are that of one file, or the id of one note."""
    return len(names) == 1 and not is_glob(names[0]) and (is_id(names[0]) or names[0].endswith(".md"))


async def _list_deleted(
    here: CommandContext, names: Sequence[str], moment: datetime | None, *, is_global: bool, project: Path
) -> Output:
    """List the deleted files that can be restored; with names or a time, only the matching ones."""
    async with asking(here, project, is_global=is_global) as (client, name):
        answer = await DELETED.ask(client.connection, {"project": name}, timeout_s=DEADLINE_S)
    found = [each for each in answer["documents"] if _is_meant(each, names, moment)]
    lines = (
        f"{entry['path']}  deleted {local_time(entry['time'])} by {entry['author']}, "
        f"restorable until {local_time(entry['restorableUntil'])}"
        for entry in found
    )
    empty = f"nothing that was deleted in {name} can be restored"
    return Output({"project": name, "documents": found}, lines, empty=empty)


def _folder(client: CommandClient, name: str, path: str, this: str) -> Folder:
    folder = next((one for one in client.files.folders if one.project == name), None)
    if folder is None:
        hint = "run it in that project's folder, or with --project"
        raise FolderError(path, f"is of the project {name}, not of {this}", hint=hint)
    return folder


async def _one(client: CommandClient, folder: Folder, path: str, revision: int | None) -> Output:
    name = folder.project
    body: RestoreRequest = {"project": name, "path": path, "revision": revision}
    # Send the latest edits first: they stay in the history, and are not merged into the restored
    # text.
    await client.files.compare()
    answer = await RESTORE.ask(client.connection, body, timeout_s=DEADLINE_S)
    number, is_changed = answer["revision"], answer["changed"]
    report = await client.files.compare()
    local = await asyncio.to_thread(folder.read, path) if folder.is_memory(path) else None
    why = next((item["reason"] for item in report.skipped if item["path"] == path), None)
    if folder.is_memory(path) and (local is None or why is not None):
        problem = f"was restored, but the file on this device {why or 'is not here yet'}"
        raise FolderError(path, problem, hint="confide sync writes it once that is possible")

    def print_text() -> None:
        if is_changed:
            row(f"restored {path} in {name}, now revision {number}")
        else:
            row(f"{path} in {name} holds just that already")
        if local is None:
            remark(f"note: {path} is no file of this folder, so only the daemon has it")

    kept = {"revision": number, "changed": is_changed, "onDisk": local is not None}
    return Output({"project": name, "path": path, **kept}, print_text)


async def _many(
    client: CommandClient, folder: Folder, names: Sequence[str], moment: datetime | None, *, is_dry: bool
) -> Output:
    """Restore the deleted files that match.

    Existing files are skipped: a shell expands globs to their names.
    """
    name = folder.project
    if not is_dry:
        await client.files.compare()
    done: dict[str, Restored] = {}
    failed: dict[str, str] = {}
    for _ in range(_MOST_LISTS):
        listed = (await DELETED.ask(client.connection, {"project": name}, timeout_s=DEADLINE_S))["documents"]
        meant = [each for each in listed if each["path"] not in failed and _is_meant(each, names, moment)]
        if is_dry or not meant:
            break
        some, others = await restore_all(client, name, {each["path"]: None for each in meant})
        done |= some
        failed |= others
        if len(listed) < _LONGEST_LIST:
            break
    if is_dry:
        return _look(name, meant)
    if not done and not failed:
        raise RequestError("not_found", f"no deleted file of {name} matches", "confide restore --list shows it")
    return await restore_output(client, folder, done, failed)


_LONGEST_LIST: Final = 500
"""The length of the daemon's longest list of deleted files: a list of this length may be cut."""


def _is_meant(deleted: DeletedRow, names: Sequence[str], moment: datetime | None) -> bool:
    if moment is not None and datetime.fromisoformat(deleted["time"]) < moment:
        return False
    return not names or any(matches(deleted["path"], name) for name in names)


def _look(name: str, meant: list[DeletedRow]) -> Output:
    def print_text() -> None:
        for each in meant:
            row(f"{each['path']}  deleted {local_time(each['time'])} by {each['author']}")
        row(f"{count_noun(len(meant), 'file')} of {name} would come back")

    return Output({"project": name, "documents": meant}, print_text)
