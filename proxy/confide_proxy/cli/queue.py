"""`confide queue`: what waits on this machine for the daemon, and what it has refused (docs/offline.md), which never needs the daemon."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Annotated

import typer

from confide_crypto.errors import ConfideError
from confide_proxy.cli.console import (
    AsJson,
    CommandContext,
    Output,
    Yes,
    agreed,
    clock,
    command,
    counted,
    print_json,
    row,
    say,
)
from confide_proxy.errors import ToolError
from confide_proxy.link.key_rotation import MachineKeys
from confide_proxy.offline.journal import Journal, QueuedCall
from confide_proxy.sealing.context import SessionSealing
from confide_proxy.sealing.sealed_calls import SealedCalls, ToolCall

queue_app = typer.Typer()

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
    here: CommandContext = context.obj
    journal = Journal(here.paths.journal)
    counts = journal.counts()
    entries = journal.heads()
    if show:
        entries = _as_sent(here, [journal.get(head.id) or head for head in entries])
    if as_json:
        listed = [_as_json(entry, show=show) for entry in entries]
        print_json(
            {"queuedOffline": counts.queued, "deadLetters": counts.dead, "damaged": counts.damaged, "calls": listed}
        )
        return
    for entry in entries:
        state = "refused" if entry.code else "waits"
        row(f"{entry.id[:8]}  {clock(entry.at)}  {state:<7}  {entry.tool}  {entry.path} [{entry.target}]")
        if entry.code:
            row(f"          {entry.code}: {entry.why}")
        if show:
            for line in _shown(entry):
                say(f"    {line}")
    if counts.damaged:
        where = journal.damaged_file
        say(f"{counted(counts.damaged, 'damaged record')} cannot be read, and end up in {where}")
    if not entries and not counts.damaged:
        say("nothing waits")


@queue_app.command()
@command
def retry(
    here: CommandContext,
    identity: Annotated[str, typer.Argument(metavar="ID", help="One that was refused; all of them if left out.")] = "",
) -> Output:
    """Let what the daemon refused wait again, to be sent once more."""
    journal = Journal(here.paths.journal)
    chosen = [_found(journal, identity)] if identity else [entry for entry in journal.heads() if entry.code]
    done = [entry.id for entry in chosen if journal.retry(entry.id)]
    if identity and not done:
        raise ToolError(
            f"{identity[:32]} was not refused: it waits already", hint="it is sent once the daemon can be reached"
        )
    told = f"{len(done)} {'waits' if len(done) == 1 else 'wait'} again; confide sync sends them now"
    return Output({"retried": done}, told)


@queue_app.command(epilog="confide queue drop 1a2b3c4d")
@command
async def drop(
    here: CommandContext,
    identity: Annotated[str, typer.Argument(metavar="ID", help="As `confide queue` shows it; its beginning will do.")],
    yes: Yes = False,
) -> Output:
    """Throw one away for good; `damaged` stands for all that cannot be read."""
    journal = Journal(here.paths.journal)
    if identity == DAMAGED:
        await agreed("throw away all that cannot be read, for good?", is_sure=yes)
        count = journal.drop_damaged()
        return Output({"dropped": count}, f"dropped {counted(count, 'damaged record')}")
    entry = _found(journal, identity)
    await agreed(f"throw away {entry.id[:8]}: {entry.path} [{entry.target}], for good?", is_sure=yes)
    journal.drop(entry.id)
    return Output({"dropped": entry.id}, f"dropped {entry.id[:8]}: {entry.path} [{entry.target}]")


def _as_sent(here: CommandContext, entries: list[QueuedCall]) -> list[QueuedCall]:
    """The calls with their arguments as the daemon will get them, as far as that can be said without it.

    What cannot be sealed here yet, or is not let out, is redacted: this goes into logs, and before the eyes of agents.
    """
    policy = here.config.secrets
    if policy.tools == "block":
        policy = policy._replace(tools="redact")
    sealing = SessionSealing(here.paths, replace(here.config, secrets=policy), MachineKeys(here.paths))
    sealing.keyring.load()
    sealed = SealedCalls(sealing, "")
    shown = []
    for entry in entries:
        try:
            given = dict(sealed.shown(ToolCall(entry.tool, entry.arguments, entry.project, entry.said)))
        except ConfideError as error:
            given = {"content": f"… (not shown: {error})"}
        shown.append(replace(entry, arguments=given))
    return shown


def _shown(entry: QueuedCall) -> list[str]:
    """What is asked for: the text, and for other calls than a store of a file everything else as well."""
    fields = [
        f"{name}: {json.dumps(value, ensure_ascii=False)}"
        for name, value in entry.arguments.items()
        if name not in ("content", "path", "project", "mode")
    ]
    return [*fields, *str(entry.arguments.get("content", "")).splitlines()]


def _found(journal: Journal, identity: str) -> QueuedCall:
    entry = journal.get(identity) if identity else None
    if entry is None:
        raise ToolError(
            f"there is no call {identity[:32]} here, or several that begin so", hint="confide queue lists them"
        )
    return entry


def _as_json(entry: QueuedCall, *, show: bool) -> dict[str, object]:
    told: dict[str, object] = {
        "id": entry.id,
        "time": entry.said,
        "tool": entry.tool,
        "project": entry.target,
        "path": entry.path,
        "state": "refused" if entry.code else "waits",
    }
    told |= {"code": entry.code, "reason": entry.why} if entry.code else {}
    return {**told, "arguments": entry.arguments} if show else told
