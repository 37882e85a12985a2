"""The commands of `confide project`: list the space's projects, link them for search, and name this
device's folders (docs/history.md).
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Final

import typer

from confide_crypto.errors import printable
from confide_memory.documents import local_time
from confide_memory.wire.revisions import LINK, LINKS, PROJECTS, UNLINK, Linked, LinkRequest
from confide_proxy.cli.completion import project_names
from confide_proxy.cli.console import (
    DEADLINE_S,
    CommandContext,
    Output,
    ProjectDir,
    asking,
    command,
    count_noun,
    folder_of,
    note,
    remark,
    row,
    say,
)
from confide_proxy.errors import FolderError
from confide_proxy.sync import project as projects
from confide_proxy.sync.project_names import NameOrigin, ProjectNames

_OTHER = typer.Argument(help="The project, as confide project ls names it.", autocompletion=project_names)

Folder = Annotated[
    Path, typer.Argument(metavar="DIR", help="The project's folder; this one if left out.", show_default=False)
]

_SAID: Final = {
    NameOrigin.REMOTE: "by its remote",
    NameOrigin.FIRST: "no other folder had the name",
    NameOrigin.USED: "as before",
    NameOrigin.ALLOWED: "you allowed it",
    NameOrigin.OWN: "a project of its own: it calls itself {claim}",
    NameOrigin.UNASKED: "a project of its own until the daemon can be asked: it calls itself {claim}",
}


@command
async def ls(
    here: CommandContext,
    is_here: Annotated[
        bool, typer.Option("--folders", help="List this device's project folders, and why each has its name.")
    ] = False,
    project: ProjectDir = Path(),
) -> Output:
    """List the projects of the memory, last changed first, and mark this folder's."""
    if is_here:
        return await asyncio.to_thread(_folders, here)
    async with asking(here, project) as (client, name):
        answer = await PROJECTS.ask(client.connection, {"project": name}, timeout_s=DEADLINE_S)
    found = answer["projects"]

    def tell() -> None:
        width = max((len(entry["name"]) for entry in found), default=0)
        for entry in found:
            about = "  this folder" if entry["name"] == name else "  linked" if entry["linked"] else ""
            count = count_noun(entry["files"], "file")
            row(f"{entry['name']:<{width}}  {count:>10}  {local_time(entry['updated'])}{about}")
        if name not in (entry["name"] for entry in found):
            remark(f"this folder is the project {name}, which holds no file yet")

    return Output({"project": name, "projects": found, "complete": answer["complete"]}, tell)


@command
async def link(
    here: CommandContext,
    other: Annotated[str | None, _OTHER] = None,
    is_removed: Annotated[bool, typer.Option("--remove", help="Stop searching them together.")] = False,
    project: ProjectDir = Path(),
) -> Output:
    """Search this folder's project and another one together, in both; without a name, list the
    links.
    """
    if is_removed and other is None:
        raise typer.BadParameter("name the project that is linked", param_hint="--remove")
    async with asking(here, project) as (client, name):
        if other is None:
            return _links(name, await LINKS.ask(client.connection, {"project": name}, timeout_s=DEADLINE_S))
        body: LinkRequest = {"project": name, "other": other}
        answer = await (UNLINK if is_removed else LINK).ask(client.connection, body, timeout_s=DEADLINE_S)
        return _links(name, answer)


def _links(name: str, answer: Linked) -> Output:
    message = f"{name} is linked with {', '.join(answer['linked']) or 'no other project'}"
    return Output({"project": name, "linked": answer["linked"]}, message)


def _folders(here: CommandContext) -> Output:
    """List the project folders known on this device, with the source of each name. Blocks."""
    kept = [each for each in ProjectNames(here.paths.projects).all() if each.state is not NameOrigin.FORGOTTEN]

    lines = (f"{each.name}  {printable(each.home)}  {_SAID[each.state].format(claim=each.claim)}" for each in kept)
    found = [{"project": one.name, "folder": one.home, "claim": one.claim, "state": one.state.value} for one in kept]
    return Output(found, lines)


@command
async def allow(
    here: CommandContext,
    folder: Folder = Path(),
    is_undone: Annotated[
        bool, typer.Option("--undo", help="Forget which project the folder was; the next command there decides again.")
    ] = False,
) -> Output:
    """Accept the project name that a folder claims, so that it shares that project's memory."""
    if is_undone:
        return await _undone(here, folder)
    claim = await asyncio.to_thread(projects.identify, folder_of(folder))
    decision = await asyncio.to_thread(ProjectNames(here.paths.projects).note, claim, NameOrigin.ALLOWED)
    project = decision.project(claim)

    def print_text() -> None:
        say(f"{printable(str(project.root))} is the project {project.name}")
        remark("restart an agent or confide sync --watch that runs there: until then it uses the old name")

    return Output({"project": project.name, "folder": str(project.root)}, print_text)


async def _undone(here: CommandContext, folder: Path) -> Output:
    """Forget the project of a folder, even a deleted one.

    Raises FolderError if it was no project on this device.
    """
    where = folder.absolute()
    home = (await asyncio.to_thread(projects.identify, where)).home if where.is_dir() else where
    forgotten = await asyncio.to_thread(ProjectNames(here.paths.projects).forget, home)
    if not forgotten:
        hint = "confide project ls --folders lists them"
        raise FolderError(str(home), "was not a project on this device", hint=hint)

    def print_text() -> None:
        for each in forgotten:
            say(f"forgotten: {printable(each.home)} as {each.name}")
        note("its files stay, and so does what the daemon has of them")

    return Output([{"project": each.name, "folder": each.home} for each in forgotten], print_text)
