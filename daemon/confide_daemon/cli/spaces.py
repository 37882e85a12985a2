"""`confided space ls` and `rm`: what each space is, and the end of one that nobody needs any more."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Annotated, Any

import typer

from confide_crypto.errors import EXIT_INPUT, ConfideError
from confide_daemon.access import space_removal
from confide_daemon.cli.console import CommandContext, Output, can_ask, command
from confide_daemon.spaces.custodian import Custodian
from confide_daemon.store.logs import log_store

space_app = typer.Typer()
_MB = 1_000_000


@space_app.command("ls")
@command
def list_spaces(here: CommandContext) -> Output:
    """List the spaces: their machines, how large they are, and who keeps the keys of their databases."""
    found: list[dict[str, Any]] = []
    with here.opened() as state:
        callers = state.registry.callers()
        for name, space_id in state.registry.spaces().items():
            files = space_removal.files(state.folder, space_id)
            machines = [caller.alias for caller in callers if caller.space == name]
            if not files and not machines:
                continue  # a name that stands for nothing: it was removed, or nobody who was invited has come
            keeper = Custodian(space_id, state.folder, state.master).custody.key.keeper
            size = sum(path.stat().st_size for path in files)
            found.append({"space": name, "id": space_id, "machines": machines, "bytes": size, "keyKeptBy": keeper})

    lines = []
    for one in found:
        key = "its machines keep the key" if one["keyKeptBy"] == "caller" else "the server keeps the key"
        who = ", ".join(one["machines"]) or "no machine may connect"
        lines.append(f"{one['space']}  {one['bytes'] / _MB:.1f} MB  {key}  {who}")
    empty = "there is no space yet; the first machine that joins makes one: confided invite laptop"
    return Output(found, lines, empty=empty)


@space_app.command("rm", epilog="confided space rm old")
@command
def remove(
    here: CommandContext,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The space, as `confided space ls` shows it.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> Output:
    """Remove a space with all that is in it, for good. Its machines have to be shut out before."""
    if not yes and not (can_ask() and typer.confirm(f"Remove all that the space {name} holds, for good?", err=True)):
        error = ConfideError("nothing was removed", hint=f"with --yes nobody is asked: confided space rm {name} --yes")
        error.exit_code = EXIT_INPUT
        raise error
    store = log_store(here.config())
    # Where the log cannot be asked, nothing is removed.
    with store.forgetting() if store is not None else nullcontext() as forget, here.opened() as state:
        space_id = state.registry.spaces().get(name, "")
        freed = space_removal.remove(state, name)
        if forget is not None:
            forget(space_id)
    notes = ["note: snapshots and backups that were made before still have it"]
    return Output({"space": name, "bytes": freed}, [f"removed: {name}, {freed / _MB:.1f} MB"], notes)
