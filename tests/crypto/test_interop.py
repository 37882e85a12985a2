"""A stranger's implementation, on both ends, over the real websocket.

The Noise part is `noiseprotocol` (another author's code, with its own X25519, ChaChaPoly and BLAKE2b calls); the rest is written here from
PROTOCOL.md with the standard library, and shares no code with `confide_crypto`. What both agree on is the document.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import secrets
import struct
import warnings
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey, MLKEM768PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from tests.support.crypto.channels import HOST, LAPTOP, Door, echo, hosting, no_request
from websockets.asyncio.client import connect as dial_websocket
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from confide_crypto.channel.protocol import Channel, FrameType, MessageReceived
from confide_crypto.errors import ConnectionLost, DeniedError, RequestError, WrongDaemonKey
from confide_crypto.handshake.handshake import DaemonHandshake
from confide_crypto.handshake.invite import Invite
from confide_crypto.keys.identity import Identity
from confide_crypto.transport.open_channel import connect

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # the package is of 2020
    from noise.connection import Keypair, NoiseConnection

PROLOGUE = b"confide-channel/1 mlkem768\x00"
OPTIONS: dict[str, Any] = {
    "subprotocols": ["confide.v1"],
    "compression": None,
    "max_size": 65535,
    "ping_interval": None,
}


class Stranger:
    """Either end of the protocol, from the document alone."""

    def __init__(self, seed: bytes) -> None:
        self.signing = Ed25519PrivateKey.from_private_bytes(seed)
        self.public = self.signing.public_key().public_bytes_raw()
        self.static_secret = hashlib.blake2b(b"", key=seed, person=b"confide-static-1", digest_size=32).digest()
        self.static = X25519PrivateKey.from_private_bytes(self.static_secret).public_key().public_bytes_raw()
        self.noise = NoiseConnection.from_name(b"Noise_XKpsk3_25519_ChaChaPoly_BLAKE2b")
        self.noise.set_psks(bytes(32))
        self.noise.set_prologue(PROLOGUE)
        self.noise.set_keypair_from_private_bytes(Keypair.STATIC, self.static_secret)
        self.sent = self.received = 0

    def set_psk(self, kem_secret: bytes, mode: int, invite_psk: bytes) -> None:
        data = bytes([mode]) + invite_psk + self.t
        psk = hashlib.blake2b(data, key=kem_secret, person=b"confide-psk-1", digest_size=32).digest()
        self.noise.noise_protocol.psks = [psk]

    async def call(
        self, ws: Any, daemon_static: bytes, *, token: bytes | None = None, hello: bytes = b"{}"
    ) -> dict[str, Any]:
        """The client's side; returns the daemon's first answer."""
        self.noise.set_as_initiator()
        self.noise.set_keypair_from_public_bytes(Keypair.REMOTE_STATIC, daemon_static)
        self.noise.start_handshake()
        mode, invite_id, invite_psk = 0, bytes(16), bytes(32)
        if token is not None:
            mode = 1
            invite_id = hashlib.blake2b(token, person=b"confide-inv-id-1", digest_size=16).digest()
            invite_psk = hashlib.blake2b(token, person=b"confide-inv-psk1", digest_size=32).digest()
        kem = MLKEM768PrivateKey.generate()
        payload = bytes([mode]) + bytes(7) + invite_id + kem.public_key().public_bytes_raw()
        message1 = bytes(self.noise.write_message(payload))
        assert len(message1) == 1256
        await ws.send(message1)
        message2 = await ws.recv()
        assert len(message2) == 1136
        ciphertext = bytes(self.noise.read_message(message2))
        self.t = hashlib.blake2b(PROLOGUE + daemon_static + message1 + message2).digest()
        self.set_psk(kem.decapsulate(ciphertext), mode, invite_psk)
        signature = self.signing.sign(b"confide/handshake-id/1\x00" + self.t + self.static)
        message3 = bytes(self.noise.write_message(self.public + signature + hello.ljust(352, b"\x00")))
        assert len(message3) == 512
        await ws.send(message3)
        kind, flags, stream, answer = self.open(await ws.recv())
        assert (kind, flags, stream) == (7, 0, 0)
        return dict(json.loads(answer))

    async def answer(self, ws: Any, tokens: tuple[bytes, ...] = ()) -> tuple[bytes, bytes]:
        """The daemon's side up to the welcome; returns the caller's key and hello."""
        self.noise.set_as_responder()
        self.noise.start_handshake()
        state = self.noise.noise_protocol.handshake_state  # the package forgets it once the handshake is over
        message1 = await ws.recv()
        payload = bytes(self.noise.read_message(message1))
        mode, invite_id, ek = payload[0], payload[8:24], payload[24:]
        open_invites = {
            hashlib.blake2b(token, person=b"confide-inv-id-1", digest_size=16).digest(): token for token in tokens
        }
        invite_psk = bytes(32)
        if mode == 1:
            token = open_invites.get(invite_id, secrets.token_bytes(16))
            invite_psk = hashlib.blake2b(token, person=b"confide-inv-psk1", digest_size=32).digest()
        kem_secret, ciphertext = MLKEM768PublicKey.from_public_bytes(ek).encapsulate()
        message2 = bytes(self.noise.write_message(ciphertext))
        await ws.send(message2)
        self.t = hashlib.blake2b(PROLOGUE + self.static + message1 + message2).digest()
        self.set_psk(kem_secret, mode, invite_psk)
        message3 = await ws.recv()
        proof = bytes(self.noise.read_message(message3))
        caller = Ed25519PublicKey.from_public_bytes(proof[:32])
        static = state.rs.public_bytes
        caller.verify(proof[32:96], b"confide/handshake-id/1\x00" + self.t + static)
        statement = self.signing.sign(b"confide/daemon-static/1\x00" + self.static)
        daemon = {"key": self.public.hex(), "signature": statement.hex()}
        await ws.send(
            self.seal(7, 0, json.dumps({"ok": {"daemon": daemon, "welcome": {"from": "a stranger"}}}).encode(), 1024)
        )
        return proof[:32], proof[96:].rstrip(b"\x00")

    def count(self, number: int, rekey: Any) -> int:
        """PROTOCOL.md 6.4: a new key behind every 16,384th record."""
        if (number + 1) % 16384 == 0:
            rekey()
        return number + 1

    def seal(self, kind: int, stream: int, payload: bytes, least: int = 256, more: int = 0) -> bytes:
        plain = struct.pack(">BBIH", kind, more, stream, len(payload)) + payload
        bucket = next(size for size in (256, 1024, 4096, 16384) if size >= max(len(plain), least))
        record = bytes(self.noise.encrypt(plain.ljust(bucket, b"\x00")))
        self.sent = self.count(self.sent, self.noise.rekey_outbound_cipher)
        return record

    def open(self, record: bytes) -> tuple[int, int, int, bytes]:
        plain = bytes(self.noise.decrypt(record))
        self.received = self.count(self.received, self.noise.rekey_inbound_cipher)
        assert len(plain) in (256, 1024, 4096, 16384)
        kind, flags, stream, length = struct.unpack(">BBIH", plain[:8])
        assert not any(plain[8 + length :])
        return kind, flags, stream, plain[8 : 8 + length]


async def dial(url: str) -> Any:
    return await dial_websocket(url, **OPTIONS)


async def test_a_strangers_client_gets_in_and_talks() -> None:
    seed = secrets.token_bytes(32)
    stranger = Stranger(seed)
    assert stranger.public == Identity(seed).public_key
    assert stranger.static == Identity(seed).static_key
    async with hosting(Door(stranger.public), echo) as host:
        ws = await dial(host.url)
        answer = await stranger.call(ws, HOST.static_key, hello=b'{"machine":"elsewhere"}')
        assert answer["ok"]["welcome"] == {"space": "notes"}
        daemon_key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(answer["ok"]["daemon"]["key"]))
        daemon_key.verify(
            bytes.fromhex(answer["ok"]["daemon"]["signature"]), b"confide/daemon-static/1\x00" + HOST.static_key
        )
        for text in (b"{}", b"x" * 248, b"x" * 249, b"x" * 16376):
            await ws.send(stranger.seal(11, 0, text))
            assert stranger.open(await ws.recv()) == (11, 0, 0, text)
        await ws.send(stranger.seal(11, 0, b"a" * 16376, more=1))
        await ws.send(stranger.seal(11, 0, b"b"))
        assert stranger.open(await ws.recv()) == (11, 1, 0, b"a" * 16376)
        assert stranger.open(await ws.recv()) == (11, 0, 0, b"b")
        await ws.send(stranger.seal(10, 0, b"done"))
        assert stranger.open(await ws.recv())[0] == 10, "a goodbye is answered with one"
        assert await host.ended.get() is None
        await ws.close()


async def test_a_strangers_client_without_a_goodbye_counts_as_cut_off() -> None:
    stranger = Stranger(secrets.token_bytes(32))
    async with hosting(Door(stranger.public), echo) as host:
        ws = await dial(host.url)
        await stranger.call(ws, HOST.static_key)
        await ws.close()
        ended = await host.ended.get()
        assert isinstance(ended, ConnectionLost)
        assert ended.truncated


async def test_a_strangers_client_joins_with_an_invite_or_is_refused_without_a_reason() -> None:
    door, stranger = Door(), Stranger(secrets.token_bytes(32))
    async with hosting(door, echo) as host:
        invite = Invite.new(HOST.static_key, host.url)
        door.offer(invite)
        ws = await dial(host.url)
        assert "ok" in await stranger.call(ws, HOST.static_key, token=invite.token)
        await ws.close()
        assert stranger.public in door.known
        ws = await dial(host.url)
        with pytest.raises(ConnectionClosed) as caught:
            await Stranger(secrets.token_bytes(32)).call(ws, HOST.static_key, token=invite.token)
        assert caught.value.rcvd is not None
        assert (caught.value.rcvd.code, caught.value.rcvd.reason) == (4400, "")


async def test_a_strangers_client_that_is_not_enrolled_is_told_so() -> None:
    async with hosting(Door(), echo) as host:
        ws = await dial(host.url)
        answer = await Stranger(secrets.token_bytes(32)).call(ws, HOST.static_key)
        assert (answer["error"]["code"], answer["error"]["reason"]) == ("denied", "unknown")
        await ws.close()


async def test_our_client_talks_to_a_strangers_daemon() -> None:
    """Messages, a request with its answer, an error, and the goodbye."""
    stranger = Stranger(secrets.token_bytes(32))
    callers: asyncio.Queue[tuple[bytes, bytes]] = asyncio.Queue()

    async def run(ws: ServerConnection) -> None:
        callers.put_nowait(await stranger.answer(ws))
        while True:
            kind, _, stream, payload = stranger.open(await ws.recv(decode=False))
            if kind == 10:
                return
            if kind == 6:
                body = json.loads(payload)
                answer = (
                    {"ok": body}
                    if body["op"] == "good"
                    else {"error": {"code": "invalid", "message": "no", "hint": None}}
                )
                await ws.send(stranger.seal(7, stream, json.dumps(answer).encode()))
            else:
                await ws.send(stranger.seal(kind, stream, payload))

    async with serve(run, "127.0.0.1", 0, **OPTIONS) as server:
        url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        connection = await connect(url, LAPTOP, stranger.static, hello={"machine": "laptop"})
        assert await callers.get() == (LAPTOP.public_key, b'{"machine":"laptop"}')
        assert connection.welcome == {"from": "a stranger"}
        assert connection.peer_key == stranger.public
        heard: asyncio.Queue[bytes] = asyncio.Queue()
        async with asyncio.TaskGroup() as group:
            group.create_task(connection.serve(on_message=heard.put, on_request=no_request))
            await connection.send_message(b"hello")
            assert await heard.get() == b"hello"
            assert await connection.request("good", {"n": 1}) == {"op": "good", "n": 1}
            with pytest.raises(RequestError, match="no"):
                await connection.request("bad", {})
            await connection.close()


@pytest.mark.parametrize("is_open", [True, False])
async def test_our_client_joins_a_strangers_daemon_with_an_invite(is_open: bool) -> None:
    stranger = Stranger(secrets.token_bytes(32))
    invite = Invite.new(stranger.static, "ws://h")

    async def run(ws: ServerConnection) -> None:
        try:
            await stranger.answer(ws, (invite.token,) if is_open else ())
        except Exception:  # the package raises whatever its parts raise
            await ws.close(4400)
            return
        assert stranger.open(await ws.recv(decode=False))[0] == 10

    async with serve(run, "127.0.0.1", 0, **OPTIONS) as server:
        url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        if is_open:
            await (await connect(url, LAPTOP, stranger.static, invite=invite)).close()
        else:
            with pytest.raises(DeniedError, match="invite was not accepted"):
                await connect(url, LAPTOP, stranger.static, invite=invite)


async def test_our_client_notices_a_strangers_daemon_with_another_key() -> None:
    stranger = Stranger(secrets.token_bytes(32))

    async def run(ws: ServerConnection) -> None:
        with pytest.raises(Exception):  # noqa: B017, PT011 - the package raises whatever its parts raise
            await stranger.answer(ws)
        await ws.close(4400)

    async with serve(run, "127.0.0.1", 0, **OPTIONS) as server:
        with pytest.raises(WrongDaemonKey):
            await connect(f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/", LAPTOP, HOST.static_key)


class Line:
    """One end of a line in memory, as far as a handshake needs a websocket."""

    def __init__(self, inbox: asyncio.Queue[bytes], outbox: asyncio.Queue[bytes]) -> None:
        self.recv, self.send = inbox.get, outbox.put


@pytest.mark.long
async def test_keys_change_at_the_same_record_as_a_strangers() -> None:
    """Both directions, over two key changes."""
    here, there = asyncio.Queue[bytes](), asyncio.Queue[bytes]()
    stranger, theirs = Stranger(secrets.token_bytes(32)), DaemonHandshake(HOST)
    calling = asyncio.create_task(stranger.call(Line(here, there), HOST.static_key))
    theirs.read_message1(await there.get())
    here.put_nowait(theirs.write_message2())
    theirs.read_message3(await there.get())
    channel = Channel(theirs.finish(), initiator=False)
    here.put_nowait(channel.seal(FrameType.RES, 0, b"{}"))
    await calling
    for _ in range(2 * 16384 + 10):
        assert channel.receive(stranger.seal(11, 0, b"up")) == MessageReceived(b"up")
        assert stranger.open(channel.seal(FrameType.MSG, 0, b"down"))[3] == b"down"
