"""A request whose connection broke reaches the daemon after what the machine did next: it undoes none of that, and loses nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.daemon.desk import PATH, Desk, Laptop
from tests.support.daemon.loopback import machine, serving

from confide_crypto.errors import ConnectionLost, RequestError

BEGUN = "- begun\n"
FIRST = "- begun\n- one\n"
SECOND = "- begun\n- one\n- two\n"


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    async with serving(tmp_path / "data") as daemon:
        identity = daemon.enroll("laptop")
        async with (
            Laptop(await daemon.connect(identity), identity) as laptop,
            machine(daemon, "desktop", space="laptop") as desktop,
        ):
            await laptop.attach("proj")
            await desktop.attach("proj")
            made = Desk(tmp_path, laptop, desktop)
            made.laptop.answers = lambda body: made.replica.apply(body)  # of whichever process there is then
            made.file.write_text(BEGUN)
            assert (await made.replica.compare()).sent == 1
            yield made


async def deleted(desk: Desk) -> list[str]:
    """The documents that are deleted and can come back."""
    return [one["path"] for one in (await desk.desktop.request("deleted", {"project": "proj"}))["documents"]]


async def texts(desk: Desk) -> list[str]:
    """Every text that the daemon has of the file."""
    found = []
    for number in range(1, 20):
        try:
            answer = await desk.desktop.request("pull", {"project": "proj", "path": PATH, "revision": number})
        except RequestError:
            continue
        found.append(str(answer["text"]))
    return found


@pytest.mark.parametrize("was", ["edited", "new"])
@pytest.mark.parametrize("how", ["watched", "compared"])
async def test_a_save_that_comes_after_the_deletion_of_its_file_does_not_bring_it_back(
    desk: Desk, was: str, how: str
) -> None:
    """Its text is in the history, from where a person may have it back."""
    if was == "new":
        desk.file.unlink()
        await desk.replica.send_changes([PATH])
    await desk.cut(FIRST, is_before=True)
    desk.file.unlink()
    if how == "compared":
        desk.restart()
        await desk.replica.compare()
    await desk.replica.send_changes([PATH])
    (answer,) = await desk.cable.arrive()
    assert isinstance(answer, RequestError)
    assert answer.code == "not_found"
    await desk.replica.compare()
    assert not desk.file.exists()
    assert await deleted(desk) == [PATH]
    assert FIRST in await texts(desk)


async def test_a_save_of_a_file_that_never_was_there_comes_after_its_deletion(desk: Desk) -> None:
    """The daemon had nothing to delete when it was told."""
    new = desk.file.with_name("new.md")
    desk.cable.is_cut_before = True
    new.write_text(FIRST)
    with pytest.raises(ConnectionLost):
        await desk.replica.send_changes(["memory/new.md"])
    desk.cable.is_cut_before = False
    new.unlink()
    await desk.replica.send_changes(["memory/new.md"])
    await desk.cable.arrive()
    await desk.replica.compare()
    assert not new.exists()
    assert await deleted(desk) == ["memory/new.md"]


@pytest.mark.parametrize("text", [FIRST, SECOND])
async def test_a_file_that_is_made_anew_after_all_that_is_taken(desk: Desk, text: str) -> None:
    """With the text of the save that was lost, too, as a file that is put back from a bin."""
    await desk.cut(FIRST, is_before=True)
    desk.file.unlink()
    await desk.replica.send_changes([PATH])
    desk.restart()
    desk.file.write_text(text)
    assert await desk.settled() == text
    await desk.cable.arrive()
    assert await desk.settled() == text


async def test_a_deletion_that_comes_after_its_file_was_made_again_takes_nothing(desk: Desk) -> None:
    """With the text that it had: nothing but the order tells the deletion from a new one."""
    await desk.cut(None, is_before=True)
    desk.file.write_text(BEGUN)
    assert await desk.settled() == BEGUN
    (answer,) = await desk.cable.arrive()
    assert isinstance(answer, dict)
    assert not answer["removed"]
    assert await desk.settled() == BEGUN
    desk.file.unlink()
    await desk.replica.send_changes([PATH])
    assert await deleted(desk) == [PATH]


async def test_a_late_deletion_of_a_save_that_had_come(desk: Desk) -> None:
    """The save's answer was lost, the deletion was late, and the person has the file again: it names that save, as the new one does."""
    await desk.cut(FIRST)
    await desk.cut(None, is_before=True)
    desk.file.write_text(FIRST)
    assert await desk.settled() == FIRST
    await desk.cable.arrive()
    assert await desk.settled() == FIRST


async def test_a_late_save_that_a_person_has_taken_back_stays_taken_back(desk: Desk) -> None:
    """Both texts were sent by then, so each names the other."""
    await desk.cut(FIRST)
    await desk.cut(SECOND, is_before=True)
    desk.file.write_text(FIRST)
    assert await desk.settled() == FIRST
    await desk.cable.arrive()
    assert await desk.settled() == FIRST


@pytest.mark.parametrize("arrives", ["at once", "late", "never"])
async def test_a_file_that_is_made_again_after_a_comparison_told_that_it_is_gone_stays(
    desk: Desk, arrives: str
) -> None:
    """The answer to that comparison did not come; the file has the text that it had."""
    desk.restart()
    desk.file.unlink()
    desk.cable.cuts = ("compare",)
    desk.cable.is_cut, desk.cable.is_cut_before = arrives == "at once", arrives != "at once"
    with pytest.raises(ConnectionLost):
        await desk.replica.compare()
    desk.cable.is_cut = desk.cable.is_cut_before = False
    desk.file.write_text(BEGUN)
    await desk.replica.compare()
    if arrives == "late":
        await desk.cable.arrive()
    assert await desk.settled() == BEGUN


async def test_a_deletion_whose_comparison_had_no_answer_is_told_again(desk: Desk) -> None:
    desk.restart()
    desk.file.unlink()
    desk.cable.cuts, desk.cable.is_cut_before = ("compare",), True
    with pytest.raises(ConnectionLost):
        await desk.replica.compare()
    desk.cable.is_cut_before = False
    await desk.replica.compare()
    assert await deleted(desk) == [PATH]
    assert not desk.file.exists()
    assert not desk.ledger.unanswered_files()
