"""`confide setup CLIENT`: how a client is told to start Confide."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Final

import typer

from confide_proxy.cli import clients, transfer
from confide_proxy.cli.clients import CLIENTS, Change, Client
from confide_proxy.cli.console import Here, ProjectDir, folder_of, remark, say

setup_app = typer.Typer(help="Tell a client how to start Confide.", no_args_is_help=True)

_MOST_SHOWN: Final = 60
"""Lines of a difference: a file that somebody wrote by hand may change in every line."""

Write = Annotated[bool, typer.Option("--write", help="Put the entry into the file instead of printing it.")]
ForUser = Annotated[bool, typer.Option("--user", help="For all projects instead of this one.")]
Remove = Annotated[bool, typer.Option("--remove", help="Take the entry out of the file again.")]


def add_entry(here: Here, project: Path, *, for_user: bool) -> None:
    """Add the entry to Claude Code's configuration, and offer to import what else is there."""
    _write(here, CLIENTS["claude-code"], project, for_user=for_user)


def merge_for_claude_code(project: Path) -> bool:
    """The same without a word. False if it was there already. Raises SetupError."""
    client = CLIENTS["claude-code"]
    change = clients.added(client, client.file(project.absolute(), for_user=False), clients.program())
    if change.is_one:
        change.write()
    return change.is_one


def _command(client: Client) -> Callable[..., None]:
    def run(
        context: typer.Context,
        write: Write = False,
        user: ForUser = False,
        remove: Remove = False,
        project: ProjectDir = Path(),
    ) -> None:
        path = client.file(project.absolute(), for_user=user)
        if remove:
            change = clients.removed(client, path)
            _tell(change)
            if change.is_one:
                change.write()
            say(f"removed confide from {path}" if change.is_one else f"confide is not in {path}")
        elif write:
            _write(context.obj, client, project, for_user=user)
        else:
            say(client.shown(clients.program()))
            remark(f"paste this into {path}, or run it again with --write")

    run.__doc__ = f"The MCP entry for {client.title}."
    return run


def _write(here: Here, client: Client, project: Path, *, for_user: bool) -> None:
    path = client.file(project.absolute(), for_user=for_user)
    change = clients.added(client, path, clients.program())
    _tell(change)
    if change.is_one:
        change.write()
    say(f"{'added confide to' if change.is_one else 'confide is already in'} {path}")
    if change.is_one:
        transfer.offer(here, folder_of(project))


def _tell(change: Change) -> None:
    """Show what is about to change."""
    if not change.is_one:
        return
    lines = difflib.unified_diff(change.before.splitlines(), change.after.splitlines(), lineterm="", n=1)
    shown = [line for line in lines if not line.startswith(("---", "+++", "@@"))]
    for line in shown[:_MOST_SHOWN]:
        say(line)
    if len(shown) > _MOST_SHOWN:
        say(f"… and {len(shown) - _MOST_SHOWN:,} more lines")


for _client in CLIENTS.values():
    setup_app.command(_client.name)(_command(_client))
