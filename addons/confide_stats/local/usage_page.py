"""The panel's page that shows how the memory was used on this device."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

from confide_proxy.hooks.server.usage import SINKS_AFTER
from confide_stats.local import usage_report
from confide_stats.local.usage_report import DAYS, NAMES


class UsageDesk(Protocol):
    """The functions of the panel that this page needs."""

    gateway: Any

    def page(self, template: str, **values: Any) -> Any: ...


async def show(desk: UsageDesk) -> Any:
    """Show the report of notes shown and used."""
    report = await asyncio.to_thread(usage_report.make_report, desk.gateway.paths)
    return desk.page(
        "usage.html",
        here="usage",
        report=report,
        total=report.total,
        events=[(NAMES[event], one, usage_report.wait_of(report, event)) for event, one in report.totals.items()],
        days=DAYS,
        sinks_after=SINKS_AFTER,
    )
