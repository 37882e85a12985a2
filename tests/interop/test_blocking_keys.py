"""Keys that change (PROTOCOL.md 7.9 to 7.11), as a client written from the document sees them at the real daemon."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from tests.interop.blocking_handshake import HandshakeFailedError, Identity, Invite, unbech32m
from tests.interop.blocking_peer import DeniedError, PeerClient
from tests.interop.blocking_streams import EndedError
from tests.support.programs import Daemon, running_daemon, wait_until

CONNECTIONS = 8


@pytest.fixture
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A real daemon whose keys may be changed."""
    with running_daemon(tmp_path_factory.mktemp("daemon")) as running:
        yield running


def join(daemon: Daemon, name: str) -> tuple[Identity, Invite]:
    """A new caller."""
    identity, invite = Identity(), Invite.parse(daemon.invite(name))
    with PeerClient(invite.url, identity, invite.daemon_static, invite) as session:
        session.close()
    return identity, invite


def signatures(session: PeerClient, old: Identity, new: Identity) -> dict[str, str]:
    """The parameters of `rotate` (7.10)."""
    session_id = bytes.fromhex(session.session_id)
    by_old = old.signing.sign(b"confide/rotate-old/1\0" + session_id + new.public)
    by_new = new.signing.sign(b"confide/rotate-new/1\0" + session_id + old.public)
    return {"key": new.public.hex(), "old": by_old.hex(), "new": by_new.hex()}


def test_new_key_of_a_caller(daemon: Daemon) -> None:
    """Both keys connect until the new one has; then the old one's session ends with `rotated`, and it is denied."""
    old, invite = join(daemon, "stranger")
    new = Identity()
    url, static = invite.url, invite.daemon_static
    with PeerClient(url, old, static) as session:
        assert "ok" in session.ask("rotate", signatures(session, old, new))
        PeerClient(url, old, static).close()
        with PeerClient(url, new, static):
            with pytest.raises(EndedError) as ended:
                session.next_event()
            assert ended.value.word == "rotated"
    with pytest.raises(DeniedError):
        PeerClient(url, old, static)
    PeerClient(url, new, static).close()


def test_new_key_that_is_refused(daemon: Daemon) -> None:
    """`conflict` for another caller's key; `invalid` for signatures of another session or by another key."""
    old, invite = join(daemon, "stranger")
    other, _ = join(daemon, "other")
    new = Identity()
    with PeerClient(invite.url, old, invite.daemon_static) as session:
        assert session.ask("rotate", signatures(session, old, other))["error"]["code"] == "conflict"
        assert session.ask("rotate", signatures(session, new, new))["error"]["code"] == "invalid"
        earlier = signatures(session, old, new)
    with PeerClient(invite.url, old, invite.daemon_static) as session:
        assert session.ask("rotate", earlier)["error"]["code"] == "invalid"
    with pytest.raises(DeniedError):
        PeerClient(invite.url, new, invite.daemon_static)


def test_new_key_of_the_daemon(daemon: Daemon) -> None:
    """The old key's first record names the new one, by both signatures; the new one answers; retired, the old is wrong."""
    identity, invite = join(daemon, "stranger")
    url, old_static = invite.url, invite.daemon_static
    daemon.run("key", "rotate")
    with PeerClient(url, identity, old_static) as session:
        rotation = session.welcome["rotation"]
        old_key = session.daemon_key
        session.close()
    static, key = bytes.fromhex(rotation["static"]), bytes.fromhex(rotation["key"])
    assert time.time() < rotation["until"] <= time.time() + 30 * 86400
    signed = b"confide/daemon-rotation/1\0" + old_static + static + key + struct.pack(">Q", rotation["until"])
    Ed25519PublicKey.from_public_bytes(old_key).verify(bytes.fromhex(rotation["old"]), signed)
    Ed25519PublicKey.from_public_bytes(key).verify(bytes.fromhex(rotation["new"]), signed)
    with PeerClient(url, identity, static) as session:
        assert session.daemon_key == key
        assert "rotation" not in session.welcome
        session.close()
    shown = {unbech32m("confided", word) for word in daemon.run("key", "show").split() if word.startswith("confided1")}
    assert static in shown
    daemon.run("key", "retire")
    wait_until("the old key to end", lambda: fails_before_message_3(url, identity, old_static))
    PeerClient(url, identity, static).close()


def fails_before_message_3(url: str, identity: Identity, static: bytes) -> bool:
    """Whether this static key is a wrong one there."""
    try:
        PeerClient(url, identity, static).close()
    except HandshakeFailedError as error:
        return error.args == ("before message 3",)
    return False


def test_ninth_connection_replaces_one(daemon: Daemon) -> None:
    """8.2 and 7.9: `busy`, but for the connection that says which one it replaces."""
    identity, invite = join(daemon, "stranger")
    url, static = invite.url, invite.daemon_static
    with ExitStack() as stack:
        sessions = [stack.enter_context(PeerClient(url, identity, static)) for _ in range(CONNECTIONS)]
        with pytest.raises(DeniedError) as denied:
            PeerClient(url, identity, static)
        assert denied.value.reason == "busy"
        fresh = stack.enter_context(PeerClient(url, identity, static, replaces=sessions[3].session_id))
        assert sessions[3].close() is not None
        assert fresh.close() is not None
