"""Orders of tasks: what no frozen case says, since it would be too long for one."""

from __future__ import annotations

import pytest
from tests.support.sealing.rosters import DESKTOP, LAPTOP, NOW, PHONE, STRANGER, device, founded

from confide_crypto.errors import OrderError, OrderSignerError
from confide_crypto.keys.identity import Identity
from confide_crypto.sealing.roster import Roster
from confide_night.order.order import MAX_ORDER_BYTES, check_approver, check_order, sign_order


def test_an_order_has_a_largest_size() -> None:
    """Before anything of it is looked at, however well it is signed."""
    ann = Identity.generate()
    roster, _ = Roster.create(ann, "ann", now=1)
    largest = bytes(MAX_ORDER_BYTES)
    check_order(roster, largest, ann.public_key, sign_order(ann, roster.space, largest))
    longer = largest + b"\0"
    with pytest.raises(OrderError, match="larger than any"):
        check_order(roster, longer, ann.public_key, sign_order(ann, roster.space, longer))


def test_who_holds_one_device_does_not_approve_with_another_that_it_added() -> None:
    """Two devices of one person's making are one voice, unless the follower was told of one by a person."""
    roster, keys = founded()
    roster = roster.add(LAPTOP, device(DESKTOP, "desktop"), keys, now=NOW + 1)
    roster = roster.add(DESKTOP, device(PHONE, "phone"), keys, now=NOW + 2)
    laptop, desktop, phone = (each.public_key for each in (LAPTOP, DESKTOP, PHONE))
    with pytest.raises(OrderSignerError, match="its own order"):
        check_approver(roster, desktop, desktop)
    for signer, approver in ((desktop, phone), (phone, desktop), (laptop, phone), (phone, laptop)):
        with pytest.raises(OrderSignerError, match="may be one person's"):
            check_approver(roster, signer, approver)
        check_approver(roster, signer, approver, [approver])
    roster = roster.add(LAPTOP, device(STRANGER, "tablet"), keys, now=NOW + 3)
    check_approver(roster, desktop, STRANGER.public_key)


def test_paper_and_a_removed_device_approve_nothing() -> None:
    roster, keys = founded()
    roster = roster.add(LAPTOP, device(DESKTOP, "desktop"), keys, now=NOW + 1)
    roster = roster.add(LAPTOP, device(PHONE, "paper", is_paper=True), keys, now=NOW + 2)
    removed, _ = roster.remove(LAPTOP, DESKTOP.public_key, keys, now=NOW + 3)
    for known, approver in ((roster, PHONE), (removed, DESKTOP)):
        with pytest.raises(OrderSignerError, match="a recovery code approves nothing"):
            check_approver(known, LAPTOP.public_key, approver.public_key)
