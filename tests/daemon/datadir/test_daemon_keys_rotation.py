"""The daemon's key files through a rotation: killed at any point, read at any point, ended in time."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest
from tests.support.daemon.loopback import Machine, Serving, serving
from tests.support.deadline import DEADLINE_S

from confide_crypto.errors import KeyFileError, WrongDaemonKey
from confide_crypto.handshake.rotation import KeySuccession
from confide_crypto.keys.identity import Identity, format_daemon_key
from confide_crypto.transport.open_channel import Connection, connect
from confide_daemon.access import enrollment
from confide_daemon.access.registry import create, open_state
from confide_daemon.datadir import daemon_keys, instance
from confide_daemon.datadir.instance import DaemonLock
from confide_daemon.datadir.paths import DataFolder
from confide_daemon.errors import RotationError

# Ends the process by SIGKILL in place of its n-th change of a file, before the change (n from 1).
KILLED = """
import os, signal, sys
from pathlib import Path
from confide_crypto.keys import identity as keys
from confide_daemon.datadir import daemon_keys as rotation
from confide_daemon.datadir.paths import DataFolder

left = [int(sys.argv[3])]

def counted(change):
    def run(*args, **kwargs):
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return change(*args, **kwargs)
    return run

for name in ("write_private_file", "remove_private_file"):
    setattr(rotation, name, counted(getattr(rotation, name)))
keys.write_private_file = counted(keys.write_private_file)
folder = DataFolder(Path(sys.argv[1]))
rotation.rotate(folder, keep_s=900) if sys.argv[2] == "rotate" else rotation.retire(folder)
"""


def killed(folder: DataFolder, command: str, change: int) -> bool:
    """Run a command that dies before its n-th change; whether it died (it may have fewer)."""
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(folder.root), command, str(change)],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode != 0


@pytest.fixture
def folder(tmp_path: Path) -> DataFolder:
    made = DataFolder(tmp_path / "data")
    create(made)
    return made


@asynccontextmanager
async def opening(daemon: Serving, laptop: Identity, key: Identity) -> AsyncIterator[Connection]:
    connection = await connect(daemon.url, laptop, key.static_key)
    try:
        yield connection
    finally:
        await connection.close()


async def answers(daemon: Serving, laptop: Identity, key: Identity) -> bool:
    """Whether the daemon answers to this key of its own."""
    try:
        async with opening(daemon, laptop, key):
            return True
    except WrongDaemonKey:
        return False


async def until_answers(daemon: Serving, laptop: Identity, key: Identity) -> None:
    """Wait until a running daemon has taken this key up."""
    async with asyncio.timeout(DEADLINE_S):
        while not await answers(daemon, laptop, key):  # noqa: ASYNC110 - another end of a socket has no event for it
            await asyncio.sleep(0.02)


async def until_told(folder: DataFolder, key: Identity) -> None:
    """Wait until a running daemon's address file names this key."""
    async with asyncio.timeout(DEADLINE_S):
        while (told := instance.read(folder.address)) is None or told.key != format_daemon_key(key.static_key):  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def until_gone(*paths: Path) -> None:
    """Wait until a running daemon has deleted all of these."""
    async with asyncio.timeout(DEADLINE_S):
        while any(path.exists() for path in paths):  # noqa: ASYNC110 - nor has a file
            await asyncio.sleep(0.02)


# -- killed in between --------------------------------------------------------------------------------------------


async def test_a_rotation_killed_between_any_two_writes_leaves_the_old_key_or_both(folder: DataFolder) -> None:
    """Whatever is left, the daemon starts and those who know the old key get in; and the next rotation goes through."""
    before, after, change = 0, 0, 1
    while True:
        old = daemon_keys.load(folder).current
        died = killed(folder, "rotate", change)
        keys = daemon_keys.load(folder)
        async with serving(folder.root) as daemon:
            laptop = daemon.enroll(f"laptop-{change}")
            async with opening(daemon, laptop, old) as connection:
                successor = connection.successor
            assert await answers(daemon, laptop, keys.current)
        if keys.current == old:
            before += 1
            assert keys.rotation is None
            assert successor is None
        else:
            after += 1
            assert successor is not None
            assert successor.new_static == keys.current.static_key
            daemon_keys.retire(folder)
        if not died:
            break
        change += 1
        assert daemon_keys.rotate(folder, keep_s=900).rotation is not None
        daemon_keys.retire(folder)
    assert before >= 3, "the script died nowhere before the new key was in place"
    assert after >= 2, "the script died nowhere after it"


async def test_an_end_killed_between_any_two_deletions_leaves_both_keys_or_the_new_one(folder: DataFolder) -> None:
    for change in (1, 2, 3, 4):
        keys = daemon_keys.rotate(folder, keep_s=900)
        assert keys.rotation is not None
        died = killed(folder, "retire", change)
        left = daemon_keys.load(folder)
        assert left.current == keys.current
        assert left.rotation == (keys.rotation if change == 1 else None)
        assert died is (change < 4)
        async with serving(folder.root) as daemon:
            laptop = daemon.enroll(f"laptop-{change}")
            assert await answers(daemon, laptop, keys.current)
            assert await answers(daemon, laptop, keys.rotation.old) is (change == 1)
        with contextlib.suppress(RotationError):
            daemon_keys.retire(folder)


async def test_a_running_daemon_clears_away_what_a_killed_rotation_left(folder: DataFolder) -> None:
    change = 1
    while not folder.following.exists():
        change += 1
        assert killed(folder, "rotate", change), "no rotation died with its next key on the disk"
    old = daemon_keys.load(folder).current
    async with serving(folder.root):
        await until_gone(folder.following, folder.previous, folder.rotation)
    assert daemon_keys.load(folder) == daemon_keys.Keys(old)


# -- while the daemon runs ----------------------------------------------------------------------------------------


async def test_a_running_daemon_takes_a_rotation_up_and_lets_the_old_key_go_in_time(folder: DataFolder) -> None:
    async with serving(folder.root) as daemon:
        laptop, old = daemon.enroll("laptop"), daemon.state.identity
        async with Machine(await connect(daemon.url, laptop, old.static_key)) as open_all_along:
            keys = daemon_keys.rotate(folder, keep_s=5)
            await until_answers(daemon, laptop, keys.current)
            async with opening(daemon, laptop, old) as connection:
                assert connection.successor is not None
                assert keys.rotation is not None
                assert connection.successor == keys.rotation.statement
            await until_told(folder, keys.current)
            await until_gone(folder.previous, folder.rotation)
            assert time.time() >= keys.rotation.until
            assert not await answers(daemon, laptop, old)
            assert await answers(daemon, laptop, keys.current)
            await open_all_along.attach()  # a session that is open outlives the key that it began with


async def test_invites_of_before_and_after_a_rotation_both_let_a_machine_in(folder: DataFolder) -> None:
    async with serving(folder.root) as daemon:
        before = daemon.invite("before")
        keys = daemon_keys.rotate(folder, keep_s=900)
        state = open_state(folder)
        rights = enrollment.Rights()
        after = enrollment.make_invite(state, "after", space=None, rights=rights, ttl_s=900, url=daemon.url).invite
        state.close()
        assert before.daemon_static != after.daemon_static == keys.current.static_key
        await until_answers(daemon, daemon.enroll("probe"), keys.current)
        for invite in (before, after):
            connection = await connect(daemon.url, Identity.generate(), invite.daemon_static, invite=invite)
            assert (connection.successor is not None) is (invite is before)
            await connection.close()


# -- looking at the files ------------------------------------------------------------------------------------------


def counted(monkeypatch: pytest.MonkeyPatch) -> list[DataFolder]:
    """Grows by one for every time that the keys are read from now on."""
    reads: list[DataFolder] = []
    load = daemon_keys.load

    def count(folder: DataFolder, *, now: float | None = None) -> daemon_keys.Keys:
        reads.append(folder)
        return load(folder, now=now)

    monkeypatch.setattr(daemon_keys, "load", count)
    return reads


def settled(keys: daemon_keys.LiveKeys) -> bool:
    """Whether a second look at the latest finds nothing more to do; the first may have cleared something away."""
    for _ in range(2):
        if not keys.is_stale():
            break
        keys.refresh()
    return not keys.is_stale()


@pytest.mark.parametrize("is_rotated", [False, True])
async def test_a_running_daemon_does_not_read_files_again_that_nobody_touches(
    folder: DataFolder, monkeypatch: pytest.MonkeyPatch, is_rotated: bool
) -> None:
    if is_rotated:
        daemon_keys.rotate(folder, keep_s=900)
    looks: list[bool] = []
    is_stale = daemon_keys.LiveKeys.is_stale

    def look(keys: daemon_keys.LiveKeys) -> bool:
        looks.append(is_stale(keys))
        return looks[-1]

    monkeypatch.setattr(daemon_keys.LiveKeys, "is_stale", look)
    async with serving(folder.root), asyncio.timeout(DEADLINE_S):
        while len(looks) < 2:  # noqa: ASYNC110 - nor has a look
            await asyncio.sleep(0.02)
        reads = counted(monkeypatch)
        while len(looks) < 6:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    assert (looks[2:], reads) == ([False] * len(looks[2:]), [])


def test_keys_are_looked_at_again_when_one_of_their_files_changes(folder: DataFolder) -> None:
    keys = daemon_keys.LiveKeys(folder, daemon_keys.load(folder))
    assert keys.is_stale()
    assert settled(keys)
    rotated = daemon_keys.rotate(folder, keep_s=900)
    assert keys.is_stale()
    assert keys.refresh()
    assert keys.in_force() == rotated
    assert settled(keys)
    daemon_keys.retire(folder)
    assert keys.is_stale()
    assert keys.refresh()
    assert keys.in_force() == daemon_keys.Keys(rotated.current)
    assert settled(keys)
    folder.identity.unlink()
    other = Identity.generate()
    other.save(folder.identity)
    assert keys.is_stale()
    assert keys.refresh()
    assert keys.in_force() == daemon_keys.Keys(other)
    assert settled(keys)


def test_an_old_key_whose_time_ends_is_dropped_at_once_and_its_files_at_the_next_look(
    folder: DataFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    rotated = daemon_keys.rotate(folder, keep_s=900)
    assert rotated.rotation is not None
    keys = daemon_keys.LiveKeys(folder, rotated)
    assert settled(keys)
    assert keys.in_force() == rotated
    until = rotated.rotation.until
    monkeypatch.setattr(daemon_keys.time, "time", lambda: float(until))
    assert keys.in_force() == daemon_keys.Keys(rotated.current)
    assert keys.is_stale()
    keys.refresh()
    assert not folder.previous.exists()
    assert not folder.rotation.exists()
    assert settled(keys)
    assert keys.in_force() == daemon_keys.Keys(rotated.current)


@pytest.mark.parametrize("name", ["previous", "rotation", "following"])
def test_what_a_killed_command_leaves_is_cleared_away_after_it(folder: DataFolder, name: str) -> None:
    """Also where the file came, and was seen, while the command still held the lock: nothing changes when it dies."""
    keys = daemon_keys.LiveKeys(folder, daemon_keys.load(folder))
    assert settled(keys)
    lock = DaemonLock.take(folder.rotation_lock)
    assert lock is not None
    left: Path = getattr(folder, name)
    if name == "rotation":
        Identity.generate().save(folder.previous)
    Identity.generate().save(left)
    if name == "rotation":
        left.write_bytes(
            json.dumps(
                KeySuccession.make(Identity.load(folder.previous), Identity.generate(), 2**40).to_json()
            ).encode()
        )
    assert keys.is_stale()
    keys.refresh()
    assert left.exists()
    assert keys.is_stale()
    lock.release()
    assert settled(keys)
    assert not left.exists()


def test_files_that_cannot_be_used_are_looked_at_until_they_can(folder: DataFolder) -> None:
    keys = daemon_keys.LiveKeys(folder, daemon_keys.load(folder))
    assert settled(keys)
    rotated = daemon_keys.rotate(folder, keep_s=900)
    folder.previous.chmod(0o644)
    for _ in range(2):
        assert keys.is_stale()
        with pytest.raises(KeyFileError, match="open to other users"):
            keys.refresh()
    folder.previous.chmod(0o600)
    assert keys.is_stale()
    assert keys.refresh()
    assert keys.in_force() == rotated
    assert settled(keys)


async def test_a_running_daemon_says_once_what_is_wrong_with_the_files(
    folder: DataFolder, caplog: pytest.LogCaptureFixture
) -> None:
    """It looks at them five times a second until they are mended."""

    def complaints() -> int:
        return sum("the key files cannot be used" in record.getMessage() for record in caplog.records)

    async with serving(folder.root) as daemon, asyncio.timeout(DEADLINE_S):
        laptop = daemon.enroll("laptop")
        for times in (1, 2):
            keys = daemon_keys.rotate(folder, keep_s=900)
            folder.rotation.chmod(0o644)
            while complaints() < times:  # noqa: ASYNC110 - nor has a log
                await asyncio.sleep(0.02)
            await asyncio.sleep(1)  # five looks
            folder.rotation.chmod(0o600)
            await until_answers(daemon, laptop, keys.current)
            assert complaints() == times
            daemon_keys.retire(folder)
            assert keys.rotation is not None
            while await answers(daemon, laptop, keys.rotation.old):  # noqa: ASYNC110 - as in until_answers
                await asyncio.sleep(0.02)


# -- what is refused ----------------------------------------------------------------------------------------------


def test_a_second_rotation_is_refused_with_a_way_out(folder: DataFolder) -> None:
    keys = daemon_keys.rotate(folder, keep_s=900)
    with pytest.raises(RotationError, match="under way") as caught:
        daemon_keys.rotate(folder, keep_s=900)
    assert "confided key --end-old" in (caught.value.hint or "")
    assert daemon_keys.load(folder) == keys


def test_there_is_nothing_to_end_without_a_rotation(folder: DataFolder) -> None:
    with pytest.raises(RotationError, match="no rotation is under way"):
        daemon_keys.retire(folder)


def test_of_two_commands_at_once_one_waits_its_turn(folder: DataFolder) -> None:
    lock = DaemonLock.take(folder.rotation_lock)
    assert lock is not None
    before = daemon_keys.load(folder)
    for command in (lambda: daemon_keys.rotate(folder, keep_s=900), lambda: daemon_keys.retire(folder)):
        with pytest.raises(RotationError, match="another command"):
            command()
    assert daemon_keys.load(folder) == before
    lock.release()
    assert daemon_keys.rotate(folder, keep_s=900).current != before.current


def test_a_file_system_without_locks_is_said_and_costs_no_descriptor(
    folder: DataFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_lock(_handle: int, _how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_lock)
    for _ in range(3):
        with pytest.raises(KeyFileError, match="no locks available"):
            daemon_keys.rotate(folder, keep_s=60)
    assert not [file.path for file in psutil.Process().open_files() if Path(file.path).is_relative_to(folder.root)]


def test_an_old_key_whose_time_is_over_is_not_loaded(folder: DataFolder) -> None:
    keys = daemon_keys.rotate(folder, keep_s=900)
    assert keys.rotation is not None
    assert daemon_keys.load(folder, now=keys.rotation.until - 1) == keys
    assert daemon_keys.load(folder, now=keys.rotation.until) == daemon_keys.Keys(keys.current)


@pytest.mark.parametrize("name", ["rotation", "previous"])
def test_loose_or_damaged_files_of_a_rotation_are_refused_and_can_be_ended(folder: DataFolder, name: str) -> None:
    daemon_keys.rotate(folder, keep_s=900)
    path: Path = getattr(folder, name)
    path.chmod(0o644)
    with pytest.raises(KeyFileError, match="open to other users"):
        daemon_keys.load(folder)
    path.chmod(0o600)
    path.write_bytes(b"{")
    with pytest.raises(KeyFileError, match="damaged"):
        daemon_keys.load(folder)
    daemon_keys.retire(folder)
    assert daemon_keys.load(folder).rotation is None


def test_a_statement_of_other_keys_puts_nothing_in_force(folder: DataFolder) -> None:
    """As when `daemon_keys.key` was restored from a backup of before or after."""
    keys = daemon_keys.rotate(folder, keep_s=900)
    folder.identity.unlink()
    other = Identity.generate()
    other.save(folder.identity)
    assert daemon_keys.load(folder) == daemon_keys.Keys(other)
    assert json.loads(folder.rotation.read_bytes())["static"] == keys.current.static_key.hex()


def test_what_a_rotation_writes_is_for_its_owner_alone(folder: DataFolder) -> None:
    daemon_keys.rotate(folder, keep_s=900)
    for path in (folder.identity, folder.previous, folder.rotation, folder.rotation_lock):
        assert path.stat().st_mode & 0o777 == 0o600, path
        assert path.stat().st_uid == os.geteuid()
    assert not folder.following.exists()
