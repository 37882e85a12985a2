"""Kills processes while they close a space that is written to, at one call of SQLite's after the other, and looks what they leave.

    python closing_kills.py FOLDER STRIDE

At every STRIDEth moment before a transaction ends, or a connection is closed, a process is forked that stores documents in a space which
is closed behind each of them, and kills itself there. What it has acknowledged has to be there when the space is opened again. For each a
JSON line: the moment, how many documents were acknowledged, and what is missing.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from confide_daemon.access.enrolled_callers import Grants
from confide_daemon.access.registry import create, open_state
from confide_daemon.datadir.paths import DataFolder
from confide_daemon.embedding import LoadedModel
from confide_daemon.spaces import file
from confide_daemon.spaces.models import IndexSettings
from confide_daemon.spaces.pool import Spaces
from confide_daemon.spaces.space import SpaceShared
from confide_daemon.store import database

STORES = 4


def kill_at(moment: int) -> None:
    """Ends this process at that one of the moments at which a kill could hurt."""
    left = [moment]

    def watch(owner: Any, name: str) -> None:
        work = getattr(owner, name)

        def watched(*arguments: Any, **options: Any) -> Any:
            left[0] -= 1
            if left[0] < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return work(*arguments, **options)

        setattr(owner, name, watched)

    watch(database, "close")
    watch(file, "mark_closed")
    watch(file, "mark_open")
    watch(database, "connect")


async def within(root: Path, work: Callable[[Spaces, str], Awaitable[Any]]) -> Any:
    state = open_state(DataFolder(root))
    spaces = Spaces(state, SpaceShared(IndexSettings(), LoadedModel.none()), close_after_s=0.001)
    try:
        return await work(spaces, state.registry.spaces()["laptop"])
    finally:
        await spaces.close()
        state.close()


async def store(root: Path, moment: int, told: int) -> None:
    """Store, and wait until the space is closed, as often as there is to do."""

    async def work(spaces: Spaces, space_id: str) -> None:
        kill_at(moment)
        for number in range(STORES):
            path = f"memory/{moment}-{number}.md"
            async with spaces.hold(space_id) as opened:
                await opened.documents.put("p", path, f"document {number}\n", base=0, author="a")
            os.write(told, f"{path}\n".encode())
            async with asyncio.timeout(30):
                while spaces._entries[space_id].space is not None:  # noqa: ASYNC110 - it is told of nowhere
                    await asyncio.sleep(0.001)

    await within(root, work)


async def missing(root: Path, acknowledged: list[str]) -> list[str]:
    """Those of the documents that are not there."""

    async def work(spaces: Spaces, space_id: str) -> list[str]:
        async with spaces.hold(space_id) as opened:
            found = {row.path for row in await opened.documents.list_documents(None, sources=None)}
            await opened.upkeep.check()
            wrong = [] if opened.upkeep.health().state == "ok" else [opened.upkeep.health().state]
        return [path for path in acknowledged if path not in found] + wrong

    return list(await within(root, work))


def fork(work: Callable[[], Any]) -> int:
    """The status of a process that has done it."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitpid(child, 0)[1]


def main(root: Path, stride: int) -> None:
    """One line for each moment, until one is behind the end of the work."""
    create(DataFolder(root))
    state = open_state(DataFolder(root))
    state.registry.add_caller(bytes(range(32)), Grants("laptop"), space="laptop", added_by="line")
    state.close()
    moment = 0
    while True:
        reading, told = os.pipe()
        status = fork(lambda: asyncio.run(store(root, moment, told)))  # noqa: B023 - it has ended by the next
        os.close(told)
        with os.fdopen(reading) as pipe:
            acknowledged = pipe.read().split()
        looked, told = os.pipe()

        def look() -> None:
            os.write(told, json.dumps(asyncio.run(missing(root, acknowledged))).encode())  # noqa: B023

        failed = fork(look)
        os.close(told)
        with os.fdopen(looked) as pipe:
            text = pipe.read()
        wrong = json.loads(text) if text and not failed else ["it does not open"]
        is_done = not os.WIFSIGNALED(status)
        if is_done and status:
            wrong.append("the work failed")
        print(json.dumps({"moment": moment, "acknowledged": len(acknowledged), "wrong": wrong}), flush=True)
        if is_done:
            return
        moment += stride


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
