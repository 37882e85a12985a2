"""Receipts: a daemon finds out that its data folder was put back from an older copy, and numbers on above all that it ever gave."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.daemon.loopback import Machine, Serving, serving

from confide_crypto.keys.identity import Identity
from confide_daemon.store.tables.receipt_table import NUMBERS

PATH = "memory/plan.md"


class Scene:
    """A daemon, a copy of its folder, and a machine that has the receipt of the last change that it saw."""

    def __init__(self, root: Path) -> None:
        self.data, self.copy = root / "data", root / "copy"
        self.laptop = Identity.generate()
        self.receipt = ""

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Serving]:
        async with serving(self.data) as daemon:
            if daemon.state.registry.caller(self.laptop.public_key) is None:
                self.laptop = daemon.enroll("laptop")
            yield daemon

    @asynccontextmanager
    async def attached(
        self, daemon: Serving, receipt: str | None = None
    ) -> AsyncIterator[tuple[Machine, dict[str, Any]]]:
        shown = self.receipt if receipt is None else receipt
        body = {"project": "proj", "machine": "m", "proxyVersion": "1", "toolsets": ["core"], "receipt": shown}
        async with Machine(await daemon.connect_in_time(self.laptop)) as machine:
            yield machine, await machine.request("attach", body)
            self.receipt = (await machine.request("receipt", {}))["receipt"]

    async def write(self, text: str, *, base: int = 0) -> int:
        """The revision that a text got; the machine has a receipt of it."""
        async with self.serving() as daemon, self.attached(daemon) as (machine, _):
            return int((await machine.put(PATH, text, base=base))["revision"])

    def take(self) -> None:
        shutil.copytree(self.data, self.copy, ignore=shutil.ignore_patterns("*.sock"))

    def put_back(self) -> None:
        shutil.rmtree(self.data)
        shutil.copytree(self.copy, self.data)

    async def look(self, receipt: str | None = None) -> dict[str, Any]:
        """The answer to `attach`."""
        async with self.serving() as daemon, self.attached(daemon, receipt) as (_, answer):
            return answer


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


async def test_nothing_is_said_of_a_daemon_that_only_starts_again(scene: Scene) -> None:
    await scene.write("one\n")
    for _ in range(2):
        answer = await scene.look()
        assert (answer["restores"], answer["backTo"]) == (0, None)
    assert await scene.write("two\n", base=1) == 2


async def test_a_folder_that_is_put_back_is_found_by_the_first_machine_that_knows_more(scene: Scene) -> None:
    await scene.write("one\n")
    scene.take()
    await scene.write("two\n", base=1)
    lost = scene.receipt
    scene.put_back()
    answer = await scene.look()
    assert answer["restores"] == 1
    assert answer["backTo"] is not None
    assert (await scene.look(lost))["restores"] == 1, "the time that is lost is counted once"
    assert await scene.write("three\n", base=1) == NUMBERS + 1
    assert await scene.write("four\n", base=NUMBERS + 1) == NUMBERS + 2


async def test_a_copy_that_was_taken_while_the_daemon_served(scene: Scene) -> None:
    """The life in which it was taken went on; so it is the changes that tell."""
    async with scene.serving() as daemon, scene.attached(daemon) as (machine, _):
        await machine.put(PATH, "one\n")
        known = (await machine.request("receipt", {}))["receipt"]
        scene.take()
        await machine.put(PATH, "two\n", base=1)
    lost = scene.receipt
    scene.put_back()
    assert (await scene.look(known))["restores"] == 0
    assert (await scene.look(lost))["restores"] == 1


async def test_numbers_are_above_those_of_every_time_that_was_lost(scene: Scene) -> None:
    """The same copy is put back twice: what was counted after the first time went back with it."""
    await scene.write("one\n")
    scene.take()
    await scene.write("two\n", base=1)
    scene.put_back()
    await scene.look()
    assert await scene.write("three\n", base=1) == NUMBERS + 1
    scene.put_back()
    assert (await scene.look())["restores"] == 2
    assert await scene.write("four\n", base=1) == 2 * NUMBERS + 1


NO_RECEIPTS = ["x", "AAAA", "A" * 108]


async def test_what_is_no_receipt_says_nothing(scene: Scene) -> None:
    await scene.write("one\n")
    for receipt in NO_RECEIPTS:
        assert (await scene.look(receipt))["restores"] == 0


async def test_another_space_s_receipt_says_nothing(scene: Scene) -> None:
    await scene.write("one\n")
    async with scene.serving() as daemon, Machine(await daemon.connect(daemon.enroll("other"))) as other:
        foreign = (await other.attach("proj"))["receipt"]
    assert (await scene.look(foreign))["restores"] == 0


async def test_a_receipt_tells_its_machine_nothing(scene: Scene) -> None:
    """Not even whether there was a change: a machine may be limited to some projects."""
    await scene.write("one\n")
    first = scene.receipt
    await scene.look()
    assert len(scene.receipt) == len(first)
    assert scene.receipt != first
