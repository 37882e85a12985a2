"""The commands about the daemon's own key: show it, give the daemon a new one, end the old one."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from confide_daemon import paths
from confide_daemon.options import Config, Data, Json, say, show

UPTAKE_DEADLINE_S = 5.0

key_app = typer.Typer(help="The daemon's own key.", no_args_is_help=True)


@key_app.command("show")
def key_show(config_file: Config = None, data: Data = None, as_json: Json = False) -> None:
    """Print the daemon's public key, for `confide pin`; during a rotation also the old one."""
    from confide_crypto.keys import format_daemon_key
    from confide_daemon import rotation

    keys = rotation.load(_folder(config_file, data))
    key = format_daemon_key(keys.current.static_key)
    old = keys.rotation
    if as_json:
        previous = {"key": format_daemon_key(old.old.static_key), "until": old.until} if old else None
        show({"key": key, "previous": previous})
        return
    typer.echo(key)
    if old:
        say(f"old key, answers until {rotation.clock(old.until)}: {format_daemon_key(old.old.static_key)}")


@key_app.command("rotate")
def key_rotate(
    config_file: Config = None,
    data: Data = None,
    keep: Annotated[str, typer.Option("--keep", help="How long the old key goes on answering; at most 30d.")] = "30d",
    as_json: Json = False,
) -> None:
    """Make a new key; machines that connect while the old one still answers follow by themselves."""
    from confide_crypto.keys import format_daemon_key
    from confide_daemon import rotation
    from confide_daemon.names import parse_ttl

    folder = _folder(config_file, data)
    keys = rotation.rotate(folder, keep_s=parse_ttl(keep))
    assert keys.rotation is not None
    new, old = (format_daemon_key(identity.static_key) for identity in (keys.current, keys.rotation.old))
    until = keys.rotation.until
    is_taken_up = _is_taken_up(folder, new)
    if as_json:
        show({"key": new, "previous": {"key": old, "until": until}})
    else:
        typer.echo(f"new key: {new}")
        typer.echo(f"old key: {old}  (answers until {rotation.clock(until)})")
    if is_taken_up is not None:
        taken_up = "the running daemon answers to both", "note: the running daemon has not taken them up; restart it"
        say(taken_up[0] if is_taken_up else taken_up[1])
    say("Back up identity.key again. Machines that do not connect until then have to join again.")


@key_app.command("retire")
def key_retire(config_file: Config = None, data: Data = None, as_json: Json = False) -> None:
    """End the old key of a rotation now; machines that know only that one have to join again."""
    from confide_daemon import rotation

    old = rotation.retire(_folder(config_file, data))
    show({"retired": old}) if as_json else typer.echo(f"retired: {old or 'a damaged old key'}")


def _folder(config_file: Path | None, data: Path | None) -> paths.DataFolder:
    from confide_crypto.keys import make_private_dir
    from confide_daemon.errors import DataFolderError

    folder = paths.find(config=config_file, data=data).data
    if not folder.identity.exists():
        raise DataFolderError(folder.root, "is not set up", hint="run: confided init")
    make_private_dir(folder.root)
    return folder


def _is_taken_up(folder: paths.DataFolder, key: str) -> bool | None:
    """Whether the running daemon names the key as its own, waiting a little for it; None where none runs."""
    from confide_daemon import address, health

    if not health.answers(folder.address):
        return None
    deadline = time.monotonic() + UPTAKE_DEADLINE_S
    while (found := address.read(folder.address)) is not None and found.key != key:
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.05)
    return None if found is None else True
