"""The frozen vectors of the protocol, read by the second implementation: the files are right for a stranger too."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey
from noise.connection import NoiseConnection
from noise.state import CipherState
from tests.interop.engine import NAME, PythonEngine
from tests.interop.frames import REKEY_EVERY, BrokenError, Frame, Type
from tests.interop.handshake import (
    ENROLL,
    NO_INVITE,
    HandshakeError,
    checked,
    late_psk,
    read_first,
    read_third,
    statement,
    transcript,
)
from tests.interop.requests import RefusedError, read_answer, read_request
from tests.interop.texts import Identity, Invite, TextError, fingerprint, read_pin

# What the package and the library below it say of a message that does not decrypt, and of an all-zero X25519 result.
REFUSALS = (HandshakeError, InvalidTag, ValueError)
FOLDER = Path(__file__).parents[1] / "vectors" / "confide"


def cases(file: str) -> list[dict[str, Any]]:
    """All cases of a file."""
    found: list[dict[str, Any]] = json.loads((FOLDER / file).read_bytes())["cases"]
    return found


def named(file: str, *, good: bool | None = None) -> list[Any]:
    """The cases as parameters, all or only those that are accepted or refused."""
    chosen = [case for case in cases(file) if good is None or (case["error"] is None) is good]
    return [pytest.param(case, id=case["name"].replace(" ", "-")) for case in chosen]


@pytest.mark.parametrize("case", [each for each in named("keys.json") if each.values[0]["reads"] != "key line"])
def test_pins_and_fingerprints(case: dict[str, Any]) -> None:
    """2.3 and 2.4."""
    if case["reads"] == "fingerprint":
        assert fingerprint(bytes.fromhex(case["key"])) == case["is"]
    elif case["error"] is None:
        assert read_pin(case["text"]).hex() == case["key"]
    else:
        with pytest.raises(TextError):
            read_pin(case["text"])


# What these three show is a courtesy to people who paste; the document does not ask for it.
NOT_ASKED = {"as ws", "as wss", "in quotes"}


@pytest.mark.parametrize("case", [each for each in named("invites.json") if each.values[0]["name"] not in NOT_ASKED])
def test_invites(case: dict[str, Any]) -> None:
    """5.1 and 5.2."""
    if case["error"] is not None:
        with pytest.raises(TextError):
            Invite.parse(case["text"])
        return
    invite = Invite.parse(case["text"])
    assert invite.static.hex() == case["daemon_static"]
    assert (invite.host, invite.port, invite.tls, invite.url) == (
        case["host"],
        case["port"],
        case["tls"],
        case["websocket_url"],
    )
    assert (invite.id.hex(), invite.secret.hex()) == (case["invite_id"], case["invite_psk"])
    assert str(invite) == case["written"]


class Setup:
    """One whole handshake of the vectors, with both engines at known ephemeral keys."""

    def __init__(self, case: dict[str, Any]) -> None:
        raw = {name: bytes.fromhex(case[name]) for name in case if name.startswith(("client_", "daemon_", "kem_"))}
        self.case, self.raw = case, raw
        self.client, self.daemon = Identity(raw["client_seed"]), Identity(raw["daemon_seed"])
        self.messages = [bytes.fromhex(case[f"message{number}"]) for number in (1, 2, 3)]
        self.hashed = transcript(self.daemon.static, *self.messages[:2])
        token = bytes.fromhex(case["token"] or "")
        self.invite = Invite(self.daemon.static, token, "h", 1) if case["mode"] == ENROLL else None
        secret = self.invite.secret if self.invite else bytes(32)
        self.psk = late_psk(case["mode"], secret, self.hashed, raw["kem_secret"])
        with warnings.catch_warnings():
            # The package warns of ephemeral keys that are given, as it should.
            warnings.simplefilter("ignore", UserWarning)
            self.initiator = PythonEngine(
                static_private=self.client.static_private,
                remote_static=self.daemon.static,
                ephemeral=raw["client_ephemeral"],
            )
            self.responder = PythonEngine(static_private=self.daemon.static_private, ephemeral=raw["daemon_ephemeral"])

    def first(self) -> bytes:
        """Message 1 as the client writes it."""
        kem = MLKEM768PrivateKey.from_seed_bytes(self.raw["kem_seed"])
        assert kem.decapsulate(self.raw["kem_ciphertext"]) == self.raw["kem_secret"]
        invite_id = self.invite.id if self.invite else NO_INVITE
        return self.initiator.write(
            bytes([self.case["mode"]]) + bytes(7) + invite_id + kem.public_key().public_bytes_raw()
        )

    def second(self) -> bytes:
        """Message 2 as the daemon writes it, once it has read message 1."""
        read_first(self.responder, self.messages[0])
        return self.responder.write(self.raw["kem_ciphertext"])


SETUPS = {case["name"]: case for case in cases("handshakes.json") if "message3" in case}


@pytest.mark.parametrize("name", SETUPS)
def test_handshakes(name: str) -> None:
    """4.1 to 4.4 and 4.8, byte for byte, as the client and as the daemon."""
    setup, case = Setup(SETUPS[name]), SETUPS[name]
    assert (setup.hashed.hex(), setup.psk.hex()) == (case["t"], case["psk"])
    signature = setup.client.signing.sign(statement(setup.hashed, setup.client.static))
    assert signature.hex() == case["signature"]
    assert setup.first() == setup.messages[0]
    assert setup.second() == setup.messages[1]
    assert setup.initiator.read(setup.messages[1]) == setup.raw["kem_ciphertext"]
    setup.responder.set_psk(setup.psk)
    remote = setup.responder
    key, hello = read_third(setup.responder, setup.messages[2], setup.hashed, lambda: remote.remote_static)
    assert (key, hello) == (setup.client.key, case["hello"])
    assert setup.responder.handshake_hash()[:16].hex() == case["session_id"]


@pytest.mark.parametrize("case", [each for each in named("handshakes.json") if "number" in each.values[0]])
def test_messages_that_must_be_refused(case: dict[str, Any]) -> None:
    """4.2 to 4.6: each message at the end that reads it."""
    setup, message = Setup(SETUPS[case["setup"]]), bytes.fromhex(case["message"])
    if case["number"] == 1:
        with pytest.raises(REFUSALS):
            read_first(setup.responder, message)
    elif case["number"] == 2:
        setup.first()
        with pytest.raises(REFUSALS):
            setup.initiator.read(checked(message, 2))
    else:
        setup.second()
        setup.responder.set_psk(setup.psk)
        with pytest.raises(REFUSALS):
            read_third(setup.responder, message, setup.hashed, lambda: setup.responder.remote_static)


@pytest.mark.parametrize("case", named("rekeys.json"))
def test_rekeys(case: dict[str, Any]) -> None:
    """6.4: a record of that number opens under the key after that many rekeys, and under none else."""
    noise = NoiseConnection.from_name(NAME).noise_protocol
    for rekeys in (0, 1, 2):
        state = CipherState(noise)
        state.initialize_key(bytes.fromhex(case["key"]))
        for _ in range(rekeys):
            state.rekey()
        state.set_nonce(case["number"])
        record = bytes.fromhex(case["record"])
        if rekeys == case["number"] // REKEY_EVERY:
            Frame.decode(state.decrypt_with_ad(b"", record), record[-16:])
        else:
            with pytest.raises(REFUSALS):
                state.decrypt_with_ad(b"", record)


def plaintext(step: dict[str, Any]) -> bytes:
    """The plaintext of a `get`: the frame, padded to its bucket or to `size`; `length` and `tail` falsify it."""
    got = step["get"]
    content = got["payload"]
    payload = bytes.fromhex(content) if isinstance(content, str) else bytes.fromhex(content[0]) * content[1]
    head = bytes([got["type"], got["flags"]]) + got["stream"].to_bytes(4, "big")
    plain = head + got.get("length", len(payload)).to_bytes(2, "big") + payload
    size = got.get("size") or next(each for each in (256, 1024, 4096, 16384) if each >= len(plain))
    tail = bytes.fromhex(got.get("tail", ""))
    return plain.ljust(size - len(tail), b"\0") + tail


FORM = ("MORE on", "BULK on ", "flags", "type", "a continued frame")


@pytest.mark.parametrize("case", named("frames.json"))
def test_the_form_of_frames(case: dict[str, Any]) -> None:
    """6.2 and 6.3: what breaks a rule of one frame alone is refused, and every other frame is read."""
    steps = [step for step in case["steps"] if "get" in step]
    bad = case["error"] is not None and (case["section"] == "6.2" or case["name"].startswith(FORM))
    for step in steps[: -1 if bad else None]:
        frame = Frame.decode(plaintext(step), bytes(16))
        assert frame.type is Type(step["get"]["type"])
    if bad:
        with pytest.raises(BrokenError):
            Frame.decode(plaintext(steps[-1]), bytes(16))


@pytest.mark.parametrize("case", named("requests.json"))
def test_the_json_of_requests(case: dict[str, Any]) -> None:
    """7.2."""
    raw = bytes.fromhex(case["hex"]) if "hex" in case else case["text"].encode() * case.get("times", 1)
    read = read_request if case["reads"] == "REQ" else read_answer
    if case["error"] is not None:
        with pytest.raises(BrokenError):
            read(raw)
    elif "is error" in case:
        with pytest.raises(RefusedError) as refused:
            read(raw)
        assert [refused.value.code, refused.value.message, refused.value.hint] == case["is error"]
    else:
        result = read(raw)
        assert (list(result) if isinstance(result, tuple) else result) == case["is"]
