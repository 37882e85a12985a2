"""The services beside a session: each goes on by itself, says once what is wrong, and others of this machine can read it."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest

from confide_crypto.errors import ConfideError
from confide_proxy.link import services as module
from confide_proxy.link.services import ServiceRunner, lasting, reason


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr(module, "LONGEST_PAUSE_S", 0.004)
    monkeypatch.setattr(module, "LASTING_S", -1.0)


@pytest.mark.parametrize(
    "error",
    [
        OSError(24, "Too many open files"),
        RuntimeError("can't start new thread"),
        KeyError("x"),
        ConfideError("no"),
        MemoryError(),
    ],
)
async def test_a_service_that_fails_is_started_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    """Whatever it failed with; the same trouble is logged once, and is gone when it works."""
    services, starts = ServiceRunner(tmp_path), 0

    async def work() -> None:
        nonlocal starts
        starts += 1
        if starts < 6:
            raise error
        seen.extend(each.what for each in services.troubles)

    seen: list[str] = []
    async with asyncio.timeout(10):
        await services.keep("answering hooks", work)
    assert seen == caplog.messages == [f"answering hooks stopped ({reason(error)}) and is tried again"]
    assert not services.troubles


async def test_pauses_grow_to_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    async def work() -> None:
        if len(pauses) < 6:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(module.asyncio, "sleep", sleep)
    await ServiceRunner(tmp_path).keep("learning", work)
    monkeypatch.undo()
    assert pauses == [0.001, 0.002, 0.004, 0.004, 0.004, 0.004]


async def test_a_service_is_cancelled_with_its_session(tmp_path: Path) -> None:
    """Also where it fails at its end."""

    async def work() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            raise OSError(5, "Input/output error")

    task = asyncio.create_task(ServiceRunner(tmp_path).keep("sending transcripts", work))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task], timeout=10)
    assert task.cancelled()


async def test_what_is_done_once_fails_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        raise RuntimeError("a secret that must not be logged")

    await ServiceRunner(tmp_path).attempt("keeping the catalogue", work)
    assert caplog.messages[0].startswith("keeping the catalogue failed: RuntimeError at ")
    assert "secret" not in caplog.text


def test_another_process_reads_what_lasts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of its own projects and of the machine, for as long as the process lives; one that was killed leaves nothing behind."""
    here, there = ServiceRunner(tmp_path), ServiceRunner(tmp_path)
    here.note("events of shop", "no file events", project="shop", is_logged=False)
    here.note("hooks", "hooks\x1b[2J stopped", is_logged=False)
    assert there.problems_of({"shop"}) == ["no file events", "hooks?[2J stopped"]
    assert there.problems_of({"other"}) == ["hooks?[2J stopped"]
    here.well("hooks")
    assert there.problems_of({"shop"}) == here.problems_of(()) == ["no file events"]
    monkeypatch.setattr(module, "LASTING_S", 10.0)
    assert there.problems_of({"shop"}) == []
    monkeypatch.setattr(module, "LASTING_S", -1.0)
    here.well("events of shop")
    assert not list(tmp_path.iterdir())
    killed = tmp_path / "services-1-1.lock"
    killed.write_text(f'[["no more", "", {time.time() - 100}]]')
    assert not lasting(tmp_path)
    assert not killed.exists()


def test_a_folder_that_takes_nothing_is_no_second_trouble(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    services = ServiceRunner(tmp_path / "file" / "seats")
    services.note("hooks", "hooks stopped", is_logged=False)
    assert services.problems_of(()) == ["hooks stopped"]


def test_a_file_that_somebody_has_written_is_read_with_suspicion(tmp_path: Path) -> None:
    """Whatever is in it: no error, and no more than a few short sentences."""
    for number, said in enumerate(['{"a": 1}', "[[1]]", "[1]", "", "\xff", '[["x", "", "y"]]', "[" * 9000]):
        file = tmp_path / f"services-{number}-1.lock"
        file.write_text(said)
        fd = os.open(file, os.O_RDWR)
        module.try_lock(fd)
        try:
            assert lasting(tmp_path) == []
        finally:
            os.close(fd)
            file.unlink(missing_ok=True)
