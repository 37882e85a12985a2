"""What the commands share: their common options, and how they speak (data to stdout, the rest to stderr)."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from confide_daemon import paths

if TYPE_CHECKING:
    from confide_daemon.enrollment import Rights

Config = Annotated[
    Path | None, typer.Option("--config", help="The configuration file (TOML).", show_default="daemon.toml")
]
Data = Annotated[Path | None, typer.Option("--data", help="The data folder.", show_default="of this user")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Space = Annotated[str | None, typer.Option("--space", help="An existing space.", show_default="a new one")]
Scope = Annotated[str | None, typer.Option("--scope", help="read, write or admin.", show_default="write")]
Projects = Annotated[
    str | None, typer.Option("--projects", help="What it reaches: app,web or all. global is one of them.")
]
Sources = Annotated[str | None, typer.Option("--sources", help="What it reaches: memory,sessions or all.")]
Expires = Annotated[str | None, typer.Option("--expires", help="When its access ends: 90d from now, or never.")]


def say(text: str) -> None:
    """A line for the person, which is not data."""
    typer.echo(text, err=True)


def show(data: Any) -> None:
    """Data as JSON."""
    typer.echo(json.dumps(data, ensure_ascii=False))


def clock(moment: float, *, seconds: bool = False) -> str:
    """A time as a person reads it."""
    return time.strftime("%Y-%m-%d %H:%M:%S" if seconds else "%Y-%m-%d %H:%M", time.localtime(moment))


def can_ask() -> bool:
    """Whether a person sits at a terminal."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def rights_of(scope: str | None, projects: str | None, sources: str | None, expires: str | None) -> Rights:
    """What a command line says about a machine's rights."""
    from confide_daemon.enrollment import Rights

    return Rights(scope, projects, sources, expires)


@contextlib.contextmanager
def opened(config_file: Path | None, data: Path | None) -> Iterator[Any]:
    """The data folder's state, for a command beside the daemon."""
    from confide_daemon.state import open_state

    state = open_state(paths.find(config=config_file, data=data).data)
    try:
        yield state
    finally:
        state.close()
