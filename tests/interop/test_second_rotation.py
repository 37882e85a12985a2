"""New keys and the end of a session, between the second client and the real `confided`."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from tests.interop.peer import DeniedError, NotThePinnedKeyError, connect
from tests.interop.requests import RefusedError
from tests.interop.rotations import rotation_request, successor
from tests.interop.texts import Identity, Invite, encode
from tests.support.programs.processes import Daemon, running_daemon

CONNECTIONS = 8
MONTH_S = 30 * 86400


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    """A real daemon for one test, which changes its key or ends it."""
    with running_daemon(tmp_path, opens_itself=True) as daemon:
        yield daemon


async def test_a_callers_new_key(daemon: Daemon) -> None:
    """7.10: a statement of another session is refused; after the first handshake with the new key the old one is nobody's."""
    invite = Invite.parse(await asyncio.to_thread(daemon.invite, "rotating"))
    old, new = Identity.generate(), Identity.generate()
    async with connect(invite.url, invite.static, old, invite=invite) as link:
        with pytest.raises(RefusedError) as elsewhere:
            await link.session.request("rotate", **rotation_request(bytes(16), old, new))
        assert elsewhere.value.code == "invalid"
        await link.session.request("rotate", **rotation_request(link.session.records.session_id, old, new))
        async with connect(invite.url, invite.static, old):
            pass
        async with connect(invite.url, invite.static, new):
            ended = await asyncio.wait_for(asyncio.shield(link.session.ended), 10)
            assert ended.word == "rotated"
    with pytest.raises(DeniedError):
        async with connect(invite.url, invite.static, old):
            pass
    async with connect(invite.url, invite.static, new) as link:
        assert link.welcome


async def test_a_new_key_that_is_refused(daemon: Daemon) -> None:
    """7.10: `conflict` for another caller's key, `invalid` for a signature of another than the old key; neither gets in."""
    invite = Invite.parse(await asyncio.to_thread(daemon.invite, "nobody"))
    old, other, new = (Identity.generate() for _ in range(3))
    for name, identity in (("first", old), ("other", other)):
        await asyncio.to_thread(daemon.run, "device", "add", f"{identity.line} {name}")
    async with connect(invite.url, invite.static, old) as link:
        session_id = link.session.records.session_id
        for signer, named, code in ((old, other, "conflict"), (new, new, "invalid")):
            with pytest.raises(RefusedError) as refused:
                await link.session.request("rotate", **rotation_request(session_id, signer, named))
            assert refused.value.code == code
    with pytest.raises(DeniedError) as denied:
        async with connect(invite.url, invite.static, new):
            pass
    assert denied.value.reason == "unknown"


async def test_the_ninth_connection_replaces_one(daemon: Daemon) -> None:
    """8.2 and 7.9: `busy`, but for the connection that says which one it replaces."""
    invite = Invite.parse(await asyncio.to_thread(daemon.invite, "nobody"))
    me = Identity.generate()
    await asyncio.to_thread(daemon.run, "device", "add", f"{me.line} many")
    async with AsyncExitStack() as stack:
        links = [await stack.enter_async_context(connect(invite.url, invite.static, me)) for _ in range(CONNECTIONS)]
        with pytest.raises(DeniedError) as denied:
            async with connect(invite.url, invite.static, me):
                pass
        assert denied.value.reason == "busy"
        replaced = links[3].session
        hello = {"replaces": replaced.records.session_id.hex()}
        async with asyncio.timeout(20):
            while True:
                try:
                    link = await stack.enter_async_context(connect(invite.url, invite.static, me, hello=hello))
                except DeniedError:
                    await asyncio.sleep(0.05)  # the goodbye of the one that was denied is under way
                else:
                    break
        assert (await replaced.close()).word is not None
        assert not link.session.ended.done()


async def test_a_daemons_new_key(daemon: Daemon) -> None:
    """7.11: who comes with the old key is led to the new one by both keys; once the old one has ended it is nobody's."""
    invite = Invite.parse(await asyncio.to_thread(daemon.invite, "led"))
    me = Identity.generate()
    async with connect(invite.url, invite.static, me, invite=invite) as link:
        first = link.daemon_key
        assert successor(link.welcome, invite.static, first) is None
    await asyncio.to_thread(daemon.run, "key", "--new")
    async with asyncio.timeout(20):
        while True:
            async with connect(invite.url, invite.static, me) as link:
                assert link.daemon_key == first
                led = successor(link.welcome, invite.static, first)
            if led is not None:
                break
            await asyncio.sleep(0.1)
    assert time.time() < link.welcome["rotation"]["until"] <= time.time() + MONTH_S
    static, key = led
    assert encode("confided", static) in await asyncio.to_thread(daemon.run, "key")
    async with connect(invite.url, static, me) as link:
        assert link.daemon_key == key
        assert successor(link.welcome, static, key) is None
    await asyncio.to_thread(daemon.run, "key", "--end-old")
    async with asyncio.timeout(20):
        while True:
            try:
                async with connect(invite.url, invite.static, me):
                    await asyncio.sleep(0.1)
            except NotThePinnedKeyError:
                break
    async with connect(invite.url, static, me) as link:
        assert link.daemon_key == key


async def test_the_daemon_stops(daemon: Daemon) -> None:
    """7.6: a daemon that ends says so with GOAWAY and CLOSE, and does not cut the line."""
    invite = Invite.parse(await asyncio.to_thread(daemon.invite, "leaving"))
    async with connect(invite.url, invite.static, Identity.generate(), invite=invite) as link:
        attach = {"project": "p", "machine": "second", "proxyVersion": "2", "toolsets": ["core"]}
        await link.session.request("attach", bulk=True, **attach)
        daemon.signal(signal.SIGTERM)
        ended = await asyncio.wait_for(asyncio.shield(link.session.ended), 20)
        assert link.session.going_away
        assert ended.word
        assert ended.code == 1000
