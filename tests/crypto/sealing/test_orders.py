"""Orders of tasks: what no frozen case says, since it would be too long for one."""

from __future__ import annotations

import pytest

from confide_crypto.errors import OrderError
from confide_crypto.keys.identity import Identity
from confide_crypto.sealing.orders import MAX_ORDER_BYTES, check_order, sign_order
from confide_crypto.sealing.roster import Roster


def test_an_order_has_a_largest_size() -> None:
    """Before anything of it is looked at, however well it is signed."""
    ann = Identity.generate()
    roster, _ = Roster.found(ann, "ann", now=1)
    largest = bytes(MAX_ORDER_BYTES)
    check_order(roster, largest, ann.public_key, sign_order(ann, roster.space, largest))
    longer = largest + b"\0"
    with pytest.raises(OrderError, match="larger than any"):
        check_order(roster, longer, ann.public_key, sign_order(ann, roster.space, longer))
