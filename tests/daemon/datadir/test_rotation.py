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
from tests.support.serving import Machine, Serving, serving

from confide_crypto.connection import Connection, connect
from confide_crypto.errors import KeyFileError, WrongDaemonKey
from confide_crypto.keys import Identity, format_daemon_key
from confide_daemon import address, enrollment, rotation
from confide_daemon.errors import RotationError
from confide_daemon.lock import DaemonLock
from confide_daemon.paths import DataFolder
from confide_daemon.state import create, open_state

DEADLINE_S = 10.0

# Ends the process by SIGKILL in place of its n-th change of a file, before the change (n from 1).
KILLED = """
import os, signal, sys
from pathlib import Path
from confide_crypto import keys, private
from confide_daemon import rotation
from confide_daemon.paths import DataFolder

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
        timeout=60,
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
        while (told := address.read(folder.address)) is None or told.key != format_daemon_key(key.static_key):  # noqa: ASYNC110
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
        old = rotation.load(folder).current
        died = killed(folder, "rotate", change)
        keys = rotation.load(folder)
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
            rotation.retire(folder)
        if not died:
            break
        change += 1
        assert rotation.rotate(folder, keep_s=900).rotation is not None
        rotation.retire(folder)
    assert before >= 3, "the script died nowhere before the new key was in place"
    assert after >= 2, "the script died nowhere after it"


async def test_an_end_killed_between_any_two_deletions_leaves_both_keys_or_the_new_one(folder: DataFolder) -> None:
    for change in (1, 2, 3, 4):
        keys = rotation.rotate(folder, keep_s=900)
        assert keys.rotation is not None
        died = killed(folder, "retire", change)
        left = rotation.load(folder)
        assert left.current == keys.current
        assert left.rotation == (keys.rotation if change == 1 else None)
        assert died is (change < 4)
        async with serving(folder.root) as daemon:
            laptop = daemon.enroll(f"laptop-{change}")
            assert await answers(daemon, laptop, keys.current)
            assert await answers(daemon, laptop, keys.rotation.old) is (change == 1)
        with contextlib.suppress(RotationError):
            rotation.retire(folder)


async def test_a_running_daemon_clears_away_what_a_killed_rotation_left(folder: DataFolder) -> None:
    change = 1
    while not folder.following.exists():
        change += 1
        assert killed(folder, "rotate", change), "no rotation died with its next key on the disk"
    old = rotation.load(folder).current
    async with serving(folder.root):
        await until_gone(folder.following, folder.previous, folder.rotation)
    assert rotation.load(folder) == rotation.Keys(old)


# -- while the daemon runs ----------------------------------------------------------------------------------------


async def test_a_running_daemon_takes_a_rotation_up_and_lets_the_old_key_go_in_time(folder: DataFolder) -> None:
    async with serving(folder.root) as daemon:
        laptop, old = daemon.enroll("laptop"), daemon.state.identity
        async with Machine(await connect(daemon.url, laptop, old.static_key)) as open_all_along:
            keys = rotation.rotate(folder, keep_s=5)
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
        keys = rotation.rotate(folder, keep_s=900)
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


# -- what is refused ----------------------------------------------------------------------------------------------


def test_a_second_rotation_is_refused_with_a_way_out(folder: DataFolder) -> None:
    keys = rotation.rotate(folder, keep_s=900)
    with pytest.raises(RotationError, match="under way") as caught:
        rotation.rotate(folder, keep_s=900)
    assert "confided key retire" in (caught.value.hint or "")
    assert rotation.load(folder) == keys


def test_there_is_nothing_to_end_without_a_rotation(folder: DataFolder) -> None:
    with pytest.raises(RotationError, match="no rotation is under way"):
        rotation.retire(folder)


def test_of_two_commands_at_once_one_waits_its_turn(folder: DataFolder) -> None:
    lock = DaemonLock.take(folder.rotation_lock)
    assert lock is not None
    before = rotation.load(folder)
    for command in (lambda: rotation.rotate(folder, keep_s=900), lambda: rotation.retire(folder)):
        with pytest.raises(RotationError, match="another command"):
            command()
    assert rotation.load(folder) == before
    lock.release()
    assert rotation.rotate(folder, keep_s=900).current != before.current


def test_a_file_system_without_locks_is_said_and_costs_no_descriptor(
    folder: DataFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_lock(_handle: int, _how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_lock)
    before = psutil.Process().num_fds()
    for _ in range(3):
        with pytest.raises(KeyFileError, match="no locks available"):
            rotation.rotate(folder, keep_s=60)
    assert psutil.Process().num_fds() == before


def test_an_old_key_whose_time_is_over_is_not_loaded(folder: DataFolder) -> None:
    keys = rotation.rotate(folder, keep_s=900)
    assert keys.rotation is not None
    assert rotation.load(folder, now=keys.rotation.until - 1) == keys
    assert rotation.load(folder, now=keys.rotation.until) == rotation.Keys(keys.current)


@pytest.mark.parametrize("name", ["rotation", "previous"])
def test_loose_or_damaged_files_of_a_rotation_are_refused_and_can_be_ended(folder: DataFolder, name: str) -> None:
    rotation.rotate(folder, keep_s=900)
    path: Path = getattr(folder, name)
    path.chmod(0o644)
    with pytest.raises(KeyFileError, match="open to other users"):
        rotation.load(folder)
    path.chmod(0o600)
    path.write_bytes(b"{")
    with pytest.raises(KeyFileError, match="damaged"):
        rotation.load(folder)
    rotation.retire(folder)
    assert rotation.load(folder).rotation is None


def test_a_statement_of_other_keys_puts_nothing_in_force(folder: DataFolder) -> None:
    """As when `identity.key` was restored from a backup of before or after."""
    keys = rotation.rotate(folder, keep_s=900)
    folder.identity.unlink()
    other = Identity.generate()
    other.save(folder.identity)
    assert rotation.load(folder) == rotation.Keys(other)
    assert json.loads(folder.rotation.read_bytes())["static"] == keys.current.static_key.hex()


def test_what_a_rotation_writes_is_for_its_owner_alone(folder: DataFolder) -> None:
    rotation.rotate(folder, keep_s=900)
    for path in (folder.identity, folder.previous, folder.rotation, folder.rotation_lock):
        assert path.stat().st_mode & 0o777 == 0o600, path
        assert path.stat().st_uid == os.geteuid()
    assert not folder.following.exists()
