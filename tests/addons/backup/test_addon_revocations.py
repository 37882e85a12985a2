"""Keys that ended are noted beside the data folder, and a folder that is put back from an older copy lets none of them in again."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest
from tests.support.daemon.loopback import Serving, serving
from tests.support.deadline import DEADLINE_S
from tests.support.programs.confided import Confided

from confide_backup.settings import BackupConfig
from confide_crypto.errors import DeniedError
from confide_crypto.keys.identity import Identity, format_public_key
from confide_daemon.access.registry import RegistryState, open_state
from confide_daemon.access.revocations import Revocations
from confide_daemon.addons import revocation_folders
from confide_daemon.config import DaemonConfig
from confide_daemon.datadir.paths import DataFolder
from confide_daemon.errors import StorageError


class Place:
    """A data folder, a copy of it, and the folder beside both."""

    def __init__(self, root: Path) -> None:
        self.data, self.copy, self.beside = root / "data", root / "copy", root / "beside"
        self.beside.mkdir()
        self.file = self.beside / "revoked"
        self.config = DaemonConfig(tables={"backup": BackupConfig(revoked=str(self.beside))})

    def put_back(self) -> None:
        shutil.rmtree(self.data)
        shutil.copytree(self.copy, self.data)

    async def noted(self, key: bytes) -> None:
        """Until the daemon, which looks at its registry now and then, has noted a key."""
        async with asyncio.timeout(DEADLINE_S):
            while not self.file.exists() or key.hex() not in self.file.read_text():  # noqa: ASYNC110 - no event tells
                await asyncio.sleep(0.02)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def applied(config: DaemonConfig, state: RegistryState) -> None:
    """As the daemon does before it serves."""
    revocations = Revocations.from_folders(revocation_folders(config), state)
    assert revocations is not None
    revocations.apply(state.registry)


async def refused(daemon: Serving, identity: Identity, **options: object) -> str:
    with pytest.raises(DeniedError) as caught:
        await daemon.connect(identity, **options)  # type: ignore[arg-type]
    return caught.value.reason


async def test_a_machine_revoked_after_the_copy_stays_out(place: Place) -> None:
    async with serving(place.data, config=place.config) as daemon:
        thief, kept = daemon.enroll("thief"), daemon.enroll("kept")
    shutil.copytree(place.data, place.copy)
    async with serving(place.data, config=place.config) as daemon:
        daemon.state.registry.revoke("thief")
        await place.noted(thief.public_key)
    place.put_back()
    async with serving(place.data, config=place.config) as daemon:
        assert await refused(daemon, thief) == "revoked"
        await (await daemon.connect(kept)).close()
    assert place.file.read_text().count(thief.public_key.hex()) == 1


async def test_a_machine_that_was_let_in_again_stays_in(place: Place) -> None:
    async with serving(place.data, config=place.config) as daemon:
        laptop = daemon.enroll("laptop")
        grants = daemon.state.registry.caller(laptop.public_key)
        assert grants is not None
        daemon.state.registry.revoke("laptop")
        await place.noted(laptop.public_key)
        daemon.state.registry.add_caller(laptop.public_key, grants.grants, space="laptop", added_by="line")
    async with serving(place.data, config=place.config) as daemon:
        await (await daemon.connect(laptop)).close()


async def test_one_that_joined_and_was_revoked_after_the_copy_does_not_join_again(place: Place) -> None:
    """Its invite is open in the copy, and so is its line in `authorized/`."""
    async with serving(place.data, config=place.config) as daemon:
        daemon.enroll("owner")
        invite, thief = daemon.invite("thief", ttl_s=86_400), Identity.generate()
        line = DataFolder(place.data).authorized / "thief.pub"
        line.write_text(format_public_key(thief.public_key, "thief") + "\n")
        line.chmod(0o600)
    shutil.copytree(place.data, place.copy)
    async with serving(place.data, config=place.config) as daemon:
        await (await daemon.connect(thief, invite=invite)).close()
        daemon.state.registry.revoke("thief")
        await place.noted(thief.public_key)
    place.put_back()
    async with serving(place.data, config=place.config) as daemon:
        assert await refused(daemon, thief, invite=invite) == "invite"
        assert await refused(daemon, Identity.generate(), invite=invite) == "invite"
        assert await refused(daemon, thief) == "revoked"


@pytest.mark.parametrize("is_invited", [True, False])
async def test_a_clock_that_was_ahead_lets_nobody_in_again(place: Place, is_invited: bool) -> None:
    """It was put right between the day that a machine was enrolled, or invited, and the day that it was revoked."""
    async with serving(place.data, config=place.config) as daemon:
        registry = daemon.state.registry
        registry.clock, now = (lambda: now() + 2 * 86_400), registry.clock
        daemon.enroll("owner")
        invite = daemon.invite("thief", ttl_s=9 * 86_400) if is_invited else None
        thief = Identity.generate() if is_invited else daemon.enroll("thief")
        registry.clock = now
    shutil.copytree(place.data, place.copy)
    async with serving(place.data, config=place.config) as daemon:
        await (await daemon.connect(thief, invite=invite)).close()
        daemon.state.registry.revoke("thief")
        await place.noted(thief.public_key)
    place.put_back()
    async with serving(place.data, config=place.config) as daemon:
        assert await refused(daemon, thief) == "revoked"
        if is_invited:
            assert await refused(daemon, Identity.generate(), invite=invite) == "invite"


async def test_a_machine_that_comes_again_before_it_was_revoked_stays_in(place: Place) -> None:
    """By a clock that was ahead when it was revoked: the time of its second enrolment is earlier."""
    async with serving(place.data, config=place.config) as daemon:
        laptop, registry = daemon.enroll("laptop"), daemon.state.registry
        known = registry.caller(laptop.public_key)
        assert known is not None
        registry.clock, now = (lambda: now() + 2 * 86_400), registry.clock
        registry.revoke("laptop")
        await place.noted(laptop.public_key)
        registry.clock = now
        registry.add_caller(laptop.public_key, known.grants, space="laptop", added_by="line")
    async with serving(place.data, config=place.config) as daemon:
        await (await daemon.connect(laptop)).close()


async def test_a_key_that_took_another_s_place_has_it_again(place: Place) -> None:
    async with serving(place.data, config=place.config) as daemon:
        old, new = daemon.enroll("laptop"), Identity.generate()
    shutil.copytree(place.data, place.copy)
    async with serving(place.data, config=place.config) as daemon:
        daemon.state.registry.name_successor(old.public_key, new.public_key, session="s")
        await (await daemon.connect(new)).close()
        await place.noted(new.public_key)
    place.put_back()
    async with serving(place.data, config=place.config) as daemon:
        assert await refused(daemon, old) == "revoked"
        await (await daemon.connect(new)).close()


@pytest.mark.parametrize("is_known", [True, False])
async def test_a_line_of_a_stranger_counts_for_nothing_and_is_told(place: Place, is_known: bool) -> None:
    """Whoever can write there shuts nobody out by it; and a line that may be ours, of a later key, is not passed over in silence."""
    async with serving(place.data, config=place.config) as daemon:
        laptop = daemon.enroll("laptop")
        daemon.state.registry.revoke("laptop")
        await place.noted(laptop.public_key)
        if not is_known:
            daemon.enroll("laptop")
    other = laptop.public_key.hex() if is_known else "11" * 32
    place.file.write_text(
        place.file.read_text().replace('"signature": "', '"signature": "AAAA').replace(laptop.public_key.hex(), other)
    )
    state = open_state(DataFolder(place.data))
    try:
        if is_known:
            applied(place.config, state)
            assert place.file.read_text().count(laptop.public_key.hex()) == 2, "signed anew"
        else:
            with pytest.raises(StorageError, match="has not signed"):
                applied(place.config, state)
    finally:
        state.close()


@pytest.mark.parametrize("trick", ["gone", "inside", "link"])
async def test_a_place_that_is_of_no_use_is_told(place: Place, trick: str) -> None:
    async with serving(place.data):
        pass
    config = place.config
    if trick == "gone":
        place.beside.rmdir()
    elif trick == "inside":
        config = DaemonConfig(tables={"backup": BackupConfig(revoked=str(place.data / "spaces"))})
    else:
        place.file.symlink_to(place.data / "registry.db")
    state = open_state(DataFolder(place.data))
    try:
        with pytest.raises(StorageError, match=r"revocations .*cannot be"):
            applied(config, state)
    finally:
        state.close()


async def test_a_torn_line_spoils_none_but_itself(place: Place) -> None:
    """A crash in the middle of writing: the next line begins anew, and what was cut is written again."""
    async with serving(place.data, config=place.config) as daemon:
        one, other = daemon.enroll("one"), daemon.enroll("other")
        daemon.state.registry.revoke("one")
        await place.noted(one.public_key)
        place.file.write_bytes(place.file.read_bytes()[:-20])
        daemon.state.registry.revoke("other")
        await place.noted(other.public_key)
    assert [line.count('"signature"') for line in place.file.read_text().splitlines()] == [1, 1, 1]


def test_the_command_notes_at_once(tmp_path: Path) -> None:
    """No daemon runs, and the copy is put back before one does."""
    program = Confided(tmp_path / "home")
    (tmp_path / "beside").mkdir()
    with (program.home / "daemon.toml").open("a") as file:
        file.write(f'\n[backup]\nrevoked = "{tmp_path / "beside"}"\n')
    program.run("init")
    thief = Identity.generate()
    program.run("device", "add", format_public_key(thief.public_key, "thief"))
    program.run("device", "rm", "thief")
    assert thief.public_key.hex() in (tmp_path / "beside/revoked").read_text()
