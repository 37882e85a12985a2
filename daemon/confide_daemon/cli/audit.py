"""The command `confided audit`: who came, who was refused, and what was changed."""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING, Annotated

import typer

from confide_daemon.cli.console import Here, Output, clock, command, say

if TYPE_CHECKING:
    from confide_daemon.access.audit import Entry


@command
def audit(
    here: Here,
    since: Annotated[
        str | None, typer.Option("--since", help="Only what is younger, as in 2d or 12h.", show_default="all")
    ] = None,
    caller: Annotated[
        str | None, typer.Option("--caller", help="Only this machine, also under names it had before.")
    ] = None,
) -> Output:
    """Show the audit log, oldest first: sessions, refusals, and every change to machines and invites."""
    from confide_daemon.access import enrollment
    from confide_daemon.access.names import parse_span

    begin = time.time() - parse_span(since) if since else 0.0
    with here.opened() as state:
        found = state.registry.audit_entries(since=begin, alias=caller)
        if caller and not found and not state.registry.audit_entries(alias=caller):
            enrollment.named(state.registry, caller)  # says which names there are

    def tell() -> None:
        if not found:
            say("nothing happened in that time")
        for entry in found:
            typer.echo(_line(entry))

    return Output([_facts(entry) for entry in found], tell)


def _facts(entry: Entry) -> dict[str, object]:
    told = dataclasses.asdict(entry)
    return {"at": told.pop("at"), "lastAt": told.pop("last_at"), **told}


def _line(entry: Entry) -> str:
    parts = [clock(entry.at, seconds=True), f"{entry.event:<9}"]
    parts += [text for text in (entry.caller, entry.fingerprint) if text]
    parts += [f"session {entry.session}"] if entry.session else []
    parts += [entry.detail] if entry.detail else []
    parts += [f"{entry.count} times until {clock(entry.last_at, seconds=True)}"] if entry.count > 1 else []
    return "  ".join(parts)
