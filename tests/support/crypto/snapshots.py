"""A handshake with every random number fixed, taken up again at any of its messages: the cheap way to try many wrong ones."""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Final, TypeVar

from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey
from tests.support.crypto.channels import HOST, LAPTOP

from confide_crypto.channel.protocol import Channel
from confide_crypto.handshake.handshake import ClientHandshake, DaemonHandshake, TransportKeys
from confide_crypto.handshake.invite import Invite
from confide_crypto.handshake.noise import CipherState, KeyPair
from confide_crypto.keys.identity import Identity

_T = TypeVar("_T")

CLIENT_EPHEMERAL: Final = KeyPair.from_secret(bytes(range(96, 128)))
DAEMON_EPHEMERAL: Final = KeyPair.from_secret(bytes(range(128, 160)))
KEM_KEY: Final = MLKEM768PrivateKey.from_seed_bytes(bytes(range(64)))
_FROZEN: Final = json.loads((Path(__file__).parents[2] / "vectors" / "confide" / "frozen.json").read_text())[
    "handshakes"
][0]
KEM_ANSWER: Final = (bytes.fromhex(_FROZEN["kem_secret"]), bytes.fromhex(_FROZEN["kem_ciphertext"]))
"""Shared secret and ciphertext of an encapsulation to `KEM_KEY`: frozen, since the library offers no seed to make it again."""


class Encapsulated:
    """An ML-KEM public key whose encapsulation is already known."""

    def __init__(self, secret: bytes, ciphertext: bytes) -> None:
        self._answer = secret, ciphertext

    def encapsulate(self) -> tuple[bytes, bytes]:
        """The secret and the ciphertext it was made with."""
        return self._answer


def again(original: _T) -> _T:
    """A copy of one of our state machines in its present state. Keys and constants are shared, whatever changes is not."""
    return _twin(original)  # type: ignore[no-any-return]


def _twin(value: Any) -> Any:
    kind: Any = type(value)
    if kind is dict:
        return {key: _twin(item) for key, item in value.items()}
    if kind in (list, tuple, set):
        return kind([_twin(item) for item in value])
    if kind is bytearray:
        return bytearray(value)
    is_ours = kind.__module__.startswith("confide_crypto") and not isinstance(value, (Enum, tuple))
    params = getattr(kind, "__dataclass_params__", None)
    if not is_ours or (params is not None and params.frozen):
        return copy.copy(value) if hasattr(value, "hexdigest") else value
    twin = kind.__new__(kind)
    names = list(getattr(value, "__dict__", ())) or [slot for slot in kind.__slots__ if hasattr(value, slot)]
    for name in names:
        object.__setattr__(twin, name, _twin(getattr(value, name)))
    return twin


@dataclass(frozen=True, slots=True)
class Handshake:
    """One whole handshake, and both sides as they were before each message that they read.

    Attributes:
        message1, message2, message3: the bytes on the wire.
        daemon_before1, client_before2, daemon_before3: to be taken up with `again`.
        client_after, daemon_after: ready to finish.
    """

    message1: bytes
    message2: bytes
    message3: bytes
    daemon_before1: DaemonHandshake
    client_before2: ClientHandshake
    daemon_before3: DaemonHandshake
    client_after: ClientHandshake
    daemon_after: DaemonHandshake

    def channels(self) -> tuple[Channel, Channel]:
        """The client's and the daemon's end, always with the same keys, before the welcome."""
        return (
            Channel(again(self.client_after).finish(), initiator=True),
            Channel(again(self.daemon_after).finish(), initiator=False),
        )


def handshake(
    client: Identity = LAPTOP,
    host: Identity = HOST,
    *,
    invite: Invite | None = None,
    hello: dict[str, Any] | None = None,
    client_ephemeral: KeyPair = CLIENT_EPHEMERAL,
    daemon_ephemeral: KeyPair = DAEMON_EPHEMERAL,
    kem_key: MLKEM768PrivateKey = KEM_KEY,
    kem_answer: tuple[bytes, bytes] = KEM_ANSWER,
) -> Handshake:
    """A handshake from fixed keys; the same arguments give the same bytes in one process."""
    ours = ClientHandshake(
        client, host.static_key, invite=invite, hello=hello, ephemeral=client_ephemeral, kem_key=kem_key
    )
    theirs = DaemonHandshake(host, ephemeral=daemon_ephemeral)
    before1 = again(theirs)
    message1 = ours.write_message1()
    before2 = again(ours)
    theirs.read_message1(message1)
    theirs._kem_public = Encapsulated(*kem_answer)  # type: ignore[assignment]
    message2 = theirs.write_message2(invite.invite_psk if invite else None)
    before3 = again(theirs)
    ours.read_message2(message2)
    message3 = ours.write_message3()
    theirs.read_message3(message3)
    return Handshake(message1, message2, message3, before1, before2, before3, ours, theirs)


def one_key_channel(key: bytes, *, initiator: bool) -> tuple[Channel, CipherState]:
    """A channel whose keys are known, and the cipher that seals what it will open: a peer that writes what it likes."""
    return Channel(TransportKeys(CipherState(key), CipherState(key), "00" * 16), initiator=initiator), CipherState(key)
