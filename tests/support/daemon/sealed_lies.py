"""What a hostile daemon says of rosters, records, wraps, pairing and recovery (PROTOCOL.md 10): an honest keeper of what machines gave it,
and a grammar of lies, each of which is of the right form.

Withheld, forked, relabelled, shortened, repeated, mixed and flipped lists of devices; cards and proofs of strangers; other secrets'
records, of other epochs, cut and flipped; answers to a pairing that nobody has given.
"""

from __future__ import annotations

import random
from base64 import b64decode, b64encode
from collections.abc import Callable
from contextlib import suppress
from copy import deepcopy
from typing import Any, Final

from tests.support.sealing.rosters import DESKTOP, NOW, SPACE, STRANGER, device

from confide_crypto.errors import ConfideError, RequestError
from confide_crypto.sealing.pairing import ANSWER_LENGTH, Pair
from confide_crypto.sealing.record import SealedRecord
from confide_crypto.sealing.roster import Roster
from confide_crypto.sealing.roster_entry import Card
from confide_crypto.sealing.space_keys import SpaceKeys

TIME: Final = "2026-11-21T10:00:00Z"
LABEL: Final = "home"


class Keeper:
    """What machines have given of one space, as an honest daemon would keep it."""

    def __init__(self) -> None:
        self.entries: list[bytes] = []
        self.records: dict[bytes, bytes] = {}
        self.waiting: list[dict[str, Any]] = []

    @property
    def roster(self) -> Roster | None:
        """As anybody can read it."""
        return Roster.read(self.entries) if self.entries else None

    @property
    def status(self) -> dict[str, Any]:
        """The member `sealing` of the answer to `attach`."""
        roster = self.roster
        number, head, epoch = (roster.pin.number, roster.head.hex(), roster.epoch) if roster else (-1, "", 0)
        return {"number": number, "head": head, "epoch": epoch, "custody": "server", "needs": []}

    def answer(self, op: str, body: dict[str, Any]) -> dict[str, Any] | None:
        """The honest one; None: it is not about what is sealed. Raises RequestError as a daemon's refusal."""
        handler = getattr(self, f"_{op.replace('-', '_')}", None)
        return handler(body) if handler else None

    def _roster(self, body: dict[str, Any]) -> dict[str, Any]:
        status = self.status
        return {
            "space": LABEL,
            "entries": [_b64(entry) for entry in self.entries[body["from"] :]],
            **{name: status[name] for name in ("number", "head", "custody", "needs")},
            "isLocked": False,
            "waiting": deepcopy(self.waiting),
        }

    def _extend(self, body: dict[str, Any]) -> dict[str, Any]:
        entry = b64decode(body["entry"])
        with suppress(ConfideError):
            roster = Roster.read([*self.entries, entry])
            self.entries.append(entry)
            return {"number": roster.pin.number}
        raise RequestError("conflict", "the list of devices has changed meanwhile")

    def _records(self, body: dict[str, Any]) -> dict[str, Any]:
        for packed in body["records"]:
            record = SealedRecord.parse(b64decode(packed))
            self.records[record.secret_id] = b64decode(packed)
        return {"stored": len(body["records"])}

    def _record(self, body: dict[str, Any]) -> dict[str, Any]:
        data = self.records.get(bytes.fromhex(body["id"]))
        if data is None:
            raise RequestError("not_found", "there is no such record")
        return {"record": _b64(data)}

    def _record_list(self, _body: dict[str, Any]) -> dict[str, Any]:
        found = [SealedRecord.parse(data) for _, data in sorted(self.records.items())]
        listed = [{"id": one.secret_id.hex(), "kind": one.kind, "epoch": one.epoch, "at": TIME} for one in found]
        return {"records": listed, "next": None}

    def _pair(self, _body: dict[str, Any]) -> dict[str, Any]:
        return {"answer": None}

    def _pair_answer(self, _body: dict[str, Any]) -> dict[str, Any]:
        return {}

    def _invite(self, _body: dict[str, Any]) -> dict[str, Any]:
        return {"expiresAt": "2099-01-01T00:00:00Z"}

    def _unlock(self, _body: dict[str, Any]) -> dict[str, Any]:
        return {"isLocked": False}


def _b64(data: bytes) -> str:
    return b64encode(data).decode()


def _flip(draw: random.Random, packed: str) -> str:
    data = bytearray(b64decode(packed))
    if data:
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    return _b64(bytes(data))


# Of `roster`.


def _withheld(draw: random.Random, told: dict[str, Any]) -> None:
    keep = draw.randrange(len(told["entries"]) + 1)
    told["entries"] = told["entries"][:keep]
    told["number"] = keep - 1
    told["head"] = Roster.read(map(b64decode, told["entries"])).head.hex() if keep else ""


def _half(draw: random.Random, told: dict[str, Any]) -> None:
    """Fewer entries than it says there are."""
    told["entries"] = told["entries"][: draw.randrange(len(told["entries"]) + 1)]


def _forked(draw: random.Random, told: dict[str, Any]) -> None:
    roster, keys = Roster.create(STRANGER, "stranger", now=NOW)
    for name in ("other", "desk")[: draw.randrange(3)]:
        identity = DESKTOP if name == "other" else STRANGER
        if identity is not STRANGER:
            roster = roster.add(STRANGER, device(identity, name), keys, now=NOW)
    told.update(entries=[_b64(entry.encode()) for entry in roster.entries], number=len(roster.entries) - 1)
    told["head"] = roster.head.hex()


def _relabelled(draw: random.Random, told: dict[str, Any]) -> None:
    told["space"] = draw.choice(["", "away", "../home", "x" * 300, LABEL.upper()])
    if draw.random() < 0.5:
        _forked(draw, told)


def _mixed(draw: random.Random, told: dict[str, Any]) -> None:
    entries = told["entries"]
    if entries:
        match draw.randrange(4):
            case 0:
                entries.reverse()
            case 1:
                entries.append(entries[-1])
            case 2:
                entries[draw.randrange(len(entries))] = _flip(draw, draw.choice(entries))
            case 3:
                entries[-1] = _b64(b64decode(entries[-1])[: draw.randrange(200)])


def _endless(_draw: random.Random, told: dict[str, Any]) -> None:
    told["number"] = 255


def _misnumbered(draw: random.Random, told: dict[str, Any]) -> None:
    told["number"] = draw.choice([-1, -2, 0, 1, 7, 255, 256, 2**31, 2**63])
    told["head"] = draw.choice(["", "ab" * 32, "ab" * 31, "zz" * 32])


def _wanting(draw: random.Random, told: dict[str, Any]) -> None:
    told["needs"] = draw.choice([[1], [1, 2, 3], [0], [2**32], list(range(1, 129)), [255], [1] * 200])
    told["isLocked"] = draw.random() < 0.5
    told["custody"] = draw.choice(["caller", "server"])


def _joining(draw: random.Random, told: dict[str, Any]) -> None:
    card = Card.of(STRANGER)
    proof = Pair(bytes(16), bytes(16)).request(card)
    named = draw.choice(["other", "laptop", "stranger", "x" * 300, "\u202eother", ""])
    key = draw.choice([STRANGER.public_key, DESKTOP.public_key, bytes(32)])
    shown = draw.choice([card.encode(), bytes(1312), card.encode()[:-1] + b"\0", b""])
    told["waiting"] = [
        {
            "key": key.hex(),
            "name": named,
            "card": draw.choice([_b64(shown), None]),
            "request": draw.choice([_b64(proof), None, _b64(bytes(1361)), _b64(proof[:-1] + b"\0")]),
        }
    ] * draw.choice([1, 2, 64])


ROSTER_LIES: Final[tuple[Callable[[random.Random, dict[str, Any]], None], ...]] = (
    *(_withheld, _half, _forked, _relabelled, _mixed, _endless, _misnumbered, _wanting, _joining),
)
"""10.6 and 10.7: what is shown of the devices."""


def record_lie(draw: random.Random, keeper: Keeper, told: dict[str, Any]) -> dict[str, Any]:
    """10.3: another record than the one that was asked for, or no whole one."""
    packed = told["record"]
    others = [data for data in keeper.records.values() if _b64(data) != packed]
    strange = SealedRecord.seal(SpaceKeys(SPACE, (bytes(32),)), "github-token", b"ghp_forged").encode()
    data = b64decode(packed)
    lies = [strange, data[: len(data) // 2], b"", data + b"\0", data[:1] + b"\xff\xff\xff\xff" + data[5:], *others]
    return {"record": draw.choice([_flip(draw, packed), *map(_b64, lies)])}


def lie(draw: random.Random, keeper: Keeper, op: str, told: dict[str, Any]) -> dict[str, Any] | None:
    """One of the grammar in place of the honest answer; None: it has none for this request."""
    told = deepcopy(told)
    match op:
        case "roster":
            for work in draw.sample(ROSTER_LIES, draw.randint(1, 2)):
                with suppress(ConfideError):  # of what an earlier lie has left
                    work(draw, told)
            return told
        case "record":
            return record_lie(draw, keeper, told)
        case "record-list":
            more = {"id": "ff" * 16, "kind": "token", "epoch": draw.choice([0, 1, 2**32]), "at": TIME}
            told["records"] = [*told["records"], more] * draw.choice([1, 2, 300])
            told["next"] = draw.choice([None, "", "00" * 16, "ff" * 16, "zz"])
            return told
        case "pair":
            return {"answer": _b64(draw.choice([bytes(ANSWER_LENGTH), b"\x01" + bytes(100), b"", bytes(5000)]))}
        case "extend":
            return {"number": draw.choice([-1, 0, 1, 255, 2**63])}
        case "unlock":
            return {"isLocked": True}
        case "invite":
            return {"expiresAt": draw.choice(["1970-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00"])}
    return None
