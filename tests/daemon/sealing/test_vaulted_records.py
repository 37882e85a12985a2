"""A daemon whose sealed records are in a vault: none that was acknowledged is ever lost, and nothing is forgotten in the vault."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import shutil
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.daemon.damage import KEY
from tests.support.daemon.loopback import Machine, serving
from tests.support.daemon.openbao import MOUNT, Between, OpenBao, openbao
from tests.support.deadline import DEADLINE_S
from tests.support.programs.confided import Confided
from tests.support.programs.processes import NO_MODEL, SERVER_KEEPS
from tests.support.sealing.rosters import KEYS
from tests.support.sealing.sealed_files import TOKEN, SealedMachine

from confide_crypto.errors import RequestError
from confide_crypto.sealing.record import MAX_VALUE, SealedRecord
from confide_crypto.sealing.roster import Roster
from confide_crypto.sealing.space_keys import SpaceKeys
from confide_daemon.access.registry import open_state
from confide_daemon.config import DaemonConfig, VaultConfig
from confide_daemon.datadir.paths import DataFolder
from confide_daemon.embedding import LoadedModel
from confide_daemon.errors import VaultError
from confide_daemon.sealing.records import MoveResult
from confide_daemon.sealing.vault import Vault
from confide_daemon.sealing.vault_records import (
    REPLACED_AFTER_S,
    STRAY_AFTER_S,
    VaultRecords,
)
from confide_daemon.spaces.models import IndexSettings
from confide_daemon.spaces.space import Space, SpaceShared
from confide_daemon.store.upkeep import integrity, salvage
from confide_proxy.errors import LATER

NEXT = KEYS.next_epoch()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenBao]:
    with openbao(tmp_path_factory.mktemp("bao")) as running:
        yield running


@pytest.fixture
def bao(server: OpenBao) -> OpenBao:
    """The server, with nothing in it."""
    server.clear()
    return server


@pytest.fixture
def settings(bao: OpenBao, tmp_path: Path) -> VaultConfig:
    path = tmp_path / "vault.token"
    path.write_text(bao.token("confide"))
    path.chmod(0o600)
    return VaultConfig(url=bao.url, token_file=str(path), timeout_s=30.0)


@asynccontextmanager
async def opened(
    folder: Path, settings: VaultConfig | None, *, key: bytes = KEY, name: str = "s", ahead_s: float = 0.0
) -> AsyncIterator[Space]:
    """The space, by a clock that is ahead."""
    vault = Vault.open(settings) if settings is not None else None
    space = await Space.open(
        folder / f"{name}.db",
        key,
        SpaceShared(IndexSettings(), LoadedModel.none(), clock=lambda: time.time() + ahead_s, vault=vault),
        space_id=name,
    )
    try:
        yield space
    finally:
        await space.close()
        if vault is not None:
            await vault.close()


def sealed(number: int, keys: SpaceKeys = KEYS) -> SealedRecord:
    """A secret of its own."""
    return SealedRecord.seal(keys, "password", b"secret %d" % number)


async def until_paths(bao: OpenBao, count: int) -> None:
    """Waits until so many values are in the vault."""
    async with asyncio.timeout(DEADLINE_S):
        while len(await asyncio.to_thread(bao.paths)) != count:  # noqa: ASYNC110 - a vault tells nobody
            await asyncio.sleep(0.05)


async def swept(space: Space) -> None:
    """Empties the places that are due, as is done in the background."""
    assert isinstance(space.records, VaultRecords)
    await space.records._sweep()


async def brought(space: Space, *, back: bool) -> MoveResult:
    """Moves all records."""
    return await space.records.move(back=back, follow=lambda _done, _total: None, is_cancelled=lambda: False)


async def test_the_bytes_are_in_the_vault_and_the_list_is_here(
    bao: OpenBao, settings: VaultConfig, tmp_path: Path
) -> None:
    kept = [sealed(number) for number in range(40)]
    kept.append(SealedRecord.seal(KEYS, "note", bytes(1) * MAX_VALUE))
    async with opened(tmp_path, settings) as space:
        assert await space.records.put([*kept, *kept]) == 41
        assert await space.records.put(kept) == 0
    async with opened(tmp_path, settings) as space:
        assert await space.records.count() == 41
        assert {row.id for row in await space.records.list_rows(b"", limit=100)} == {one.secret_id for one in kept}
        for one in kept:
            assert await space.records.get(one.secret_id) == one
        assert await space.records.places() == (41, 0)
        found = await space.threads.examine(
            lambda store: [breach for slice in store.integrity.examine() for breach in slice]
        )
        assert found == []
    # What can be read of a damaged database knows its places too; nor does a mender take a row without bytes for damaged.
    assert salvage.salvage(tmp_path / "s.db", KEY) == 0
    async with opened(tmp_path, settings) as space:
        await space.upkeep.check(accept_losses=True)
        assert integrity.RECORDS_DAMAGED not in await space.upkeep.breaches_since(0)
        assert await space.records.get(kept[0].secret_id) == kept[0]


async def test_a_newer_epoch_leaves_nothing_of_the_old_one_after_30_days(
    bao: OpenBao, settings: VaultConfig, tmp_path: Path
) -> None:
    old = [sealed(number) for number in range(3)]
    new = [one.reseal(NEXT) for one in old]
    async with opened(tmp_path, settings) as space:
        await space.records.put(old)
        before = set(bao.paths())
        assert await space.records.put(new) == 3
        assert await space.records.put(old) == 0
        assert before < set(bao.paths())
        assert [await space.records.get(one.secret_id) for one in old] == new
    async with opened(tmp_path, settings, ahead_s=REPLACED_AFTER_S + 60) as space:
        await until_paths(bao, 3)
        assert not before & set(bao.paths())
        assert [await space.records.get(one.secret_id) for one in old] == new


async def test_an_older_copy_of_the_folder_finds_its_records_in_the_vault_for_30_days(
    bao: OpenBao, settings: VaultConfig, tmp_path: Path
) -> None:
    old = [sealed(number) for number in range(3)]
    async with opened(tmp_path, settings) as space:
        await space.records.put(old)
    (tmp_path / "copy").mkdir()
    for path in tmp_path.glob("s.db*"):
        shutil.copy(path, tmp_path / "copy")
    async with opened(tmp_path, settings) as space:
        await space.records.put([one.reseal(NEXT) for one in old])
        await swept(space)
    async with opened(tmp_path, settings, ahead_s=REPLACED_AFTER_S - 60) as space:
        await swept(space)
    async with opened(tmp_path / "copy", settings, ahead_s=REPLACED_AFTER_S - 60) as space:
        assert [await space.records.get(one.secret_id) for one in old] == old
    # Who leaves the vault leaves nothing in it.
    async with opened(tmp_path, settings) as space:
        assert await brought(space, back=True) == MoveResult(3, 0, 0, 3)
        assert bao.paths() == []


async def test_what_fails_in_the_middle_is_told_and_what_was_kept_is_kept(
    bao: OpenBao, settings: VaultConfig, tmp_path: Path
) -> None:
    records = [sealed(number) for number in range(50)]
    with Between(bao.url) as between:
        async with opened(tmp_path, replace(settings, url=between.url)) as space:
            between.refused_after = 30
            with pytest.raises(VaultError, match="failed over a request"):
                await space.records.put(records)
            stored = await space.records.count()
            assert 0 < stored < 50
            between.refused_after = 10**6
            assert await space.records.put(records) == 50 - stored
            for one in records:
                assert await space.records.get(one.secret_id) == one
    # Nobody knows of a request that failed whether it has done something. After an hour it is emptied all the same.
    async with opened(tmp_path, settings, ahead_s=STRAY_AFTER_S + 60) as space:
        await until_paths(bao, 50)
        assert await space.records.get(records[-1].secret_id) == records[-1]


async def test_records_are_moved_in_and_out_while_they_are_read(
    bao: OpenBao, settings: VaultConfig, tmp_path: Path
) -> None:
    many = 24  # more than are moved at once
    records = [sealed(number) for number in range(many)]
    async with opened(tmp_path, None) as space:
        await space.records.put(records)
        assert await brought(space, back=True) == MoveResult(0, 0, 0, many)
        with pytest.raises(VaultError, match="no vault"):
            await brought(space, back=False)

    async with opened(tmp_path, settings) as space:

        async def read() -> None:
            while not has_moved:
                for one in records:
                    assert await space.records.get(one.secret_id) == one

        has_moved = False
        reading = asyncio.create_task(read())
        assert await space.records.get(records[0].secret_id) == records[0]
        looks = itertools.chain([False], itertools.repeat(True))
        part = await space.records.move(back=False, follow=lambda _done, _total: None, is_cancelled=lambda: next(looks))
        assert 0 < part.in_vault < many
        assert await brought(space, back=False) == MoveResult(many - part.moved, 0, many, 0)
        assert len(bao.paths()) == many
        assert await brought(space, back=True) == MoveResult(many, 0, 0, many)
        assert bao.paths() == []
        assert await brought(space, back=False) == MoveResult(many, 0, many, 0)
        has_moved = True
        await reading

    async with opened(tmp_path, None) as space:
        with pytest.raises(VaultError) as caught:
            await space.records.get(records[0].secret_id)
        assert "[vault]" in (caught.value.hint or "")
        with pytest.raises(VaultError, match="no vault"):
            await brought(space, back=True)
        assert await space.records.count() == many


async def test_what_the_vault_has_lost_holds_the_others_back_nowhere(
    bao: OpenBao, settings: VaultConfig, tmp_path: Path
) -> None:
    records = [sealed(number) for number in range(20)]
    async with opened(tmp_path, settings) as space:
        await space.records.put(records)
        gone, *_ = records
        (path,) = [path for path in bao.paths() if gone.secret_id.hex() in path]
        bao.root.secrets.kv.v2.delete_metadata_and_all_versions(path, mount_point=MOUNT)
        assert await brought(space, back=True) == MoveResult(19, 1, 1, 19)
        with pytest.raises(VaultError, match="not in the vault any more"):
            await space.records.get(gone.secret_id)
        for one in records[1:]:
            assert await space.records.get(one.secret_id) == one
        # A machine that seals it anew has it back.
        newer = gone.reseal(NEXT)
        assert await space.records.put([newer]) == 1
        assert await space.records.get(gone.secret_id) == newer


async def test_a_file_waits_on_its_machine_until_the_vault_takes_its_secret(
    bao: OpenBao, settings: VaultConfig, tmp_path: Path
) -> None:
    text = f"# Deploy\n\nexport GITHUB_TOKEN={TOKEN}\n"
    async with serving(tmp_path / "daemon", config=DaemonConfig(vault=settings)) as daemon:
        ann = SealedMachine(tmp_path, daemon, "ann")
        ann.write("memory/deploy.md", text)
        ann.write("memory/plain.md", "# No secret\n")
        async with ann.running() as laptop:
            bao.root.sys.seal()
            try:
                with pytest.raises(RequestError, match="vault is sealed") as caught:
                    await laptop.sync()
            finally:
                bao.unseal()
            assert caught.value.code in LATER
            assert list(await laptop.documents()) == ["memory/plain.md"]
            assert bao.paths() == []
            assert (await laptop.sync()).sent == 1
            assert "(sealed:github-token:" in (await laptop.documents())["memory/deploy.md"]
            assert len(bao.paths()) == 1
        assert ann.read("memory/deploy.md") == text


# The program


class Laptop:
    """A machine on the roster of its space."""

    def __init__(self, ready: Confided, settings: VaultConfig) -> None:
        self.ready = ready
        self.identity = ready.enroll()
        self.keys: SpaceKeys | None = None
        self.configure(settings)

    def configure(self, settings: VaultConfig | None) -> None:
        """Writes daemon.toml."""
        text = NO_MODEL + SERVER_KEEPS
        if settings is not None:
            told = {name: getattr(settings, name) for name in ("url", "token_file", "timeout_s")}
            text += "\n[vault]\n" + "".join(f"{name} = {json.dumps(value)}\n" for name, value in told.items())
        (self.ready.home / "daemon.toml").write_text(text)

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[Machine]:
        """Connected and attached, and the roster begun the first time."""
        async with await self.ready.connect(self.identity) as machine:
            await machine.attach()
            if self.keys is None:
                roster, self.keys = Roster.create(self.identity, "laptop", now=int(time.time()))
                await machine.request("extend", {"entry": wire(roster.entries[-1].encode())})
            yield machine


def wire(data: bytes) -> str:
    return base64.b64encode(data).decode()


async def keep(machine: Machine, record: SealedRecord) -> None:
    assert await machine.request("records", {"records": [wire(record.encode())]}) == {"stored": 1}


async def fetched(machine: Machine, record: SealedRecord) -> SealedRecord:
    answer = await machine.request("record", {"id": record.secret_id.hex()})
    return SealedRecord.parse(base64.b64decode(answer["record"]))


async def refused(machine: Machine, op: str, body: dict[str, Any]) -> RequestError:
    with pytest.raises(RequestError) as caught:
        await machine.request(op, body)
    return caught.value


async def test_a_record_goes_through_the_daemon_into_the_vault_and_back_out(
    bao: OpenBao, settings: VaultConfig, ready: Confided
) -> None:
    laptop = Laptop(ready, settings)
    process = ready.serve()
    async with laptop.connected() as machine:
        assert laptop.keys is not None
        record = SealedRecord.seal(laptop.keys, "password", b"hunter2 of the pool")
        await keep(machine, record)
        assert len(bao.paths()) == 1
        assert await fetched(machine, record) == record

        bao.root.sys.seal()
        other = SealedRecord.seal(laptop.keys, "password", b"another one")
        error = await refused(machine, "records", {"records": [wire(other.encode())]})
        assert (error.code, "sealed" in str(error)) == ("unavailable", True)
        error = await refused(machine, "record", {"id": record.secret_id.hex()})
        assert error.code == "unavailable"
        assert error.hint
        await machine.put("a.md", "# Notes need no vault\n")
        (wrong,) = [one for one in json.loads(ready.run("doctor", "--json", code=1).stdout) if not one["ok"]]
        assert wrong["check"] == "vault for sealed records"
        bao.unseal()
        await keep(machine, other)

        # Out of the running daemon's vault, and into it again.
        assert "laptop: 2 moved; 0 in the vault, 2 in the database" in ready.run("vault", "move", "--back").stdout
        assert bao.paths() == []
        assert await fetched(machine, record) == record
        assert ready.json("vault", "move") == [
            {"space": "laptop", "moved": 2, "lost": 0, "inVault": 2, "inDatabase": 0}
        ]
        assert await fetched(machine, other) == other
    process.terminate()
    process.wait(DEADLINE_S)
    assert all(check["ok"] for check in ready.json("doctor"))
    # Without a daemon too, and then without a vault.
    ready.run("vault", "move", "--back")
    laptop.configure(None)
    assert bao.paths() == []
    ready.serve()
    async with laptop.connected() as machine:
        assert await fetched(machine, record) == record
    token = Path(settings.token_file).read_text()
    assert token not in ready.log


async def test_a_daemon_that_is_killed_between_vault_and_row_has_acknowledged_nothing_and_loses_nothing(
    bao: OpenBao, settings: VaultConfig, ready: Confided
) -> None:
    with Between(bao.url) as between:
        laptop = Laptop(ready, replace(settings, url=between.url))
        process = ready.serve()
        async with laptop.connected() as machine:
            assert laptop.keys is not None
            first, second = (SealedRecord.seal(laptop.keys, "password", value) for value in (b"one", b"two"))
            await keep(machine, first)
            between.is_holding = True
            asking = asyncio.create_task(machine.request("records", {"records": [wire(second.encode())]}))
            assert await asyncio.to_thread(between.written.wait, DEADLINE_S)
            assert len(bao.paths()) == 2
            process.kill()
            process.wait(DEADLINE_S)
            assert await asyncio.gather(asking, return_exceptions=True)
    laptop.configure(settings)
    process = ready.serve()
    async with laptop.connected() as machine:
        assert await fetched(machine, first) == first
        assert (await refused(machine, "record", {"id": second.secret_id.hex()})).code == "not_found"
        await keep(machine, second)
        assert await fetched(machine, second) == second
    process.terminate()
    process.wait(DEADLINE_S)
    # What the killed one has left in the vault is found again, though no record is there.
    assert len(bao.paths()) == 3
    (path,) = (ready.data / "spaces").glob("*.db")
    state = open_state(DataFolder(ready.data))
    key = state.master.space_key(path.stem)
    state.close()
    async with opened(path.parent, settings, key=key, name=path.stem, ahead_s=STRAY_AFTER_S + 60) as space:
        await until_paths(bao, 2)
        assert await space.records.get(second.secret_id) == second
