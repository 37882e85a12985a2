"""The commands `confided space ls` and `confided space rm`: list the spaces, delete one."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Annotated, Any

import typer

from confide_crypto.errors import EXIT_INPUT, ConfideError
from confide_daemon.access import space_removal
from confide_daemon.cli.console import CommandContext, Output, can_ask, command
from confide_daemon.spaces.custodian import Custodian
from confide_daemon.store.logs import log_store

_MB = 1_000_000


@command
def list_spaces(here: CommandContext) -> Output:
    """List the spaces: devices, size, and who keeps the database key."""
    found: list[dict[str, Any]] = []
    with here.open_state() as state:
        callers = state.registry.callers()
        for name, space_id in state.registry.spaces().items():
            files = space_removal.files(state.folder, space_id)
            machines = [caller.alias for caller in callers if caller.space == name]
            if not files and not machines:
                continue  # a name without a space: it was removed, or no invited device has joined
            keeper = Custodian(space_id, state.folder, state.master).custody.key.keeper
            size = sum(path.stat().st_size for path in files)
            found.append({"space": name, "id": space_id, "machines": machines, "bytes": size, "keyKeptBy": keeper})

    lines = []
    for one in found:
        key = "its devices keep the key" if one["keyKeptBy"] == "caller" else "the server keeps the key"
        who = ", ".join(one["machines"]) or "no device may connect"
        lines.append(f"{one['space']}  {one['bytes'] / _MB:.1f} MB  {key}  {who}")
    empty = "there is no space yet; the first device that joins makes one: confided invite laptop"
    return Output(found, lines, empty=empty)


@command
def remove(
    here: CommandContext,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The space, as `confided space ls` shows it.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> Output:
    """Delete a space and all that it holds.

    Remove its devices first. Snapshots and backups from before keep their copies.
    """
    if not yes and not (can_ask() and typer.confirm(f"Delete the space {name} and all that it holds?", err=True)):
        error = ConfideError(
            "nothing was deleted", hint=f"to delete it without a question: confided space rm {name} --yes"
        )
        error.exit_code = EXIT_INPUT
        raise error
    store = log_store(here.config())
    # If the log cannot be reached, nothing is deleted.
    with store.forgetting() if store is not None else nullcontext() as forget, here.open_state() as state:
        space_id = state.registry.spaces().get(name, "")
        freed = space_removal.remove(state, name)
        if forget is not None:
            forget(space_id)
    notes = ["note: earlier snapshots and backups still contain it"]
    return Output({"space": name, "bytes": freed}, [f"removed: {name}, {freed / _MB:.1f} MB"], notes)
