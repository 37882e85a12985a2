"""Files that go missing: a person deletes a few, and that is told; more, or all, or in another folder, is a loss and comes back."""

from __future__ import annotations

import asyncio
import itertools
import shutil
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Final

import pytest
from tests.support.daemon.loopback import Machine, machine, serving

from confide_crypto import atomic
from confide_proxy.errors import FolderError
from confide_proxy.sync.absence.rule import HOLD_S, LATE_S, Absence, is_wholesale
from confide_proxy.sync.folder import Folder
from confide_proxy.sync.ledger import Confirmed, SyncLedger
from confide_proxy.sync.replication.replica import Replica

NOTES: Final = [f"memory/n{number}.md" for number in range(6)]
ALL: Final = ["MEMORY.md", *NOTES]


class Clock:
    """Stands still until it is told."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Home:
    """A machine with a folder of a project, which `desktop` has as well."""

    def __init__(self, root: Path, laptop: Machine, desktop: Machine) -> None:
        self.root = root / "home" / "project"
        self.root.mkdir(parents=True)
        self._ledgers = root / "ledgers"
        self._laptop = laptop
        self._desktop = desktop
        self.clock = Clock()

    def restart(self, *extra: str) -> None:
        """Another process, which knows what is on the disk."""
        folder = Folder("proj", self.root, extra)
        self.ledger = SyncLedger(self._ledgers, "s", self.root)
        self.replica = Replica(
            folder, self.ledger, self._laptop.connection, absence=Absence(folder, self.ledger, clock=self.clock)
        )

    def write(self, *paths: str) -> None:
        for path in paths:
            (self.root / path).parent.mkdir(parents=True, exist_ok=True)
            (self.root / path).write_text(f"- what {path} says\n")

    async def begin(self, *paths: str, extra: tuple[str, ...] = ()) -> None:
        self.restart(*extra)
        self.write(*paths)
        await self.replica.compare()
        assert await self.elsewhere() == sorted(paths)
        self.restart(*extra)

    def remove(self, *paths: str) -> None:
        for path in paths:
            (self.root / path).unlink()

    def here(self) -> list[str]:
        return sorted(file.relative_to(self.root).as_posix() for file in self.root.rglob("*.md"))

    async def elsewhere(self) -> list[str]:
        """What another machine has when it compares."""
        answer = await self._desktop.request("compare", {"project": "proj", "entries": [], "gone": []})
        return sorted(path for path, *_ in answer["pull"])

    def told(self) -> str:
        return "; ".join(self.replica.absence.notice.sentences())


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[Home]:
    async with (
        serving(tmp_path / "data") as daemon,
        machine(daemon, "laptop") as laptop,
        machine(daemon, "desktop", space="laptop") as desktop,
    ):
        await laptop.attach("proj")
        await desktop.attach("proj")
        yield Home(tmp_path, laptop, desktop)


@pytest.mark.parametrize(
    ("missing", "of", "wholesale"),
    [
        *((1, 1, False), (2, 2, True), (1, 2, False), (2, 3, False), (2, 4, False), (3, 6, True), (3, 7, False)),
        *((10, 40, False), (11, 400, True), (0, 0, False)),
    ],
)
def test_what_is_more_than_somebody_deletes_by_hand(missing: int, of: int, wholesale: bool) -> None:
    assert is_wholesale(missing, of) is wholesale


@pytest.mark.parametrize(
    ("of", "gone"), [(["MEMORY.md"], 1), (NOTES[:1], 1), (NOTES[:2], 1), (NOTES[:4], 2), ([*ALL, "memory/x/y.md"], 3)]
)
@pytest.mark.parametrize("is_watched", [True, False])
async def test_what_a_person_deletes_is_deleted_everywhere_at_once(
    home: Home, of: list[str], gone: int, is_watched: bool
) -> None:
    await home.begin(*of)
    home.remove(*of[-gone:])
    report = await (home.replica.send_changes(of[-gone:]) if is_watched else home.replica.compare())
    assert (report.removed, report.is_held) == (gone, False)
    assert await home.elsewhere() == sorted(of[:-gone])
    assert not home.told()


async def test_a_folder_that_a_person_removes_goes_with_its_files(home: Home) -> None:
    await home.begin(*ALL, "memory/old/a.md", "memory/old/b.md")
    shutil.rmtree(home.root / "memory/old")
    assert (await home.replica.compare()).removed == 2
    assert await home.elsewhere() == sorted(ALL)


@pytest.mark.parametrize("is_watched", [True, False])
async def test_a_folder_that_is_renamed_is_renamed_however_many_files_it_has(home: Home, is_watched: bool) -> None:
    """And again, at once: nothing of it went missing."""
    before = [f"memory/old/n{number}.md" for number in range(20)]
    await home.begin("MEMORY.md", *before)
    for old, new in (("old", "new"), ("new", "newer")):
        (home.root / "memory" / old).rename(home.root / "memory" / new)
        gone = [path.replace("/old/", f"/{old}/") for path in before]
        after = [path.replace("/old/", f"/{new}/") for path in before]
        report = await (home.replica.send_changes([*gone, *after]) if is_watched else home.replica.compare())
        assert (report.removed, report.is_held) == (20, False)
        assert await home.elsewhere() == sorted(["MEMORY.md", *after])
    # Of what was renamed, nothing is taken back when the folder goes.
    shutil.rmtree(home.root)
    await home.replica.take_back()
    assert await home.elsewhere() == sorted(["MEMORY.md", *after])


def empty_memory(home: Home) -> None:
    """As an unmounted disk, or an empty volume, leaves it."""
    home.remove(*NOTES)


def clean(home: Home) -> None:
    """As `git clean -fdx` does where MEMORY.md is tracked."""
    shutil.rmtree(home.root / "memory")


def clone_anew(home: Home) -> None:
    """With what is committed."""
    shutil.rmtree(home.root)
    home.root.mkdir()
    home.write("MEMORY.md", "memory/n0.md")


def copy_in_place(home: Home) -> None:
    """The old folder is aside, and its copy lacks a single file, which nobody deleted."""
    shutil.copytree(home.root, home.root.with_name("copy"))
    home.root.rename(home.root.with_name("aside"))
    home.root.with_name("copy").rename(home.root)
    home.remove("memory/n3.md")


def another_repository(home: Home) -> None:
    shutil.rmtree(home.root / ".git")
    (home.root / ".git").mkdir()
    home.remove("memory/n3.md")


def repository_gone(home: Home) -> None:
    """As in the middle of a slow `rm -rf`."""
    shutil.rmtree(home.root / ".git")
    home.remove("MEMORY.md")


def another_disk(home: Home) -> None:
    """Of one folder alone, with a file that is there."""
    (home.root / "memory/sub").rename(home.root.with_name("sub"))
    home.write("memory/sub/a.md")


def empty_subfolder(home: Home) -> None:
    home.remove("memory/sub/a.md", "memory/sub/b.md", "memory/sub/c.md")


LOSSES: Final[list[Callable[[Home], None]]] = [
    *(empty_memory, clean, clone_anew, copy_in_place),
    *(another_repository, repository_gone, another_disk, empty_subfolder),
]
BEFORE: Final = sorted([*ALL, "memory/sub/a.md", "memory/sub/b.md", "memory/sub/c.md"])


@pytest.mark.parametrize("lose", LOSSES)
async def test_what_is_lost_while_nobody_watches_comes_back_and_is_told(
    home: Home, lose: Callable[[Home], None]
) -> None:
    (home.root / ".git").mkdir()
    await home.begin(*BEFORE)
    lose(home)
    report = await home.replica.compare()
    assert report.removed == 0
    assert await home.elsewhere() == BEFORE
    assert home.here() == BEFORE
    assert "came back" in home.told()
    # It is the folder that is known from here on: what a person deletes in it is deleted.
    home.restart()
    home.remove("memory/n5.md")
    assert (await home.replica.compare()).removed == 1


@pytest.mark.parametrize("lose", LOSSES)
async def test_what_is_lost_under_a_watch_is_looked_at_again_and_then_comes_back(
    home: Home, lose: Callable[[Home], None]
) -> None:
    (home.root / ".git").mkdir()
    await home.begin(*BEFORE)
    lose(home)
    gone = sorted(set(BEFORE) - set(home.here()))
    await home.replica.send_changes(gone)
    assert await home.elsewhere() == BEFORE
    for _ in range(2):
        await home.replica.compare(is_patient=True)
        assert await home.elsewhere() == BEFORE
        home.clock.now += HOLD_S
    assert home.here() == BEFORE


async def test_nothing_comes_back_into_a_folder_that_is_still_being_removed(home: Home) -> None:
    """Or `git worktree remove` would find it not empty."""
    await home.begin(*ALL)
    empty_memory(home)
    assert (await home.replica.compare(is_patient=True)).is_held
    home.clock.now += HOLD_S
    (home.root / "node_modules").mkdir()
    (home.root / "node_modules/x").write_text("")  # its folder's time is that of a removal in it
    assert (await home.replica.compare(is_patient=True)).is_held
    assert home.here() == ["MEMORY.md"]
    assert "no other device deletes anything" in home.told()
    (home.root / "node_modules/x").unlink()
    (home.root / "node_modules").rmdir()
    assert not (await home.replica.compare(is_patient=True)).is_held
    assert home.here() == sorted(ALL)


async def test_files_that_go_one_by_one_are_lost_once_they_are_many(home: Home) -> None:
    """As of a `git clean` on a slow disk: what was told before that shows is taken back."""
    await home.begin(*ALL)
    for path in NOTES:
        home.remove(path)
        await home.replica.send_changes([path])
        home.clock.now += 0.4
    home.clock.now += HOLD_S
    assert not (await home.replica.compare(is_patient=True)).is_held
    assert await home.elsewhere() == sorted(ALL)
    assert home.here() == sorted(ALL)


async def test_what_a_person_deletes_one_by_one_over_a_while_is_deleted(home: Home) -> None:
    await home.begin(*ALL)
    for path in NOTES:
        home.remove(path)
        report = await home.replica.send_changes([path])
        assert report.removed == 1
        home.clock.now += HOLD_S
    assert await home.elsewhere() == ["MEMORY.md"]


@pytest.mark.parametrize("is_soon", [True, False])
async def test_a_deletion_right_before_the_folder_goes_is_of_that(home: Home, is_soon: bool) -> None:
    """`rm -rf` of a large project takes the memory first and the rest many seconds later."""
    await home.begin(*ALL)
    home.remove("MEMORY.md")
    assert (await home.replica.send_changes(["MEMORY.md"])).removed == 1
    home.clock.now += 20 if is_soon else LATE_S + 1
    shutil.rmtree(home.root)
    await home.replica.send_changes(NOTES)
    await home.replica.take_back()
    with pytest.raises(FolderError):
        await home.replica.compare()
    assert await home.elsewhere() == (sorted(ALL) if is_soon else NOTES)


@pytest.mark.parametrize("is_soon", [True, False])
async def test_a_deletion_before_many_files_go_is_of_that_if_it_was_just_before(home: Home, is_soon: bool) -> None:
    """A person may delete a note, and clean the folder half a minute later."""
    await home.begin(*ALL)
    home.remove("MEMORY.md")
    assert (await home.replica.send_changes(["MEMORY.md"])).removed == 1
    home.clock.now += HOLD_S / 2 if is_soon else 3 * HOLD_S
    empty_memory(home)
    await home.replica.send_changes(NOTES)
    assert await home.elsewhere() == (sorted(ALL) if is_soon else NOTES)


async def test_what_was_made_anew_elsewhere_is_not_overwritten_by_what_is_taken_back(home: Home) -> None:
    await home.begin(*ALL)
    home.remove("MEMORY.md")
    await home.replica.send_changes(["MEMORY.md"])
    await home._desktop.put("MEMORY.md", "- another\n", base=2)
    shutil.rmtree(home.root)
    await home.replica.take_back()
    assert (await home._desktop.request("pull", {"project": "proj", "path": "MEMORY.md"}))["text"] == "- another\n"


async def test_a_deletion_with_what_lies_beside_it_is_told_a_moment_later(home: Home) -> None:
    """A folder that is removed loses more than memory; a person may have deleted both."""
    (home.root / "README.txt").write_text("x")
    await home.begin(*ALL)
    await home.replica.compare(is_patient=True)
    (home.root / "README.txt").unlink()
    home.remove("MEMORY.md")
    report = await home.replica.send_changes(["MEMORY.md"])
    assert (report.removed, report.is_held) == (0, True)
    home.clock.now += HOLD_S
    await home.replica.compare(is_patient=True)
    assert await home.elsewhere() == NOTES


async def test_a_person_who_means_it_deletes_everything(home: Home) -> None:
    """While it is missing, and after it came back; what was changed since stays."""
    await home.begin(*ALL)
    empty_memory(home)
    assert (await home.replica.compare(meant=None)).removed == len(NOTES)
    assert await home.elsewhere() == ["MEMORY.md"]
    home.write(*NOTES)
    await home.replica.compare()
    clean(home)
    await home.replica.compare()
    assert "confide sync --deleted" in home.told()
    (home.root / NOTES[0]).write_text("- newer\n")
    await home.replica.compare(meant=None)
    assert await home.elsewhere() == home.here() == ["MEMORY.md", NOTES[0]]
    assert not home.told()


async def test_a_yes_means_the_files_that_were_asked_about(home: Home) -> None:
    """More may go missing while the question waits, as on a disk that is unmounted."""
    await home.begin(*ALL)
    home.remove(*NOTES[:4])
    asked = home.replica.absence.lost_files()
    assert asked == set(NOTES[:4])
    home.remove(*NOTES[4:])
    report = await home.replica.compare(meant=asked)
    assert report.removed == 4
    assert await home.elsewhere() == sorted({*ALL} - asked)
    assert "went missing" in home.told()


async def test_a_yes_to_what_came_back_deletes_nothing_else(home: Home) -> None:
    await home.begin(*ALL)
    empty_memory(home)
    await home.replica.compare()
    await home.replica.compare(meant=NOTES[:2])
    assert await home.elsewhere() == home.here() == sorted({*ALL} - {*NOTES[:2]})
    assert "came back" in home.told()


async def test_what_is_only_read_waits_until_it_is_there_again_or_somebody_means_it(home: Home) -> None:
    """Nothing is ever written there."""
    docs = [f"docs/d{number}.md" for number in range(4)]
    await home.begin("MEMORY.md", *docs, extra=("docs/*.md",))
    home.remove(*docs)
    report = await home.replica.compare()
    assert (report.removed, report.skipped) == (0, [])
    assert await home.elsewhere() == sorted(["MEMORY.md", *docs])
    assert "4 of 5" in home.told()
    home.write(*docs)
    await home.replica.compare()
    assert not (home.replica.absence.notice._read())["waits"]
    home.remove(*docs)
    assert (await home.replica.compare(meant=None)).removed == len(docs)


@pytest.mark.parametrize("is_watched", [True, False])
async def test_files_that_are_empty_all_at_once_have_their_texts_again(home: Home, is_watched: bool) -> None:
    """As after a power cut, or a disk that was full when something wrote them."""
    await home.begin(*ALL)
    for path in NOTES[:4]:
        (home.root / path).write_bytes(b"")
    await (home.replica.send_changes(NOTES) if is_watched else home.replica.compare())
    for path in NOTES:
        answer = await home._desktop.request("pull", {"project": "proj", "path": path})
        assert (home.root / path).read_text() == answer["text"] == f"- what {path} says\n"
    assert "newest text of 4 memory files" in home.told()


async def test_a_file_that_a_person_empties_is_empty(home: Home) -> None:
    await home.begin(*ALL)
    (home.root / NOTES[0]).write_bytes(b"")
    assert (await home.replica.send_changes(NOTES[:1])).sent == 1
    assert not home.told()


async def test_many_files_that_others_deleted_are_told_of(home: Home) -> None:
    await home.begin(*ALL)
    for path in NOTES[:2]:
        await home._desktop.request("remove", {"project": "proj", "path": path, "base": 1})
    await home.replica.compare()
    assert not home.told()
    for path in NOTES[2:]:
        await home._desktop.request("remove", {"project": "proj", "path": path, "base": 1})
    await home.replica.compare()
    assert home.here() == ["MEMORY.md"]
    assert "were deleted here" in home.told()


async def test_files_that_go_side_by_side_are_all_counted(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is deleted on a thread of its own; the disk is slow for some of them."""
    await home.begin(*ALL)
    write, paces = atomic.write, itertools.cycle((0.0, 0.02, 0.005))

    def written(*arguments: Any, **options: Any) -> None:
        time.sleep(next(paces))
        write(*arguments, **options)

    monkeypatch.setattr(atomic, "write", written)
    absence = home.replica.absence
    await asyncio.gather(*(asyncio.to_thread(absence.note_dropped) for _ in range(40)))
    assert "40 memory files were deleted here" in home.told()


async def test_a_ledger_from_before_it_knew_its_folder(home: Home) -> None:
    """Where the repository was made behind all that was confirmed, it is another one; else it is believed."""
    await home.begin(*ALL)
    home.ledger.note_folder({})
    home.restart()
    assert not home.replica.absence.is_another()
    (home.root / ".git").mkdir()
    assert home.replica.absence.is_another()


def test_a_ledger_that_begins_anew_does_so_for_all_processes(tmp_path: Path) -> None:
    ledger, other = (SyncLedger(tmp_path, "s", tmp_path) for _ in range(2))
    ledger.set("memory/a.md", Confirmed("0" * 64, 1, 1, 1))
    ledger.note_folder({".": "one"})
    assert other.folder() == {".": "one"}
    ledger.restart({".": "another"})
    for each in (ledger, other, SyncLedger(tmp_path, "s", tmp_path)):
        assert (each.all(), each.folder()) == ({}, {".": "another"})


def test_a_ledger_that_is_compacted_knows_its_folder(tmp_path: Path) -> None:
    ledger = SyncLedger(tmp_path, "s", tmp_path)
    ledger.note_folder({".": "one", "memory": "two"})
    for number in range(1002):
        ledger.set("memory/a.md", Confirmed("0" * 64, number, 1, 1))
    again = SyncLedger(tmp_path, "s", tmp_path)
    assert again.folder() == {".": "one", "memory": "two"}
    assert again.written_ns()


async def test_a_clone_of_an_old_commit_puts_nothing_back(home: Home) -> None:
    """Its texts are earlier revisions and no edits, and what was deleted since does not rise: neither in the place of the folder that was
    there, nor on a machine that never had it."""
    home.write(*ALL, "memory/gone.md")
    await home.begin(*ALL, "memory/gone.md")
    home.remove("memory/gone.md")
    (home.root / NOTES[0]).write_text("- newer\n")
    await home.replica.send_changes(["memory/gone.md", NOTES[0]])
    home.write("memory/later.md")
    await home.replica.send_changes(["memory/later.md"])
    told = await home._desktop.put("memory/later.md", "- stored there\n", base=1)
    home.clock.now += LATE_S + 1
    for _ in range(2):
        shutil.rmtree(home.root)
        home.write(*ALL, "memory/gone.md")
        await home.replica.compare()
        assert await home.elsewhere() == sorted([*ALL, "memory/later.md"])
        assert (home.root / NOTES[0]).read_text() == "- newer\n"
        assert (home.root / "memory/later.md").read_text() == "- stored there\n"
        # It lies where git has put it, and is named as what is not sent.
        skipped = (await home.replica.compare()).skipped
        assert skipped == [{"path": "memory/gone.md", "reason": "this text was deleted elsewhere"}]
        home._ledgers = home._ledgers.with_name("others")
        home.restart()
    assert told["revision"] == 2
    (home.root / "memory/gone.md").write_text("- written again\n")
    await home.replica.send_changes(["memory/gone.md"])
    assert "memory/gone.md" in await home.elsewhere()


@pytest.mark.parametrize("is_watched", [True, False])
async def test_a_file_that_is_in_a_cloud_alone_is_not_deleted(home: Home, is_watched: bool) -> None:
    """Where a disk is nearly full, iCloud leaves a hidden file in its place; one that is written beside it would be a conflict."""
    await home.begin(*ALL)
    (home.root / NOTES[0]).rename(home.root / "memory/.n0.md.icloud")
    report = await (home.replica.send_changes([NOTES[0]]) if is_watched else home.replica.compare())
    assert (report.removed, await home.elsewhere()) == (0, ALL)
    report = await home.replica.compare()
    assert [(item["path"], "iCloud alone" in item["reason"]) for item in report.skipped] == [(NOTES[0], True)]
    assert NOTES[0] not in home.here()
    (home.root / "memory/.n0.md.icloud").rename(home.root / NOTES[0])
    assert (await home.replica.compare()).skipped == []


@pytest.mark.parametrize("is_watched", [True, False])
@pytest.mark.parametrize("is_in_another", [True, False])
async def test_an_old_commit_of_a_memory_that_is_a_repository_changes_nothing_elsewhere(
    home: Home, is_in_another: bool, is_watched: bool
) -> None:
    """Somebody keeps notes in a repository of their own, in the folder of a project that ignores them."""

    def git(*arguments: str, folder: Path = home.root / "memory") -> str:
        command = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@example.org", *arguments]
        return subprocess.run(command, capture_output=True, check=True, text=True).stdout

    async def look() -> None:
        if is_watched:
            await home.replica.send_changes(NOTES)
        else:
            home.restart()
        await home.replica.compare()

    async def first() -> str:
        return str((await home._desktop.request("pull", {"project": "proj", "path": NOTES[0]}))["text"])

    if is_in_another:
        git("init", "-q", folder=home.root.parent)
        git("init", "-q", folder=home.root)
    home.write(*ALL)
    git("init", "-q", "-b", "main")
    git("add", *(note.removeprefix("memory/") for note in NOTES[1:]))
    git("commit", "-q", "-m", "old")
    (home.root / NOTES[1]).write_text("- newer\n")
    git("add", ".")
    git("commit", "-q", "-m", "new")
    home.restart()
    await home.replica.compare()
    (home.root / NOTES[0]).write_text("- newest\n")
    await home.replica.compare()
    for way, back in ((["stash"], ["stash", "pop"]), (["checkout", "HEAD~1"], ["checkout", "main"])):
        if way == ["checkout", "HEAD~1"]:
            git("commit", "-q", "-a", "-m", "newest")
            git("tag", "oldest", "HEAD~2")
            way = ["checkout", "oldest"]
            await look()
        git(*way)
        before = home.here()
        await look()
        assert (await home.elsewhere(), await first(), home.here()) == (ALL, "- newest\n", before)
        git(*back)
        await look()
        assert (await home.elsewhere(), await first(), home.here()) == (ALL, "- newest\n", ALL)
