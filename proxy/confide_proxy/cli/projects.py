"""`confide project ls`, `allow` and `forget`: which folder of this machine has which project's name (docs/history.md, "Projects")."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Final

import typer

from confide_crypto.errors import printable
from confide_proxy.cli.console import CommandContext, Output, command, folder_of, note, remark, say
from confide_proxy.errors import FolderError
from confide_proxy.sync import project as projects
from confide_proxy.sync.project_names import NameOrigin, ProjectNames

project_app = typer.Typer()

Folder = Annotated[
    Path, typer.Argument(metavar="DIR", help="The project's folder; this one if left out.", show_default=False)
]

_SAID: Final = {
    NameOrigin.REMOTE: "by its remote",
    NameOrigin.FIRST: "nobody else had the name",
    NameOrigin.USED: "as it had before",
    NameOrigin.ALLOWED: "you allowed it",
    NameOrigin.OWN: "a project of its own: it calls itself {claim}",
    NameOrigin.UNASKED: "a project of its own until the daemon can be asked: it calls itself {claim}",
}


@project_app.command("ls")
@command
def list_folders(here: CommandContext) -> Output:
    """List the folders that were projects on this machine, and how they came by their names."""
    kept = [each for each in ProjectNames(here.paths.projects).all() if each.state is not NameOrigin.FORGOTTEN]

    lines = (f"{each.name}  {printable(each.home)}  {_SAID[each.state].format(claim=each.claim)}" for each in kept)
    found = [{"project": one.name, "folder": one.home, "claim": one.claim, "state": one.state.value} for one in kept]
    return Output(found, lines)


@project_app.command("allow")
@command
async def allow(here: CommandContext, folder: Folder = Path()) -> Output:
    """Let a folder be the project that it calls itself: it shares that project's memory from then on, and its files become part of it."""
    claim = await asyncio.to_thread(projects.identify, folder_of(folder))
    decision = await asyncio.to_thread(ProjectNames(here.paths.projects).note, claim, NameOrigin.ALLOWED)
    project = decision.project(claim)

    def print_text() -> None:
        say(f"{printable(str(project.root))} is the project {project.name}")
        remark("an agent or confide watch that runs there learns of it when it is started again")

    return Output({"project": project.name, "folder": str(project.root)}, print_text)


@project_app.command("forget", epilog="confide project forget ~/old-app")
@command
async def forget(here: CommandContext, folder: Folder = Path()) -> Output:
    """Have it decided anew whether a folder may have the name that it claims. The folder need not be there any more."""
    where = folder.absolute()
    home = (await asyncio.to_thread(projects.identify, where)).home if where.is_dir() else where
    forgotten = await asyncio.to_thread(ProjectNames(here.paths.projects).forget, home)
    if not forgotten:
        raise FolderError(str(home), "is no folder that was a project here", hint="confide project ls lists them")

    def print_text() -> None:
        for each in forgotten:
            say(f"forgotten: {printable(each.home)} as {each.name}")
        note("its files stay, and so does what the daemon has of them")

    return Output([{"project": each.name, "folder": each.home} for each in forgotten], print_text)
