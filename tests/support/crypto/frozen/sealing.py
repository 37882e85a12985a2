"""Sealed records, rosters, pairings and recovery codes (PROTOCOL.md 10).

HPKE draws its own randomness, so a wrap is frozen as it was made once, and only opened since.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tests.support.crypto.frozen.fixed import DAEMON, TOKEN, Case
from tests.support.sealing.rosters import (
    DESKTOP,
    KEYS,
    LAPTOP,
    NOW,
    PHONE,
    SPACE,
    STRANGER,
    device,
    encoded,
    resigned,
    shared,
)

from confide_crypto.handshake.invite import Invite
from confide_crypto.keys.bech32m import encode
from confide_crypto.keys.identity import Identity
from confide_crypto.sealing.pairing import DeviceInvite, Pair
from confide_crypto.sealing.placeholder import Placeholder
from confide_crypto.sealing.record import SealedRecord
from confide_crypto.sealing.recovery_code import RecoveryCode
from confide_crypto.sealing.roster import Pin, Roster
from confide_crypto.sealing.roster_entry import Card, Device
from confide_crypto.sealing.space_keys import SpaceKeys, WrapKey, seal_wrap

_TWO = SpaceKeys(SPACE, (KEYS.epochs[0], bytes(range(128, 160))))
_NONCE = bytes(range(24))
_KNOWN = "two devices, two epochs"
"""The case whose chain comes before the entries and the pins of others."""
_PAIR = Pair(bytes(range(16)), bytes(range(100, 116)))


def records() -> Iterator[Case]:
    """Derived keys, sealed records, placeholders."""
    space: Case = {"space": SPACE.hex(), "keys": [key.hex() for key in _TWO.epochs]}
    for epoch in (1, 2):
        yield {
            "name": f"keys of epoch {epoch}",
            "section": "10.2",
            "reads": "keys",
            **space,
            "epoch": epoch,
            "commitment": _TWO.commitment(epoch).hex(),
            "database_key": _TWO.database_key(epoch).hex(),
            "error": None,
        }
    good = SealedRecord.seal(_TWO, "github-token", b"ghp_0123456789abcdefghijklmnopqrstuvwxyz", nonce=_NONCE)
    for name, keys, kind, value in (
        ("record", _TWO, good.kind, good.open(_TWO)),
        ("record of the first epoch", KEYS, "password", b"hunter2"),
        ("record of one byte", _TWO, "k", b"x"),
        ("record of a full block", _TWO, "private-key", bytes(range(60))),
        ("record of a block and a byte", _TWO, "private-key", bytes(range(61))),
    ):
        record = SealedRecord.seal(keys, kind, value, nonce=_NONCE)
        yield {
            "name": name,
            "section": "10.3",
            "reads": "record",
            **space,
            "kind": kind,
            "value": value.hex(),
            "nonce": _NONCE.hex(),
            "secret_id": record.secret_id.hex(),
            "record": record.encode().hex(),
            "error": None,
        }
    data = good.encode()
    for name, bad, error in (
        (
            "record under another key",
            SealedRecord.seal(SpaceKeys(SPACE, (bytes(32), bytes(32))), "k", b"x"),
            "WrongKeyError",
        ),
        ("record of another space", SealedRecord.seal(SpaceKeys(bytes(16), _TWO.epochs), "k", b"x"), "WrongKeyError"),
        ("record with another kind", replace(good, kind="github-tokem"), "WrongKeyError"),
        ("record with another name", replace(good, secret_id=bytes(16)), "WrongKeyError"),
        ("record with another nonce", replace(good, nonce=bytes(24)), "WrongKeyError"),
        ("record with another epoch", replace(good, epoch=1), "WrongKeyError"),
        ("record with another commitment", replace(good, commitment=bytes(32)), "WrongKeyError"),
        ("record of epoch 3", replace(good, epoch=3), "UnknownEpochError"),
        ("record of epoch 0", replace(good, epoch=0), "RecordError"),
        ("record with another ciphertext", replace(good, ciphertext=bytes(len(good.ciphertext))), "RecordError"),
        ("record of version 2", b"\2" + data[1:], "RecordError"),
        ("record cut short", data[:-1], "RecordError"),
        ("record with a block too many", data + bytes(64), "RecordError"),
        ("no record", b"", "RecordError"),
    ):
        content = bad.encode() if isinstance(bad, SealedRecord) else bad
        yield {"name": name, "section": "10.3", "reads": "record", **space, "record": content.hex(), "error": error}
    mark = str(Placeholder("github-token", bytes(range(16))))
    for name, text, kind in (
        ("placeholder", mark, "github-token"),
        ("placeholder in capitals", mark.upper(), None),
        ("placeholder with a short id", mark[:-2] + ")", None),
        ("placeholder with brackets", f"[{mark[1:-1]}]", None),
        ("placeholder without a kind", f"(sealed::{bytes(16).hex()})", None),
    ):
        yield {"name": name, "section": "10.4", "reads": "placeholder", "text": text, "kind": kind, "error": None}


def rosters() -> Iterator[Case]:
    """Wraps, chains, what may follow them, pins."""
    head = bytes(range(32))
    there: dict[str, Any] = {"space": SPACE, "epoch": 2, "head": head}
    wrap = seal_wrap(_TWO.key(2), WrapKey(LAPTOP).public, device=LAPTOP.public_key, **there)
    place = {"seed": LAPTOP.seed.hex(), "space": SPACE.hex(), "epoch": 2, "head": head.hex()}
    wrapped: Case = {"section": "10.5", "reads": "wrap", **place, "wrap": wrap.hex()}
    key = {"wrap_key": WrapKey(LAPTOP).public.hex(), "key": _TWO.key(2).hex()}
    yield {"name": "wrap", **wrapped, **key, "error": None}
    for name, change in (
        ("wrap for another device", {"seed": DESKTOP.seed.hex()}),
        ("wrap of another space", {"space": bytes(16).hex()}),
        ("wrap of another epoch", {"epoch": 1}),
        ("wrap behind another head", {"head": bytes(32).hex()}),
        ("wrap cut short", {"wrap": wrap[:-1].hex()}),
        ("wrap with another tag", {"wrap": (wrap[:-1] + bytes([wrap[-1] ^ 1])).hex()}),
    ):
        yield {"name": name, **wrapped, **change, "error": "WrapError"}

    known, keys = shared()
    added = known.add(DESKTOP, device(PHONE, "phone"), keys, now=NOW + 3)
    paper = device(RecoveryCode(bytes(range(20))).identity, "paper", is_paper=True)
    added = added.add(PHONE, paper, keys, now=NOW + 4)
    removed, later = added.remove(PHONE, LAPTOP.public_key, keys, now=NOW + 5)
    for name, roster, held, opener in (
        (_KNOWN, known, keys, DESKTOP),
        ("three devices, one on paper, one removed", removed, later, PHONE),
    ):
        yield {
            "name": name,
            "section": "10.6",
            "reads": "roster",
            "chain": [data.hex() for data in encoded(roster)],
            "devices": [[key.hex(), found.name, found.is_paper] for key, found in roster.devices.items()],
            "removed": {key.hex(): epoch for key, epoch in roster.removed.items()},
            "head": roster.head.hex(),
            "words": roster.words,
            "pin": roster.pin.to_line(),
            "seed": opener.seed.hex(),
            "keys": [key.hex() for key in held.epochs],
            "error": None,
        }
    yield from _refused(known, keys)
    elsewhere = Roster.create(LAPTOP, "laptop", now=NOW)[0]
    for name, pin, error in (
        ("pin of a later state", Pin(SPACE, 3, bytes(32)), "WithheldRosterError"),
        ("pin of another state", Pin(SPACE, 2, bytes(32)), "ForkedRosterError"),
        ("pin of another space", elsewhere.pin, "ForeignEntryError"),
        ("pin of an earlier state", Pin(SPACE, 1, known.hashes[1]), None),
    ):
        row: Case = {"name": name, "section": "10.6", "reads": "pin", "known": _KNOWN}
        yield {**row, "pin": pin.to_line(), "error": error}


def _refused(known: Roster, keys: SpaceKeys) -> Iterator[Case]:
    adding = known.add(DESKTOP, device(PHONE, "phone"), keys, now=NOW + 3).entries[-1]
    rotating = known.rotate(LAPTOP, keys, now=NOW + 3)[0].entries[-1]
    one, two = rotating.wraps
    unusable = WrapKey(PHONE).public[:1184] + bytes(32)
    lame = Card(PHONE.public_key, unusable, PHONE.sign(b"confide/device-card/1", unusable))
    good = adding.encode()
    for name, entry, error in (
        ("an entry again", known.entries[2].encode(), "ReplayedEntryError"),
        ("another entry in the place of one that is known", resigned(rotating, LAPTOP, number=2), "ForkedRosterError"),
        ("an entry behind another head", resigned(adding, DESKTOP, previous=known.hashes[1]), "ForkedRosterError"),
        ("an entry after a gap", resigned(adding, DESKTOP, number=4), "MissingEntryError"),
        ("an entry of another space", resigned(adding, DESKTOP, space=bytes(16)), "ForeignEntryError"),
        ("signed by a stranger", resigned(adding, STRANGER, signer=STRANGER.public_key), "UnknownSignerError"),
        ("signed by who is added", resigned(adding, PHONE, signer=PHONE.public_key), "UnknownSignerError"),
        ("signed by another than it says", resigned(adding, STRANGER), "BadSignatureError"),
        ("signed by another device than it says", resigned(adding, LAPTOP), "BadSignatureError"),
        ("with another time than was signed", replace(adding, time=NOW).encode(), "BadSignatureError"),
        ("a device that is there", resigned(adding, DESKTOP, device=device(LAPTOP)), "WrongDeviceError"),
        ("a wrap key that cannot be used", resigned(adding, DESKTOP, device=Device(lame, "phone")), "WrongDeviceError"),
        (
            "a wrap key that its device has not signed",
            resigned(adding, DESKTOP, device=Device(replace(lame, signature=bytes(64)), "phone")),
            "BadSignatureError",
        ),
        ("a new epoch without a device's wrap", resigned(rotating, LAPTOP, wraps=(one,)), "WrongWrapsError"),
        ("a new epoch with wraps in another order", resigned(rotating, LAPTOP, wraps=(two, one)), "WrongWrapsError"),
        ("a new epoch with a wrap too many", resigned(rotating, LAPTOP, wraps=(one, two, two)), "WrongWrapsError"),
        ("no wraps", resigned(rotating, LAPTOP, wraps=()), "WrongEpochError"),
        (
            "wraps of an epoch that is over",
            resigned(rotating, LAPTOP, wraps=(replace(one, epoch=2), replace(two, epoch=2))),
            "WrongEpochError",
        ),
        (
            "a device without the first epoch's key",
            resigned(adding, DESKTOP, wraps=adding.wraps[1:]),
            "WrongEpochError",
        ),
        ("an entry cut short", good[:-1], "MalformedEntryError"),
        ("an entry with a byte too many", good + b"\0", "MalformedEntryError"),
        ("an entry of version 2", b"\2" + good[1:], "MalformedEntryError"),
        ("an entry that begins a space again", good[:1] + b"\1" + good[2:], "MalformedEntryError"),
    ):
        row: Case = {"name": name, "section": "10.6", "reads": "entry", "known": _KNOWN}
        yield {**row, "entry": entry.hex(), "error": error}


def pairings() -> Iterator[Case]:
    """Invites with a pair secret, requests and answers."""
    made = DeviceInvite(Invite("h", 7733, "", False, DAEMON.static_key, TOKEN), _PAIR.secret)
    text = made.to_string()
    invite = {"pair_secret": _PAIR.secret.hex(), "invite_id": made.invite.invite_id.hex()}
    yield {"name": "invite", "section": "10.7", "reads": "invite", "text": text, **invite, "error": None}
    plain = {"pair_secret": None, "invite_id": made.invite.invite_id.hex()}
    own = made.invite.to_string()
    yield {"name": "a daemon's own", "section": "10.7", "reads": "invite", "text": own, **plain, "error": None}
    body = bytes([1]) + DAEMON.static_key + TOKEN + _PAIR.secret
    for name, bad in (
        ("invite with a byte too many", encode("invite", body + b"\0")),
        ("invite of version 2", encode("invite", b"\2" + body[1:])),
        ("invite with another prefix", encode("confide", body)),
        ("invite cut short", text.partition("#")[2][:-1]),
    ):
        yield {
            "name": name,
            "section": "10.7",
            "reads": "invite",
            "text": f"confide://h:7733/#{bad}",
            "error": "InviteError",
        }

    pair: Case = {"section": "10.7", "invite_id": _PAIR.invite_id.hex(), "pair_secret": _PAIR.secret.hex()}
    card, other = Card.of(DESKTOP), Card.of(PHONE)
    request = _PAIR.request(card)
    stranger, elsewhere = Pair(_PAIR.invite_id, bytes(16)), Pair(bytes(16), _PAIR.secret)
    seed = {"seed": DESKTOP.seed.hex()}
    yield {"name": "request", **pair, "reads": "request", "message": request.hex(), **seed, "error": None}
    mixed = Card(card.key, other.wrap_key, card.signature)
    for name, message in (
        ("request without the secret", stranger.request(card)),
        ("request for another invite", elsewhere.request(card)),
        ("request with another card", request[:17] + other.encode() + request[-32:]),
        ("request with a wrap key that its device has not signed", _PAIR.request(mixed)),
        ("request of version 2", b"\2" + request[1:]),
        ("request cut short", request[:-1]),
    ):
        yield {"name": name, **pair, "reads": "request", "message": message.hex(), **seed, "error": "PairingError"}

    known = shared()[0]
    answer = _PAIR.answer(card, known)
    shown = {"pin": known.pin.to_line()}
    yield {"name": "answer", **pair, "reads": "answer", "message": answer.hex(), **seed, **shown, "error": None}
    for name, message, whose in (
        ("answer without the secret", stranger.answer(card, known), DESKTOP),
        ("answer to another device", answer, PHONE),
        ("answer of another state", answer[:-36] + bytes(4) + answer[-32:], DESKTOP),
        ("request in place of an answer", request, DESKTOP),
        ("answer cut short", answer[:-1], DESKTOP),
    ):
        to = {"seed": whose.seed.hex()}
        yield {"name": name, **pair, "reads": "answer", "message": message.hex(), **to, "error": "PairingError"}


def recoveries() -> Iterator[Case]:
    """Recovery codes, as typed."""
    code = RecoveryCode(bytes(range(0x10, 0x24)))
    text = code.to_string()
    identity: Identity = code.identity
    read = {
        "section": "10.8",
        "reads": "recovery code",
        "secret": code.secret.hex(),
        "seed": identity.seed.hex(),
        "key": identity.public_key.hex(),
        "written": text,
        "error": None,
    }
    for name, typed in (
        ("code", text),
        ("code in small letters", text.lower()),
        ("code without hyphens", text.replace("-", "")),
        ("code with blanks around and between", f" {text.replace('-', ' ')}\n"),
        ("code with I for 1 and O for 0", text.replace("1", "I").replace("0", "O")),
        ("code with l for 1 and o for 0", text.lower().replace("1", "l").replace("0", "o")),
    ):
        yield {"name": name, "text": typed, **read}
    wrong = text[:10] + ("2" if text[10] != "2" else "3") + text[11:]
    for name, typed in (
        ("no code", ""),
        ("code without its mark", text[2:]),
        ("code with a wrong letter", wrong),
        ("code with two neighbours exchanged", text[:2] + text[3] + text[2] + text[4:]),
        ("code with two groups exchanged", "-".join([text[:5], text[12:17], text[6:11], text[18:]])),
        ("code cut short", text[:-1]),
        ("code with a letter too many", text + "0"),
        ("code with a U", text[:-1] + "U"),
        ("code in other letters", text.replace("C", "\N{CYRILLIC CAPITAL LETTER ES}", 1)),
    ):
        yield {"name": name, "section": "10.8", "reads": "recovery code", "text": typed, "error": "RecoveryCodeError"}
