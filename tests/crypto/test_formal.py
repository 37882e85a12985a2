"""The models in crypto/formal/ have the messages of the code, field by field, so that a change of the one without the other is found.

A term of a model is computed as the code would (`tests.support.crypto.model_terms`) and compared with what the code sends. What add-ons
sign is compared beside their own tests.
"""

from __future__ import annotations

import hashlib
import json
import re
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
from bench.proof import FORMAL, Scenario, results, scenarios
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey
from tests.support.crypto.channels import HOST, LAPTOP, Door, hosting
from tests.support.crypto.model_terms import model, term
from tests.support.sealing.rosters import DESKTOP, NOW, PHONE, SPACE, device, founded

from confide_crypto.handshake.handshake import PROLOGUE, ClientHandshake, DaemonHandshake
from confide_crypto.handshake.invite import Invite
from confide_crypto.handshake.noise import XKPSK3, HandshakeState
from confide_crypto.sealing.encoding import join_parts, u32
from confide_crypto.sealing.pairing import Pair
from confide_crypto.sealing.roster_entry import Card, RosterEntry
from confide_crypto.sealing.space_keys import WrapKey
from confide_crypto.transport import open_channel as opening
from confide_crypto.transport.open_channel import Connection, connect

INVITE = Invite.new(HOST.static_key, "confide://127.0.0.1:7733")


@pytest.fixture
def payloads(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What Noise is given to carry, message by message."""
    seen: list[bytes] = []
    write = HandshakeState.write_message

    def recorded(state: HandshakeState, payload: bytes = b"") -> bytes:
        seen.append(payload)
        return write(state, payload)

    monkeypatch.setattr(HandshakeState, "write_message", recorded)
    return seen


@pytest.fixture
def psks(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What is mixed in, at the daemon and at the client."""
    seen: list[bytes] = []
    use = HandshakeState.set_psk

    def recorded(state: HandshakeState, psk: bytes) -> None:
        seen.append(psk)
        use(state, psk)

    monkeypatch.setattr(HandshakeState, "set_psk", recorded)
    return seen


def test_the_handshake_is_the_models(payloads: list[bytes], psks: list[bytes]) -> None:
    """PROTOCOL.md 4.3 and 4.4: the three payloads, the transcript, the psk and what is signed, in an enrollment, where nothing is zero."""
    dk = MLKEM768PrivateKey.generate()
    hello = {"name": "laptop"}
    client = ClientHandshake(LAPTOP, HOST.static_key, invite=INVITE, hello=hello, kem_key=dk)
    daemon = DaemonHandshake(HOST)
    message1 = client.write_message1()
    daemon.read_message1(message1)
    message2 = daemon.write_message2(INVITE.invite_psk)
    client.read_message2(message2)
    message3 = client.write_message3()
    daemon.read_message3(message3)

    initiator, responder = model("handshake.pvl", "Initiator"), model("handshake.pvl", "Responder")
    known = {
        "mode": bytes([1]) + bytes(7),
        "id": INVITE.invite_id,
        "kempublic(dk)": dk.public_key().public_bytes_raw(),
        "kemct(ek, r)": payloads[1],
        "E": message1[:32],
        "c1": message1[32:],
        "Re": message2[:32],
        "c2": message2[32:],
        "P": LAPTOP.public_key,
        "hello": json.dumps(hello, separators=(",", ":")).encode().ljust(352, b"\0"),
    }
    assert term(initiator, "let c1 = ").parts[3].bytes(known, LAPTOP) == payloads[0]
    assert term(responder, "let c2 = ").parts[3].bytes(known, HOST) == payloads[1]
    shared = dk.decapsulate(payloads[1])  # the whole payload is the ciphertext

    for side, static in ((initiator, "Rs"), (responder, "S")):
        hashed = term(side, "let T = ").parts[0].bytes({**known, static: HOST.static_key}, HOST)
        known["T"] = hashlib.blake2b(PROLOGUE + hashed).digest()
        _, *mixed = term(side, "let psk = ").parts
        secret = {"mode": bytes([1]), "token": INVITE.invite_psk, "T": known["T"]}
        data = b"".join(each.bytes(secret, HOST) for each in mixed)
        psk = hashlib.blake2b(data, key=shared, person=b"confide-psk-1", digest_size=32).digest()
        assert psks == [psk, psk]
    assert term(initiator, "let c3 = ").parts[3].bytes({**known, "S": LAPTOP.static_key}, LAPTOP) == payloads[2]


def test_the_tokens_are_the_models() -> None:
    """Noise 7.4: which of the four shared secrets go in, and where."""
    says = re.findall(r"\(\* (?:->|<-) ([a-z, ]+) \*\)", model("handshake.pvl", "Initiator"))
    assert [[token.value for token in message] for message in XKPSK3.messages] == [each.split(", ") for each in says]


async def test_the_first_record_is_the_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """PROTOCOL.md 4.7: who the daemon is, proven, and the welcome."""
    seen: list[bytes] = []
    read = opening._read_welcome

    def recorded(data: bytes, *rest: Any) -> Any:
        seen.append(data)
        return read(data, *rest)

    async def handle(connection: Connection) -> None:
        await connection.close()

    monkeypatch.setattr(opening, "_read_welcome", recorded)
    door = Door(LAPTOP.public_key)
    async with hosting(door, handle) as host:
        await (await connect(host.url, LAPTOP, HOST.static_key)).close()
    sent = term(model("handshake.pvl", "Responder"), "out(c, aead(hkdf(ck6, none, o2), n0, none, ")
    direction, key, signature, load = sent.parts
    assert (direction.name, load.name) == ("down", "load")  # each direction has its own key
    known = {"edpublic(ed(me))": HOST.public_key, "S": HOST.static_key}
    daemon = {"key": key.bytes(known, HOST).hex(), "signature": signature.bytes(known, HOST).hex()}
    assert json.loads(seen[0]) == {"ok": {"daemon": daemon, "welcome": door.welcome}}


def entries() -> list[RosterEntry]:
    """The history that the model of the roster has: a genesis, two that add, one that removes."""
    roster, keys = founded()
    roster = roster.add(LAPTOP, device(DESKTOP, "desktop"), keys, now=NOW + 1)
    roster = roster.add(LAPTOP, device(PHONE, "phone"), keys, now=NOW + 2)
    return list(roster.remove(LAPTOP, PHONE.public_key, keys, now=NOW + 3)[0].entries)


@pytest.mark.parametrize(("number", "maker"), [(0, "MakeGenesis"), (1, "MakeAdd"), (2, "MakeAdd"), (3, "MakeRemove")])
def test_an_entry_is_the_models(number: int, maker: str) -> None:
    """PROTOCOL.md 10.6: what stands in an entry and is not in the model is what the model says that it leaves out, byte for byte."""
    entry = entries()[number]
    added = entry.device
    wraps = [wrap.sealed for wrap in entry.wraps]
    change = bytes([entry.change])
    known = {
        **dict.fromkeys(("genesis", "add", "remove"), change),
        **dict.fromkeys(("number", "zero", "three"), u32(number)),
        **dict.fromkeys(("previous", "nohead"), entry.previous),
        **dict(zip(("wrap", "wrap2"), wraps, strict=False)),
        "space": SPACE,
        "signer": LAPTOP.public_key,
        "card": added.card.encode() if added else b"",
        "removed": entry.removed,
        "commitment": entry.commitment,
    }
    fields = term(model("roster.pvl", maker), "Signed(x, ").parts
    assert sum(field.name.startswith("wrap") for field in fields) == len(wraps)
    rest, place = b"", 0
    encoded = entry.encode()
    for field in fields:
        value = field.bytes(known, LAPTOP)
        at = encoded.index(value, place)
        rest += encoded[place:at]
        place = at + len(value)
    name = added.name.encode() if added else b""
    left_out = bytes([1]) + entry.time.to_bytes(8, "big")
    left_out += bytes([added.is_paper, len(name)]) + name if added else b""
    left_out += len(wraps).to_bytes(2, "big") + b"".join(u32(wrap.epoch) + wrap.device for wrap in entry.wraps)
    assert rest == left_out
    signature = term(model("roster.pvl", "Signed"), "= ")
    assert encoded[place:] == signature.bytes({"body": encoded[:-64]}, LAPTOP)


def test_a_card_and_a_commitment_are_the_models() -> None:
    """PROTOCOL.md 10.2, 10.5. In the model a signature shows what it signs, so the wrap key stands in it alone."""
    wrap_key = WrapKey(LAPTOP).public
    known = {"edpublic(ed(x))": LAPTOP.public_key, "wrappublic(wrapsecret(x))": wrap_key}
    key, signature = term(model("roster.pvl", "Card"), "= ").parts
    assert key.bytes(known, LAPTOP) + wrap_key + signature.bytes(known, LAPTOP) == Card.of(LAPTOP).encode()
    _, committed = term(model("roster.pvl", "MakeGenesis"), "let commitment = ").parts
    parts = [{"space": SPACE, "first": u32(1)}[each.name] for each in committed.parts]
    _, keys = founded()
    whole = hashlib.blake2b(join_parts(*parts), key=keys.key(1), person=b"confide-epoch-1", digest_size=32).digest()
    assert entries()[0].commitment == whole


def test_pairing_is_the_models() -> None:
    """PROTOCOL.md 10.7: both messages, and what their MACs are of."""
    pair = Pair(bytes(range(16)), bytes(range(50, 66)))
    roster, keys = founded()
    roster = roster.add(LAPTOP, device(DESKTOP, "desktop"), keys, now=NOW + 1)
    card = Card.of(DESKTOP)
    known = {"id": pair.invite_id, "card": card.encode(), "space": SPACE, "pair": pair.secret}
    known |= {"number": u32(1), "head": roster.head}
    request = term(model("25_pairing.pv", "Newcomer"), "out(c, ")
    assert bytes([1]) + request.bytes(known, DESKTOP) == pair.request(card)
    answer = term(model("25_pairing.pv", "Inviter").replace("out(c, (id, space", "answer (id, space"), "answer ")
    assert bytes([1]) + answer.bytes(known, LAPTOP) == pair.answer(card, roster)


def test_every_scenario_has_its_libraries_and_its_result() -> None:
    """And RESULTS.txt says what came of it when it was last run, as expected or not at all."""
    lines = (FORMAL / "RESULTS.txt").read_text("ascii").splitlines()
    told = {line.split()[0]: line for line in lines if line[:1].isdigit()}
    found = scenarios()
    assert len(found) > 20
    assert sorted(told) == [each.name for each in found]
    readme = (FORMAL / "README.md").read_text("utf-8")
    for each in found:
        assert all((FORMAL / f"{name}.pvl").exists() for name in each.libraries)
        queries = len(
            re.findall(r"^(?:query|weaksecret) ", (FORMAL / f"{each.name}.pv").read_text("ascii"), re.MULTILINE)
        )
        assert len(each.expected) == queries, each.name
        outcome = tuple(takewhile(lambda word: word in ("true", "false"), told[each.name].split()[1:]))
        assert outcome == each.expected or "did not end" in told[each.name]
        assert re.search(rf"^\| [0-9ab, ]*\b{each.name.split('_')[0]}\b", readme, re.MULTILINE), each.name


def test_what_proverif_says_is_read() -> None:
    output = """RESULT not event(Seals(v)) is false.
RESULT inj-event(Takes(p,s)) && event(Client(p)) ==> inj-event(Says(p,s)) is false.
RESULT (even event(Takes(p,s)) ==> event(Says(p,s)) is false.)
RESULT not attacker(v[]) cannot be proved.
RESULT not attacker(w[]) is true.
"""
    assert results(output) == ("false", "false", "unproven", "true")


def test_a_scenario_says_what_it_needs(tmp_path: Path) -> None:
    file = tmp_path / "01_secrecy.pv"
    file.write_text("(* with: primitives dh; expected: false true *)\nprocess 0\n")
    scenario = Scenario.read(file)
    assert scenario == Scenario("01_secrecy", ("primitives", "dh"), ("false", "true"))
    assert scenario.command("proverif")[-5:] == ["-lib", "primitives.pvl", "-lib", "dh.pvl", "01_secrecy.pv"]
    file.write_text("process 0\n")
    with pytest.raises(ValueError, match="does not begin"):
        Scenario.read(file)
