"""`confided backup`: snapshots of the data folder, taken, listed, proven and let go; by the running daemon where one runs."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from confide_crypto.errors import ConfideError
from confide_daemon.cli.console import Bar, Config, Data, Here, Json, Output, clock, command, say
from confide_daemon.datadir.instance import DaemonLock
from confide_daemon.errors import DataFolderError

if TYPE_CHECKING:
    from confide_daemon.backup.service import Asked

POLL_S: Final = 0.1

backup_app = typer.Typer(
    help="Snapshots of the data folder: taken while it is served, and proven.", invoke_without_command=True
)
To = Annotated[str | None, typer.Option("--to", help="The folder for backups.", show_default="of daemon.toml")]


@backup_app.callback()
def backup(
    context: typer.Context, config_file: Config = None, data: Data = None, to: To = None, as_json: Json = False
) -> None:
    """Take a snapshot now, also while the daemon serves."""
    if context.invoked_subcommand is None:
        _take(config_file=config_file, data=data, to=to, as_json=as_json)


@command
def _take(here: Here, to: To = None) -> Output:
    from confide_daemon.backup.service import Asked

    done = work(here, Asked("take", to or ""))
    return Output(done, [f"{done['snapshot']}: {done['spaces']} spaces, in {done['folder']}"])


@backup_app.command()
@command
def init(
    here: Here,
    to: Annotated[str, typer.Option("--to", help="A new or empty folder, on another disk than the data.")],
    new_code: Annotated[
        bool, typer.Option("--new-code", help="A new recovery code for snapshots from now on; older ones keep theirs.")
    ] = False,
) -> Output:
    """Make a folder ready for backups, and the key that they are sealed to; its recovery code is shown once."""
    from confide_daemon.backup import sealed_keys
    from confide_daemon.backup.service import target_of

    settings = here.config().backup
    with here.opened(as_it_is=True) as state:
        target = target_of(settings, to).prepare(state.identity.public_key, data=state.folder.root)
        is_new = new_code or not state.folder.backup_key.exists()
        code = sealed_keys.make(state.folder).to_string() if is_new else None

    def tell() -> None:
        typer.echo(f"ready: {target.folder}")
        if code is not None:
            typer.echo(f"recovery code: {code}")
            say("Write it down, and keep it apart from this machine and from the backups. It is not shown again.")
            say("Who has it and a snapshot has all that the daemon could read.")
        else:
            say("The recovery code of before opens what is backed up here too.")
        if settings.to != to:
            say(f'Next: write to = "{target.folder}" under [backup] in {here.paths.config}, and say: confided backup')

    return Output({"folder": str(target.folder), "recoveryCode": code}, tell)


@backup_app.command("ls")
@command
def list_(here: Here, to: To = None) -> Output:
    """List the snapshots, the oldest first."""
    from confide_daemon.backup.listing import listed
    from confide_daemon.backup.service import target_of

    with here.opened() as state:
        found = listed(target_of(here.config().backup, to or ""), state)

    def tell() -> None:
        if not found:
            say("there are no snapshots yet")
        for one in found:
            typer.echo(f"{one['snapshot']}  {clock(one['at']) if one['at'] else '-':<22}  {one['said']}")

    return Output(found, tell)


def work(here: Here, asked: Asked) -> dict[str, Any]:
    """Does it: here, or in the daemon that runs. Raises ConfideError: what keeps it from being done."""
    try:
        lock = DaemonLock.take(here.paths.data.lock)
    except OSError as error:
        raise DataFolderError(here.paths.data.root, f"cannot be written: {(error.strerror or '').lower()}") from error
    with Bar(is_quiet=here.is_quiet) as bar:
        if lock is None:
            return _ask(here, asked, bar)
        try:
            return _do(here, asked, bar)
        finally:
            lock.release()


def _do(here: Here, asked: Asked, bar: Bar) -> dict[str, Any]:
    import asyncio

    from confide_daemon.backup.closed import ClosedSpaces
    from confide_daemon.backup.service import Backups

    with here.opened() as state:
        backups = Backups(state, ClosedSpaces(state), here.config().backup, here.paths.config)
        return asyncio.run(backups.do(asked, bar.follow))


def _ask(here: Here, asked: Asked, bar: Bar) -> dict[str, Any]:
    from confide_daemon.datadir.control import ask

    socket = here.paths.data.control
    # A relative folder is meant from here, not from where the daemon runs.
    to = str(Path(asked.to).expanduser().absolute()) if asked.to else ""
    task = ask(socket, "backup", what=asked.what, to=to, name=asked.name)["task"]
    while not (told := ask(socket, "backup task", task=task))["outcome"]:
        bar.follow(told["step"], told["done"], told["total"])
        time.sleep(POLL_S)
    outcome: dict[str, Any] = told["outcome"]
    if "ok" in outcome:
        return dict(outcome["ok"])
    error = ConfideError(outcome["error"], hint=outcome["hint"])
    error.exit_code = int(outcome["exit"])
    raise error
