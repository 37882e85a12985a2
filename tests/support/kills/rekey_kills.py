"""Kills processes in the middle of a change of a space's key, at one point after the other, and looks what they leave.

    python rekey_kills.py FOLDER KEEPER STRIDE

KEEPER server: `confided space key --new`; caller: a new epoch of the roster. A point is a moment
before a file is renamed, removed or brought to the disk, or a slice of the database copied. At
every STRIDEth of them, a process is forked that writes documents all the time, changes the key, and
kills itself there. What it has acknowledged has to be there when the space is opened again, as a
whole database with one key, and nothing beside it. The last one is not killed. For each a JSON
line: the point, how many documents were acknowledged, and what is wrong.
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
from pathlib import Path
from typing import Any

from confide_crypto.keys.identity import Identity
from confide_crypto.sealing.roster import Roster
from confide_crypto.sealing.space_keys import SpaceKeys
from confide_daemon.access.enrolled_callers import Grants
from confide_daemon.access.registry import create, open_state
from confide_daemon.datadir.key_state import Keeper
from confide_daemon.datadir.paths import DataFolder
from confide_daemon.embedding import LoadedModel
from confide_daemon.spaces.models import IndexSettings
from confide_daemon.spaces.pool import Spaces
from confide_daemon.spaces.space import Space, SpaceShared
from confide_daemon.store import threads
from confide_daemon.store.database import connect
from confide_daemon.store.upkeep import replacement
from confide_daemon.store.upkeep.replacement import Rekeying

DEVICE = Identity(bytes(range(32)))
KEYS = SpaceKeys(bytes(range(16)), (bytes(range(50, 82)), bytes(range(82, 114))))
BULK = 4  # documents that are there before
SPACE = "laptop"


class Killing:
    """Counts points; the process ends itself at the one that is wanted."""

    def __init__(self, point: int) -> None:
        self._left = point
        for owner, name in (
            (Path, "replace"),
            (Path, "unlink"),
            (os, "fsync"),
            (Rekeying, "step"),
            (Rekeying, "finish"),
        ):
            self._watch(owner, name)

    def _watch(self, owner: Any, name: str) -> None:
        work = getattr(owner, name)

        def watched(*arguments: Any, **options: Any) -> Any:
            self._left -= 1
            if self._left < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return work(*arguments, **options)

        setattr(owner, name, watched)


@contextlib.asynccontextmanager
async def opened(root: Path, keeper: Keeper) -> Any:
    """The spaces of a data folder, the id of the one that is used here, and that one."""
    state = open_state(DataFolder(root))
    spaces = Spaces(state, SpaceShared(IndexSettings(), LoadedModel.none()), keeper=keeper)
    try:
        space_id = state.registry.spaces()[SPACE]
        if keeper == "caller":
            roster = spaces.rosters.current(space_id)
            known = range(1, roster.epoch + 1) if roster is not None else ()
            await spaces.unlock(space_id, {epoch: KEYS.database_key(epoch) for epoch in known}, may_change=False)
        yield spaces, space_id, await spaces.get(space_id)
    finally:
        await spaces.close()
        state.close()


async def prepare(root: Path, keeper: Keeper) -> None:
    """A space with something in it."""
    create(DataFolder(root))
    state = open_state(DataFolder(root))
    spaces = Spaces(state, SpaceShared(IndexSettings(), LoadedModel.none()), keeper=keeper)
    state.registry.add_caller(DEVICE.public_key, Grants(SPACE), space=SPACE, added_by="line")
    space_id = state.registry.spaces()[SPACE]
    if keeper == "caller":
        first = SpaceKeys(KEYS.space, KEYS.epochs[:1])
        roster, _ = Roster.create(DEVICE, SPACE, now=0, keys=first)
        spaces.rosters.extend(space_id, roster.entries[0].encode(), by=SPACE)
        await spaces.unlock(space_id, {1: KEYS.database_key(1)}, may_change=True)
    space = await spaces.get(space_id)
    for number in range(BULK):
        await space.documents.put("p", f"bulk{number}.md", os.urandom(20_000).hex() + "\n", base=0, author="a")
    if keeper == "caller":
        # The new epoch has begun, and the key that the device brings for it is what the change begins with.
        roster = Roster.read([roster.entries[0].encode()])
        new_epoch = rotated(roster)
        spaces.rosters.extend(space_id, new_epoch, by=SPACE)
    await spaces.close()
    state.close()


def rotated(roster: Roster) -> bytes:
    """The entry that begins the second epoch, with the key that is fixed here."""

    class Fixed(SpaceKeys):
        def next_epoch(self) -> SpaceKeys:
            return KEYS

    roster, _ = roster.rotate(DEVICE, Fixed(KEYS.space, KEYS.epochs[:1]), now=1)
    return roster.entries[-1].encode()


async def change(root: Path, keeper: Keeper, point: int, told: int) -> None:
    """Writes and changes the key, until it is killed or done."""

    async def write(space: Space) -> None:
        for number in itertools.count():
            await space.documents.put("p", f"new{number}.md", f"document {number}\n", base=0, author="a")
            os.write(told, f"new{number}.md\n".encode())

    async with opened(root, keeper) as (spaces, space_id, space):
        writing = asyncio.create_task(write(space))
        await asyncio.sleep(0)
        replacement.STEP_PAGES = threads.LAST_PAGES = 64  # a small database of several slices
        Killing(point)
        if keeper == "server":
            await spaces.renew(space_id, lambda _done, _total: None)
        else:
            await spaces.unlock(space_id, {2: KEYS.database_key(2)}, may_change=True)
            await spaces._entries[space_id].changing
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)


async def look(root: Path, keeper: Keeper, acknowledged: list[str]) -> list[str]:
    """What is wrong with what was left."""
    wrong = []
    async with opened(root, keeper) as (spaces, space_id, space):
        there = {row.path for row in await space.documents.list_documents(None, sources=None)}
        wrong += [f"{path} is lost" for path in acknowledged if path not in there]
        if len(there) < BULK:
            wrong.append("the bulk is lost")
        place = spaces._entries[space_id]
        if place.changing is not None:
            await place.changing
        name = place.custodian.custody.key
        key = place.custodian.key(name)
    folder = DataFolder(root)
    connection = connect(folder.space(space_id), key, writer=False)
    if connection.execute("PRAGMA integrity_check").get != "ok":
        wrong.append("the database is not sound")
    connection.close()
    allowed = {f"{space_id}.db", f"{space_id}.custody"}
    wrong += [f"{file.name} is left" for file in folder.spaces.iterdir() if file.name not in allowed]
    wrong += [f"{file.name} is open to others" for file in folder.spaces.iterdir() if file.stat().st_mode & 0o077]
    return wrong


def main(folder: Path, keeper: Keeper, stride: int) -> None:
    """Until a process has come through."""
    prepared = folder / "prepared"
    asyncio.run(prepare(prepared, keeper))
    for point in itertools.count(0, stride):
        root = folder / "data"
        shutil.copytree(prepared, root)
        reading, writing = os.pipe()
        process = os.fork()
        if not process:
            os.close(reading)
            asyncio.run(change(root, keeper, point, writing))
            os._exit(0)
        os.close(writing)
        with open(reading) as said:
            acknowledged = [line.rstrip("\n") for line in said if line.endswith("\n")]
        _, status = os.waitpid(process, 0)
        wrong = asyncio.run(look(root, keeper, acknowledged))
        told = {"point": point, "killed": os.WIFSIGNALED(status), "acknowledged": len(acknowledged), "wrong": wrong}
        print(json.dumps(told), flush=True)
        shutil.rmtree(root)
        if not os.WIFSIGNALED(status):
            return


if __name__ == "__main__":
    main(Path(sys.argv[1]), "caller" if sys.argv[2] == "caller" else "server", int(sys.argv[3]))
