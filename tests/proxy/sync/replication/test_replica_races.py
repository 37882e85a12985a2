"""Two processes of one machine, or one with a comparison under way, look at the same folder."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from tests.support.daemon.loopback import Machine, machine, serving, text_hash
from tests.support.deadline import DEADLINE_S

from confide_memory.documents import REMOVED
from confide_proxy.sync.folder import Folder
from confide_proxy.sync.ledger import Confirmed, SyncLedger
from confide_proxy.sync.replication.replica import Replica


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
        other = Replica(folder, SyncLedger(tmp_path / "ledgers", "s", root), laptop.connection)

        async def sent_and_deleted() -> None:
            (root / "memory/a.md").write_text("text\n")
            assert (await other.send_changes(["memory/a.md"])).sent == 1
            (root / "memory/a.md").unlink()

        link = Meanwhile(laptop, sent_and_deleted)
        report = await Replica(folder, SyncLedger(tmp_path / "ledgers", "s", root), link).compare()
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
        ledger = SyncLedger(tmp_path / "ledgers", "s", root)
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


async def test_what_a_daemon_that_was_put_back_has_lost_is_not_overwritten_where_it_was_away_for_a_moment(
    tmp_path: Path,
) -> None:
    """A program takes the file away and puts it back, the comparison between the two; the daemon has an older text alone."""
    root = tmp_path / "project"
    (root / "memory").mkdir(parents=True)
    file = root / "memory/a.md"
    async with (
        serving(tmp_path / "before") as first,
        machine(first) as laptop,
        serving(tmp_path / "after") as second,
        machine(second) as again,
        machine(second, "desktop", space="laptop") as desktop,
    ):
        await laptop.attach("proj")
        ledger = SyncLedger(tmp_path / "ledgers", "s", root)
        for text in ("older\n", "older\nnewest\n"):
            file.write_text(text)
            await Replica(Folder("proj", root), ledger, laptop.connection).compare()
        await again.attach("proj")
        await desktop.attach("proj")
        await desktop.put("memory/a.md", "older\n")
        file.unlink()

        async def put_back() -> None:
            file.write_text("older\nnewest\n")

        link = Meanwhile(again, put_back, is_answered=True)
        await Replica(Folder("proj", root), ledger, link).compare(force=True)
        assert "newest" in file.read_text()
        answer = await desktop.request("pull", {"project": "proj", "path": "memory/a.md"})
        assert "newest" in answer["text"]


class Interrupted(SyncLedger):
    """Something happens just before a deletion is noted that is about to be told."""

    happening: Callable[[], Awaitable[None]] | None = None

    def __init__(self, folder: Path, root: Path) -> None:
        super().__init__(folder, "s", root)
        self._loop = asyncio.get_running_loop()

    def note_sent(self, path: str, digest: str) -> None:
        if digest == REMOVED and self.happening is not None:
            happening, self.happening = self.happening, None
            asyncio.run_coroutine_threadsafe(happening(), self._loop).result(DEADLINE_S)
        super().note_sent(path, digest)


async def test_a_file_that_is_back_before_its_deletion_is_told_is_sent(tmp_path: Path) -> None:
    """A program takes it away and puts it back as it was, which the watcher finds to be nothing new: but the comparison saw it gone."""
    root = tmp_path / "project"
    (root / "memory").mkdir(parents=True)
    file = root / "memory/a.md"
    file.write_text("text\n")
    async with serving(tmp_path / "data") as daemon, machine(daemon) as laptop:
        await laptop.attach("proj")
        ledger = Interrupted(tmp_path / "ledgers", root)
        replica = Replica(Folder("proj", root), ledger, laptop.connection)
        assert (await replica.compare()).sent == 1
        file.unlink()

        async def put_back() -> None:
            file.write_text("text\n")
            assert (await replica.send_changes(["memory/a.md"])).sent == 0

        ledger.happening = put_back
        await replica.compare()
        assert file.read_text() == "text\n"
        answer = await laptop.request("pull", {"project": "proj", "path": "memory/a.md"})
        assert answer["text"] == "text\n"


class Held:
    """A link on which the `put` of one path waits until it is let go."""

    def __init__(self, kept: Machine, path: str) -> None:
        self._link = kept.connection
        self._path = path
        self.go = asyncio.Event()

    async def request(self, op: str, body: dict[str, Any], *, timeout_s: float, bulk: bool = False) -> dict[str, Any]:
        if op == "put" and body["path"] == self._path:
            await self.go.wait()
        return await self._link.request(op, body, timeout_s=timeout_s, bulk=bulk)

    async def upload(self, op: str, body: dict[str, Any], data: bytes, *, timeout_s: float) -> dict[str, Any]:
        return await self._link.upload(op, body, data, timeout_s=timeout_s)


class HaltingLedger(SyncLedger):
    """Whoever asks what was sent of a path waits there, once it is armed."""

    halt: str | None = None

    def __init__(self, folder: Path, root: Path) -> None:
        super().__init__(folder, "s", root)
        self.reached, self.go, self.confirmed = threading.Event(), threading.Event(), threading.Event()

    def set(self, path: str, state: Confirmed) -> None:
        super().set(path, state)
        self.confirmed.set()

    def sent_hashes(self, path: str) -> tuple[str, ...]:
        if path == self.halt:
            self.halt = None
            self.reached.set()
            assert self.go.wait(DEADLINE_S)
        return super().sent_hashes(path)


async def test_an_old_revision_that_is_late_never_replaces_a_newer_one(tmp_path: Path) -> None:
    """The first comparison of a connection ends while a revision from before is looked at: what was not passed then is not older now."""
    root = tmp_path / "project"
    (root / "memory").mkdir(parents=True)
    file = root / "memory/a.md"
    file.write_text("- mine\n")
    (root / "memory/b.md").write_text("other\n")
    async with (
        serving(tmp_path / "data") as daemon,
        machine(daemon) as laptop,
        machine(daemon, "desktop", space="laptop") as desktop,
    ):
        await laptop.attach("proj")
        await desktop.attach("proj")
        made = await desktop.put("memory/a.md", "- theirs\n")
        link, ledger = Held(laptop, "memory/b.md"), HaltingLedger(tmp_path / "ledgers", root)
        replica = Replica(Folder("proj", root), ledger, link)
        comparing = asyncio.create_task(replica.compare())
        assert await asyncio.to_thread(ledger.confirmed.wait, DEADLINE_S)
        merged = file.read_text()
        assert sorted(merged.splitlines()) == ["- mine", "- theirs"]
        ledger.halt = "memory/a.md"
        late = {"path": "memory/a.md", "revision": made["revision"], "text": "- theirs\n", "baseHash": None}
        applying = asyncio.create_task(replica.apply({**late, "hash": text_hash("- theirs\n")}))
        assert await asyncio.to_thread(ledger.reached.wait, DEADLINE_S)
        link.go.set()
        await comparing
        ledger.go.set()
        await applying
        assert file.read_text() == merged
        assert replica.pending() == 0


async def test_an_older_revision_that_is_late_is_refused_before_a_comparison_too(tmp_path: Path) -> None:
    """It was made upon the very text that the newest one has again: another session has had that, while this one began or stood still."""
    root = tmp_path / "project"
    (root / "memory").mkdir(parents=True)
    file = root / "memory/a.md"
    file.write_text("- as it was\n")
    async with serving(tmp_path / "data") as daemon, machine(daemon) as laptop:
        await laptop.attach("proj")
        ledger = SyncLedger(tmp_path / "ledgers", "s", root)
        watching = Replica(Folder("proj", root), ledger, laptop.connection)
        for text in ("- as it was\n", "- changed\n", "- as it was\n"):
            file.write_text(text)
            assert (await watching.send_changes(["memory/a.md"])).sent == 1
        late = {"path": "memory/a.md", "revision": 2, "text": "- changed\n", "hash": text_hash("- changed\n")}
        beginning = Replica(Folder("proj", root), ledger, laptop.connection)
        answer = await beginning.apply({**late, "baseHash": text_hash("- as it was\n")})
        assert not answer["applied"]
        assert answer["base"] == 3
        assert file.read_text() == "- as it was\n"
        assert ledger.all()["memory/a.md"].revision == 3


async def test_a_file_that_goes_while_it_is_compared_leaves_the_others_version(tmp_path: Path) -> None:
    """The daemon asks for a file that it has otherwise; it was renamed since, and nobody had confirmed it: what the daemon has comes."""
    root = tmp_path / "project"
    (root / "memory").mkdir(parents=True)
    (root / "memory/a.md").write_text("- mine\n")
    async with (
        serving(tmp_path / "data") as daemon,
        machine(daemon) as laptop,
        machine(daemon, "desktop", space="laptop") as desktop,
    ):
        await laptop.attach("proj")
        await desktop.attach("proj")
        await desktop.put("memory/a.md", "- theirs\n")

        async def renamed() -> None:
            (root / "memory/a.md").rename(root / "memory/b.md")

        ledger = SyncLedger(tmp_path / "ledgers", "s", root)
        replica = Replica(Folder("proj", root), ledger, Meanwhile(laptop, renamed, is_answered=True))
        await replica.compare()
        assert (root / "memory/a.md").read_text() == "- theirs\n"


async def test_a_file_that_goes_while_it_is_compared_and_is_nowhere_else_is_just_gone(tmp_path: Path) -> None:
    root = tmp_path / "project"
    (root / "memory").mkdir(parents=True)
    (root / "memory/a.md").write_text("- mine\n")
    async with serving(tmp_path / "data") as daemon, machine(daemon) as laptop:
        await laptop.attach("proj")

        async def deleted() -> None:
            (root / "memory/a.md").unlink()

        ledger = SyncLedger(tmp_path / "ledgers", "s", root)
        report = await Replica(Folder("proj", root), ledger, Meanwhile(laptop, deleted, is_answered=True)).compare()
        assert not report.skipped
        assert not (root / "memory/a.md").exists()
