"""`confide stats`: which notes agents on this device were shown and used, and what that cost."""

from __future__ import annotations

import asyncio
from typing import Final

from confide_proxy.cli.console import CommandContext, Output, command, count_noun, note, one_line, row, say, styled
from confide_proxy.hooks.server.usage import SINKS_AFTER
from confide_stats.local import usage_report
from confide_stats.local.usage_report import DAYS, NAMES, UsageReport

_WIDTHS: Final = (20, 9, 9, 9, 10, 10)


@command
async def stats(here: CommandContext) -> Output:
    """Show which notes your agents were shown and used on this device, and what it cost."""
    report = await asyncio.to_thread(usage_report.make_report, here.paths)
    return Output(report.to_json(), lambda: _tell(report))


def _tell(report: UsageReport) -> None:
    total = report.total
    if not total.notes and not report.used_most:
        say("no note has been shown to an agent on this device yet")
        note("confide setup CLIENT --write --hooks brings notes to an agent automatically")
        return
    shown, used = count_noun(total.notes, "time"), count_noun(total.used, "time")
    say(f"The last {DAYS} days on this device: notes were shown {shown}, and used {used}.")
    met, again = report.failures
    if met:
        say(f"A note was there for {count_noun(met, 'failure')}; {again or 'none'} came again in the same session.")
    say(f"The notes took about {total.tokens:,} tokens of the agents' context.")
    say("")
    say(styled((_line("shown at", "shown", "used", "not used", "tokens", "wait"), "dim")))
    for event, one in report.totals.items():
        ignored = max(0, one.notes - one.used)
        wait = usage_report.wait_of(report, event)
        row(_line(NAMES[event], f"{one.notes:,}", f"{one.used:,}", f"{ignored:,}", f"{one.tokens:,}", wait))
    if report.used_most:
        say("")
        say(styled(("used most", "dim")))
    for each in report.used_most:
        read = f", read {each.read:,}" if each.read else ""
        row(one_line(f"  {usage_report.display_name(each)}: used {each.used:,} of {each.showings:,}{read}"))
    if report.unused:
        say("")
        say(styled(("shown often and not used; others come before these until an agent uses one", "dim")))
    for each in report.unused:
        row(one_line(f"  {usage_report.display_name(each)}: shown {each.unused:,} times since its last use"))
    note(
        "used: an agent named the note, read or changed it, or the failure that it is for did not come again",
        "wait: how long an agent typically waits for Confide there, also where no note fits",
        f"a note that hooks showed {SINKS_AFTER} times without a use comes after all others; searches find it as before",
    )


def _line(*cells: str) -> str:
    first, *others = zip(cells, _WIDTHS, strict=True)
    return f"{first[0]:<{first[1]}}" + "".join(f"{cell:>{width}}" for cell, width in others)
