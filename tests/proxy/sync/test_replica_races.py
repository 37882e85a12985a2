"""Two processes of one machine, or one with a comparison under way, look at the same folder."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from tests.support.daemon.loopback import Machine, machine, serving

from confide_proxy.sync.folder import Folder
from confide_proxy.sync.ledger import Ledger
from confide_proxy.sync.replica import Replica


class Meanwhile:
    """A link on which something happens just before the comparison is asked for, or just before its answer is heard."""

    def __init__(self, kept: Machine, happening: Callable[[], Awaitable[None]], *, is_answered: bool = False) -> None:
        self._link = kept.connection
        self._happening = happening
        self._is_answered = is_answered

    async def request(self, op: str, body: dict[str, Any], *, timeout_s: float, bulk: bool = False) -> dict[str, Any]:
        if op == "compare" and not self._is_answered:
            await self._happening()
        answer = await self._link.request(op, body, timeout_s=timeout_s, bulk=bulk)
        if op == "compare" and self._is_answered:
            await self._happening()
        return answer

    async def upload(self, op: str, body: dict[str, Any], data: bytes, *, timeout_s: float) -> dict[str, Any]:
        return await self._link.upload(op, body, data, timeout_s=timeout_s)


async def test_a_file_that_is_sent_and_deleted_during_a_comparison_stays_deleted(tmp_path: Path) -> None:
    """The comparison did not know of it, so the daemon offers it: but it was confirmed since, and a person has deleted it."""
    root = tmp_path / "project"
    (root / "memory").mkdir(parents=True)
    folder = Folder("proj", root)
    async with serving(tmp_path / "data") as daemon, machine(daemon) as laptop:
        await laptop.attach("proj")
        other = Replica(folder, Ledger(tmp_path / "ledgers", "s", root), laptop.connection)

        async def sent_and_deleted() -> None:
            (root / "memory/a.md").write_text("text\n")
            assert (await other.changed(["memory/a.md"])).sent == 1
            (root / "memory/a.md").unlink()

        link = Meanwhile(laptop, sent_and_deleted)
        report = await Replica(folder, Ledger(tmp_path / "ledgers", "s", root), link).compare()
        assert not (root / "memory/a.md").exists()
        assert report.removed == 1
        assert (await laptop.request("deleted", {"project": "proj"}))["documents"]


async def test_a_file_that_comes_back_while_its_deletion_is_compared_stays(tmp_path: Path) -> None:
    """Deleted here, edited elsewhere: the daemon's new revision arrives before the answer that says that the deletion is known."""
    root = tmp_path / "project"
    (root / "memory").mkdir(parents=True)
    file = root / "memory/a.md"
    file.write_text("text\n")
    async with (
        serving(tmp_path / "data") as daemon,
        machine(daemon) as laptop,
        machine(daemon, "desktop", space="laptop") as desktop,
    ):
        await laptop.attach("proj")
        await desktop.attach("proj")
        ledger = Ledger(tmp_path / "ledgers", "s", root)
        assert (await Replica(Folder("proj", root), ledger, laptop.connection).compare()).sent == 1
        file.unlink()

        async def edited_elsewhere() -> None:
            made = await desktop.put("memory/a.md", "text, edited\n", base=1)
            change = {
                "path": "memory/a.md",
                "revision": made["revision"],
                "hash": made["hash"],
                "text": "text, edited\n",
            }
            assert (await replica.apply({**change, "baseHash": None}))["applied"]

        link = Meanwhile(laptop, edited_elsewhere, is_answered=True)
        replica = Replica(Folder("proj", root), ledger, link)
        await replica.compare()
        assert file.read_text() == "text, edited\n"
        assert (await replica.compare()).removed == 0
