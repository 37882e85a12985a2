"""A data folder is put back from an older copy by hand: revision numbers repeat, and nothing may be believed by its number alone."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.daemon.loopback import Machine, Serving, serving, text_hash

from confide_crypto.keys.identity import Identity
from confide_proxy.sync.folder import Folder
from confide_proxy.sync.ledger import SyncLedger
from confide_proxy.sync.replication.replica import Replica

PATH = "memory/plan.md"
FIRST = "# Plan\n\n- first\n"


class Laptop:
    """A machine with files, its ledger, and a connection while the daemon serves."""

    def __init__(self, root: Path, identity: Identity) -> None:
        self.root = root / "laptop"
        (self.root / "memory").mkdir(parents=True, exist_ok=True)
        self.file = self.root / PATH
        self._ledgers = root / "ledgers"
        self._identity = identity

    @asynccontextmanager
    async def connected(self, daemon: Serving) -> AsyncIterator[Replica]:
        async with Machine(await daemon.connect_in_time(self._identity)) as link:
            await link.attach("proj")
            replica = Replica(Folder("proj", self.root), SyncLedger(self._ledgers, "s", self.root), link.connection)
            link.apply = replica.apply
            yield replica


class Scene:
    """A daemon whose folder was copied when the document had one revision, with what both machines did since."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.data, self.copy = root / "data", root / "copy"

    async def begin(self) -> None:
        async with serving(self.data) as daemon:
            self.laptop = Laptop(self.root, daemon.enroll("laptop"))
            self.other = daemon.enroll("desktop", space="laptop")
            async with self.desktop(daemon) as desktop:
                await desktop.put(PATH, FIRST)
            async with self.laptop.connected(daemon) as replica:
                await replica.compare()
        assert self.laptop.file.read_text() == FIRST
        shutil.copytree(self.data, self.copy, ignore=shutil.ignore_patterns("*.sock"))

    async def lost_time(self, do: Callable[[Replica], Awaitable[None]]) -> None:
        """What the laptop does at the daemon, which then forgets it."""
        async with serving(self.data) as daemon, self.laptop.connected(daemon) as replica:
            await do(replica)
        shutil.rmtree(self.data)
        shutil.copytree(self.copy, self.data)

    @asynccontextmanager
    async def desktop(self, daemon: Serving) -> AsyncIterator[Machine]:
        async with Machine(await daemon.connect_in_time(self.other)) as machine:
            await machine.attach("proj")
            yield machine


@pytest.fixture
async def scene(tmp_path: Path) -> Scene:
    made = Scene(tmp_path)
    await made.begin()
    return made


async def newest(desktop: Machine) -> str:
    return str((await desktop.request("pull", {"project": "proj", "path": PATH}))["text"])


async def twice(scene: Scene, replica: Replica, text: str) -> None:
    """Two revisions, so that the laptop's file is at revision 3."""
    for step in ("- laptop 2\n", text):
        scene.laptop.file.write_text(scene.laptop.file.read_text() + step)
        assert (await replica.send_changes([PATH])).sent == 1


@pytest.mark.parametrize("revisions", [1, 2, 3])
async def test_lines_of_a_repeated_revision_stay(scene: Scene, revisions: int) -> None:
    """The laptop's untouched file is at a revision 3 that is another one now, or is none yet, or was passed."""
    await scene.lost_time(lambda replica: twice(scene, replica, "- laptop 3\n"))
    async with serving(scene.data) as daemon, scene.desktop(daemon) as desktop:
        text = FIRST
        for number in range(revisions):
            text += f"- desktop {number + 2}\n"
            await desktop.put(PATH, text, base=number + 1)
        async with scene.laptop.connected(daemon) as replica:
            await replica.compare()
        merged = await newest(desktop)
        assert scene.laptop.file.read_text() == merged
        for line in [*text.splitlines(), "- laptop 2", "- laptop 3"]:
            assert line in merged.splitlines()


async def test_an_edit_upon_a_lost_revision_keeps_both_sides(scene: Scene) -> None:
    """The laptop rewrote a line in the lost time, the desktop another way since: neither wins in silence."""

    async def rewritten(replica: Replica) -> None:
        await twice(scene, replica, "- laptop 3\n")
        scene.laptop.file.write_text("# Plan\n\nThe laptop's paragraph.\n")
        assert (await replica.send_changes([PATH])).sent == 1

    await scene.lost_time(rewritten)
    async with serving(scene.data) as daemon, scene.desktop(daemon) as desktop:
        await desktop.put(PATH, FIRST + "x\n", base=1)
        await desktop.put(PATH, "# Plan\n\nThe desktop's paragraph.\n", base=2)
        scene.laptop.file.write_text("# Plan\n\nThe laptop's paragraph, edited while the daemon was away.\n")
        async with scene.laptop.connected(daemon) as replica:
            await replica.compare()
        merged = await newest(desktop)
        assert "The desktop's paragraph." in merged
        assert "edited while the daemon was away" in merged
        assert ">>>>>>> confide" in merged


async def test_a_lost_revision_upon_a_text_that_is_the_newest_is_taken_as_it_is(scene: Scene) -> None:
    """Both ends hold the same text under other numbers: the edit upon it goes through, lines that it removes included."""

    async def back_and_forth(replica: Replica) -> None:
        await twice(scene, replica, "- laptop 3\n")
        scene.laptop.file.write_text(FIRST)
        assert (await replica.send_changes([PATH])).sent == 1

    await scene.lost_time(back_and_forth)
    async with serving(scene.data) as daemon, scene.desktop(daemon) as desktop:
        scene.laptop.file.write_text("# Plan\n")
        async with scene.laptop.connected(daemon) as replica:
            await replica.compare()
        assert await newest(desktop) == "# Plan\n"


@pytest.mark.parametrize("is_compared", [True, False])
async def test_a_deletion_of_a_repeated_revision_is_none(scene: Scene, is_compared: bool) -> None:
    """The laptop deletes what it knows as revision 3: revision 3 is the desktop's by now, and stays on both disks."""
    await scene.lost_time(lambda replica: twice(scene, replica, "- laptop 3\n"))
    scene.laptop.file.unlink()
    (scene.laptop.root / "memory/other.md").write_text("so that memory is not missing as a whole\n")
    async with serving(scene.data) as daemon, scene.desktop(daemon) as desktop:
        await desktop.put(PATH, FIRST + "- desktop 2\n", base=1)
        await desktop.put(PATH, text := FIRST + "- desktop 2\n- desktop 3\n", base=2)
        async with scene.laptop.connected(daemon) as replica:
            await (replica.compare() if is_compared else replica.send_changes([PATH]))
        assert await newest(desktop) == text
        assert scene.laptop.file.read_text() == text


async def test_a_deletion_of_a_text_that_is_the_newest_is_done(scene: Scene) -> None:
    """What the laptop deleted in the lost time is what the daemon holds again: it was seen, so it goes."""

    async def edited_back(replica: Replica) -> None:
        await twice(scene, replica, "- laptop 3\n")
        scene.laptop.file.write_text(FIRST)
        assert (await replica.send_changes([PATH])).sent == 1

    await scene.lost_time(edited_back)
    scene.laptop.file.unlink()
    (scene.laptop.root / "memory/other.md").write_text("so that memory is not missing as a whole\n")
    async with serving(scene.data) as daemon, scene.laptop.connected(daemon) as replica:
        await replica.compare()
        async with scene.desktop(daemon) as desktop:
            assert [
                entry["path"] for entry in (await desktop.request("deleted", {"project": "proj"}))["documents"]
            ] == [PATH]


async def test_a_revision_that_comes_before_the_comparison_overwrites_no_lost_text(scene: Scene) -> None:
    """The laptop's file holds what the daemon had confirmed and has no more: another machine's revision must not replace it."""
    await scene.lost_time(lambda replica: twice(scene, replica, "- laptop 3\n"))
    before = scene.laptop.file.read_text()
    async with serving(scene.data) as daemon, scene.desktop(daemon) as desktop:
        made = await desktop.put(PATH, text := FIRST + "- desktop 2\n", base=1)
        change: dict[str, Any] = {"path": PATH, "revision": 7, "hash": made["hash"], "baseHash": text_hash(FIRST)}
        async with scene.laptop.connected(daemon) as replica:
            answer = await replica.apply({**change, "text": text})
            assert (answer["applied"], answer["base"], answer["baseHash"]) == (False, 3, text_hash(before))
            assert scene.laptop.file.read_text() == before


async def test_a_store_in_a_lost_time_s_file_keeps_its_lines(scene: Scene) -> None:
    """An agent stores before the files are compared: the daemon merges what the disk holds by its hash, not by its number."""
    await scene.lost_time(lambda replica: twice(scene, replica, "- laptop 3\n"))
    async with serving(scene.data) as daemon, scene.desktop(daemon) as desktop:
        await desktop.put(PATH, FIRST + "- desktop 2\n", base=1)
        await desktop.put(PATH, FIRST + "- desktop 2\n- desktop 3\n", base=2)
        async with scene.laptop.connected(daemon) as replica:
            body = {"project": "proj", "operation": "0" * 32, "tool": "memory_store", "said": "2026-11-20T23:59:58Z"}
            arguments = {"path": PATH, "content": "- said"}
            await replica._link.request("call", {**body, "arguments": arguments}, timeout_s=30)
        merged = await newest(desktop)
        for line in ("- laptop 2", "- laptop 3", "- desktop 2", "- desktop 3", "- said"):
            assert line in merged.splitlines()
        assert scene.laptop.file.read_text() == merged


async def test_a_file_made_anew_is_not_taken_for_one_that_was_removed(scene: Scene) -> None:
    """The laptop remembers that revision 4 removed the file; the daemon counts from 1 again, and its file is written all the same."""

    async def removed(replica: Replica) -> None:
        await twice(scene, replica, "- laptop 3\n")
        scene.laptop.file.unlink()
        assert (await replica.send_changes([PATH])).removed == 1

    await scene.lost_time(removed)
    async with serving(scene.data) as daemon, scene.laptop.connected(daemon) as replica:
        change = {"path": PATH, "revision": 1, "hash": text_hash(FIRST), "baseHash": None, "text": FIRST}
        assert (await replica.apply(change))["applied"]
        assert scene.laptop.file.read_text() == FIRST


async def test_a_peer_that_says_no_hash_goes_on_as_before(scene: Scene) -> None:
    """An older proxy: its base is believed by its number, but one above the newest is no fast-forward."""
    async with serving(scene.data) as daemon, scene.desktop(daemon) as desktop:
        assert (await desktop.put(PATH, FIRST + "- 2\n", base=1))["merged"] is False
        answer = await desktop.put(PATH, FIRST + "- other\n", base=9)
        assert answer["merged"]
        assert "- 2" in answer["text"]
        gone = {"project": "proj", "entries": [], "gone": [[PATH, 9]]}
        assert (await desktop.request("compare", gone))["pull"]


class Followed:
    """Two machines that show receipts, so that the daemon finds out that it was put back, and each one's edits of the lost time."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._data, self._copy = root / "data", root / "copy"
        self.machines: dict[str, Identity] = {}
        self._receipts: dict[str, str] = {}

    @asynccontextmanager
    async def replica(self, daemon: Serving, name: str) -> AsyncIterator[Replica]:
        root = self._root / name
        (root / "memory").mkdir(parents=True, exist_ok=True)
        async with Machine(await daemon.connect_in_time(self.machines[name])) as link:
            about = {"project": "proj", "machine": "box", "toolsets": ["core"], "watches": True}
            await link.request("attach", {**about, "receipt": self._receipts.get(name, "")})
            replica = Replica(
                Folder("proj", root), SyncLedger(self._root / f"{name}-ledgers", "s", root), link.connection
            )
            link.apply = replica.apply
            yield replica
            self._receipts[name] = (await link.request("receipt", {}))["receipt"]

    async def says(self, daemon: Serving, name: str, text: str) -> None:
        """A person on that machine saves the plan."""
        async with self.replica(daemon, name) as replica:
            await replica.compare()
            self.file(name).write_text(text)
            assert (await replica.send_changes([PATH])).sent == 1

    def file(self, name: str) -> Path:
        return self._root / name / PATH

    async def begin(self) -> None:
        async with serving(self._data) as daemon:
            self.machines = {"ann": daemon.enroll("ann"), "bob": daemon.enroll("bob", space="ann")}
            await self.says(daemon, "ann", "# Plan\n\n- when: monday\n")
            async with self.replica(daemon, "bob") as replica:
                await replica.compare()
        shutil.copytree(self._data, self._copy, ignore=shutil.ignore_patterns("*.sock"))

    def put_back(self) -> None:
        shutil.rmtree(self._data)
        shutil.copytree(self._copy, self._data)

    async def settle(self, *names: str) -> set[str]:
        """What all have after these have compared, one after the other, and once more."""
        async with serving(self._data) as daemon:
            for name in (*names, *names):
                async with self.replica(daemon, name) as replica:
                    await replica.compare()
        return {self.file(name).read_text() for name in names}


@pytest.fixture
async def followed(tmp_path: Path) -> Followed:
    made = Followed(tmp_path)
    await made.begin()
    return made


@pytest.mark.parametrize("first", ["ann", "bob"])
async def test_a_line_that_was_changed_in_the_lost_time_is_no_clash(followed: Followed, first: str) -> None:
    """The daemon's text is the one that it was made from: whoever comes first brings the newer one, and the others add nothing to it."""
    async with serving(followed._data) as daemon:
        await followed.says(daemon, "ann", text := "# Plan\n\n- when: friday\n")
        async with followed.replica(daemon, "bob") as replica:
            await replica.compare()
    followed.put_back()
    assert await followed.settle(first, "bob" if first == "ann" else "ann") == {text}


async def test_two_machines_at_different_revisions_of_the_lost_time_are_merged(followed: Followed) -> None:
    """What they have in common is the last text that the daemon still has."""
    async with serving(followed._data) as daemon:
        await followed.says(daemon, "ann", "# Plan\n\n- when: friday\n")
        await followed.says(daemon, "bob", text := "# Plan\n\n- when: friday\n- where: harbour\n")
    followed.put_back()
    assert await followed.settle("ann", "bob") == {text}


async def test_what_was_written_behind_the_loss_is_not_undone_by_a_text_from_it(followed: Followed) -> None:
    """It was not made from that."""
    async with serving(followed._data) as daemon:
        await followed.says(daemon, "ann", "# Plan\n\n- when: friday\n")
        await followed.says(daemon, "ann", "# Plan\n\n- when: friday, early\n")
    followed.put_back()
    async with serving(followed._data) as daemon:
        await followed.says(daemon, "bob", "# Plan\n\n- when: monday\n- where: harbour\n")
    (text,) = await followed.settle("bob", "ann")
    assert "- where: harbour\n" in text
    assert "- when: friday, early\n" in text


async def test_machines_that_have_the_same_clash_add_it_once(followed: Followed) -> None:
    """What one of them brought is a revision by then, and not news."""
    async with serving(followed._data) as daemon:
        await followed.says(daemon, "ann", "# Plan\n\n- when: friday\n")
        async with followed.replica(daemon, "bob") as replica:
            await replica.compare()
    followed.put_back()
    async with serving(followed._data) as daemon:
        followed.machines["cid"] = daemon.enroll("cid", space="ann")
        await followed.says(daemon, "cid", "# Plan\n\n- when: sunday\n")
    (text,) = await followed.settle("ann", "bob", "cid")
    assert text.count("friday") == text.count("sunday") == 1
