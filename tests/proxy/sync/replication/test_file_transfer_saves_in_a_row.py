"""A person saves again before the answer to the save before is there, and whatever became of that answer: each line stands once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.daemon.desk import PATH, Desk, Laptop
from tests.support.daemon.loopback import Machine, Serving, machine, serving, text_hash

from confide_crypto.errors import ConnectionLost
from confide_memory.documents import has_clash
from confide_proxy.sync.replication.replica import Replica

BEGUN = "# Log\n\nstatus: x\n\n- begun\n"
FIRST = "# Log\n\nstatus: first\n\n- begun\n- typo\n"
SECOND = "# Log\n\nstatus: second\n\n- begun\n- corrected\n- added\n"
THEIRS = BEGUN + "- theirs\n"


@pytest.fixture
async def daemon(tmp_path: Path) -> AsyncIterator[Serving]:
    async with serving(tmp_path / "data") as running:
        yield running


@pytest.fixture
async def desk(tmp_path: Path, daemon: Serving) -> AsyncIterator[Desk]:
    identity = daemon.enroll("laptop")
    async with (
        Laptop(await daemon.connect(identity), identity) as laptop,
        machine(daemon, "desktop", space="laptop") as desktop,
    ):
        await laptop.attach("proj")
        await desktop.attach("proj")
        made = Desk(tmp_path, laptop, desktop)
        made.file.write_text(BEGUN)
        assert (await made.replica.compare()).sent == 1
        yield made


def check_once(text: str) -> None:
    """Both machines' lines, each once, as they were written last."""
    assert not has_clash(text)
    assert sorted(text.splitlines()) == sorted([*SECOND.splitlines(), "- theirs"])


async def test_a_second_save_builds_upon_the_first_that_was_merged_meanwhile(desk: Desk) -> None:
    """It was made from the first one, which the daemon had merged by then: merged from what was before both, a person clashes with
    themselves, what they took back returns, and what they added stands twice."""
    await desk.desktop.put(PATH, THEIRS, base=1)
    desk.file.write_text(FIRST)
    desk.cable.meanwhile.append(lambda: desk.file.write_text(SECOND))
    await desk.replica.send_changes([PATH])
    assert desk.file.read_text() == SECOND
    check_once(await desk.settled())


async def test_a_save_after_one_whose_answer_was_lost(desk: Desk) -> None:
    """The daemon has the first one, the machine does not know it, and another machine has added to it; its process ended as well."""
    await desk.cut(FIRST)
    await desk.desktop.put(PATH, FIRST + "- theirs\n", base=2)
    desk.restart()
    desk.file.write_text(SECOND)
    check_once(await desk.settled())


async def test_a_new_file_saved_again_after_a_lost_answer(desk: Desk) -> None:
    """Of one that was never confirmed there is no base at all."""
    desk.file.unlink()
    await desk.replica.send_changes([PATH])
    await desk.cut(FIRST)
    await desk.desktop.put(PATH, FIRST + "- theirs\n", base=3)
    desk.file.write_text(SECOND)
    check_once(await desk.settled())


async def test_a_file_sent_again_among_what_others_wrote_around_its_lines(desk: Desk) -> None:
    """What was sent once is in the newest text already, wherever others have put their lines."""
    await desk.cut(BEGUN + "- mine\n")
    await desk.desktop.put(PATH, BEGUN + "- above\n- mine\n- below\n", base=2)
    assert (await desk.settled()) == BEGUN + "- above\n- mine\n- below\n"


async def test_a_save_that_takes_an_unanswered_one_back(desk: Desk) -> None:
    """The file is as it was confirmed, and yet an edit: the daemon has what it takes back, and would bring it again."""
    await desk.cut(FIRST)
    desk.restart()
    desk.file.write_text(BEGUN)
    assert desk.replica.pending() == 1
    change = {"path": PATH, "revision": 2, "hash": text_hash(FIRST), "baseHash": text_hash(BEGUN), "text": FIRST}
    assert not (await desk.replica.apply(change))["applied"]
    await desk.replica.compare()
    assert await desk.settled() == BEGUN


async def test_a_text_that_says_nothing_new_is_what_the_next_one_was_made_from(desk: Desk) -> None:
    """Another machine had written the same line, among others."""
    await desk.desktop.put(PATH, BEGUN + "- theirs\n- same\n", base=1)
    desk.file.write_text(BEGUN + "- same\n")
    desk.cable.meanwhile.append(lambda: desk.file.write_text(BEGUN + "- same\n- added\n"))
    await desk.replica.send_changes([PATH])
    assert await desk.settled() == BEGUN + "- theirs\n- same\n- added\n"


async def test_saves_while_a_store_is_written_back(desk: Desk) -> None:
    """The daemon asks what the file holds, and asks again: the second answer was made from the first one."""
    desk.laptop.answers = desk.replica.apply
    desk.laptop.meanwhile.append(lambda: desk.file.write_text(SECOND))
    desk.file.write_text(FIRST)
    async with desk.laptop.mcp() as client:
        stored = await client.call_tool("memory_store", {"content": "- theirs", "path": PATH})
        assert not stored.is_error
    check_once(await desk.settled())


async def test_a_store_upon_what_another_connection_confirmed(desk: Desk, daemon: Serving) -> None:
    """The base of a file that a person edits is what the machine confirmed last, not what this connection heard of it last."""
    desk.laptop.answers = desk.replica.apply
    await desk.laptop.request("attach", {"project": "proj", "machine": "box", "watches": False})
    async with desk.laptop.mcp() as client, Machine(await daemon.connect(desk.laptop.identity)) as watching:
        await client.call_tool("memory_store", {"content": "- stored", "path": PATH})
        await watching.attach("proj")
        others = Replica(desk.folder, desk.ledger, watching.connection)
        desk.file.write_text(FIRST + "- stored\n")
        await others.send_changes([PATH])
        desk.file.write_text(SECOND + "- stored\n")
        await client.call_tool("memory_store", {"content": "- theirs", "path": PATH})
    text = await desk.settled()
    assert text.count("- stored\n") == 1
    check_once(text.replace("- stored\n", ""))


@pytest.mark.parametrize("how", ["watched", "compared"])
@pytest.mark.parametrize("was", ["edited", "new"])
async def test_a_file_that_is_deleted_after_a_save_whose_answer_was_lost_is_deleted(
    desk: Desk, how: str, was: str
) -> None:
    """The daemon has a newer text than the machine knows of, and that is the machine's own: nobody has changed what a person deleted."""
    if was == "new":
        desk.file.unlink()
        await desk.replica.send_changes([PATH])
    await desk.cut(FIRST)
    desk.file.unlink()
    if how == "compared":
        desk.restart()
        await desk.replica.compare()
    await desk.replica.send_changes([PATH])
    await desk.replica.compare()
    assert not desk.file.exists()
    assert (await desk.desktop.request("deleted", {"project": "proj"}))["documents"]


async def test_what_others_added_to_an_unanswered_save_is_not_deleted_with_it(desk: Desk) -> None:
    """Nor what another machine has saved alike, which is a text of its own."""
    await desk.cut(FIRST)
    await desk.desktop.put(PATH, FIRST + "- theirs\n", base=2)
    desk.file.unlink()
    assert await desk.settled() == FIRST + "- theirs\n"
    await desk.cut(SECOND, is_before=True)
    await desk.desktop.put(PATH, SECOND, base=3)
    desk.file.unlink()
    assert await desk.settled() == SECOND


@pytest.mark.parametrize("is_before", [False, True])
async def test_a_file_that_is_made_again_after_an_unanswered_deletion_stays(desk: Desk, is_before: bool) -> None:
    """With the very text that it had, as a file that is put back from a bin: the daemon may have deleted it meanwhile."""
    await desk.cut(None, is_before=is_before)
    desk.restart()
    desk.file.write_text(BEGUN)
    assert desk.replica.pending() == 1
    assert await desk.settled() == BEGUN


@pytest.mark.parametrize("is_before", [False, True])
async def test_an_unanswered_deletion_is_told_again_and_takes_nothing_newer_with_it(
    desk: Desk, is_before: bool
) -> None:
    await desk.cut(None, is_before=is_before)
    desk.restart()
    await desk.replica.compare()
    assert not desk.file.exists()
    await desk.desktop.put(PATH, THEIRS)
    await desk.replica.compare()
    assert desk.file.read_text() == THEIRS
    await desk.cut(None, is_before=is_before)
    await desk.desktop.put(PATH, THEIRS + "- more\n", base=3)
    desk.restart()
    assert await desk.settled() == THEIRS + "- more\n"


async def test_an_unanswered_save_that_is_announced_does_not_bring_a_deleted_file_back(desk: Desk) -> None:
    """The daemon brings what it has made of the save while the deletion is still to be told."""
    await desk.cut(FIRST)
    desk.file.unlink()
    change = {"path": PATH, "revision": 2, "hash": text_hash(FIRST), "baseHash": text_hash(BEGUN), "text": FIRST}
    assert (await desk.replica.apply(change))["applied"]
    assert not desk.file.exists()
    await desk.replica.send_changes([PATH])
    assert (await desk.desktop.request("deleted", {"project": "proj"}))["documents"]


async def test_an_unanswered_save_of_a_folder_that_is_gone_comes_back(desk: Desk) -> None:
    """All memory is missing at once: a project cloned anew, not a wish to delete everything."""
    await desk.cut(FIRST)
    desk.file.unlink()
    desk.file.parent.rmdir()
    desk.restart()
    await desk.replica.compare()
    assert desk.file.read_text() == FIRST


async def test_a_new_file_that_never_came_and_is_deleted_is_forgotten(desk: Desk) -> None:
    other = desk.file.with_name("other.md")
    desk.cable.is_cut_before = True
    other.write_text("- mine\n")
    with pytest.raises(ConnectionLost):
        await desk.replica.send_changes(["memory/other.md"])
    desk.cable.is_cut_before = False
    other.unlink()
    assert not (await desk.replica.compare()).skipped
    assert not desk.ledger.unanswered_files()
