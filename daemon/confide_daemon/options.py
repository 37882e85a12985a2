"""What the commands share: their common options, and how they speak (data to stdout, the rest to stderr)."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from confide_daemon import paths

Config = Annotated[
    Path | None, typer.Option("--config", help="The configuration file (TOML).", show_default="daemon.toml")
]
Data = Annotated[Path | None, typer.Option("--data", help="The data folder.", show_default="of this user")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Space = Annotated[str | None, typer.Option("--space", help="An existing space.", show_default="a new one")]
Scope = Annotated[str, typer.Option("--scope", help="read, write or admin.")]


def say(text: str) -> None:
    """A line for the person, which is not data."""
    typer.echo(text, err=True)


def show(data: Any) -> None:
    """Data as JSON."""
    typer.echo(json.dumps(data, ensure_ascii=False))


@contextlib.contextmanager
def opened(config_file: Path | None, data: Path | None) -> Iterator[Any]:
    """The data folder's state, for a command beside the daemon."""
    from confide_daemon.state import open_state

    state = open_state(paths.find(config=config_file, data=data).data)
    try:
        yield state
    finally:
        state.close()
