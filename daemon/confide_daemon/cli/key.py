"""The commands about the daemon's own key: show it, give the daemon a new one, end the old one."""

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

key_app = typer.Typer()


@key_app.command("show")
@command
def key_show(here: CommandContext) -> Output:
    """Print the daemon's public key, for `confide join --pin`; during a rotation also the old one."""
    keys = rotation.load(_folder(here))
    key = format_daemon_key(keys.current.static_key)
    old = keys.rotation

    def print_text() -> None:
        say(key)
        if old:
            remark(f"old key, answers until {clock(old.until)}: {format_daemon_key(old.old.static_key)}")

    previous = {"key": format_daemon_key(old.old.static_key), "until": old.until} if old else None
    return Output({"key": key, "previous": previous}, print_text)


@key_app.command("rotate", epilog="confided key rotate --keep 30d")
@command
def key_rotate(
    here: CommandContext,
    keep: Annotated[str, typer.Option("--keep", help="How long the old key goes on answering; at most 30d.")] = "30d",
) -> Output:
    """Make a new key; machines that connect while the old one still answers follow by themselves."""
    folder = _folder(here)
    keep_s = parse_ttl(keep)
    store = here.store()
    rotate = daemon_keys.rotate if store is None else store.rotate
    keys = rotate(folder, keep_s=keep_s)
    assert keys.rotation is not None
    new, old = (format_daemon_key(one.static_key) for one in (keys.current, keys.rotation.old))
    until = keys.rotation.until
    is_taken_up = _is_taken_up(folder, new)
    notes = ["Back up identity.key again. Machines that do not connect until then have to join again."]
    if is_taken_up is not None:
        taken_up = "the running daemon answers to both", "note: the running daemon has not taken them up; restart it"
        notes.insert(0, taken_up[0] if is_taken_up else taken_up[1])
    lines = [f"new key: {new}", f"old key: {old}  (answers until {clock(until)})"]
    return Output({"key": new, "previous": {"key": old, "until": until}}, lines, notes)


@key_app.command("retire")
@command
def key_retire(here: CommandContext) -> Output:
    """End the old key of a rotation now; machines that know only that one have to join again."""
    folder, store = _folder(here), here.store()
    old = daemon_keys.retire(folder) if store is None else store.retire(folder)
    return Output({"retired": old}, [f"retired: {old or 'a damaged old key'}"])


def _folder(here: CommandContext) -> DataFolder:
    folder = here.paths.data
    if not folder.identity.exists():
        raise DataFolderError(folder.root, "is not set up", hint="run: confided init")
    make_private_dir(folder.root)
    return folder


def _is_taken_up(folder: DataFolder, key: str) -> bool | None:
    """Whether the running daemon names the key as its own, waiting a little for it; None where none runs."""
    if not health.answers(folder.address):
        return None
    deadline = time.monotonic() + UPTAKE_DEADLINE_S
    while (found := instance.read(folder.address)) is not None and found.key != key:
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.05)
    return None if found is None else True
