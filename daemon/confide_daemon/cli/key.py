"""The command `confided key`: show the daemon's own key, create a new one, end the old one."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from confide_crypto.keys.identity import format_daemon_key
from confide_crypto.keys.private_files import make_private_dir
from confide_daemon.access.enrollment import parse_ttl
from confide_daemon.cli import health
from confide_daemon.cli.console import CommandContext, Output, clock, command, remark, say
from confide_daemon.datadir import daemon_keys, instance
from confide_daemon.datadir import daemon_keys as rotation
from confide_daemon.datadir.paths import DataFolder
from confide_daemon.errors import DataFolderError

UPTAKE_DEADLINE_S = 5.0
_MOST_KEPT = "30d"


@command
def key(
    here: CommandContext,
    new: Annotated[bool, typer.Option("--new", help="Make a new key.")] = False,
    keep: Annotated[
        str | None,
        typer.Option("--keep", help="With --new: how long the old key stays valid.", show_default=_MOST_KEPT),
    ] = None,
    end_old: Annotated[bool, typer.Option("--end-old", help="End the old key now.")] = False,
) -> Output:
    """Show the daemon's own key, or give it a new one.

    The output is the line for `confide join --pin`; during a rotation it shows the old key too.
    After --new, the daemon answers to both keys. Devices that connect while the old key is valid
    switch to the new one by themselves. After --end-old, a device that knows only the old key has
    to join again.
    """
    if (new and end_old) or (keep is not None and not new):
        raise typer.BadParameter("use --new [--keep SPAN], or --end-old")
    folder = _folder(here)
    return _rotate(here, folder, keep or _MOST_KEPT) if new else _retire(here, folder) if end_old else _show(folder)


def _show(folder: DataFolder) -> Output:
    keys = rotation.load(folder)
    line = format_daemon_key(keys.current.static_key)
    old = keys.rotation

    def print_text() -> None:
        say(line)
        if old:
            remark(f"old key, valid until {clock(old.until)}: {format_daemon_key(old.old.static_key)}")

    previous = {"key": format_daemon_key(old.old.static_key), "until": old.until} if old else None
    return Output({"key": line, "previous": previous}, print_text)


def _rotate(here: CommandContext, folder: DataFolder, keep: str) -> Output:
    keep_s = parse_ttl(keep)
    store = here.store()
    rotate = daemon_keys.rotate if store is None else store.rotate
    keys = rotate(folder, keep_s=keep_s)
    assert keys.rotation is not None
    new, old = (format_daemon_key(one.static_key) for one in (keys.current, keys.rotation.old))
    until = keys.rotation.until
    is_taken_up = _is_taken_up(folder, new)
    notes = ["Back up identity.key again. Devices that do not connect until then have to join again."]
    if is_taken_up is not None:
        taken_up = (
            "the running daemon uses both keys",
            "note: the running daemon has not loaded the new key; restart it",
        )
        notes.insert(0, taken_up[0] if is_taken_up else taken_up[1])
    lines = [f"new key: {new}", f"old key: {old}  (valid until {clock(until)})"]
    return Output({"key": new, "previous": {"key": old, "until": until}}, lines, notes)


def _retire(here: CommandContext, folder: DataFolder) -> Output:
    store = here.store()
    old = daemon_keys.retire(folder) if store is None else store.retire(folder)
    return Output({"retired": old}, [f"ended: {old or 'a damaged old key'}"])


def _folder(here: CommandContext) -> DataFolder:
    folder = here.paths.data
    if not folder.identity.exists():
        raise DataFolderError(folder.root, "is not set up", hint="run: confided init")
    make_private_dir(folder.root)
    return folder


def _is_taken_up(folder: DataFolder, key: str) -> bool | None:
    """Return whether the running daemon uses the key, after at most 5 s; None if none runs."""
    if not health.answers(folder.address):
        return None
    deadline = time.monotonic() + UPTAKE_DEADLINE_S
    while (found := instance.read(folder.address)) is not None and found.key != key:
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.05)
    return None if found is None else True
