"""`confide projects`, `link` and `unlink`: the projects of the space, and which are searched together (docs/history.md)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from confide_proxy import projects as of_folders
from confide_proxy.options import AsJson, ProjectDir, err, out, print_json

if TYPE_CHECKING:
    from confide_proxy.cli import Here


_DEADLINE_S = 30.0


def add_to(app: typer.Typer) -> None:
    """Make the three commands known."""
    for command in (projects, link, unlink):
        app.command()(command)


def projects(context: typer.Context, project: ProjectDir = Path(), as_json: AsJson = False) -> None:
    """List the projects of the space, the last changed first, and which one this folder's is."""
    from confide_proxy.answers import local_time, records

    answer, here = asyncio.run(_ask(context.obj, project, "projects", {}))
    found = records(answer, "projects", name=str, files=int, updated=str, linked=bool)
    if as_json:
        print_json({"project": here, "projects": found, "complete": answer.get("complete") is not False})
        return
    width = max((len(entry["name"]) for entry in found), default=0)
    for entry in found:
        about = "  this folder" if entry["name"] == here else "  linked" if entry["linked"] else ""
        count = f"{entry['files']} file{'' if entry['files'] == 1 else 's'}"
        line = f"{entry['name']:<{width}}  {count:>10}  {local_time(entry['updated'])}{about}"
        out.print(line, markup=False)
    if here not in (entry["name"] for entry in found):
        err.print(f"this folder's is {here}, which holds no file yet", markup=False)


def link(
    context: typer.Context,
    other: Annotated[str | None, typer.Argument(help="The project, as `confide projects` names it.")] = None,
    project: ProjectDir = Path(),
    as_json: AsJson = False,
) -> None:
    """Let searches in this folder's project look in another one too, and the other way round; without a name, list the links."""
    _say(context, project, "link" if other else "links", {"other": other} if other else {}, as_json=as_json)


def unlink(
    context: typer.Context,
    other: Annotated[str, typer.Argument(help="The project, as `confide projects` names it.")],
    project: ProjectDir = Path(),
    as_json: AsJson = False,
) -> None:
    """End a link."""
    _say(context, project, "unlink", {"other": other}, as_json=as_json)


def _say(context: typer.Context, folder: Path, op: str, body: dict[str, Any], *, as_json: bool) -> None:
    from confide_proxy.answers import names

    answer, here = asyncio.run(_ask(context.obj, folder, op, body))
    linked = names(answer, "linked")
    if as_json:
        print_json({"project": here, "linked": linked})
    else:
        out.print(f"{here} is linked with {', '.join(linked) or 'no other project'}", markup=False)


async def _ask(here: Here, folder: Path, op: str, body: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """The daemon's answer about this folder's project, and the project's name."""
    from confide_proxy.client import Client

    if not folder.is_dir():
        raise typer.BadParameter(f"{folder} is not a folder", param_hint="--project")
    project = of_folders.identify(folder.absolute())
    async with Client(here.paths, here.config, project) as client:
        answer = await client.connection.request(op, {"project": project.name, **body}, timeout_s=_DEADLINE_S)
        return answer, project.name
