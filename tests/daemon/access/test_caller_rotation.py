"""A caller's new key, at the daemon: named in a session of the old one, in force from its own first handshake on (PROTOCOL.md 7.10)."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.daemon.loopback import Machine, Serving, serving

from confide_crypto.errors import DeniedError, RequestError
from confide_crypto.handshake.rotation import sign_rotation
from confide_crypto.keys.identity import Identity, format_public_key
from confide_daemon.config import DaemonConfig, ServerConfig


@pytest.fixture
async def daemon(tmp_path: Path) -> AsyncIterator[Serving]:
    async with serving(tmp_path / "data") as running:
        yield running


async def rotate(machine: Machine, old: Identity, new: Identity) -> None:
    answer = await machine.request("rotate", sign_rotation(old, new, machine.connection.session_id))
    assert answer == {}


async def refused(daemon: Serving, identity: Identity) -> DeniedError:
    with pytest.raises(DeniedError) as denied:
        await daemon.connect(identity)
    return denied.value


async def test_both_keys_connect_until_the_new_one_has(daemon: Serving) -> None:
    old, new = daemon.enroll("laptop", scope="read", projects={"app"}), Identity.generate()
    async with Machine(await daemon.connect(old)) as first:
        await first.attach("app")
        await rotate(first, old, new)
        async with Machine(await daemon.connect(old)) as again:  # the new one has not been used yet
            await again.attach("app")
            async with Machine(await daemon.connect(new)) as laptop:
                welcome = laptop.connection.welcome
                assert (welcome["caller"], welcome["space"], welcome["scope"]) == ("laptop", "laptop", "read")
                for stale in (first, again):
                    assert await stale.ended_within(1.0) is None
                    assert stale.connection.close_code == "rotated"
                await laptop.attach("app")
                with pytest.raises(RequestError, match="no grant for the project"):
                    await laptop.attach("web")
    denied = await refused(daemon, old)
    assert denied.reason == "revoked"
    assert "a new key of this device took its place" in (denied.hint or "")
    async with Machine(await daemon.connect(new)) as laptop:
        await laptop.attach("app")


async def test_a_new_key_that_was_named_may_rotate_on(daemon: Serving) -> None:
    keys = [daemon.enroll("laptop"), Identity.generate(), Identity.generate()]
    for old, new in itertools.pairwise(keys):
        async with Machine(await daemon.connect(old)) as laptop:
            await rotate(laptop, old, new)
    async with Machine(await daemon.connect(keys[-1])) as laptop:
        await laptop.attach("app")
    for gone in keys[:-1]:
        assert (await refused(daemon, gone)).reason == "revoked"
    (caller,) = daemon.state.registry.callers()
    assert caller.public_key == keys[-1].public_key


async def test_only_the_last_key_that_was_named_comes_in(daemon: Serving) -> None:
    old, forgotten, new = daemon.enroll("laptop"), Identity.generate(), Identity.generate()
    async with Machine(await daemon.connect(old)) as laptop:
        await rotate(laptop, old, forgotten)
        await rotate(laptop, old, new)
        assert (await refused(daemon, forgotten)).reason == "unknown"
        async with Machine(await daemon.connect(new)) as renewed:
            await renewed.attach("app")


async def test_signatures_of_another_session_or_caller_change_nothing(daemon: Serving) -> None:
    old, new, other = daemon.enroll("laptop"), Identity.generate(), daemon.enroll("desk")
    async with Machine(await daemon.connect(old)) as one, Machine(await daemon.connect(old)) as two:
        recorded = sign_rotation(old, new, one.connection.session_id)
        for body in (recorded, sign_rotation(other, new, two.connection.session_id), {}, {"key": 7}):
            with pytest.raises(RequestError) as error:
                await two.request("rotate", body)
            assert error.value.code == "invalid"
    assert (await refused(daemon, new)).reason == "unknown"


async def test_another_caller_s_key_is_refused(daemon: Serving) -> None:
    """Both signatures are good: whoever holds two keys cannot make two callers one."""
    old, other = daemon.enroll("laptop"), daemon.enroll("desk")
    async with Machine(await daemon.connect(old)) as laptop:
        with pytest.raises(RequestError) as error:
            await rotate(laptop, old, other)
        assert error.value.code == "conflict"
    async with Machine(await daemon.connect(other)) as desk:
        assert desk.connection.welcome["caller"] == "desk"


async def test_a_key_line_in_the_folder_does_not_bring_the_old_key_back(daemon: Serving) -> None:
    old, new = Identity.generate(), Identity.generate()
    line = daemon.state.folder.authorized / "box.pub"
    line.write_text(format_public_key(old.public_key, "box"), encoding="utf-8")
    line.chmod(0o600)
    async with Machine(await daemon.connect(old)) as box:
        await rotate(box, old, new)
        async with Machine(await daemon.connect(new)) as renewed:
            assert renewed.connection.welcome["caller"] == "box"
    assert (await refused(daemon, old)).reason == "revoked"


async def test_a_revoked_caller_s_new_key_stays_out_too(daemon: Serving) -> None:
    old, new = daemon.enroll("laptop"), Identity.generate()
    async with Machine(await daemon.connect(old)) as laptop:
        await rotate(laptop, old, new)
        daemon.state.registry.revoke("laptop")
        assert await laptop.ended_within(1.0) is None
        assert laptop.connection.close_code == "revoked"
    assert (await refused(daemon, new)).reason == "unknown"
    assert (await refused(daemon, old)).reason == "revoked"


async def test_a_new_key_that_is_not_let_in_leaves_the_old_one(tmp_path: Path) -> None:
    """The place is taken over only by a handshake that is admitted."""
    async with serving(tmp_path / "few", config=DaemonConfig(server=ServerConfig(max_sessions=1))) as daemon:
        old, new = daemon.enroll("laptop"), Identity.generate()
        async with Machine(await daemon.connect(old)) as laptop:
            await rotate(laptop, old, new)
            assert (await refused(daemon, new)).reason == "busy"
            await laptop.attach("app")
        async with Machine(await daemon.connect_in_time(old)) as laptop:
            await laptop.attach("app")


async def test_two_first_connections_of_the_new_key_at_once(daemon: Serving) -> None:
    for round_ in range(5):
        old, new = daemon.enroll(f"laptop-{round_}"), Identity.generate()
        async with Machine(await daemon.connect(old)) as laptop:
            await rotate(laptop, old, new)
            both = await asyncio.gather(*(daemon.connect(new) for _ in range(3)))
            for connection in both:
                async with Machine(connection) as machine:
                    await machine.attach("app")
    assert len(daemon.state.registry.callers()) == 5
