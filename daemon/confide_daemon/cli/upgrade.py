"""The command `confided upgrade`: upgrade a data folder of an older version, or show what that
would do.
"""

from __future__ import annotations

import time
from typing import Annotated

import typer

from confide_daemon import __version__
from confide_daemon.access.registry import look_at_upgrade, open_master
from confide_daemon.addons import installed
from confide_daemon.cli.console import CommandContext, Output, command, remark, say
from confide_daemon.datadir.instance import DaemonLock
from confide_daemon.errors import AlreadyServedError
from confide_daemon.server.operator import upgrading
from confide_daemon.store.logs import log_store
from confide_memory.versions import WINDOW, is_behind


@command
def upgrade(
    here: CommandContext,
    check: Annotated[bool, typer.Option("--check", help="Show what would happen, and change nothing.")] = False,
    no_snapshot: Annotated[
        bool, typer.Option("--no-snapshot", help="Upgrade without a snapshot of the folder first.")
    ] = False,
) -> Output:
    """Upgrade the data folder to this version, or show what that would do.

    `confided serve` does the same when it starts.
    """
    return _outlook(here) if check else _upgrade(here, wants_snapshot=not no_snapshot)


def _outlook(here: CommandContext) -> Output:
    config = here.config()
    target = next((place for addon in installed() if (place := addon.snapshots_to(config))), "")
    found = look_at_upgrade(here.paths.data)
    pending = found.pending
    ends_others = log_store(config) is not None and pending is not None and pending.registry > 0
    behind = {name: version for name, version in found.proxies.items() if is_behind(version, __version__)}
    fields = {
        "version": __version__,
        "writtenBy": pending.program if pending else __version__,
        "isNeeded": pending is not None,
        "registrySteps": pending.registry if pending else 0,
        "spaceSteps": pending.spaces if pending else 0,
        "spaces": list(found.spaces),
        "target": target or None,
        "endsOlderNodes": ends_others,
        "behind": [{"name": name, "version": version} for name, version in behind.items()],
    }
    lines = [f"data: {here.paths.data.root}"]
    if pending is None:
        lines.append(f"nothing to do: this version, {__version__}, can use it as it is")
    else:
        lines.append(f"written by confided {pending.program}; this is {__version__}")
        lines.append(f"registry: {_steps(pending.registry)}, when confided serve starts")
        lines.append(f"spaces: {len(found.spaces)}, {_steps(pending.spaces)} each, when it is opened next")
        none = "none, since no target is configured: run confided upgrade --no-snapshot"
        lines.append(f"snapshot before: {f'in {target}' if target else none}")
    if ends_others:
        lines.append("other nodes: those of an older version end when this one serves, and cannot be started again")
    lines += [
        f"device {name} has confide {version}: more than {WINDOW} minor versions behind"
        for name, version in behind.items()
    ]
    return Output(fields, lines, ["nothing was changed"])


def _upgrade(here: CommandContext, *, wants_snapshot: bool) -> Output:
    config = here.config()
    folder = here.paths.data
    open_master(folder)  # first, so that no lock is created in a folder that is no data folder
    lock = DaemonLock.take(folder.lock)
    if lock is None:
        raise AlreadyServedError(folder.root)
    try:
        done = upgrading.upgrade(
            folder,
            config,
            config_file=here.paths.config,
            on_demand=False,
            wants_snapshot=wants_snapshot,
        )
        spaces = upgrading.upgrade_spaces(folder, now=time.time())
    finally:
        lock.release()
    told: dict[str, object] = {
        "version": __version__,
        "writtenBy": done.before.program if done else __version__,
        "snapshot": done.snapshot if done else None,
        "spaces": [{"space": name, "isDone": is_done} for name, is_done in spaces.items()],
    }
    said = (
        f"upgraded: from {done.before.program} to {__version__}"
        if done
        else f"nothing to do: the folder is of version {__version__}"
    )

    def print_text() -> None:
        say(said)
        if done and done.snapshot:
            say(f"snapshot from before: {done.snapshot}")
        for name in (name for name, is_done in spaces.items() if not is_done):
            remark(f"{name}: its devices keep its key; it is upgraded when one of them connects")

    return Output(told, print_text)


def _steps(count: int) -> str:
    return "1 step" if count == 1 else f"{count} steps"
