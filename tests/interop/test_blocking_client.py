"""A client written from PROTOCOL.md alone, on blocking sockets and `noiseprotocol`, against the real daemon."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.interop.blocking_handshake import HandshakeFailedError, Identity, Invite
from tests.interop.blocking_peer import DeniedError, PeerClient
from tests.interop.blocking_streams import EndedError
from tests.interop.blocking_wire import REKEY_RECORDS, Type
from tests.support.programs import Daemon, running_daemon

PROJECT = "stranger"
LARGE = "memory/large.md"
# Few words, many bytes: the daemon indexes what it is given, and this is about bytes.
LARGE_TEXT = ("# Large\n\n" + "\n" * (3 << 20))[: 3 << 20]


def hash_of(text: str) -> str:
    """`hash` of section 9."""
    return hashlib.blake2b(text.encode(), digest_size=32).hexdigest()


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """One real daemon for all."""
    with running_daemon(tmp_path_factory.mktemp("daemon")) as running:
        yield running


@pytest.fixture(scope="module")
def joined(daemon: Daemon) -> tuple[Identity, Invite]:
    """A caller that has joined, and the invite it used."""
    identity, invite = Identity(), Invite.parse(daemon.invite("stranger"))
    with PeerClient(invite.url, identity, invite.daemon_static, invite) as client:
        assert client.close() is not None
    return identity, invite


@pytest.fixture
def client(joined: tuple[Identity, Invite]) -> Iterator[PeerClient]:
    """A session in mode 0 with the project attached."""
    identity, invite = joined
    with PeerClient(invite.url, identity, invite.daemon_static) as session:
        attached = attach(session)["ok"]
        assert attached["project"] == PROJECT
        assert attached["limits"]["documentBytes"] == 4 << 20
        yield session


def attach(session: PeerClient, project: str = PROJECT) -> Any:
    """`attach` of section 9."""
    wanted = {"project": project, "machine": "stranger", "proxyVersion": "0", "toolsets": ["core"]}
    return session.ask("attach", wanted)


def put(session: PeerClient, path: str, text: str, *, as_stream: bool = False, base: int = 0) -> Any:
    """`put` of section 9, as REQ or as OPEN."""
    parameters: dict[str, Any] = {"project": PROJECT, "path": path, "hash": hash_of(text), "base": base}
    if as_stream:
        return session.ask("put", parameters, text.encode())
    return session.ask("put", {**parameters, "text": text})


def test_joined_caller_is_in_the_list(daemon: Daemon, joined: tuple[Identity, Invite]) -> None:
    """The daemon's operator sees the machine that joined."""
    assert "stranger" in daemon.run("callers")


def test_document_by_request(client: PeerClient) -> None:
    """What a REQ stored comes back, and compare knows it."""
    text = "# Bees\n\nThe hive by the shed swarmed on 2 May.\n"
    stored = put(client, "memory/bees.md", text)["ok"]
    assert stored["hash"] == hash_of(text)
    pulled = client.ask("pull", {"project": PROJECT, "path": "memory/bees.md"}, bulk=True)["ok"]
    assert (pulled["text"], pulled["revision"]) == (text, stored["revision"])
    entries = [["memory/bees.md", hash_of(text), stored["revision"]], ["memory/new.md", hash_of("new"), 0]]
    compared = client.ask("compare", {"project": PROJECT, "entries": entries, "gone": []})["ok"]
    assert compared["send"] == ["memory/new.md"]
    assert compared["drop"] == []


def test_search_by_message(client: PeerClient) -> None:
    """An MCP tool answers in a MSG."""
    put(client, "memory/boat.md", "# Boat\n\nThe outboard motor needs a new impeller.\n")
    result = client.call(1, "memory_search", {"query": "outboard motor impeller"})
    assert "memory/boat.md" in [hit["path"] for hit in result["structuredContent"]["results"]]


def test_3_mib_as_a_stream_and_back(client: PeerClient) -> None:
    """A body over the credit of a stream, and a RES of hundreds of frames."""
    stored = put(client, LARGE, LARGE_TEXT, as_stream=True)["ok"]
    assert stored["hash"] == hash_of(LARGE_TEXT)
    pulled = client.ask("pull", {"project": PROJECT, "path": LARGE}, bulk=True)["ok"]
    assert pulled["text"] == LARGE_TEXT
    assert client.frames_in[Type.RES] > 192
    assert client.frames_in[Type.WINDOW] > 0


def test_body_that_is_not_what_it_says(client: PeerClient) -> None:
    """Bytes that are no text are refused, nothing is stored, and the session goes on."""
    wrong = {"project": PROJECT, "path": "memory/wrong.md", "hash": hash_of("other"), "base": 0}
    assert client.ask("put", wrong, b"\xff\xfe")["error"]["code"] == "invalid"
    assert client.ask("pull", {"project": PROJECT, "path": "memory/wrong.md"})["error"]["code"] == "not_found"


def test_body_given_up(client: PeerClient) -> None:
    """RESET in place of END: `cancelled`, and nothing of it is stored."""
    parameters = {"project": PROJECT, "path": "memory/half.md", "hash": hash_of("half"), "base": 0}
    answer = client.ask("put", parameters, b"half", gives_up=True)
    assert answer["error"]["code"] == "cancelled"
    assert client.ask("pull", {"project": PROJECT, "path": "memory/half.md"})["error"]["code"] == "not_found"


def test_rekey_both_ways(client: PeerClient) -> None:
    """Over 2^14 records in each direction of one session."""
    if "error" in client.ask("pull", {"project": PROJECT, "path": LARGE}):
        put(client, LARGE, LARGE_TEXT, as_stream=True)
    while client.records.sent <= REKEY_RECORDS:
        client.send(Type.KEEPALIVE)
    while client.records.received <= REKEY_RECORDS:
        assert client.ask("pull", {"project": PROJECT, "path": LARGE}, bulk=True)["ok"]["text"] == LARGE_TEXT
    assert attach(client)["ok"]["project"] == PROJECT


def test_close_from_the_client(client: PeerClient) -> None:
    """CLOSE is answered with CLOSE."""
    assert client.close() is not None


def test_close_from_the_daemon(tmp_path: Path) -> None:
    """A caller that is removed meets CLOSE `revoked`, and is denied afterwards."""
    with running_daemon(tmp_path) as daemon:
        identity, invite = Identity(), Invite.parse(daemon.invite("leaver"))
        with PeerClient(invite.url, identity, invite.daemon_static, invite) as client:
            daemon.run("revoke", "leaver")
            with pytest.raises(EndedError) as ended:
                client.next_event()
            assert ended.value.word == "revoked"
        with pytest.raises(DeniedError) as denied:
            PeerClient(invite.url, identity, invite.daemon_static)
        assert denied.value.reason == "revoked"


def test_stranger_is_denied(joined: tuple[Identity, Invite]) -> None:
    """A key that the daemon does not know."""
    _, invite = joined
    with pytest.raises(DeniedError) as denied:
        PeerClient(invite.url, Identity(), invite.daemon_static)
    assert denied.value.reason == "unknown"


def test_used_invite_is_told(joined: tuple[Identity, Invite]) -> None:
    """Who holds the secret of an invite that was used learns that it was."""
    _, invite = joined
    with pytest.raises(DeniedError) as denied:
        PeerClient(invite.url, Identity(), invite.daemon_static, invite)
    assert denied.value.reason == "invite"
    assert "stranger" in json.dumps(denied.value.hint)


def test_wrong_secret_of_an_invite(daemon: Daemon) -> None:
    """An invite that was never made fails after message 3, without a word."""
    invite = Invite.parse(daemon.invite("never"))
    made_up = Invite(invite.url, invite.daemon_static, bytes(16))
    with pytest.raises(HandshakeFailedError, match="after message 3"):
        PeerClient(invite.url, Identity(), invite.daemon_static, made_up)


def test_wrong_pin(joined: tuple[Identity, Invite]) -> None:
    """An endpoint that does not hold the pinned key ends the handshake at message 1."""
    identity, invite = joined
    with pytest.raises(HandshakeFailedError, match="before message 3"):
        PeerClient(invite.url, identity, Identity().static_public)
