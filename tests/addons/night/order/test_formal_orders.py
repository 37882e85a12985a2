"""The models of orders in crypto/formal/ have the signatures, the rule of approvals and the ledger's rule of the code."""

from __future__ import annotations

import itertools
import re

import pytest
from bench.proof import FORMAL
from tests.support.crypto.model_terms import holds, model, term
from tests.support.sealing.rosters import DESKTOP, LAPTOP, NOW, PHONE, SPACE, STRANGER, device, founded

from confide_crypto.errors import OrderSignerError
from confide_crypto.sealing.encoding import join_parts
from confide_night.order.order import Slot, approve_order, check_approver, sign_order
from confide_night.runner import supervisor
from confide_night.runner.books import AGAIN

ORDER = b'{"id":"0123456789abcdef"}'
FOUR = (LAPTOP, DESKTOP, PHONE, STRANGER)
"""Of a roster: the founder, whom it has added, and two more."""


def test_an_order_and_an_approval_are_the_models() -> None:
    """PROTOCOL.md 11.3. In F, each part stands behind its length."""
    known = {"space": join_parts(SPACE), "order": join_parts(ORDER)}
    ordered = term(model("orders.pvl", "MakeOrder"), "= ")
    assert ordered.bytes(known, LAPTOP) == sign_order(LAPTOP, SPACE, ORDER)
    approved = term(model("orders.pvl", "MakeApproval"), "= ")
    assert approved.bytes(known, DESKTOP) == approve_order(DESKTOP, SPACE, ORDER).signature


@pytest.mark.parametrize(("by2", "by3"), [(by2, by3) for by2 in (0, 1) for by3 in (0, 1, 2)])
def test_who_may_approve_is_the_models(by2: int, by3: int) -> None:
    """PROTOCOL.md 11.4: for each roster of four devices, and each two of them."""
    (condition,) = re.findall(
        r"order, approval\) then\n  if (.*?)\n  then", model("31_approval.pv", "Runner"), re.DOTALL
    )
    roster, keys = founded()
    roster = roster.add(LAPTOP, device(DESKTOP, "one"), keys, now=NOW + 1)
    roster = roster.add(FOUR[by2], device(PHONE, "two"), keys, now=NOW + 2)
    roster = roster.add(FOUR[by3], device(STRANGER, "three"), keys, now=NOW + 3)
    names = {f"P{number}": number for number in range(4)}
    for signer, approver in itertools.product(range(4), repeat=2):
        try:
            check_approver(roster, FOUR[signer].public_key, FOUR[approver].public_key)
        except OrderSignerError:
            may = False
        else:
            may = True
        assert may == holds(condition, **names, signer=signer, approver=approver, by2=by2, by3=by3), (signer, approver)


def test_what_the_ledger_notes_is_the_models() -> None:
    """PROTOCOL.md 11.4: of every outcome and every answer, whether the slot may be begun again."""
    (condition,) = re.findall(r"IsAgain\(.*?= (.*)\.", (FORMAL / "again_own.pvl").read_text("ascii"))
    for own, said in itertools.product((*Slot, AGAIN), Slot):
        noted = supervisor._in_our_books(own, said)
        assert (noted == AGAIN) == holds(condition, own=own, said=said, again=AGAIN, ready=Slot.READY)
