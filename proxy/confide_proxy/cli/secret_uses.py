"""The command `confide secrets audit`: list the uses of secrets on this device."""

from __future__ import annotations

from confide_memory.documents import local_time
from confide_proxy.cli.console import CommandContext, Output, command
from confide_proxy.sealing.use_log import MOST_USES, UseLog


@command
def audit(here: CommandContext) -> Output:
    """List which commands and agents used which secrets on this device, the newest first."""
    uses = UseLog(here.paths.secret_uses).read()
    lines = (f"{local_time(one['at'])}  {one['secret']}  {one['by']}  ({one['approved']})" for one in uses)
    notes = [f"older uses than the last {MOST_USES:,} are not kept"] if len(uses) == MOST_USES else []
    return Output(uses, lines, notes, empty="no secret was used on this device")
