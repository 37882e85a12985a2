"""`confided vault move`: sealed records between the spaces' databases and the vault that is configured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from confide_daemon import paths
from confide_daemon.health_commands import Space, spaces_of, work
from confide_daemon.options import Config, Data, Json, say, show

if TYPE_CHECKING:
    from confide_daemon.jobs import Kind

vault_app = typer.Typer(
    help="Sealed records in a HashiCorp Vault or an OpenBao ([vault] in daemon.toml).", no_args_is_help=True
)


@vault_app.callback()
def top() -> None:
    """Sealed records in a HashiCorp Vault or an OpenBao ([vault] in daemon.toml)."""


@vault_app.command()
def move(
    config_file: Config = None,
    data: Data = None,
    space: Space = None,
    back: Annotated[bool, typer.Option("--back", help="From the vault into the databases.")] = False,
    as_json: Json = False,
) -> None:
    """Bring sealed records that are in the databases into the vault, or back; interrupted, it goes on from there when it is said again."""
    found = paths.find(config=config_file, data=data)
    kind: Kind = "from-vault" if back else "to-vault"
    done = work(found, kind, space, must_have_config=config_file is not None, quiet=as_json)
    rows = [{"space": name, **outcome} for name, outcome in done.items()]
    if as_json:
        show(rows)
    for row in [] if as_json else rows:
        places = f"{row['inVault']} in the vault, {row['inDatabase']} in the database"
        typer.echo(f"{row['space']}: {row['moved']} moved; {places}")
    is_incomplete = bool(spaces_of(found, space).keys() - done.keys())
    if is_incomplete:
        say(
            "hint: start the daemon, let a machine of each space that was left out connect (confide status), and say it again"
        )
    lost = sum(row["lost"] for row in rows)
    if lost:
        say(f"{lost} of those that should be in the vault are not there any more; they stay listed.")
        say("hint: they come back with the vault's own backup")
    if lost or is_incomplete:
        raise typer.Exit(1)
