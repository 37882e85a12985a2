"""`confided doctor` and `reindex` beside a running daemon and without one, and what `/health` says meanwhile."""

from __future__ import annotations

import http.client
import json
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.support.daemon import disks
from tests.support.deadline import DEADLINE_S
from tests.support.programs.confided import Confided
from tests.support.programs.processes import wait_until

from confide_daemon.access.registry import open_state
from confide_daemon.datadir.paths import DataFolder
from confide_daemon.store.database import connect

LOST_WORDS = "DELETE FROM keyword WHERE rowid > 0"


def test_the_doctor_says_how_much_room_the_disk_has(small_disk: Path) -> None:
    """And what waits for more."""
    program = Confided(small_disk / "home")
    program.run("init")
    checks = {one["check"]: one for one in program.json("doctor", code=1)}
    assert "1,074 MB should be: vectors, rewriting and nightly snapshots wait" in checks["disk"]["problem"]
    assert checks["disk"]["hint"]
    disks.remount(small_disk, "size=2g")
    assert "MB are free" in {one["check"]: one for one in program.json("doctor")}["disk"]["detail"]


async def filled(ready: Confided) -> Path:
    """A space with some documents, of a daemon that has ended; its database."""
    identity = ready.enroll()
    process = ready.serve()
    async with await ready.connect(identity) as laptop:
        await laptop.attach("proj")
        for number in range(5):
            await laptop.put(f"{number}.md", f"# Note {number}\n\nabout the pool\n")
    process.terminate()
    process.wait(DEADLINE_S)
    (path,) = (ready.data / "spaces").glob("*.db")
    return path


def run(ready: Confided, path: Path, *statements: str) -> list[Any]:
    """SQL on the database of a space; what the last statement gives."""
    state = open_state(DataFolder(ready.data))
    connection = connect(path, state.master.space_key(path.stem), writer=True)
    state.close()
    connection.execute("PRAGMA foreign_keys = OFF")
    rows: list[Any] = []
    for statement in statements:
        rows = connection.execute(statement).fetchall()
    connection.close()
    return rows


def health(ready: Confided) -> tuple[int, dict[str, Any]]:
    """What the running daemon tells a stranger."""
    assert ready.address is not None
    connection = http.client.HTTPConnection(
        "127.0.0.1", int(ready.address["url"].rsplit(":", 1)[1]), timeout=DEADLINE_S
    )
    connection.request("GET", "/health")
    answer = connection.getresponse()
    said: dict[str, Any] = json.loads(answer.read())
    connection.close()
    return answer.status, said


async def test_doctor_finds_damage_and_fixes_it_without_a_daemon(ready: Confided) -> None:
    path = await filled(ready)
    run(ready, path, LOST_WORDS)
    (wrong,) = [check for check in ready_doctor(ready, code=1) if not check["ok"]]
    assert wrong["check"] == "database of laptop"
    assert "pieces without keyword rows" in wrong["problem"]
    assert "--fix" in wrong["hint"]
    said = ready.run("doctor", "--fix")
    assert "laptop: 5 pieces without keyword rows" in said.stderr
    assert all(check["ok"] for check in ready_doctor(ready))


def ready_doctor(ready: Confided, *options: str, code: int = 0) -> list[dict[str, Any]]:
    checks: list[dict[str, Any]] = json.loads(ready.run("doctor", "--json", *options, code=code).stdout)
    return checks


async def test_a_daemon_heals_what_nobody_has_used_yet_and_tells_strangers_no_more_than_a_word(ready: Confided) -> None:
    """It starts, nobody connects; health is degraded as long as a text is lost, and everything that can be put right is."""
    path = await filled(ready)
    run(
        ready,
        path,
        LOST_WORDS,
        "UPDATE revision SET text = x'00' WHERE document = 2",
        "DELETE FROM chunk WHERE document = 2",
    )
    run(ready, path, "UPDATE mark SET value = 1 WHERE name = 'open'")
    ready.serve()
    wait_until("the daemon to have looked", lambda: health(ready)[1].get("reason") == "storage")
    status, said = health(ready)
    assert status == 503
    assert set(said) == {"status", "reason", "version"}
    assert said["status"] == "degraded"
    assert ready.json("status")["health"] == "degraded (storage)"
    problems = [check for check in ready_doctor(ready, code=1) if not check["ok"]]
    assert any(
        "whose newest text is lost" in check["problem"] and "confide sync" in check["hint"] for check in problems
    )
    assert run(ready, path, "SELECT count(*) FROM keyword_docsize WHERE id > 0")[0] == (4,)


async def test_doctor_fixes_through_the_running_daemon(ready: Confided) -> None:
    path = await filled(ready)
    ready.serve()
    assert health(ready)[0] == 200
    # Behind the daemon's own first look, which would put it right before anybody is told.
    assert all(check["ok"] for check in ready_doctor(ready, "--space", "laptop"))
    run(ready, path, LOST_WORDS)
    assert [check["check"] for check in ready_doctor(ready, "--space", "laptop", code=1) if not check["ok"]]
    ready.run("doctor", "--fix", "--space", "laptop")
    assert all(check["ok"] for check in ready_doctor(ready))
    assert run(ready, path, "SELECT count(*) FROM keyword_docsize WHERE id > 0")[0] == (5,)
    assert health(ready) == (200, health(ready)[1])
    assert "there is no space 'nowhere'" in ready.run("doctor", "--space", "nowhere", code=7).stderr


async def test_reindex_beside_the_running_daemon(ready: Confided) -> None:
    """The pieces are cut and the vectors computed anew by the daemon; the command shows what it came to."""
    path = await filled(ready)
    before = run(ready, path, "SELECT max(id) FROM generation")
    run(ready, path, "DELETE FROM chunk WHERE document = 3")
    ready.serve()
    (row,) = ready.json("space", "reindex", "--space", "laptop", "--reembed")
    assert row["space"] == "laptop"
    assert row["indexed"]
    assert run(ready, path, "SELECT count(*) FROM chunk")[0] == (5,)
    assert run(ready, path, "SELECT max(id) FROM generation") > before
    assert run(ready, path, "SELECT count(*) FROM generation WHERE state = 'live'")[0] == (1,)


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
async def test_a_reindex_that_is_interrupted_leaves_the_index_whole(ready: Confided, end: signal.Signals) -> None:
    """With no daemon running the command does the work itself; whenever it ends, what is there is whole."""
    await filled(ready)
    process = ready.start("space", "reindex", "--reembed")
    (path,) = (ready.data / "spaces").glob("*.db")
    wait_until(
        "it to have the database open",
        lambda: path.with_name(path.name + "-wal").exists() or process.poll() is not None,
    )
    process.send_signal(end)  # nothing where it has ended already, as on a busy machine
    assert process.wait(DEADLINE_S) in (0, 130, -end)
    ready.run("doctor", "--fix")
    assert all(check["ok"] for check in ready_doctor(ready))
