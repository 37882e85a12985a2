"""Every frozen case of sealing: what it gives, or the class of what it raises (tests/vectors/README.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.support.crypto import freeze

from confide_crypto.errors import ConfideError
from confide_crypto.keys.identity import Identity
from confide_crypto.sealing.pairing import Pair, parse_invite
from confide_crypto.sealing.placeholder import Placeholder
from confide_crypto.sealing.record import SealedRecord
from confide_crypto.sealing.recovery_code import RecoveryCode
from confide_crypto.sealing.roster import Pin, Roster
from confide_crypto.sealing.roster_entry import Card
from confide_crypto.sealing.space_keys import SpaceKeys, WrapKey
from confide_night.order.order import Approval, open_order, sign_order

Case = dict[str, Any]


def unhex(case: Case, *keys: str) -> list[bytes]:
    return [bytes.fromhex(case[key]) for key in keys]


def space_keys(case: Case) -> SpaceKeys:
    return SpaceKeys(bytes.fromhex(case["space"]), tuple(map(bytes.fromhex, case["keys"])))


CHAINS = {
    case["name"]: case["chain"]
    for file in ("rosters", "orders")
    for case in freeze.frozen(file)
    if case["reads"] == "roster"
}


def chain(case: Case) -> list[bytes]:
    return [bytes.fromhex(entry) for entry in case.get("chain") or CHAINS[case["known"]]]


def keys(case: Case) -> None:
    held = space_keys(case)
    assert held.commitment(case["epoch"]).hex() == case["commitment"]
    assert held.database_key(case["epoch"]).hex() == case["database_key"]


def record(case: Case) -> None:
    held = space_keys(case)
    read = SealedRecord.parse(*unhex(case, "record"))
    value, (nonce,) = read.open(held), unhex(case, "nonce")
    assert (value.hex(), read.kind, read.secret_id.hex()) == (case["value"], case["kind"], case["secret_id"])
    sealing = SpaceKeys(held.space, held.epochs[: read.epoch])
    assert SealedRecord.seal(sealing, read.kind, value, nonce=nonce).encode().hex() == case["record"]


def placeholder(case: Case) -> None:
    read = Placeholder.parse(case["text"])
    assert (read.kind if read else None) == case["kind"]
    assert read is None or str(read) == case["text"]


def wrap(case: Case) -> None:
    seed, space, head, sealed = unhex(case, "seed", "space", "head", "wrap")
    ours = WrapKey(Identity(seed))
    assert ours.open(sealed, space=space, epoch=case["epoch"], head=head).hex() == case["key"]
    assert ours.public.hex() == case["wrap_key"]


def roster(case: Case) -> None:
    read = Roster.read(chain(case))
    assert [[key.hex(), known.name, known.is_paper] for key, known in read.devices.items()] == case["devices"]
    assert {key.hex(): epoch for key, epoch in read.removed.items()} == case["removed"]
    assert (read.head.hex(), read.words, read.pin.to_line()) == (case["head"], case["words"], case["pin"])
    held = read.open(WrapKey(Identity(*unhex(case, "seed"))))
    assert [key.hex() for key in held.epochs] == case["keys"]


def entry(case: Case) -> None:
    """The chain is good: what is refused is what follows it."""
    known = Roster.read(chain(case))
    known.extend(unhex(case, "entry"))


def pin(case: Case) -> None:
    Roster.read(chain(case), pin=Pin.parse(case["pin"]))


def invite(case: Case) -> None:
    read, pair = parse_invite(case["text"])
    assert read.invite_id.hex() == case["invite_id"]
    assert (pair.secret.hex() if pair else None) == case["pair_secret"]


def request(case: Case) -> None:
    invite_id, secret, message, seed = unhex(case, "invite_id", "pair_secret", "message", "seed")
    pair, card = Pair(invite_id, secret), Card.of(Identity(seed))
    assert pair.read_request(message) == card
    assert pair.request(card) == message


def answer(case: Case) -> None:
    invite_id, secret, message, seed = unhex(case, "invite_id", "pair_secret", "message", "seed")
    assert Pair(invite_id, secret).read_answer(message, Card.of(Identity(seed))).to_line() == case["pin"]


def recovery(case: Case) -> None:
    code = RecoveryCode.parse(case["text"])
    assert (code.secret.hex(), code.to_string()) == (case["secret"], case["written"])
    assert (code.identity.seed.hex(), code.identity.public_key.hex()) == (case["seed"], case["key"])


def order(case: Case) -> None:
    known, (data, signature) = Roster.read(chain(case)), unhex(case, "order", "signature")
    approvals = [Approval(*map(bytes.fromhex, one)) for one in case["approvals"]]
    # Those of the cases count since a person named them: one of the two has brought the other in.
    read = open_order(known, data, signature, approvals, now=case["now"], approvers={one.key for one in approvals})
    assert {name: getattr(read, name) for name in case["is"]} == case["is"]
    signer = Identity(*unhex(case, "seed"))
    assert sign_order(signer, known.space, data) == signature
    assert [at for at, _ in zip(read.times(after=case["now"]), case["times"], strict=False)] == case["times"]


READERS: dict[str, Callable[[Case], None]] = {
    "keys": keys,
    "record": record,
    "placeholder": placeholder,
    "wrap": wrap,
    "roster": roster,
    "entry": entry,
    "pin": pin,
    "invite": invite,
    "request": request,
    "answer": answer,
    "recovery code": recovery,
    "order": order,
}
FILES = ("records", "rosters", "pairings", "recoveries", "orders")


def every_case() -> Iterator[Any]:
    for file in FILES:
        for case in freeze.frozen(file):
            yield pytest.param(case, id=f"{file}: {case['name']}")


@pytest.mark.parametrize("case", list(every_case()))
def test_frozen(case: Case) -> None:
    """It is taken and gives what it gave, or is refused with exactly that error."""
    read = READERS[case["reads"]]
    if case["error"] is None:
        read(case)
        return
    with pytest.raises(ConfideError) as caught:
        read(case)
    assert type(caught.value).__name__ == case["error"]


@pytest.mark.parametrize("file", FILES)
def test_nothing_is_missing(file: str) -> None:
    assert [case["name"] for case in freeze.missing(file)] == []
    assert len(freeze.frozen(file)) >= 10
