"""A machine whose key was changed signs its orders anew, and no other that a daemon puts among them."""

from __future__ import annotations

import base64
import time
from dataclasses import replace
from typing import Any

import pytest
from tests.support.daemon.task_runners import order

from confide_crypto.errors import RequestError
from confide_crypto.keys.identity import Identity
from confide_crypto.sealing.roster import Roster
from confide_crypto.sealing.roster_entry import Card, Device
from confide_night.local.moments import sign_again
from confide_night.order.order import Approval, Order, approve_order, sign_order

OLD, NEW, OTHER, STRANGER = (Identity.generate() for _ in range(4))


def _roster() -> Roster:
    roster, keys = Roster.create(OLD, "laptop", now=int(time.time()))
    for identity, name in ((NEW, "laptop"), (OTHER, "desktop")):
        roster = roster.add(OLD, Device(Card.of(identity), name), keys, now=int(time.time()))
    return roster


def _wire(whole: Order, signature: bytes, *approvals: Approval) -> dict[str, Any]:
    return {
        "order": base64.b64encode(whole.encode()).decode(),
        "signature": base64.b64encode(signature).decode(),
        "approvals": [
            {"key": one.key.hex(), "signature": base64.b64encode(one.signature).decode()} for one in approvals
        ],
    }


class Daemon:
    """A link that shows these orders in pages of two, and keeps what is said."""

    def __init__(self, *orders: dict[str, Any], refusal: RequestError | None = None) -> None:
        self.orders = orders
        self.refusal = refusal
        self.said: list[tuple[str, dict[str, Any]]] = []

    async def request(self, op: str, body: dict[str, Any], **_: Any) -> dict[str, Any]:
        if op != "task-orders":
            self.said.append((op, body))
            return {"state": "active"}
        if self.refusal is not None:
            raise self.refusal
        at = int(body["after"] or "0", 16)
        page = list(self.orders[at : at + 2])
        return {"orders": page, "next": f"{at + 2:016x}" if page else None}


async def test_only_what_the_old_key_has_signed_is_signed_anew() -> None:
    roster = _roster()
    own = order(OLD)
    forged, elsewhere = replace(order(OLD), priority=10), order(OLD)
    theirs, claimed = order(OTHER), order(OTHER)
    good = approve_order(OLD, roster.space, theirs.encode())
    daemon = Daemon(
        _wire(forged, sign_order(STRANGER, roster.space, forged.encode())),
        _wire(elsewhere, sign_order(OLD, bytes(16), elsewhere.encode())),
        _wire(own, sign_order(OLD, roster.space, own.encode())),
        _wire(theirs, sign_order(OTHER, roster.space, theirs.encode()), good),
        _wire(claimed, sign_order(OTHER, roster.space, claimed.encode()), Approval(OLD.public_key, good.signature)),
    )
    await sign_again(daemon, roster, NEW, OLD.public_key)  # type: ignore[arg-type]
    (signed, body), (approved, approval) = daemon.said
    assert (signed, approved) == ("task-resign", "task-approve")
    again = Order.parse(base64.b64decode(body["order"]))
    assert again == replace(own, signer=NEW.public_key.hex())
    assert base64.b64decode(body["signature"]) == sign_order(NEW, roster.space, again.encode())
    assert approval["task"] == theirs.id
    assert base64.b64decode(approval["signature"]) == approve_order(NEW, roster.space, theirs.encode()).signature


async def test_a_key_that_has_left_the_list_has_nothing_signed_for_it() -> None:
    """Else whoever has a stolen key that was removed could have orders made of it."""
    roster, keys = Roster.create(NEW, "laptop", now=int(time.time()))
    roster = roster.add(NEW, Device(Card.of(OLD), "laptop"), keys, now=int(time.time()))
    roster, _ = roster.remove(NEW, OLD.public_key, keys, now=int(time.time()))
    own = order(OLD)
    daemon = Daemon(_wire(own, sign_order(OLD, roster.space, own.encode())))
    await sign_again(daemon, roster, NEW, OLD.public_key)  # type: ignore[arg-type]
    assert daemon.said == []


@pytest.mark.parametrize(("code", "is_told"), [("denied", False), ("invalid", False), ("unavailable", True)])
async def test_a_daemon_that_does_not_tell_of_orders(code: str, *, is_told: bool) -> None:
    """One that is too old, or tells a reader nothing, keeps no key from being changed; one that cannot tell now is asked again."""
    daemon = Daemon(refusal=RequestError(code, "no", None))
    if is_told:
        with pytest.raises(RequestError):
            await sign_again(daemon, _roster(), NEW, OLD.public_key)  # type: ignore[arg-type]
    else:
        await sign_again(daemon, _roster(), NEW, OLD.public_key)  # type: ignore[arg-type]
