"""What a daemon that was left says of it holds for that daemon alone, whichever this machine has joined by then."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.support.daemon.scripted import Message, Setting
from tests.support.nights import allow, runner
from tests.support.programs.processes import Machine
from tests.support.runs import needing_sandbox

from confide_crypto.errors import RequestError
from confide_crypto.keys.identity import Identity
from confide_night.runner.books import MovedSpaces
from confide_proxy.link.daemon import KnownDaemon, save_pin
from confide_proxy.paths import ProxyPaths
from confide_transfer.move.shared.moved import HAS_LEFT

NOWHERE = "ws://127.0.0.1:9/"


@pytest.mark.parametrize("goes_over", [True, False])
async def test_the_word_of_a_daemon_that_was_left_comes_while_its_machine_goes_over(
    tmp_path: Path, goes_over: bool
) -> None:
    """A `confide daemon move` beside the runner pins the new daemon, and then has the old one refuse."""
    await asyncio.to_thread(needing_sandbox)
    machine = Machine(tmp_path, "ann")
    allow(machine, '[recipes.quick]\nkind = "command"\ncommand = ["true"]')
    paths = ProxyPaths(
        machine.home / "proxy.toml", machine.home / "proxy", machine.home / "global", machine.home / "daemon"
    )

    def refuse(_body: Message) -> Message:
        if goes_over:
            save_pin(paths.link, KnownDaemon(NOWHERE, Identity.generate().static_key))
        raise RequestError("unavailable", f"{HAS_LEFT} on 2026-11-26")

    setting = Setting(machine)
    setting.daemon.answers["attach"] = refuse
    await setting.listen()
    try:
        await setting.pin()
        with runner(machine) as night:
            await asyncio.to_thread(night.until, f"no daemon: {HAS_LEFT}")
    finally:
        await setting.close()
    assert (MovedSpaces(paths).why() is None) == goes_over
