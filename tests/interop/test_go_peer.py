"""Both roles once more with Noise in Go (flynn/noise), which shares no code with ours nor with Python's packages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from tests.interop.engine import PROLOGUE, Engine
from tests.interop.frames import REKEY_EVERY
from tests.interop.go_engine import GoEngine, build, missing
from tests.interop.notes import Notes, ask_backlog, hash_of
from tests.interop.peer import InviteNotAcceptedError, NotThePinnedKeyError, connect
from tests.interop.requests import RefusedError
from tests.interop.texts import Identity, Invite
from tests.support.draws import IS_THOROUGH
from tests.support.programs.processes import Machine, running_daemon, wait_until
from tests.support.programs.wire import Wire

from confide_crypto.handshake.noise import XKPSK3, HandshakeState, KeyPair

ASKED = REKEY_EVERY + 10 if IS_THOROUGH else 100
"""Under `make fuzz` enough for new keys in both directions, of the real program; else Go's new keys are compared with ours alone."""
pytestmark = pytest.mark.skipif(missing() is not None, reason=missing() or "")


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled engine."""
    return build(tmp_path_factory.mktemp("go"))


@pytest.fixture
def engines() -> Iterator[ExitStack]:
    """Ends the processes of a test."""
    with ExitStack() as stack:
        yield stack


async def test_a_go_client_and_the_real_daemon(tmp_path: Path, program: Path, engines: ExitStack) -> None:
    """Both modes, requests and a body; a wrong pin and a wrong token fail where they should."""

    def in_go(identity: Identity, static: bytes) -> Engine:
        private = identity.static_private
        return engines.enter_context(closing(GoEngine(program, static_private=private, remote_static=static)))

    me = Identity.generate()
    text = "- one line with ünicode\n" * 2_000 + "\n" * 300_000  # of many frames, and little to index
    with running_daemon(tmp_path, opens_itself=True) as daemon:
        invite = Invite.parse(await asyncio.to_thread(daemon.invite, "gopher"))
        with pytest.raises(NotThePinnedKeyError):
            async with connect(invite.url, Identity.generate().static, me, invite=invite, engine=in_go):
                pass
        forged = Invite(invite.static, bytes(16), invite.host, invite.port)
        with pytest.raises(InviteNotAcceptedError):
            async with connect(invite.url, invite.static, me, invite=forged, engine=in_go):
                pass
        async with connect(invite.url, invite.static, me, invite=invite, engine=in_go):
            pass
        async with connect(invite.url, invite.static, me, engine=in_go) as link:
            session = link.session
            known = session.records.session_id.hex()
            await asyncio.to_thread(wait_until, "the session in the log", lambda: known in daemon.log.read_text())
            await session.request("attach", project="p", machine="gopher", proxyVersion="2", toolsets=["core"])
            with pytest.raises(RefusedError):
                await session.request("pull", project="p", path="a.md")
            await session.upload("put", text.encode(), project="p", path="a.md", base=0, hash=hash_of(text))
            assert (await session.request("pull", project="p", path="a.md"))["text"] == text
        assert (await asyncio.shield(session.ended)).code == 1000


async def test_the_real_client_and_a_go_daemon(tmp_path: Path, program: Path, engines: ExitStack) -> None:
    """`confide join`, then an agent's session in which many requests (ASKED) are answered and a search still works."""

    def in_go(identity: Identity) -> tuple[Engine, Callable[[], bytes]]:
        engine = engines.enter_context(closing(GoEngine(program, static_private=identity.static_private)))
        return engine, lambda: engine.remote_static

    ann = Machine(tmp_path, "ann")
    ann.write("MEMORY.md", "# Decisions\n\nWe chose postgres over mysql for its row locks.\n")
    notes = Notes()
    daemon = notes.daemon()
    daemon.new_engine = in_go
    async with daemon.serving():
        await asyncio.to_thread(ann.run, "join", str(daemon.invite()))
        with Wire(ann) as wire:
            await asyncio.to_thread(wire.open)
            await asyncio.to_thread(wait_until, "the note", lambda: notes.text("project", "MEMORY.md"))
            served = daemon.sessions[-1]
            assert await ask_backlog(served, ASKED) == ASKED
            records = served.session.records
            assert min(records.sent, records.received) > ASKED
            answer = await asyncio.to_thread(wire.tool, "memory_search", {"query": "postgres"})
            assert "row locks" in answer["structuredContent"]["results"][0]["snippet"]
        assert (await asyncio.wait_for(asyncio.shield(served.session.ended), 10)).word == "done"
        assert not daemon.failures


def test_new_keys_of_go_are_ours(program: Path, engines: ExitStack) -> None:
    """Noise's Rekey, in both directions and more than once, between Go and our own cipher states."""
    static, remote, psk = KeyPair.generate(), KeyPair.generate(), bytes(range(32))
    go = engines.enter_context(closing(GoEngine(program, static_private=static.secret, remote_static=remote.public)))
    ours = HandshakeState(XKPSK3, "BLAKE2b", initiator=False, prologue=PROLOGUE, static=remote, psks=(psk,))
    go.set_psk(psk)
    ours.read_message(go.write(b""))
    go.read(ours.write_message())
    ours.read_message(go.write(b""))
    assert (ours.remote_static, ours.handshake_hash) == (static.public, go.handshake_hash())
    sending, receiving = ours.split()
    for number in range(9):
        record = b"record %d" % number
        assert receiving.decrypt(go.seal(record)) == record
        assert go.open(sending.encrypt(record)) == record
        if number % 3 == 2:
            go.rekey_sending()
            receiving.rekey()
            go.rekey_receiving()
            sending.rekey()
