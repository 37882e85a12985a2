"""The commands `confide daemon start` and `confide daemon stop`, for this device's own daemon.
Other commands start it when they need it.
"""

from __future__ import annotations

import asyncio

from confide_proxy.cli.console import CommandContext, Output, command
from confide_proxy.link import daemon, founding, local_process
from confide_proxy.link.key_rotation import MachineKeys

_AGAIN = "the next command, or an open session of an agent, starts it again"


@command
async def start(here: CommandContext) -> Output:
    """Start this device's own daemon now; it ends by itself when it is idle."""
    await asyncio.to_thread(founding.require, here.paths, here.config)
    await asyncio.to_thread(local_process.require_own, here.paths)
    before = await local_process.running(here.paths)
    if before is None:
        # The daemon accepts devices whose key line is in its folder before it starts.
        identity = await asyncio.to_thread(MachineKeys(here.paths).identity)
        await asyncio.to_thread(daemon.authorize, here.paths.daemon_data, identity)
        await daemon.ensure(here.paths.daemon_data, idle_exit_s=here.config.idle_exit_s)
    found = before or await local_process.running(here.paths)
    pid = found.pid if found else None
    data = {"started": before is None, "pid": pid, "url": found.joined.url if found else None}
    message = "runs already" if before else "started"
    return Output(data, f"{message}: process {pid}, with its data in {here.paths.daemon_data}")


@command
async def stop(here: CommandContext) -> Output:
    """Stop this device's own daemon, and wait until it has ended; what is stored stays."""
    await asyncio.to_thread(founding.require, here.paths, here.config)
    await asyncio.to_thread(local_process.require_own, here.paths)
    ended = await local_process.stop(here.paths)
    if ended is None:
        return Output({"stopped": False, "pid": None}, "no daemon runs on this device")
    return Output({"stopped": True, "pid": ended.pid}, f"stopped process {ended.pid}", notes=[_AGAIN])
