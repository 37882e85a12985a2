"""A process ends, or its link does, while a text of the daemon's is put in place: what the file holds then is known for what it is."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.daemon.loopback import Machine, machine, serving, text_hash
from tests.support.deadline import DEADLINE_S

from confide_proxy.errors import FolderError
from confide_proxy.sync import folder as folders
from confide_proxy.sync.folder import Folder
from confide_proxy.sync.ledger import Confirmed, SyncLedger, Writing
from confide_proxy.sync.replication import local_files
from confide_proxy.sync.replication.replica import Replica

PATH = "memory/log.md"
BEGUN = "- begun\n"
THEIRS = "- begun\n- theirs\n"


class KilledError(Exception):
    """The process is no more."""


class ShortLived(SyncLedger):
    """Of a process that ends before it can confirm anything."""

    def set(self, path: str, state: Confirmed) -> None:
        raise KilledError


class Desk:
    """A folder whose one file was confirmed, and another machine that has added a line since."""

    def __init__(self, root: Path, laptop: Machine, desktop: Machine) -> None:
        self.root = root
        self.folder = Folder("proj", root / "project")
        self.file = root / "project" / PATH
        self.file.parent.mkdir(parents=True)
        self.file.write_text(BEGUN)
        self.laptop = laptop
        self.desktop = desktop

    def replica(self, of: type[SyncLedger] = SyncLedger) -> Replica:
        """A process."""
        return Replica(self.folder, of(self.root / "ledgers", "s", self.folder.root), self.laptop.connection)

    async def newest(self) -> str:
        """The daemon's text."""
        return str((await self.desktop.request("pull", {"project": "proj", "path": PATH}))["text"])

    async def settled(self) -> str:
        """The text that both have after a restart."""
        replica = self.replica()
        await replica.compare()
        assert self.file.read_text() == await self.newest()
        assert replica.pending() == 0
        return self.file.read_text()


THEIRS_APPLIED = {"path": PATH, "revision": 2, "text": THEIRS, "hash": text_hash(THEIRS), "baseHash": text_hash(BEGUN)}


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    async with (
        serving(tmp_path / "data") as daemon,
        machine(daemon) as laptop,
        machine(daemon, "desktop", space="laptop") as desktop,
    ):
        await laptop.attach("proj")
        await desktop.attach("proj")
        made = Desk(tmp_path, laptop, desktop)
        assert (await made.replica().compare()).sent == 1
        await desktop.put(PATH, THEIRS, base=1)
        yield made


async def test_an_edit_around_lines_that_came_before_a_kill(desk: Desk) -> None:
    """The process ended when the file was in place and not yet noted. Taken for this machine's own, the others' lines stood twice."""
    with pytest.raises(KilledError):
        await desk.replica(ShortLived).apply(THEIRS_APPLIED)
    assert desk.file.read_text() == THEIRS
    desk.file.write_text("- begun\n- between\n- theirs\n- below\n")
    await desk.desktop.put(PATH, THEIRS + "- later\n", base=2)
    assert sorted((await desk.settled()).splitlines()) == ["- begun", "- below", "- between", "- later", "- theirs"]


def saved_by_rename(file: Path, text: str) -> None:
    """As most editors save."""
    part = file.with_suffix(".swp")
    part.write_text(text)
    part.replace(file)


@pytest.mark.parametrize(
    ("saved", "settled"),
    [
        ("- begun\n- between\n- theirs\n", ["- begun", "- between", "- later", "- theirs"]),
        (
            "- begun\n- mine\n",
            ["- begun", "- later", "- mine", "- theirs"],
        ),  # from an older copy that the editor had open
    ],
)
async def test_another_file_in_its_place_after_a_kill(desk: Desk, saved: str, settled: list[str]) -> None:
    """Neither the file that was there nor the one that came: its text tells from which it was made."""
    with pytest.raises(KilledError):
        await desk.replica(ShortLived).apply(THEIRS_APPLIED)
    saved_by_rename(desk.file, saved)
    await desk.desktop.put(PATH, THEIRS + "- later\n", base=2)
    replica = desk.replica()
    later = THEIRS + "- later\n"
    with pytest.raises(FolderError, match="changed since"):
        await replica.apply({**THEIRS_APPLIED, "revision": 3, "text": later, "hash": text_hash(later)})
    assert sorted((await desk.settled()).splitlines()) == settled


@pytest.mark.parametrize(
    ("saved", "settled"),
    [
        ("- begun\n- mine\n- more\n", ["- begun", "- mine", "- more", "- theirs"]),
        ("- begun\n- theirs\n- mine\n- more\n", ["- begun", "- mine", "- more", "- theirs"]),
    ],
)
async def test_another_file_in_the_place_of_one_that_was_merged(desk: Desk, saved: str, settled: list[str]) -> None:
    """What was sent has no number here: only a text that has all of the merged one's lines was made from that."""
    desk.file.write_text("- begun\n- mine\n")
    with pytest.raises(KilledError):
        await desk.replica(ShortLived).send_changes([PATH])
    assert sorted(desk.file.read_text().splitlines()) == ["- begun", "- mine", "- theirs"]
    saved_by_rename(desk.file, saved)
    assert sorted((await desk.settled()).splitlines()) == settled


@pytest.mark.parametrize("saved", ["- mine\n", "- begun\n- mine\n"])
async def test_another_file_in_the_place_of_one_that_lost_a_line(desk: Desk, saved: str) -> None:
    """What was written has lines less, and none more."""
    made = await desk.desktop.put(PATH, "", base=2)
    change = {
        "path": PATH,
        "revision": made["revision"],
        "text": "",
        "hash": text_hash(""),
        "baseHash": text_hash(BEGUN),
    }
    with pytest.raises(KilledError):
        await desk.replica(ShortLived).apply(change)
    saved_by_rename(desk.file, saved)
    assert (await desk.settled()) == "- mine\n"


async def test_a_file_that_is_saved_anew_may_get_the_number_of_the_one_before(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ext4 gives it out again at once; tmpfs, where tests have their files, never does."""
    with pytest.raises(KilledError):
        await desk.replica(ShortLived).apply(THEIRS_APPLIED)
    saved_by_rename(desk.file, "- begun\n- between\n- theirs\n")
    written = desk.replica()._ledger.writing(PATH)
    assert written is not None
    monkeypatch.setattr(Folder, "inode", lambda *_: written.over)
    await desk.desktop.put(PATH, THEIRS + "- later\n", base=2)
    assert sorted((await desk.settled()).splitlines()) == ["- begun", "- between", "- later", "- theirs"]


async def test_another_file_in_its_place_whose_history_is_gone(desk: Desk) -> None:
    """The daemon has not what was written: nothing of the file is taken for another's."""
    with pytest.raises(KilledError):
        await desk.replica(ShortLived).apply({**THEIRS_APPLIED, "revision": 7})
    saved_by_rename(desk.file, "- begun\n- mine\n")
    assert sorted((await desk.settled()).splitlines()) == ["- begun", "- mine", "- theirs"]


async def test_an_edit_after_a_kill_before_the_file_was_in_place(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was noted before did not come to be: the edit is of the text before, and deletes nothing of the other's."""

    def killed(*_arguments: object) -> None:
        raise KilledError

    with monkeypatch.context() as patched:
        patched.setattr(folders, "_put_in_place", killed)
        with pytest.raises(KilledError):
            await desk.replica().apply(THEIRS_APPLIED)
    desk.file.write_text(BEGUN + "- mine\n")
    assert sorted((await desk.settled()).splitlines()) == ["- begun", "- mine", "- theirs"]


async def test_an_edit_that_has_a_line_of_what_never_came_deletes_nothing(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A blank line, say, which both have added: that does not make it an edit of the other's text, with a line deleted."""
    spaced = "- begun\n\n- theirs\n"
    made = await desk.desktop.put(PATH, spaced, base=2)
    change = {**THEIRS_APPLIED, "revision": made["revision"], "text": spaced, "hash": text_hash(spaced)}

    def killed(*_arguments: object) -> None:
        raise KilledError

    with monkeypatch.context() as patched:
        patched.setattr(folders, "_put_in_place", killed)
        with pytest.raises(KilledError):
            await desk.replica().apply(change)
    desk.file.write_text("- begun\n\n- mine\n")
    assert {"- begun", "- mine", "- theirs"} <= set((await desk.settled()).splitlines())


@pytest.mark.parametrize("times", [1, 2, 3])
async def test_a_write_that_was_begun_is_noted_although_its_link_broke(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    """The step is cancelled while the disk is slow: it is not left half done, and nobody has the file before it is through.

    A connection that breaks cancels its handlers once for each of its own parts that ends.
    """
    reached, go = threading.Event(), threading.Event()
    put_in_place = folders._put_in_place

    def slow(*arguments: Any) -> None:
        reached.set()
        assert go.wait(DEADLINE_S)
        put_in_place(*arguments)

    monkeypatch.setattr(folders, "_put_in_place", slow)
    ledger = SyncLedger(desk.root / "ledgers", "s", desk.folder.root)
    replica = Replica(desk.folder, ledger, desk.laptop.connection)
    applying = asyncio.create_task(replica.apply(THEIRS_APPLIED))
    assert await asyncio.to_thread(reached.wait, DEADLINE_S)
    for _ in range(times):
        applying.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not applying.done()
    sending = asyncio.create_task(replica.send_changes([PATH]))
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await applying
    assert (await sending).sent == 0
    known = ledger.get(PATH)
    assert known is not None
    assert (known.revision, known.hash, ledger.writing(PATH)) == (2, text_hash(THEIRS), None)


@pytest.mark.parametrize("by", ["a watcher", "the daemon"])
async def test_a_program_that_saves_slowly_is_waited_for(desk: Desk, monkeypatch: pytest.MonkeyPatch, by: str) -> None:
    """It holds the file open and writes piece by piece. Were the file replaced in between, the rest would go into one without a name."""
    pieces = ["- be", "gun\n- m", "ine\n"]
    with desk.file.open("w") as saving:

        async def moment() -> None:
            if pieces:
                saving.write(pieces.pop(0))
                saving.flush()
            else:
                os.utime(desk.file, (0, 0))  # nobody has written for long

        monkeypatch.setattr(local_files, "_moment", moment)
        # A busy machine is slow between two pieces.
        monkeypatch.setattr(local_files, "_BEING_SAVED_S", DEADLINE_S)
        monkeypatch.setattr(local_files, "_LONGEST_SAVE_S", DEADLINE_S)
        await moment()
        if by == "a watcher":
            await desk.replica().send_changes([PATH])
        else:
            said = await desk.replica().apply(THEIRS_APPLIED)
            assert said["text"] == BEGUN + "- mine\n"
    assert sorted((await desk.settled()).splitlines()) == ["- begun", "- mine", "- theirs"]


async def test_a_late_revision_does_not_bring_a_deleted_file_back(desk: Desk) -> None:
    """A person has deleted what was confirmed, which is still to be told; what was made before that comes late."""
    replica = desk.replica()
    await replica.compare()
    desk.file.unlink()
    late = {"path": PATH, "revision": 1, "text": BEGUN, "hash": text_hash(BEGUN), "baseHash": None}
    for one in (late, THEIRS_APPLIED):
        assert (await replica.apply(one))["applied"]
        assert not desk.file.exists()
    assert (await replica.send_changes([PATH])).removed == 1


async def test_a_newer_revision_than_the_deleted_one_comes_back(desk: Desk) -> None:
    """Somebody has said more in it since: that is not lost with it."""
    replica = desk.replica()
    desk.file.unlink()
    assert (await replica.apply(THEIRS_APPLIED))["applied"]
    assert desk.file.read_text() == THEIRS


def noting(ledger: SyncLedger) -> list[Callable[[], None]]:
    """What ends a note of a write."""
    return [
        lambda: ledger.set(PATH, Confirmed("h", 3, 1, 1)),
        lambda: ledger.forget(PATH),
        lambda: ledger.note_writing(PATH, None),
    ]


@pytest.mark.parametrize("number", range(3))
def test_a_note_of_a_write_is_kept_until_it_is_settled(tmp_path: Path, number: int) -> None:
    """Other processes see it, and a compaction keeps it."""
    ledger = SyncLedger(tmp_path, "s", tmp_path)
    writing = Writing("hash", 2, 4711, 0)
    for revision in range(1200):
        ledger.set("memory/other.md", Confirmed("h", revision, 1, 1))
    ledger.note_writing(PATH, writing)
    for _ in range(2):  # the first one compacts
        assert SyncLedger(tmp_path, "s", tmp_path).writing(PATH) == writing
    assert ledger.unfinished_files() == {PATH}
    noting(ledger)[number]()
    assert SyncLedger(tmp_path, "s", tmp_path).writing(PATH) is None


def test_looks_are_noted_of_nothing_that_has_changed_meanwhile(tmp_path: Path) -> None:
    ledger = SyncLedger(tmp_path, "s", tmp_path)
    was, newer = Confirmed("h", 1, 1, 1), Confirmed("g", 2, 1, 1)
    ledger.set(PATH, newer)
    ledger.touch(PATH, was, Confirmed("h", 1, 2, 2))
    assert ledger.get(PATH) == newer
    ledger.note_sent(PATH, "other")
    ledger.touch(PATH, newer, Confirmed("g", 2, 2, 2))
    assert (ledger.get(PATH), ledger.sent_hashes(PATH)) == (newer, ("other",))


async def test_a_write_that_fails_leaves_no_note(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_arguments: object) -> None:
        raise OSError(28, "No space left on device")

    ledger = SyncLedger(desk.root / "ledgers", "s", desk.folder.root)
    monkeypatch.setattr(folders, "_put_in_place", full)
    with pytest.raises(FolderError):
        await Replica(desk.folder, ledger, desk.laptop.connection).apply(THEIRS_APPLIED)
    assert ledger.writing(PATH) is None
