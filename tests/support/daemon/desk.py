"""A folder with one file that two machines have, on a link that breaks at a moment of the test's choice."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import pytest
from tests.support.daemon.loopback import Machine
from tests.support.deadline import DEADLINE_S

from confide_crypto.errors import ConnectionLost, RequestError
from confide_crypto.keys.identity import Identity
from confide_crypto.transport.open_channel import Connection
from confide_proxy.sync.folder import Folder
from confide_proxy.sync.ledger import SyncLedger
from confide_proxy.sync.replication.replica import Replica

PATH: Final = "memory/log.md"


class Cable:
    """A link on which something happens when the daemon has taken a `put`, a `remove` or a `compare`, before its answer is heard; or that
    ends then, or before the daemon has taken it, which may come to it yet (`arrive`)."""

    def __init__(self, kept: Machine) -> None:
        self._link = kept.connection
        self.meanwhile: list[Callable[[], object]] = []
        self.is_cut = False
        self.is_cut_before = False
        self.cuts = ("put", "remove")
        self._late: list[tuple[str, dict[str, Any]]] = []

    async def request(self, op: str, body: dict[str, Any], *, timeout_s: float, bulk: bool = False) -> dict[str, Any]:
        if op in self.cuts and self.is_cut_before:
            self._late.append((op, body))
            raise ConnectionLost(truncated=True)
        answer = await self._link.request(op, body, timeout_s=timeout_s, bulk=bulk)
        if op in self.cuts:
            for happening in self.meanwhile:
                happening()
            self.meanwhile.clear()
            if self.is_cut:
                raise ConnectionLost(truncated=True)
        return answer

    async def arrive(self) -> list[dict[str, Any] | RequestError]:
        """Let the daemon have what it was not given in time, in order; what it answered to nobody."""
        answers: list[dict[str, Any] | RequestError] = []
        for op, body in self._late:
            try:
                answers.append(await self._link.request(op, body, timeout_s=DEADLINE_S))
            except RequestError as error:
                answers.append(error)
        self._late.clear()
        return answers

    async def upload(self, op: str, body: dict[str, Any], data: bytes, *, timeout_s: float) -> dict[str, Any]:
        return await self._link.upload(op, body, data, timeout_s=timeout_s)


class Laptop(Machine):
    """A machine whose replica answers `apply`; things happen once it has answered that the file holds something else."""

    answers: Callable[[dict[str, Any]], Awaitable[dict[str, Any]]] | None = None

    def __init__(self, connection: Connection, identity: Identity) -> None:
        super().__init__(connection)
        self.identity = identity
        self.meanwhile: list[Callable[[], object]] = []

    async def _on_request(self, op: str, body: dict[str, Any]) -> dict[str, Any]:
        if op != "apply" or self.answers is None:
            return await super()._on_request(op, body)
        answer = await self.answers(body)
        if not answer["applied"]:
            for happening in self.meanwhile:
                happening()
            self.meanwhile.clear()
        return answer


class Desk:
    """A folder with one file that both machines have, its replica, and the other machine."""

    def __init__(self, root: Path, laptop: Laptop, desktop: Machine) -> None:
        (root / "project/memory").mkdir(parents=True)
        self.file = root / "project" / PATH
        self.laptop = laptop
        self.desktop = desktop
        self.cable = Cable(laptop)
        self._root = root
        self.restart()

    def restart(self) -> None:
        """Another process, which knows what is on the disk."""
        self.folder = Folder("proj", self._root / "project")
        self.ledger = SyncLedger(self._root / "ledgers", "s", self.folder.root)
        self.replica = Replica(self.folder, self.ledger, self.cable)

    async def newest(self) -> str:
        """The daemon's text."""
        return str((await self.desktop.request("pull", {"project": "proj", "path": PATH}))["text"])

    async def cut(self, saved: str | None, *, is_before: bool = False) -> None:
        """Save a text that reaches the daemon, whose answer does not come, or delete the file so; `is_before`: it does not reach it."""
        if saved is None:
            self.file.unlink()
        else:
            self.file.write_text(saved)
        self.cable.is_cut, self.cable.is_cut_before = not is_before, is_before
        with pytest.raises(ConnectionLost):
            await self.replica.send_changes([PATH])
        self.cable.is_cut = self.cable.is_cut_before = False

    async def settled(self) -> str:
        """The text that all have in the end."""
        await self.replica.send_changes([PATH])
        await self.replica.compare()
        assert self.file.read_text() == await self.newest()
        assert self.replica.pending() == 0
        return self.file.read_text()
