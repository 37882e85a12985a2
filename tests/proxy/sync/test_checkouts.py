"""Git takes memory that it tracks, and puts older texts in its place: that waits until git brings it back, and no other machine has it."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator
from hashlib import sha256
from pathlib import Path

import pytest
from tests.proxy.sync.test_absence import Home
from tests.support.daemon.loopback import machine, serving, text_hash
from tests.support.deadline import DEADLINE_S

from confide_proxy.errors import FolderError
from confide_proxy.sync.absence import checkout, rule
from confide_proxy.sync.absence.rule import HOLD_S
from confide_proxy.sync.folder import Content
from confide_proxy.sync.ledger import Confirmed, SyncReport
from confide_proxy.sync.replication import local_files
from confide_proxy.sync.replication.file_transfer import FileTransfer

PLAN, GONE, LATER, KEPT = "memory/plan.md", "memory/gone.md", "memory/later.md", "memory/kept.md"
NOW = sorted([PLAN, LATER, KEPT])
FRIDAY = "# Plan\n\n- when: friday\n- where: harbour\n"
MONDAY = "# Plan\n\n- when: monday\n- where: harbour\n"


class Repository(Home):
    """A folder whose memory git tracks: `old` is from before a line was changed, a file deleted and another one made."""

    def git(self, *arguments: str) -> str:
        command = ["git", "-C", str(self.root), "-c", "user.name=a", "-c", "user.email=a@example.org", *arguments]
        return subprocess.run(command, capture_output=True, check=True, text=True).stdout

    def commit(self, name: str) -> None:
        self.git("add", "-A")
        self.git("commit", "-q", "-m", name)

    async def begun(self) -> None:
        self.git("init", "-q", "-b", "main")
        (self.root / "README").write_text("x\n")
        self.commit("empty")
        self.git("branch", "empty")
        self.restart()
        self.write(GONE, KEPT)
        (self.root / PLAN).write_text(MONDAY)
        await self.replica.compare()
        self.commit("old")
        self.git("branch", "old")
        self.remove(GONE)
        (self.root / PLAN).write_text(FRIDAY)
        self.write(LATER)
        await self.replica.compare()
        self.commit("now")
        self.restart()
        await self.replica.compare()
        assert await self.elsewhere() == NOW

    async def look(self, *, is_watched: bool) -> None:
        """As a session does that saw it, or one that begins."""
        if is_watched:
            await self.replica.send_changes([PLAN, GONE, LATER, KEPT])
        else:
            self.restart()
        await self.replica.compare(is_patient=True)
        self.clock.now += HOLD_S
        await self.replica.compare(is_patient=True)

    async def plan(self) -> str:
        """The daemon's."""
        return str((await self._desktop.request("pull", {"project": "proj", "path": PLAN}))["text"])


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[Repository]:
    async with (
        serving(tmp_path / "data") as daemon,
        machine(daemon, "laptop") as laptop,
        machine(daemon, "desktop", space="laptop") as desktop,
    ):
        await laptop.attach("proj")
        await desktop.attach("proj")
        made = Repository(tmp_path, laptop, desktop)
        await made.begun()
        yield made


@pytest.mark.parametrize("is_watched", [True, False])
@pytest.mark.parametrize("commit", ["old", "empty"])
async def test_an_old_commit_changes_nothing_elsewhere_and_stays_as_git_has_it(
    home: Repository, commit: str, is_watched: bool
) -> None:
    home.git("checkout", "-q", commit)
    before = home.here()
    await home.look(is_watched=is_watched)
    assert (await home.elsewhere(), await home.plan()) == (NOW, FRIDAY)
    assert (home.here(), home.git("status", "--porcelain")) == (before, "")
    assert "git has another commit checked out" in home.told()
    home.git("checkout", "-q", "main")
    await home.look(is_watched=is_watched)
    assert (await home.elsewhere(), await home.plan()) == (NOW, FRIDAY)
    assert (home.here(), home.git("status", "--porcelain")) == (NOW, "")
    home.remove(LATER)
    assert (await home.replica.send_changes([LATER])).removed == 1


@pytest.mark.parametrize("way", [("old", "main"), ("main", "old")])
async def test_a_text_that_git_replaces_while_it_is_looked_at_goes_nowhere(
    home: Repository, monkeypatch: pytest.MonkeyPatch, way: tuple[str, str]
) -> None:
    """It was read before a checkout, and what git says of it after."""
    before, after = way
    home.git("checkout", "-q", before)
    if before == "main":
        (home.root / PLAN).write_text(FRIDAY + "- who: ann\n")  # which the checkout throws away
    asked = FileTransfer._unmeant
    flips = ["checkout", "-q", "--force", after]

    async def late(self: FileTransfer, path: str, content: Content, known: Confirmed | None, report: SyncReport) -> str:
        if flips:
            home.git(*flips)
            flips.clear()
        return await asked(self, path, content, known, report)

    monkeypatch.setattr(FileTransfer, "_unmeant", late)
    await home.replica.send_changes([PLAN])
    assert not flips
    assert (await home.elsewhere(), await home.plan()) == (NOW, FRIDAY)


async def test_a_checkout_that_has_not_said_yet_where_it_stands_is_waited_for(
    home: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files and the index are those of the old commit, and the branch is the one before still."""
    monkeypatch.setattr(checkout, "_JUST_S", DEADLINE_S)
    monkeypatch.setattr(local_files, "_BUSY_S", DEADLINE_S)
    home.git("checkout", "-q", "old")
    home.git("symbolic-ref", "HEAD", "refs/heads/main")
    looking = asyncio.create_task(home.replica.send_changes([PLAN]))
    await asyncio.wait([looking], timeout=0.2)
    home.git("symbolic-ref", "HEAD", "refs/heads/old")
    os.utime(home.root / ".git/index", (1, 1))
    await looking
    assert await home.plan() == FRIDAY


async def test_what_others_write_meanwhile_waits_for_the_way_back(home: Repository) -> None:
    home.git("checkout", "-q", "old")
    await home.look(is_watched=True)
    text = FRIDAY + "- who: ann\n"
    made = await home._desktop.put(PLAN, text, base=2)
    change = {"path": PLAN, "revision": made["revision"], "hash": text_hash(text), "baseHash": text_hash(FRIDAY)}
    with pytest.raises(FolderError, match="another commit"):
        await home.replica.apply({**change, "text": text})
    assert (home.root / PLAN).read_text() == MONDAY
    home.git("checkout", "-q", "main")
    await home.look(is_watched=True)
    assert (home.root / PLAN).read_text() == await home.plan() == text


async def test_an_edit_in_an_old_commit_is_one_of_its_text(home: Repository) -> None:
    """The newer line is not undone by it."""
    home.git("checkout", "-q", "old")
    await home.look(is_watched=True)
    (home.root / PLAN).write_text(MONDAY + "- who: ann\n")
    await home.replica.send_changes([PLAN])
    assert (home.root / PLAN).read_text() == await home.plan() == FRIDAY + "- who: ann\n"


async def test_what_a_commit_deleted_is_not_taken_back_by_the_way_back_from_it(home: Repository) -> None:
    home.git("rm", "-q", KEPT)
    home.commit("newer")
    assert (await home.replica.send_changes([KEPT])).removed == 1
    home.git("checkout", "-q", "old")
    await home.look(is_watched=True)
    assert await home.elsewhere() == sorted([PLAN, LATER])


async def test_where_git_stands_is_known_after_each_change_that_was_seen(home: Repository) -> None:
    """A session that has compared nothing since: what came with a commit is not undone by the way back from it."""
    (home.root / PLAN).write_text(FRIDAY + "- who: ann\n")
    home.commit("newer")
    await home.replica.send_changes([PLAN])
    home.git("checkout", "-q", "HEAD~")
    await home.replica.send_changes([PLAN])
    assert await home.plan() == FRIDAY + "- who: ann\n"
    assert (home.root / PLAN).read_text() == FRIDAY


@pytest.mark.parametrize("is_watched", [True, False])
async def test_a_commit_that_deletes_a_file_deletes_it(home: Repository, is_watched: bool) -> None:
    """And so does one that was pulled: it follows upon the one before."""
    home.git("rm", "-q", LATER)
    home.commit("without")
    await home.look(is_watched=is_watched)
    assert await home.elsewhere() == sorted([PLAN, KEPT])


async def test_a_text_of_a_branch_that_nobody_had_is_an_edit(home: Repository) -> None:
    home.git("checkout", "-q", "-b", "theirs", "old")
    (home.root / PLAN).write_text("# Plan\n\n- when: sunday\n")
    home.commit("theirs")
    await home.look(is_watched=False)
    assert await home.plan() == "# Plan\n\n- when: sunday\n"


@pytest.mark.parametrize("way_back", ["pop", "drop"])
@pytest.mark.parametrize("is_watched", [True, False])
async def test_memory_in_a_stash_waits_there(home: Repository, way_back: str, is_watched: bool) -> None:
    """`git stash pop` would not bring it back where it is there already."""
    home.git("rm", "-r", "-q", "--cached", "memory")
    (home.root / ".gitignore").write_text("memory/\n")
    home.commit("private")
    await home.look(is_watched=True)
    home.git("stash", "-q", "-a")
    await home.look(is_watched=is_watched)
    assert (await home.elsewhere(), home.here()) == (NOW, [])
    home.git("stash", way_back)
    await home.look(is_watched=is_watched)
    assert (await home.elsewhere(), home.here()) == (NOW, NOW)


WITH_ANN = FRIDAY + "- who: ann\n"


async def edited(home: Repository, text: str = WITH_ANN) -> None:
    """Not committed, and known to the daemon."""
    (home.root / PLAN).write_text(text)
    await home.look(is_watched=True)
    assert await home.plan() == text


@pytest.mark.parametrize("how", [["checkout", "-q", "."], ["restore", PLAN], ["reset", "-q", "--hard"]])
@pytest.mark.parametrize("is_watched", [True, False])
async def test_a_text_that_git_throws_away_comes_back(
    home: Repository, how: list[str], is_watched: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent that cleans up its code means no memory by it."""
    await edited(home)
    home.git(*how)
    await home.look(is_watched=is_watched)
    assert ((home.root / PLAN).read_text(), await home.plan()) == (FRIDAY, WITH_ANN)
    monkeypatch.setattr(rule, "LONGEST_HOLD_S", 0.0)
    await home.look(is_watched=is_watched)
    assert (home.root / PLAN).read_text() == await home.plan() == WITH_ANN
    assert "git had put back the committed one" in home.told()


async def test_confide_writes_no_file_outside_of_memory_whatever_git_or_a_full_disk_did_to_it(
    home: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rule, "LONGEST_HOLD_S", 0.0)
    pages = [f"docs/{number}.md" for number in range(5)]
    home.write(*pages)
    home.commit("docs")
    home.restart("docs/*.md")
    await home.replica.compare()
    for page in pages:
        (home.root / page).write_text("# Another\n")
    await home.replica.send_changes(pages)
    home.git("checkout", "-q", ".")
    await home.replica.send_changes(pages)
    texts = [str((await home._desktop.request("pull", {"project": "proj", "path": page}))["text"]) for page in pages]
    assert [(home.root / page).read_text() for page in pages] == texts == [f"- what {page} says\n" for page in pages]
    for page in pages:
        (home.root / page).write_bytes(b"")
    await home.replica.send_changes(pages)
    assert [(home.root / page).read_bytes() for page in pages] == [b""] * len(pages)


async def test_who_puts_changes_aside_and_applies_them_again_finds_the_file_as_git_left_it(home: Repository) -> None:
    """As pre-commit does, with a patch of its own; a rebase with `--autostash` takes longer."""
    await edited(home)
    patch = home.git("diff")
    home.git("checkout", "-q", "--", ".")
    report = await home.replica.send_changes([PLAN])
    assert (report.is_held, (home.root / PLAN).read_text()) == (True, FRIDAY)
    (home.root / ".git/rebase-merge").mkdir()
    os.utime(home.root / PLAN, (1, 1))
    home.git("update-index", "-q", "--refresh")
    report = await home.replica.send_changes([PLAN])
    assert (report.is_held, (home.root / PLAN).read_text()) == (True, FRIDAY)
    (home.root / ".git/rebase-merge").rmdir()
    (home.root.parent / "patch").write_text(patch)
    home.git("apply", "../patch")
    report = await home.replica.send_changes([PLAN])
    assert (report.is_held, (home.root / PLAN).read_text(), await home.plan()) == (False, WITH_ANN, WITH_ANN)


async def test_a_revision_that_comes_before_anybody_looked_is_not_merged_with_what_git_put_back(
    home: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rule, "LONGEST_HOLD_S", 0.0)
    await edited(home)
    home.git("checkout", "-q", ".")
    text = WITH_ANN + "- how: by bus\n"
    made = await home._desktop.put(PLAN, text, base=3)
    change = {"path": PLAN, "revision": made["revision"], "hash": text_hash(text), "baseHash": text_hash(WITH_ANN)}
    with pytest.raises(FolderError, match="put back"):
        await home.replica.apply({**change, "text": text})
    await home.look(is_watched=True)
    assert (home.root / PLAN).read_text() == await home.plan() == text


@pytest.mark.parametrize("is_watched", [True, False])
async def test_the_next_commit_is_meant_though_it_was_noted_before_its_texts_were(
    home: Repository, is_watched: bool
) -> None:
    """Between the text that was sent and the look at git's `HEAD`, a checkout moved on."""
    home.git("checkout", "-q", "-b", "two")
    (home.root / PLAN).write_text(WITH_ANN)
    home.commit("two")
    home.replica.absence.note_commits()
    await home.look(is_watched=is_watched)
    assert (home.root / PLAN).read_text() == await home.plan() == WITH_ANN


async def test_who_types_the_committed_text_again_means_it(home: Repository) -> None:
    await edited(home)
    (home.root / PLAN).write_text(FRIDAY)
    await home.replica.send_changes([PLAN])
    assert (home.root / PLAN).read_text() == await home.plan() == FRIDAY


@pytest.mark.parametrize("is_watched", [True, False])
async def test_a_commit_that_takes_a_line_back_is_meant(home: Repository, is_watched: bool) -> None:
    await edited(home)
    home.commit("ann")
    await home.look(is_watched=True)
    home.git("revert", "--no-edit", "HEAD")
    await home.look(is_watched=is_watched)
    assert await home.plan() == FRIDAY


@pytest.mark.parametrize("how", [["stash", "-q"], ["stash", "push", "-q", "--", PLAN]])
@pytest.mark.parametrize("is_watched", [True, False])
async def test_a_text_in_a_stash_waits_there(home: Repository, how: list[str], is_watched: bool) -> None:
    """`git stash pop` would take back none of what it holds, were the file another one by then."""
    await edited(home)
    home.git(*how)
    await home.look(is_watched=is_watched)
    assert ((home.root / PLAN).read_text(), await home.plan()) == (FRIDAY, WITH_ANN)
    home.git("stash", "pop", "-q")
    await home.look(is_watched=is_watched)
    assert (home.root / PLAN).read_text() == await home.plan() == WITH_ANN


async def test_a_text_whose_stash_is_thrown_away_comes_back(home: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rule, "LONGEST_HOLD_S", 0.0)
    await edited(home)
    home.git("stash", "-q")
    await home.look(is_watched=True)
    home.git("stash", "drop", "-q")
    await home.look(is_watched=False)
    assert (home.root / PLAN).read_text() == await home.plan() == WITH_ANN


@pytest.mark.parametrize("how", [["checkout", "-q", "."], ["stash", "-q"]])
async def test_an_edit_of_what_git_put_back_deletes_nothing(home: Repository, how: list[str]) -> None:
    """And the one after it deletes what its user deletes."""
    await edited(home)
    home.git(*how)
    await home.replica.send_changes([PLAN])
    (home.root / PLAN).write_text(f"- what: a picnic\n{FRIDAY}")
    await home.replica.send_changes([PLAN])
    assert (home.root / PLAN).read_text() == await home.plan() == f"- what: a picnic\n{WITH_ANN}"
    (home.root / PLAN).write_text(f"- what: a picnic\n{FRIDAY}")
    await home.replica.send_changes([PLAN])
    assert (home.root / PLAN).read_text() == await home.plan() == f"- what: a picnic\n{FRIDAY}"


async def test_an_edit_over_a_stash_is_one_of_the_text_that_git_put_there(home: Repository) -> None:
    await edited(home)
    home.git("stash", "-q")
    await home.look(is_watched=True)
    (home.root / PLAN).write_text(f"- what: a picnic\n{FRIDAY}")
    await home.replica.send_changes([PLAN])
    assert await home.plan() == f"- what: a picnic\n{WITH_ANN}"


@pytest.mark.parametrize("way", ["merge", "rebase", "stash"])
@pytest.mark.parametrize("is_watched", [True, False])
async def test_a_conflict_of_git_goes_nowhere_until_it_is_resolved(
    home: Repository, way: str, is_watched: bool
) -> None:
    theirs = FRIDAY.replace("friday", "sunday")
    if way == "stash":
        await edited(home, theirs)
        home.git("stash", "-q")
    home.git("checkout", "-q", "-b", "theirs")
    (home.root / PLAN).write_text(FRIDAY.replace("friday", "tuesday") if way == "stash" else theirs)
    home.commit("theirs")
    if way != "stash":
        home.git("checkout", "-q", "main")
        (home.root / PLAN).write_text(FRIDAY.replace("friday", "tuesday"))
        home.commit("ours")
    await home.look(is_watched=True)
    before = await home.plan()
    with pytest.raises(subprocess.CalledProcessError):
        home.git(*(["stash", "pop"] if way == "stash" else [way, "theirs"]))
    assert "<<<<<<<" in (home.root / PLAN).read_text()
    await home.look(is_watched=is_watched)
    assert await home.plan() == before
    with pytest.raises(FolderError, match="merge conflict"):
        await home.replica.apply(
            {"path": PLAN, "revision": 99, "hash": "h", "baseHash": text_hash(before), "text": "# Another\n"}
        )
    (home.root / PLAN).write_text(resolved := FRIDAY.replace("friday", "sunday or tuesday"))
    await home.look(is_watched=is_watched)
    assert (home.root / PLAN).read_text() == await home.plan() == resolved


async def test_a_note_about_conflicts_is_one_like_any_other(home: Repository) -> None:
    text = "# Git\n\n```\n<<<<<<< HEAD\nours\n=======\ntheirs\n>>>>>>> main\n```\n"
    await edited(home, text)


@pytest.mark.parametrize("is_watched", [True, False])
async def test_a_branch_without_a_commit_takes_nothing_with_it(home: Repository, is_watched: bool) -> None:
    """And nothing stands in the way back from it."""
    home.git("switch", "-q", "--orphan", "pages")
    await home.look(is_watched=is_watched)
    assert (await home.elsewhere(), home.here()) == (NOW, [])
    (home.root / "index.html").write_text("x")
    home.commit("pages")
    await home.look(is_watched=is_watched)
    assert (await home.elsewhere(), home.here()) == (NOW, [])
    home.git("switch", "-q", "main")
    await home.look(is_watched=is_watched)
    assert (await home.elsewhere(), home.here()) == (NOW, NOW)


async def test_git_is_waited_for_while_it_changes_the_folder(home: Repository) -> None:
    """It says last which commit the files are of."""
    assert not home.replica.absence.is_busy()
    (home.root / ".git/index.lock").touch()
    assert home.replica.absence.is_busy()


async def test_a_worktree_stands_where_its_own_head_does(home: Repository, tmp_path: Path) -> None:
    """Its state is in the repository that it is of, and names may be packed there."""
    tree = tmp_path / "tree"
    home.git("worktree", "add", "-q", str(tree), "old")
    home.git("pack-refs", "--all")
    home.root = tree
    home._ledgers = tmp_path / "others"
    home.restart()
    await home.replica.compare()
    assert (home.root / PLAN).read_text() == FRIDAY
    home.git("checkout", "-q", "-f", "--detach", "main")
    await home.look(is_watched=False)
    home.git("checkout", "-q", "old")
    await home.look(is_watched=False)
    assert (await home.elsewhere(), await home.plan()) == (NOW, FRIDAY)
    assert (home.root / PLAN).read_text() == MONDAY


@pytest.mark.parametrize("is_watched", [True, False])
async def test_files_outside_of_a_sparse_checkout_are_not_deleted(home: Repository, is_watched: bool) -> None:
    """Git takes them from the disk, keeps them in its index, and brings them back."""
    home.git("sparse-checkout", "set", "--no-cone", "/*", f"!/{LATER}")
    await home.look(is_watched=is_watched)
    assert (home.here(), await home.elsewhere()) == (sorted({*NOW} - {LATER}), NOW)
    home.remove(KEPT)
    await home.replica.send_changes([KEPT])
    await home.replica.compare()
    assert await home.elsewhere() == sorted({*NOW} - {KEPT})
    home.remove(PLAN)
    await home.replica.compare(meant=None)
    assert await home.elsewhere() == [LATER], "of a sparse checkout, the person does not say that it is deleted"
    home.git("sparse-checkout", "disable")
    await home.look(is_watched=is_watched)
    assert (LATER in home.here(), LATER in await home.elsewhere()) == (True, True)


def with_windows_ends(home: Repository) -> None:
    """No file here is its blob."""
    home.git("config", "core.autocrlf", "true")
    home.git("config", "core.safecrlf", "false")


@pytest.mark.parametrize("is_watched", [True, False])
async def test_an_old_commit_with_other_line_ends_changes_nothing_elsewhere(home: Repository, is_watched: bool) -> None:
    with_windows_ends(home)
    home.git("checkout", "-q", "old")
    assert "\r\n" in (home.root / PLAN).read_bytes().decode()
    await home.look(is_watched=is_watched)
    assert (await home.elsewhere(), await home.plan()) == (NOW, FRIDAY)
    home.git("checkout", "-q", "main")
    await home.look(is_watched=is_watched)
    assert (await home.elsewhere(), await home.plan()) == (NOW, FRIDAY)
    assert (home.here(), home.git("diff", "--name-only")) == (NOW, "")


@pytest.mark.parametrize("how", [["checkout", "-q", "."], ["stash", "-q"]])
@pytest.mark.parametrize("ends", ["\n", "\r\n"])
async def test_a_text_that_git_throws_away_comes_back_whatever_its_line_ends(
    home: Repository, how: list[str], ends: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_windows_ends(home)
    text = WITH_ANN.replace("\n", ends)
    (home.root / PLAN).write_bytes(text.encode())
    await home.look(is_watched=True)
    assert await home.plan() == text
    home.git(*how)
    await home.look(is_watched=False)
    assert await home.plan() == text
    if how[0] == "stash":
        home.git("stash", "drop", "-q")
    monkeypatch.setattr(rule, "LONGEST_HOLD_S", 0.0)
    await home.look(is_watched=False)
    assert (home.root / PLAN).read_bytes().decode() == await home.plan() == text


async def test_a_conflict_of_git_with_windows_line_ends_goes_nowhere(home: Repository) -> None:
    with_windows_ends(home)
    home.git("checkout", "-q", "-b", "theirs")
    (home.root / PLAN).write_text(FRIDAY.replace("friday", "sunday"))
    home.commit("theirs")
    home.git("checkout", "-q", "main")
    (home.root / PLAN).write_text(FRIDAY.replace("friday", "tuesday"))
    home.commit("ours")
    await home.look(is_watched=True)
    before = await home.plan()
    with pytest.raises(subprocess.CalledProcessError):
        home.git("merge", "theirs")
    assert "=======\r\n" in (home.root / PLAN).read_bytes().decode()
    await home.look(is_watched=True)
    assert await home.plan() == before


def test_a_text_of_git_lfs_is_that_of_its_pointer(home: Repository) -> None:
    """The blob in the repository is the pointer; the filter that would write the text need not be installed here."""
    data = FRIDAY.encode()
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256(data).hexdigest()}\nsize {len(data)}\n"
    (home.root / "pointer").write_text(pointer)
    blob = home.git("hash-object", "pointer").strip()
    assert checkout.is_written_from(blob, FRIDAY)
    assert not checkout.is_written_from(blob, MONDAY)
