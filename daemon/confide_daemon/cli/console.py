"""Options, paths and output that all commands share. Data is printed on stdout, the rest on stderr."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from confide_daemon import config
from confide_daemon.datadir import paths
from confide_daemon.errors import BadNameError, StorageError
from confide_memory.commands import console
from confide_memory.commands.console import AsJson, Output, can_ask, clock, commands, remark, say

__all__ = ["AsJson", "Output", "can_ask", "clock", "remark", "say"]

if TYPE_CHECKING:
    from confide_daemon.access.enrollment import Rights
    from confide_daemon.access.registry import RegistryState
    from confide_daemon.store.logs import LogStore
    from confide_memory.commands.progress import Progress


Config = Annotated[
    Path | None, typer.Option("--config", help="The configuration file (TOML).", show_default="daemon.toml")
]
Data = Annotated[Path | None, typer.Option("--data", help="The data folder.", show_default="of this user")]
Space = Annotated[str | None, typer.Option("--space", help="An existing space.", show_default="a new one")]
Scope = Annotated[str | None, typer.Option("--scope", help="read, write or admin.", show_default="write")]
Projects = Annotated[
    str | None, typer.Option("--projects", help="Projects that it may use: app,web or all. global is a project too.")
]
Sources = Annotated[str | None, typer.Option("--sources", help="Sources that it may use: memory,sessions or all.")]
Expires = Annotated[str | None, typer.Option("--expires", help="When its access ends: 90d from now, or never.")]


def rights_of(scope: str | None, projects: str | None, sources: str | None, expires: str | None) -> Rights:
    """Return the rights that a command's options specify."""
    from confide_daemon.access.enrollment import Rights

    return Rights(scope, projects, sources, expires)


@dataclass(frozen=True, slots=True)
class CommandContext:
    """The paths of the daemon's files, as the options of a command specify them."""

    paths: paths.DaemonPaths
    must_have_config: bool  # the user named the configuration file
    is_quiet: bool  # for programs: no bars, no questions

    def config(self) -> config.DaemonConfig:
        """Read daemon.toml and return the configuration. Raises ConfigError if it cannot be read or
        is invalid.
        """
        return config.load(self.paths.config, must_exist=self.must_have_config)

    def open_state(self, *, as_it_is: bool = False) -> contextlib.closing[RegistryState]:
        """Open the keys and the registry in the data folder, for a command that runs beside the
        daemon.

        `as_it_is`: True to leave a folder of an older version unmigrated. Raises DataFolderError if
        the folder is not set up; KeyFileError if a key cannot be used; StorageError if the registry
        cannot be opened; UpgradeNeededError if an older version wrote the folder.
        """
        from confide_daemon.access.registry import open_state

        state = open_state(self.paths.data, as_it_is=as_it_is, store=None if as_it_is else self.store())
        with contextlib.suppress(StorageError):  # reading may be a moment late; writing raises it
            state.registry.follow()
        return contextlib.closing(state)

    def progress(self) -> Progress:
        """Return a progress bar for the terminal. Use it in a `with` statement."""
        from confide_memory.commands.progress import (
            Progress,
        )  # rich takes 40 ms, and a daemon on demand must start fast

        return Progress(name="", is_quiet=self.is_quiet)

    def store(self) -> LogStore | None:
        """Return the shared store that holds the registry's log, or None if this folder's registry
        is not in a store. Raises ConfigError if daemon.toml is invalid.
        """
        from confide_daemon.store.logs import log_store

        return log_store(self.config()) if self.paths.data.node.exists() else None


def _context(config_file: Path | None, data: Path | None, *, as_json: bool) -> CommandContext:
    return CommandContext(paths.find(config=config_file, data=data), config_file is not None, as_json)


print_json = partial(console.print_json, indent=None)
command = commands({"config_file": (Config, None), "data": (Data, None)}, _context, indent=None)
"""Turn a function with a `CommandContext` and options into a typer command (`commands`)."""


def spaces_of(found: paths.DaemonPaths, space: str | None) -> dict[str, str]:
    """Return the ids of the spaces that have a database, by name. If `space` is given, return only
    that one.

    Raises BadNameError if that space does not exist.
    """
    from confide_daemon.access.registry import open_state

    with contextlib.closing(open_state(found.data)) as state:
        known = state.registry.spaces()
    if space is not None and space not in known:
        raise BadNameError(f"there is no space '{space[:80]}'", hint=f"there are: {', '.join(known) or 'none'}")
    named = {name: space_id for name, space_id in known.items() if space in (None, name)}
    return {name: space_id for name, space_id in named.items() if found.data.space(space_id).exists()}
