"""Kills processes between the statements of a space whose log is in PostgreSQL, at one after the other, and looks what they leave.

    python log_kills.py FOLDER URL WHEN STRIDE

URL: an address without a database, which one is made for; WHEN `first`, or `late`: an entry is brought to the log after its write was
answered, as a faulty program would; it ends with the first loss. A point is a moment before or behind a statement, a part of a snapshot,
a file that is renamed, removed or brought to the disk, or a commit. At every STRIDEth of them a process is forked that writes, takes a
snapshot and changes the key, and kills itself there. What it has acknowledged has to be there once, for who opens the space in the same
folder, and for who has no file of it. The last one is not killed. For each a JSON line: the point, how many writes were acknowledged, and
what is wrong.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
from tests.support.daemon.logged import Node, Store, held

from confide_cluster.daemon.log import log_snapshot, replication_position
from confide_cluster.daemon.log.log_outbox import LogOutbox
from confide_cluster.daemon.log.log_tables import Log
from confide_cluster.daemon.log.postgres_engine import PendingStatement, PostgresEngine
from confide_crypto.errors import ConfideError
from confide_daemon.documents.writer import RepeatableChange
from confide_daemon.store.upkeep.integrity import Integrity

WRITES = 3
ROUNDS = 3


class Killing:
    """Counts points; the process ends itself at the one that is wanted."""

    def __init__(self, point: int) -> None:
        self._left = point
        self._lock = threading.Lock()
        for owner, name in (
            (Path, "replace"),
            (Path, "rename"),
            (Path, "unlink"),
            (os, "fsync"),
            (PostgresEngine, "run"),
            (PostgresEngine, "send"),
            (PendingStatement, "answer"),
            (Log, "bring_part"),
            (Log, "settle"),
            (replication_position, "write"),
            (replication_position, "keep"),
        ):
            self._watch(owner, name)

    def _watch(self, owner: Any, name: str) -> None:
        work = getattr(owner, name)

        def watched(*arguments: Any, **options: Any) -> Any:
            self._pass()
            found = work(*arguments, **options)
            self._pass()
            return found

        setattr(owner, name, watched)

    def _pass(self) -> None:
        with self._lock:
            self._left -= 1
            if self._left < 0:
                os.kill(os.getpid(), signal.SIGKILL)


def be_late() -> None:
    """Each entry but the first goes to the log with the next write, when its own was answered long ago: wherever a kill falls between, it
    is lost. Without the first a space is not opened again."""
    waiting: list[Callable[[], bool]] = []
    sent: list[tuple[Any, ...]] = []

    class Promised:
        """An entry that nobody has sent."""

        def is_stored(self) -> bool:
            return True

        def drop(self) -> None: ...

    def send(self: Log, *values: Any) -> Any:
        if not sent:
            sent.append(values)
            return whole(self, *values)
        waiting.append(lambda: whole(self, *values).is_stored())
        return Promised()

    whole = Log.send

    flush = LogOutbox.flush

    def flushed(self: LogOutbox) -> None:
        while len(waiting) > 1:
            waiting.pop(0)()
        flush(self)

    Log.send = send  # type: ignore[method-assign]
    LogOutbox.flush = flushed  # type: ignore[method-assign]


async def change(store: Store, told: int) -> None:
    """Writes, with a snapshot and another key in between; each is told of once it is acknowledged."""
    async with store.node() as node:
        for number in range(ROUNDS * WRITES):
            space = await node.space()
            if number == WRITES:
                await space.threads.maintain(lambda store: store.outbox.take_snapshot())  # type: ignore[union-attr]
            if number == 2 * WRITES:
                await node.spaces.renew(node.space_id, lambda _done, _total: None)
            space.usage.count([1])
            await space.documents.append(
                "p", "log.md", f"line {number}\n", heading=None, author="a", operation=operation(number)
            )
            os.write(told, f"{number}\n".encode())


def operation(number: int) -> RepeatableChange:
    return RepeatableChange(f"{number:032x}", "asked")


async def look(store: Store, acknowledged: list[int]) -> list[str]:
    """What is wrong with what was left."""
    wrong = []
    async with store.node() as node:
        with contextlib.suppress(ConfideError):
            await node.space()
        log_snapshot.accept(
            node.path.parent
        )  # a log that lacks what its copy has is refused; here it is to be seen what it lacks
        wrong += await look_at(node, acknowledged, "the same folder")
        # What the machine repeats is made once, also where nobody knew what became of it.
        for number in [*acknowledged[-1:], len(acknowledged)]:
            space = await node.space()
            await space.documents.append(
                "p", "log.md", f"line {number}\n", heading=None, author="a", operation=operation(number)
            )
    async with store.node("two") as two:
        wrong += await look_at(two, [*acknowledged, len(acknowledged)], "a folder without it")
    async with store.node() as node:
        await node.space()
    one, other = held(node.path, node.key), held(two.path, two.key)
    wrong += [f"{table} differs" for table in one if table != "life" and one[table] != other[table]]
    allowed = {f"{node.space_id}.db", f"{node.space_id}.custody"}
    for folder in (node.path.parent, two.path.parent):
        wrong += [f"{file.name} is left" for file in folder.iterdir() if file.name not in allowed]
        wrong += [f"{file.name} is open to others" for file in folder.iterdir() if file.stat().st_mode & 0o077]
    return wrong


async def look_at(node: Node, acknowledged: list[int], where: str) -> list[str]:
    try:
        texts = await node.texts()
        breaches = await (await node.space()).threads.read(lambda store: Integrity(store).glance())
    except ConfideError as error:
        return [f"{where}: {error}"]
    lines = texts.get("log.md", "").split("\n")
    wrong = [f"{where}: line {number} is lost" for number in acknowledged if f"line {number}" not in lines]
    wrong += [f"{where}: line {n} is twice there" for n in range(99) if lines.count(f"line {n}") > 1]
    return wrong + [f"{where}: {one.what}" for one in breaches]


@contextmanager
def database(url: str, number: int) -> Iterator[str]:
    """A database of its own for one point."""
    name = f"kill_{os.getpid()}_{number}"
    with psycopg.connect(f"{url}/postgres", autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
        yield f"{url}/{name}"
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


def main(folder: Path, url: str, when: str, stride: int) -> None:
    """Until a process has come through."""
    for point in itertools.count(0, stride):
        with database(url, point) as of_this:
            store = Store(None, of_this, folder / "data", embeds=False)  # type: ignore[arg-type]
            store.root.mkdir()
            store.folder("one")
            store.folder("two")
            reading, writing = os.pipe()
            process = os.fork()
            if not process:
                os.close(reading)
                with contextlib.suppress(BaseException):
                    if when == "late":
                        be_late()
                    Killing(point)
                    asyncio.run(change(store, writing))
                    os._exit(0)
                os._exit(1)
            os.close(writing)
            with open(reading) as said:
                acknowledged = [int(line) for line in said if line.endswith("\n")]
            _, status = os.waitpid(process, 0)
            wrong = asyncio.run(look(store, acknowledged))
            if not os.WIFSIGNALED(status) and os.waitstatus_to_exitcode(status):
                wrong.append("it failed")
            told = {"point": point, "killed": os.WIFSIGNALED(status), "acknowledged": len(acknowledged), "wrong": wrong}
            print(json.dumps(told), flush=True)
            shutil.rmtree(store.root)
            is_lost = any("is lost" in one for one in wrong)
            if not os.WIFSIGNALED(status) or (when == "late" and is_lost):
                return


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]))
