"""`confide queue`: what waits on this machine for the daemon, and what it has refused (docs/offline.md). Never needs the daemon."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from confide_crypto.errors import ConfideError
from confide_proxy.errors import ToolError
from confide_proxy.journal import Entry, Journal
from confide_proxy.options import AsJson, out, print_json

if TYPE_CHECKING:
    from confide_proxy.cli import Here

queue_app = typer.Typer(help="What waits on this machine for the daemon, and what it has refused.")

Id = Annotated[str, typer.Argument(metavar="ID", help="As `confide queue` shows it; its beginning will do.")]
DAMAGED = "damaged"


@queue_app.callback(invoke_without_command=True)
def queue(
    context: typer.Context,
    show: Annotated[bool, typer.Option("--show", help="What is in them, too, with no credential in clear.")] = False,
    as_json: AsJson = False,
) -> None:
    """List them, in the order in which they are sent."""
    if context.invoked_subcommand is not None:
        return
    journal = _journal(context)
    counts = journal.counts()
    entries = journal.heads()
    if show:
        entries = _as_sent(context.obj, [journal.get(head.id) or head for head in entries])
    if as_json:
        listed = [_as_json(entry, show=show) for entry in entries]
        print_json(
            {
                "queuedOffline": counts.queued,
                "deadLetters": counts.dead,
                "damaged": counts.damaged,
                "calls": listed,
            }
        )
        return
    for entry in entries:
        moment = datetime.fromtimestamp(entry.at).strftime("%Y-%m-%d %H:%M")
        state = "refused" if entry.code else "waits"
        out.print(f"{entry.id[:8]}  {moment}  {state:<7}  {entry.tool}  {entry.path} [{entry.target}]", markup=False)
        if entry.code:
            out.print(f"          {entry.code}: {entry.why}", markup=False)
        if show:
            for line in _shown(entry):
                out.print(f"    {line}", markup=False)
    if counts.damaged:
        where = journal.damaged_file
        out.print(f"{counts.damaged} damaged records cannot be read; they end up in {where}", markup=False)
    if not entries and not counts.damaged:
        out.print("nothing waits", markup=False)


@queue_app.command()
def retry(
    context: typer.Context,
    identity: Annotated[
        str, typer.Argument(metavar="[ID]", help="One that was refused; all of them if left out.")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Let what the daemon refused wait again, to be sent once more."""
    journal = _journal(context)
    chosen = [_found(journal, identity)] if identity else [entry for entry in journal.heads() if entry.code]
    done = [entry.id for entry in chosen if journal.retry(entry.id)]
    if identity and not done:
        raise ToolError(
            f"{identity[:32]} was not refused: it waits already", hint="it is sent once the daemon can be reached"
        )
    if as_json:
        print_json({"retried": done})
    else:
        out.print(
            f"{len(done)} {'waits' if len(done) == 1 else 'wait'} again; confide sync sends them now", markup=False
        )


@queue_app.command()
def drop(context: typer.Context, identity: Id, as_json: AsJson = False) -> None:
    """Throw one away for good; `damaged` stands for all that cannot be read."""
    journal = _journal(context)
    if identity == DAMAGED:
        dropped: Any = journal.drop_damaged()
        told = f"dropped {dropped} damaged records"
    else:
        entry = _found(journal, identity)
        journal.drop(entry.id)
        dropped, told = entry.id, f"dropped {entry.id[:8]}: {entry.path} [{entry.target}]"
    if as_json:
        print_json({"dropped": dropped})
    else:
        out.print(told, markup=False)


def _as_sent(here: Here, entries: list[Entry]) -> list[Entry]:
    """The calls with their arguments as the daemon will get them, as far as that can be said without it.

    What cannot be sealed here yet, or is not let out, is redacted: this goes into logs, and before the eyes of agents.
    """
    from confide_proxy.key_rotation import MachineKeys
    from confide_proxy.sealing.calls import Asked, SealedCalls
    from confide_proxy.sealing.space_sealing import Sealing

    policy = here.config.secrets
    if policy.tools == "block":
        policy = policy._replace(tools="redact")
    sealing = Sealing(here.paths, replace(here.config, secrets=policy), MachineKeys(here.paths))
    sealing.keyring.load()
    sealed = SealedCalls(sealing, "")
    shown = []
    for entry in entries:
        try:
            given = dict(sealed.shown(Asked(entry.tool, entry.arguments, entry.project, entry.said)))
        except ConfideError as error:
            given = {"content": f"… (not shown: {error})"}
        shown.append(replace(entry, arguments=given))
    return shown


def _shown(entry: Entry) -> list[str]:
    """What is asked for: the text, and for other calls than a store of a file everything else as well."""
    import json

    beside = {
        name: value for name, value in entry.arguments.items() if name not in ("content", "path", "project", "mode")
    }
    fields = [f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in beside.items()]
    return [*fields, *str(entry.arguments.get("content", "")).splitlines()]


def _journal(context: typer.Context) -> Journal:
    here: Here = context.obj
    return Journal(here.paths.journal)


def _found(journal: Journal, identity: str) -> Entry:
    entry = journal.get(identity) if identity else None
    if entry is None:
        raise ToolError(
            f"there is no call {identity[:32]} here, or several that begin so", hint="confide queue lists them"
        )
    return entry


def _as_json(entry: Entry, *, show: bool) -> dict[str, Any]:
    told: dict[str, Any] = {
        "id": entry.id,
        "time": entry.said,
        "tool": entry.tool,
        "project": entry.target,
        "path": entry.path,
        "state": "refused" if entry.code else "waits",
    }
    told |= {"code": entry.code, "reason": entry.why} if entry.code else {}
    return {**told, "arguments": entry.arguments} if show else told
