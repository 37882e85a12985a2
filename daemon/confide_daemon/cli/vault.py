"""`confided vault move`: sealed records between the spaces' databases and the vault that is configured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from confide_daemon.cli.console import Here, Output, command
from confide_daemon.cli.jobs import Space, spaces_of, work

if TYPE_CHECKING:
    from confide_daemon.access.jobs import Kind

vault_app = typer.Typer(
    help="Sealed records in a HashiCorp Vault or an OpenBao ([vault] in daemon.toml).", no_args_is_help=True
)


@vault_app.callback()
def top() -> None:
    """Sealed records in a HashiCorp Vault or an OpenBao ([vault] in daemon.toml)."""


@vault_app.command()
@command
def move(
    here: Here,
    space: Space = None,
    back: Annotated[bool, typer.Option("--back", help="From the vault into the databases.")] = False,
) -> Output:
    """Bring sealed records that are in the databases into the vault, or back; interrupted, it goes on from there when it is said again."""
    kind: Kind = "from-vault" if back else "to-vault"
    done = work(here, kind, space)
    rows = [{"space": name, **outcome} for name, outcome in done.items()]
    lines = [
        f"{row['space']}: {row['moved']} moved; {row['inVault']} in the vault, {row['inDatabase']} in the database"
        for row in rows
    ]
    notes = []
    if spaces_of(here.paths, space).keys() - done.keys():
        notes.append(
            "hint: start the daemon, let a machine of each space that was left out connect (confide status), and say it again"
        )
    if lost := sum(row["lost"] for row in rows):
        notes.append(f"{lost} of those that should be in the vault are not there any more; they stay listed.")
        notes.append("hint: they come back with the vault's own backup")
    return Output(rows, lines, notes, exit_code=1 if notes else 0)
