"""`confided status`, `doctor`, `reindex` and `audit`: how the daemon and its spaces are, what puts them right, and what has happened."""

from __future__ import annotations

import dataclasses
import time
from typing import Annotated

import typer

from confide_crypto.errors import EXIT_UNREACHABLE
from confide_daemon.access import enrollment
from confide_daemon.access.audit import AuditEntry
from confide_daemon.access.enrollment import parse_span
from confide_daemon.addons import Check
from confide_daemon.cli.console import CommandContext, Output, clock, command, remark, say
from confide_daemon.cli.health import examine, facts, facts_of
from confide_daemon.cli.jobs import Space, work


@command
def status(here: CommandContext) -> Output:
    """Show whether the daemon runs, and what it holds; ends with 5 where it does not run."""
    with here.opened() as state:
        known = facts(state)
        told = facts_of(state, is_served=known["running"])
    where = f"serves at {known['url']}"
    if known["listens"] and known["listens"] not in where:
        where = f"serves on {known['listens']}; on this machine at {known['url']}"
    lines = [f"confided {known['version']}: {where if known['running'] else 'is not running'}"]
    if known["health"] not in ("ok", None):
        lines.append(f"health: {known['health']}; confided doctor tells more")
    lines.append(f"data: {known['data']}  ({known['sizeBytes'] / 1e6:.1f} MB)")
    lines.append(f"machines: {known['callers']}  spaces: {', '.join(known['spaces']) or 'none'}")
    lines += [f"  {name}: {said}" for name, said in told.items()]
    if known["oldKeyUntil"]:
        lines.append(f"key: rotated; the old one answers until {clock(known['oldKeyUntil'])}")
    hint = () if known["running"] else ("hint: start it with: confided serve",)
    return Output(known, lines, hint, exit_code=0 if known["running"] else EXIT_UNREACHABLE)


@command
def doctor(
    here: CommandContext,
    fix: Annotated[
        bool, typer.Option("--fix", help="Put right what can be; what is lost is told of no longer after it.")
    ] = False,
    space: Space = None,
) -> Output:
    """Check the configuration, the keys, every database and the model; ends with 1 if something is wrong."""
    if fix:
        for name, outcome in work(here, "fix", space).items():
            for what, count in sorted(outcome["found"].items()):
                remark(f"{name}: {count} {what}")
    with here.progress() as bar:
        checks = examine(here.paths, must_have_config=here.must_have_config, space=space, follow=bar.step)

    is_well = all(check.is_ok for check in checks)
    return Output([shown(check) for check in checks], lambda: check_lines(checks), exit_code=0 if is_well else 1)


def check_lines(checks: list[Check]) -> None:
    """Prints a line for each check, and the way out where one has found something."""
    for check in checks:
        said = check.problem or check.detail
        say(f"{'ok     ' if check.is_ok else 'problem'}  {check.name}{f': {said}' if said else ''}")
        if check.hint:
            remark(f"hint: {check.hint}")


def shown(check: Check) -> dict[str, object]:
    """A check as --json has it."""
    return {
        "check": check.name,
        "ok": check.is_ok,
        "detail": check.detail,
        "problem": check.problem,
        "hint": check.hint,
    }


@command
def reindex(
    here: CommandContext,
    space: Space = None,
    reembed: Annotated[bool, typer.Option("--reembed", help="Compute all vectors anew as well.")] = False,
) -> Output:
    """Rebuild the index from the documents, while searches go on; interrupted, it is as whole as before."""
    done = work(here, "reembed" if reembed else "reindex", space)
    rows = [{"space": name, **outcome} for name, outcome in done.items()]
    lines = [
        f"{row['space']}: {row['chunksAdded']} added, {row['chunksUpdated']} updated, {row['chunksRemoved']} removed"
        f"{'' if row['indexed'] else '; some pieces still wait for their vectors'}"
        for row in rows
    ]
    return Output(rows, lines)


@command
def audit(
    here: CommandContext,
    since: Annotated[
        str | None, typer.Option("--since", help="Only what is younger, as in 2d or 12h.", show_default="all")
    ] = None,
    caller: Annotated[
        str | None, typer.Option("--caller", help="Only this machine, also under names it had before.")
    ] = None,
) -> Output:
    """Show the audit log, oldest first: sessions, refusals, and every change to machines and invites."""
    begin = time.time() - parse_span(since) if since else 0.0
    with here.opened() as state:
        found = state.registry.audit_entries(since=begin, alias=caller)
        if caller and not found and not state.registry.audit_entries(alias=caller):
            enrollment.named(state.registry, caller)  # says which names there are

    return Output(list(map(_entry_facts, found)), map(_line, found), empty="nothing happened in that time")


def _entry_facts(entry: AuditEntry) -> dict[str, object]:
    told = dataclasses.asdict(entry)
    return {"at": told.pop("at"), "lastAt": told.pop("last_at"), **told}


def _line(entry: AuditEntry) -> str:
    parts = [clock(entry.at, seconds=True), f"{entry.event:<9}"]
    parts += [text for text in (entry.caller, entry.fingerprint) if text]
    parts += [f"session {entry.session}"] if entry.session else []
    parts += [entry.detail] if entry.detail else []
    parts += [f"{entry.count} times until {clock(entry.last_at, seconds=True)}"] if entry.count > 1 else []
    return "  ".join(parts)
