"""The database of a space and the file that says who keeps its key are of two moments, as after a backup: nothing is lost by that."""

from __future__ import annotations

import base64
import gc
import secrets
from pathlib import Path

import pytest
from tests.daemon.spaces.test_custodian import (
    CANARY,
    connected,
    custody_of,
    finds,
    job,
    refused,
    remember,
    until,
)
from tests.support.daemon.loopback import Machine, Serving, serving
from tests.support.sealing.founder import Device

from confide_crypto.errors import RequestError
from confide_crypto.keys.identity import Identity
from confide_daemon.cli import health
from confide_daemon.datadir.key_state import Custody, KeyName
from confide_daemon.datadir.paths import DaemonPaths
from confide_daemon.embedding import LoadedModel
from confide_daemon.spaces.models import IndexSettings
from confide_daemon.spaces.space import Space, SpaceShared
from confide_daemon.store.database import connect


def spaces_of(daemon: Serving) -> tuple[str, str]:
    """The only space: its name and its id."""
    ((name, space_id),) = daemon.state.registry.spaces().items()
    return name, space_id


def files_of(daemon: Serving) -> tuple[Path, Path]:
    """The database of the only space, and what says who keeps its key."""
    (space_id,) = daemon.state.registry.spaces().values()
    return daemon.state.folder.space(space_id), daemon.state.folder.custody(space_id)


async def two_epochs(data: Path) -> tuple[Identity, Device, dict[int, tuple[bytes, bytes]], tuple[Path, Path]]:
    """A device of a space that is in its second epoch, and what both files were at the end of each."""
    kept = {}
    async with serving(data, keeper="caller") as daemon:
        laptop = daemon.enroll("laptop")
        device = Device(laptop)
        database, custody = files_of(daemon)
        async with await connected(daemon, laptop) as machine:
            await device.found(machine)
            await device.unlock(machine)
            await remember(machine)
    kept[1] = database.read_bytes(), custody.read_bytes()
    async with serving(data) as daemon, await connected(daemon, laptop) as machine:
        await device.rotate(machine)
        await device.unlock(machine)
        await until("the new key", lambda: custody_of(daemon) == Custody(KeyName("caller", 2)))
    kept[2] = database.read_bytes(), custody.read_bytes()
    return laptop, device, kept, (database, custody)


async def hand_over(machine: Machine, device: Device) -> bool:
    """What a machine does that is told what is needed, until nothing more is; whether the space is locked then."""
    is_locked = True
    for _ in range(3):
        told = await machine.request("roster", {"from": 0})
        is_locked = told["isLocked"]
        if not told["needs"]:
            break
        try:
            is_locked = await device.unlock(machine, *told["needs"])
        except RequestError as error:
            if error.code != "invalid":
                raise
    return is_locked


@pytest.mark.parametrize(
    ("of_database", "of_custody"), [(2, 1), (1, 2), (2, None), (1, None)], ids=["behind", "ahead", "lost", "both"]
)
async def test_the_key_is_found_again(tmp_path: Path, of_database: int, of_custody: int | None) -> None:
    """With an older database its machines' older key, and then it is changed to the newest, as it should be."""
    data = tmp_path / "data"
    laptop, device, kept, (database, custody) = await two_epochs(data)
    database.write_bytes(kept[of_database][0])
    custody.unlink()
    if of_custody is not None:
        custody.write_bytes(kept[of_custody][1])
        custody.chmod(0o600)
    async with serving(data) as daemon, await connected(daemon, laptop) as machine:
        await refused(machine, "attach", {"project": "proj"})
        # Not even for the moment before they have brought it does the daemon claim to keep it.
        assert (await machine.request("roster", {"from": 0}))["custody"] == "caller"
        assert not daemon.daemon.spaces.health_problems()
        (check,) = health._database(DaemonPaths(data / "confided.toml", daemon.state.folder), *spaces_of(daemon))
        assert check.is_ok
        assert ("waits for one of its devices" if of_custody is None else "its devices keep its key") in str(check)
        assert await hand_over(machine, device) is False
        assert CANARY in await finds(machine)
        await until("the newest key", lambda: custody_of(daemon) == Custody(KeyName("caller", 2)))
        assert not daemon.daemon.spaces.health_problems()
    connect(database, device.keys.database_key(2), writer=False).close()


async def test_a_key_of_the_server_is_found_again(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with serving(data) as daemon:
        laptop = daemon.enroll("laptop")
        _, custody = files_of(daemon)
        async with await connected(daemon, laptop) as machine:
            await remember(machine)
            for _ in range(2):
                assert (await job(daemon, "rekey")).state == "done"
        newest = custody_of(daemon)
    custody.unlink()
    async with serving(data) as daemon, await connected(daemon, laptop) as machine:
        assert (await machine.request("roster", {"from": 0}))["custody"] == "server"
        assert CANARY in await finds(machine)
        assert custody_of(daemon) == newest == Custody(KeyName("server", 2), generation=2)


async def test_a_key_that_nobody_has_is_told_of_and_nothing_is_changed(tmp_path: Path) -> None:
    data = tmp_path / "data"
    laptop, device, _, (database, custody) = await two_epochs(data)
    custody.unlink()
    foreign = secrets.token_bytes(32)
    database.unlink()
    connection = connect(database, foreign, writer=True)
    connection.execute("CREATE TABLE t (x)")
    connection.close()
    before = database.read_bytes()
    async with serving(data) as daemon, await connected(daemon, laptop) as machine:
        other = daemon.enroll("desktop", space="laptop")
        await refused(machine, "attach", {"project": "proj"})
        error = await refused(machine, "unlock", {"keys": device.database_keys()}, "invalid")
        assert "not its key" in str(error)
        assert "backup" in str(error.hint)
        assert daemon.daemon.spaces.health_problems() == {"storage"}
        async with await connected(daemon, other) as second:
            await refused(second, "attach", {"project": "proj"})
            assert daemon.daemon.spaces.health_problems() == {"storage"}
    assert database.read_bytes() == before
    assert not custody.exists()


async def test_a_file_that_was_never_written_to_takes_no_key_of_a_reader(tmp_path: Path) -> None:
    """Any key opens an empty file: who may only read could choose the one that all that comes is encrypted with."""
    data = tmp_path / "data"
    async with serving(data, keeper="caller") as daemon:
        laptop, reader = daemon.enroll("laptop", space="home"), daemon.enroll("reader", space="home", scope="read")
        device = Device(laptop)
        database, _ = files_of(daemon)
        database.touch(mode=0o600)
        async with await connected(daemon, laptop) as machine, await connected(daemon, reader) as other:
            await device.found(machine)
            await device.add(machine, reader, "reader")
            made_up = base64.b64encode(secrets.token_bytes(32)).decode()
            await other.request("unlock", {"keys": {"1": made_up}})
            assert await device.unlock(machine) is False
            await remember(machine)
    async with serving(data) as daemon, await connected(daemon, laptop) as machine:
        assert await device.unlock(machine) is False
        assert CANARY in await finds(machine)


def spelled_backwards(key: bytes) -> list[bytes | str]:
    """The spellings of a key, so that looking for them finds something else than the list of them."""
    spellings: list[bytes | str] = [key, key.hex(), base64.b64encode(key).decode()]
    return [one[::-1] for one in spellings]


def holders(backwards: list[bytes | str]) -> list[type]:
    """What in this process refers to a key."""
    gc.collect()
    shortest = min(map(len, backwards))
    found = []
    for holder in gc.get_objects():
        # What holds nothing but numbers and texts the collector does not know by itself.
        plain = [held for held in gc.get_referents(holder) if not gc.is_tracked(held)]
        for text in (*plain, *gc.get_referents(*plain)):
            # Most texts of a process are names, too short for a key.
            if isinstance(text, bytes | str) and len(text) >= shortest:
                turned = text[::-1]
                if any(type(one) is type(text) and one in turned for one in backwards):  # type: ignore[operator]
                    found.append(type(holder))
    return found


@pytest.mark.parametrize("is_newer", [False, True], ids=["open", "never open"])
async def test_a_lock_leaves_no_key_behind(tmp_path: Path, is_newer: bool) -> None:
    """Neither of a space that was in use nor of one that could not be opened."""
    data = tmp_path / "data"
    laptop, device, _, (database, _) = await two_epochs(data)
    if is_newer:
        connection = connect(database, device.keys.database_key(2), writer=True)
        connection.execute("INSERT INTO migration (version, applied_at) VALUES (9999, 0)")
        connection.close()
    async with serving(data, lock_after_s=0.2) as daemon:
        (space_id,) = daemon.state.registry.spaces().values()
        async with await connected(daemon, laptop) as machine:
            if is_newer:
                said = str(await refused(machine, "unlock", {"keys": device.database_keys(2)}, "storage_full"))
                assert "newer version" in said
            else:
                assert await device.unlock(machine, 2) is False
                assert CANARY in await finds(machine)
            place = daemon.daemon.spaces._entries[space_id]
            backwards = spelled_backwards(device.keys.database_key(2))
            assert holders(backwards)
        await until("the lock", lambda: not place.custodian.is_holding and place.closing is None)
        assert not holders(backwards)


async def test_a_closed_space_has_no_key(tmp_path: Path) -> None:
    """Whoever still refers to it, as the thread does that has just closed it: only then is the space told to be locked."""
    number = secrets.randbits(256)
    backwards = spelled_backwards(number.to_bytes(32, "big"))
    space = await Space.open(
        tmp_path / "space.db",
        number.to_bytes(32, "big"),
        SpaceShared(IndexSettings(), LoadedModel.none()),
        space_id="space",
    )
    assert await space.index.count_queued(frozenset()) == 0  # a reader opens its own connection
    assert holders(backwards)
    await space.close()
    assert not holders(backwards)
