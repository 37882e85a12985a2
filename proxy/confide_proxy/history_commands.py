"""`confide history`, `deleted` and `restore`: what a memory file was, and how it comes back (docs/history.md)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from confide_proxy import projects
from confide_proxy.errors import FolderError
from confide_proxy.options import AsJson, ProjectDir, TakesRevision, err, folder_of, out, print_json

if TYPE_CHECKING:
    from confide_proxy.cli import Here


PathOf = Annotated[str, typer.Argument(metavar="PATH", help="As a search shows it, e.g. memory/2026-11-20.md.")]
IsGlobal = Annotated[bool, typer.Option("--global", "-g", help="The memory that all projects share.")]
_DEADLINE_S = 30.0


def add_to(app: typer.Typer) -> None:
    """Make the three commands known."""
    for command in (history, deleted):
        app.command()(command)
    app.command(cls=TakesRevision)(restore)


def history(
    context: typer.Context,
    path: PathOf,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=100, help="At most so many revisions.")] = 20,
    is_global: IsGlobal = False,
    project: ProjectDir = Path(),
    as_json: AsJson = False,
) -> None:
    """List the revisions of a memory file, newest first."""
    from confide_proxy.answers import local_time, records

    answer, name = asyncio.run(_ask(context.obj, project, is_global, "history", {"path": path, "limit": limit}))
    kinds = {"revision": int, "author": str, "time": str, "bytes": int, "deleted": bool, "clash": bool}
    revisions = records(answer, "revisions", **kinds)
    if as_json:
        print_json({"project": name, "path": path, "revisions": revisions})
        return
    width = max((len(entry["author"]) for entry in revisions), default=0)
    for entry in revisions:
        size = "deleted" if entry["deleted"] else f"{entry['bytes']:,} bytes"
        clash = "  two versions of some lines" if entry["clash"] else ""
        line = f"{entry['revision']:>4}  {local_time(entry['time'])}  {entry['author']:<{width}}  {size}{clash}"
        out.print(line, markup=False)


def deleted(
    context: typer.Context, is_global: IsGlobal = False, project: ProjectDir = Path(), as_json: AsJson = False
) -> None:
    """List the files that were deleted and can be restored."""
    from confide_proxy.answers import local_time, records

    answer, name = asyncio.run(_ask(context.obj, project, is_global, "deleted", {}))
    kinds = {"path": str, "revision": int, "bytes": int, "author": str, "time": str, "restorableUntil": str}
    documents = records(answer, "documents", **kinds)
    if as_json:
        print_json({"project": name, "documents": documents})
        return
    for entry in documents:
        when = f"deleted {local_time(entry['time'])} by {entry['author']}"
        out.print(f"{entry['path']}  {when}, restorable until {local_time(entry['restorableUntil'])}", markup=False)
    if not documents:
        err.print(f"nothing that was deleted in {name} can be restored", markup=False)


def restore(
    context: typer.Context,
    path: PathOf,
    revision: Annotated[
        int | None, typer.Option("--revision", "-r", min=1, help="Which one; the last other text if left out.")
    ] = None,
    is_global: IsGlobal = False,
    project: ProjectDir = Path(),
    as_json: AsJson = False,
) -> None:
    """Make an older text of a memory file the newest one, here and on every machine of the space."""
    result = asyncio.run(_restore(context.obj, project, is_global, path, revision))
    if as_json:
        print_json(result)
        return
    if result["changed"]:
        out.print(f"restored {path} in {result['project']}, now revision {result['revision']}", markup=False)
    else:
        out.print(f"{path} in {result['project']} holds just that already", markup=False)
    if not result["onDisk"]:
        err.print(f"note: {path} is no file of this folder, so only the daemon has it", markup=False)


async def _restore(here: Here, folder: Path, is_global: bool, path: str, revision: int | None) -> dict[str, Any]:
    from confide_proxy.answers import value
    from confide_proxy.client import Client

    project = projects.identify(folder_of(folder))
    name = projects.GLOBAL if is_global else project.name
    body = {"project": name, "path": path} | ({"revision": revision} if revision else {})
    async with Client(here.paths, here.config, project) as client:
        # What was saved a moment ago goes up first: it stays in the history, and is not merged into what is restored.
        await client.sync()
        answer = await client.connection.request("restore", body, timeout_s=_DEADLINE_S)
        kept = {"revision": value(answer, "revision", int), "changed": value(answer, "changed", bool)}
        report = await client.sync()
        of_project = next(one for one in client.files.folders if one.project == name)
        local = await asyncio.to_thread(of_project.read, path) if of_project.is_memory(path) else None
    if local is None and of_project.is_memory(path):
        why = next((item["reason"] for item in report.skipped if item["path"] == path), "is not here yet")
        raise FolderError(path, f"was restored, but the file on this machine {why}", hint="then: confide sync")
    return {"project": name, "path": path, **kept, "onDisk": local is not None}


async def _ask(here: Here, folder: Path, is_global: bool, op: str, body: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """The daemon's answer about this folder's project, and the project's name."""
    from confide_proxy.client import Client

    project = projects.identify(folder_of(folder))
    name = projects.GLOBAL if is_global else project.name
    async with Client(here.paths, here.config, project) as client:
        return await client.connection.request(op, {"project": name, **body}, timeout_s=_DEADLINE_S), name
