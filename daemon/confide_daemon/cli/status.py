"""The commands `confided status`, `confided doctor`, `confided space reindex` and `confided audit`."""

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
from confide_daemon.cli.running import MOST_LINES, log_lines


@command
def status(
    here: CommandContext,
    watch: Annotated[
        bool, typer.Option("--watch", help="Show calls, searches, writes, spaces and disk as it works.")
    ] = False,
    once: Annotated[bool, typer.Option("--once", help="With --watch: show it once, since the daemon's start.")] = False,
    interval: Annotated[
        float, typer.Option("--interval", min=0.5, max=60, help="With --watch: seconds between two updates.")
    ] = 2.0,
    log: Annotated[bool, typer.Option("--log", help="Show the daemon's last log lines.")] = False,
    lines: Annotated[
        int, typer.Option("-n", "--lines", min=1, max=MOST_LINES, help="With --log: how many lines.")
    ] = 50,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="With --log: print new lines as they come.")] = False,
) -> Output | None:
    """Show whether the daemon runs and what it holds, watch it work, or read its log.

    Ends with 5 if the daemon does not run.
    """
    if watch and log:
        raise typer.BadParameter("use --watch or --log")
    if log:
        return log_lines(here, lines, follow=follow)
    if watch:
        from confide_daemon.cli.top import top  # rich takes 40 ms

        return top(here, once=once, interval=interval)
    return _overview(here)


def _overview(here: CommandContext) -> Output:
    with here.open_state() as state:
        known = facts(state)
        spaces = facts_of(state, is_served=known["running"])
    where = f"serves at {known['url']}"
    if known["listens"] and known["listens"] not in where:
        where = f"serves on {known['listens']}; on this machine at {known['url']}"
    lines = [f"confided {known['version']}: {where if known['running'] else 'is not running'}"]
    if known["health"] not in ("ok", None):
        lines.append(f"health: {known['health']}; for details run: confided doctor")
    lines.append(f"data: {known['data']}  ({known['sizeBytes'] / 1e6:.1f} MB)")
    lines.append(f"devices: {known['callers']}  spaces: {', '.join(known['spaces']) or 'none'}")
    lines += [f"  {name}: {said}" for name, said in spaces.items()]
    if known["oldKeyUntil"]:
        lines.append(f"key: rotated; the old one is valid until {clock(known['oldKeyUntil'])}")
    hint = () if known["running"] else ("hint: start it with: confided serve",)
    return Output(known, lines, hint, exit_code=0 if known["running"] else EXIT_UNREACHABLE)


@command
def doctor(
    here: CommandContext,
    fix: Annotated[
        bool, typer.Option("--fix", help="Repair what can be repaired. What is lost is not reported again.")
    ] = False,
    space: Space = None,
) -> Output:
    """Check everything, and repair what can be repaired.

    Checks the configuration, the keys, every database and the model. Ends with 1 if something is
    wrong.
    """
    if fix:
        for name, outcome in work(here, "fix", space).items():
            for what, count in sorted(outcome["found"].items()):
                remark(f"{name}: {count} {what}")
    with here.progress() as bar:
        checks = examine(here.paths, must_have_config=here.must_have_config, space=space, follow=bar.step)

    is_well = all(check.is_ok for check in checks)
    return Output([check_json(check) for check in checks], lambda: check_lines(checks), exit_code=0 if is_well else 1)


def check_lines(checks: list[Check]) -> None:
    """Print a line for each check, and a hint for each problem that was found."""
    for check in checks:
        said = check.problem or check.detail
        say(f"{'ok     ' if check.is_ok else 'problem'}  {check.name}{f': {said}' if said else ''}")
        if check.hint:
            remark(f"hint: {check.hint}")


def check_json(check: Check) -> dict[str, object]:
    """Return the result of a check as `--json` shows it."""
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
    reembed: Annotated[bool, typer.Option("--reembed", help="Compute all vectors again too.")] = False,
) -> Output:
    """Rebuild the index from the documents.

    Searches continue meanwhile. An interrupt leaves the old index in use.
    """
    done = work(here, "reembed" if reembed else "reindex", space)
    rows = [{"space": name, **outcome} for name, outcome in done.items()]
    lines = [
        f"{row['space']}: {row['chunksAdded']} added, {row['chunksUpdated']} updated, {row['chunksRemoved']} removed"
        f"{'' if row['indexed'] else '; some chunks still wait for their vectors'}"
        for row in rows
    ]
    return Output(rows, lines)


@command
def audit(
    here: CommandContext,
    since: Annotated[str | None, typer.Option("--since", help="Only the last 2d or 12h.", show_default="all")] = None,
    caller: Annotated[
        str | None, typer.Option("--caller", help="Only this device, also under its earlier names.")
    ] = None,
) -> Output:
    """Show who connected, and what was changed.

    The audit log, oldest first: sessions, refusals, and every change of devices and invites.
    """
    begin = time.time() - parse_span(since) if since else 0.0
    with here.open_state() as state:
        found = state.registry.audit_entries(since=begin, alias=caller)
        if caller and not found and not state.registry.audit_entries(alias=caller):
            enrollment.require_caller(state.registry, caller)  # raises, and lists the existing names

    return Output(list(map(_entry_facts, found)), map(_line, found), empty="nothing happened in that time")


def _entry_facts(entry: AuditEntry) -> dict[str, object]:
    data = dataclasses.asdict(entry)
    return {"at": data.pop("at"), "lastAt": data.pop("last_at"), **data}


def _line(entry: AuditEntry) -> str:
    parts = [clock(entry.at, seconds=True), f"{entry.event:<9}"]
    parts += [text for text in (entry.caller, entry.fingerprint) if text]
    parts += [f"session {entry.session}"] if entry.session else []
    parts += [entry.detail] if entry.detail else []
    parts += [f"{entry.count} times until {clock(entry.last_at, seconds=True)}"] if entry.count > 1 else []
    return "  ".join(parts)
