"""`confide history`, `deleted` and `restore`: what a memory file was, and how it comes back (docs/history.md).

And `projects`, `link` and `unlink`: the projects of the space, and which are searched together.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Any

import typer

from confide_memory.document_path import composed
from confide_memory.wire.fields import local_time, names, records, value
from confide_proxy.cli.console import (
    DEADLINE_S,
    Here,
    Output,
    ProjectDir,
    TakesRevision,
    command,
    identified,
    remark,
    say,
)
from confide_proxy.errors import FolderError
from confide_proxy.sync.project import GLOBAL

PathOf = Annotated[str, typer.Argument(metavar="PATH", help="As a search shows it, e.g. memory/2026-11-20.md.")]
IsGlobal = Annotated[bool, typer.Option("--global", "-g", help="The memory that all projects share.")]


def add_to(app: typer.Typer) -> None:
    """Make the six commands known."""
    for each in (history, deleted, projects, link, unlink):
        app.command()(each)
    app.command(cls=TakesRevision)(restore)


@command
async def history(
    here: Here,
    path: PathOf,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=100, help="At most so many revisions.")] = 20,
    is_global: IsGlobal = False,
    project: ProjectDir = Path(),
) -> Output:
    """List the revisions of a memory file, newest first."""
    from confide_memory.wire.fields import local_time, records

    path = composed(path)
    answer, name = await _ask(here, project, "history", {"path": path, "limit": limit}, is_global=is_global)
    kinds = {"revision": int, "author": str, "time": str, "bytes": int, "deleted": bool, "clash": bool}
    revisions = records(answer, "revisions", **kinds)

    def tell() -> None:
        width = max((len(entry["author"]) for entry in revisions), default=0)
        for entry in revisions:
            size = "deleted" if entry["deleted"] else f"{entry['bytes']:,} bytes"
            clash = "  two versions of some lines" if entry["clash"] else ""
            say(f"{entry['revision']:>4}  {local_time(entry['time'])}  {entry['author']:<{width}}  {size}{clash}")

    return Output({"project": name, "path": path, "revisions": revisions}, tell)


@command
async def deleted(here: Here, is_global: IsGlobal = False, project: ProjectDir = Path()) -> Output:
    """List the files that were deleted and can be restored."""
    answer, name = await _ask(here, project, "deleted", {}, is_global=is_global)
    kinds = {"path": str, "revision": int, "bytes": int, "author": str, "time": str, "restorableUntil": str}
    documents = records(answer, "documents", **kinds)

    def tell() -> None:
        for entry in documents:
            when = f"deleted {local_time(entry['time'])} by {entry['author']}"
            say(f"{entry['path']}  {when}, restorable until {local_time(entry['restorableUntil'])}")
        if not documents:
            remark(f"nothing that was deleted in {name} can be restored")

    return Output({"project": name, "documents": documents}, tell)


@command
async def restore(
    here: Here,
    path: PathOf,
    revision: Annotated[
        int | None, typer.Option("--revision", "-r", min=1, help="Which one; the last other text if left out.")
    ] = None,
    is_global: IsGlobal = False,
    project: ProjectDir = Path(),
) -> Output:
    """Make an older text of a memory file the newest one, here and on every machine of the space."""
    path = composed(path)
    this = identified(project)
    name = GLOBAL if is_global else this.name
    body = {"project": name, "path": path} | ({"revision": revision} if revision else {})
    async with here.client(this) as client:
        # What was saved a moment ago goes up first: it stays in the history, and is not merged into what is restored.
        await client.sync()
        answer = await client.connection.request("restore", body, timeout_s=DEADLINE_S)
        number, is_changed = value(answer, "revision", int), value(answer, "changed", bool)
        report = await client.sync()
        folder = next(one for one in client.files.folders if one.project == name)
        local = await asyncio.to_thread(folder.read, path) if folder.is_memory(path) else None
    if local is None and folder.is_memory(path):
        why = next((item["reason"] for item in report.skipped if item["path"] == path), "is not here yet")
        raise FolderError(path, f"was restored, but the file on this machine {why}", hint="then: confide sync")

    def tell() -> None:
        if is_changed:
            say(f"restored {path} in {name}, now revision {number}")
        else:
            say(f"{path} in {name} holds just that already")
        if local is None:
            remark(f"note: {path} is no file of this folder, so only the daemon has it")

    kept = {"revision": number, "changed": is_changed, "onDisk": local is not None}
    return Output({"project": name, "path": path, **kept}, tell)


@command
async def projects(here: Here, project: ProjectDir = Path()) -> Output:
    """List the projects of the space, the last changed first, and which one this folder's is."""
    answer, name = await _ask(here, project, "projects", {})
    found = records(answer, "projects", name=str, files=int, updated=str, linked=bool)

    def tell() -> None:
        width = max((len(entry["name"]) for entry in found), default=0)
        for entry in found:
            about = "  this folder" if entry["name"] == name else "  linked" if entry["linked"] else ""
            count = f"{entry['files']} file{'' if entry['files'] == 1 else 's'}"
            say(f"{entry['name']:<{width}}  {count:>10}  {local_time(entry['updated'])}{about}")
        if name not in (entry["name"] for entry in found):
            remark(f"this folder's is {name}, which holds no file yet")

    return Output({"project": name, "projects": found, "complete": answer.get("complete") is not False}, tell)


@command
async def link(
    here: Here,
    other: Annotated[str | None, typer.Argument(help="The project, as `confide projects` names it.")] = None,
    project: ProjectDir = Path(),
) -> Output:
    """Let searches in this folder's project look in another one too, and the other way round; without a name, list the links."""
    return _links(*await _ask(here, project, "link" if other else "links", {"other": other} if other else {}))


@command
async def unlink(
    here: Here,
    other: Annotated[str, typer.Argument(help="The project, as `confide projects` names it.")],
    project: ProjectDir = Path(),
) -> Output:
    """End a link."""
    return _links(*await _ask(here, project, "unlink", {"other": other}))


def _links(answer: dict[str, Any], name: str) -> Output:
    linked = names(answer, "linked")
    return Output(
        {"project": name, "linked": linked}, f"{name} is linked with {', '.join(linked) or 'no other project'}"
    )


async def _ask(
    here: Here, folder: Path, op: str, body: dict[str, Any], *, is_global: bool = False
) -> tuple[dict[str, Any], str]:
    """The daemon's answer about this folder's project or the global one, and the name of that."""
    project = identified(folder)
    name = GLOBAL if is_global else project.name
    async with here.client(project) as client:
        return await client.connection.request(op, {"project": name, **body}, timeout_s=DEADLINE_S), name
