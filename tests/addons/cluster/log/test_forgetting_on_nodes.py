"""Forgetting on nodes: nothing of a text in any byte of both data folders and of PostgreSQL, whatever is drawn."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.support.daemon import residue
from tests.support.daemon.logged import Store
from tests.support.daemon.postgres import Postgres, server
from tests.support.draws import draws
from tests.support.kills.forget_nodes_schedule import WAL, NodesSchedule

from confide_crypto.keys.identity import Identity
from confide_daemon.access.enrolled_callers import Grants
from confide_daemon.errors import StorageError
from confide_daemon.sealing.unsealed_texts import SpaceTexts
from confide_daemon.server.requests.forget_requests import ForgetRequests
from confide_daemon.spaces.space import Space
from confide_memory.forgetting import ForgetRecord, key_id


@pytest.fixture(scope="module")
def small() -> Iterator[Postgres]:
    """A server whose write-ahead log is read in a moment."""
    with server(settings=WAL) as found:
        yield found


async def receipt_levels(space: Space, identity: bytes) -> dict[str, str]:
    """What a receipt says of each place, beside a copy of former times."""
    path = await space.threads.read(lambda store: store.path)
    aside = path.with_name(f"{path.name}.ahead")
    aside.touch()

    async def epoch(_key: bytes) -> int:
        return 1

    caller = SimpleNamespace(grants=Grants("ann"), public_key=bytes(32))
    registry = SimpleNamespace(callers=lambda: [])
    session = SimpleNamespace(caller_now=lambda: caller, epoch_for=epoch, registry=registry)
    services = SimpleNamespace(copies_of=lambda _space, _before: ())
    keys = SimpleNamespace(current=Identity(bytes(32)))
    requests = ForgetRequests(space, cast("Any", session), lambda: cast("Any", keys), cast("Any", services))
    answer = await requests.operations["forget-receipt"]({"id": identity.hex()})
    aside.unlink()
    return {place["place"]: place["level"] for place in json.loads(base64.b64decode(answer["receipt"]))["places"]}


@pytest.mark.parametrize("seed", range(draws(200, 2)))
async def test_nothing_is_left_on_nodes_whatever_is_drawn(small: Postgres, tmp_path: Path, seed: int) -> None:
    """Ciphertext of deleted rows stays in PostgreSQL's tables until VACUUM FULL, as docs/forgetting.md says."""
    schedule = NodesSchedule(tmp_path, seed, small)
    assert (await schedule.run()).residues == []
    assert schedule.remains.in_tables_after_vacuum == 0


async def test_a_node_drops_the_copy_that_another_one_has_gone_on_from(store: Store) -> None:
    """Once the log starts after it, as it does where a text was forgotten. A copy that the log still continues stays."""
    async with store.node("two") as two, store.node() as one:
        await one.put("memory/a.md", "the heron fishes\n")
        await one.spaces.close()
        await two.put("memory/b.md", "the kestrel hovers\n")
    async with store.node() as one:
        await one.spaces.look_at_all()
        assert one.path.exists()
    async with store.node("two") as two:
        outbox = (await two.space()).outbox
        assert outbox is not None
        outbox.take_snapshot()
        async with store.node() as one:
            for end in (".rekeying", ".rekeying-journal"):
                one.path.with_name(f"{one.path.name}{end}").write_bytes(b"interrupted")
            await one.spaces.look_at_all()
            assert not [*one.path.parent.glob("*.db*")]
            one.path.with_name(f"{one.path.name}.fetching").write_bytes(b"interrupted")
            for begun in (b"interrupted at its beginning" * 1000, b""):
                one.path.write_bytes(begun)
                one.path.with_name(f"{one.path.name}-journal").write_bytes(b"of that")
                await one.spaces.look_at_all()
                assert not [*one.path.parent.glob("*.db*")]
    async with store.node() as one:
        assert sorted(await one.texts()) == ["memory/a.md", "memory/b.md"]
    async with store.node() as one:
        await one.spaces.look_at_all()
        assert one.path.exists()


async def test_a_node_that_was_interrupted_keeps_no_free_page_of_it(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had removed the text, and not written its file again; another node finished."""
    text = "the zanzibar plan of quillfeather begins at dawn\n"

    async def ends(_texts: SpaceTexts) -> None:
        raise StorageError("it is killed here")

    async with store.node() as one:
        await one.put("memory/a.md", text)
        space = await one.space()
        key = await space.forgetting.key()
        _, plan = await space.forgetting.plan("p", ["memory/a.md"], [], lambda _project, _path: True)
        content = (plan.names, plan.texts, plan.parts, plan.of_parts, plan.sealed)
        identity = Identity(bytes(32))
        signed = ForgetRecord(bytes(16), "00" * 16, 0, identity.public_key, key_id(key), *content).sign(identity)
        with monkeypatch.context() as killed:
            killed.setattr(SpaceTexts, "erase", ends)
            with pytest.raises(StorageError):
                await space.forgetting.take(signed, key, author="a")
    async with store.node("two") as two:
        space = await two.space()
        await space.forgetting.take(signed, key, author="a")
        assert await receipt_levels(space, bytes(16)) == {
            "database": "gone",
            "log in PostgreSQL": "gone",
            "deleted rows and write-ahead log of PostgreSQL": "not known",
            "copies on other nodes": "gone when it connects",
            "copies set aside": "not known",
        }
    async with store.node() as one:
        assert await one.texts() == {}
    assert not any(b"zanzibar" in residue.image(node.path, node.key) for node in (one, two))
