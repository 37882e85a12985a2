"""Orders of tasks: what a daemon could try with them, and when they are due."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import islice
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.sealing.rosters import (
    DESKTOP,
    LAPTOP,
    NOW,
    PHONE,
    SPACE,
    device,
    flipped,
    one_bit_a_byte,
    shared,
)

from confide_crypto.errors import OrderError, OrderSignerError
from confide_crypto.keys.identity import Identity
from confide_crypto.sealing.roster import Roster
from confide_crypto.sealing.space_keys import WrapKey
from confide_memory.errors import ToolError
from confide_night.order import order as orders
from confide_night.order.order import Order, approve_order, open_order, sign_order

ROSTER, KEYS = shared()
NIGHT = NOW - NOW % 86_400 + 86_400 + 2 * 3_600


def order(**fields: Any) -> Order:
    """One that is due at two o'clock of the next night."""
    usual: dict[str, Any] = {"at": NIGHT} if "schedule" not in fields else {}
    told = {
        "id": "0123456789abcdef",
        "project": "shop",
        "recipe": "review",
        "description": "look at it",
        "signer": LAPTOP.public_key.hex(),
        "added": NOW,
        "expires": NOW + orders.ONCE_LASTS_S,
        "zone": "UTC",
    }
    return Order(**{**told, **usual, **fields})


def test_no_bit_of_an_order_can_be_changed() -> None:
    """Every bit of one, and of its signature."""
    data = order().encode()
    signature = sign_order(LAPTOP, SPACE, data)
    assert open_order(ROSTER, data, signature).id == order().id
    for wrong in flipped(data):
        with pytest.raises(OrderError):
            open_order(ROSTER, wrong, signature)
    for wrong in flipped(signature):
        with pytest.raises(OrderError):
            open_order(ROSTER, data, wrong)


def test_no_bit_of_an_approval_can_be_changed() -> None:
    data = order().encode()
    signature, approval = sign_order(LAPTOP, SPACE, data), approve_order(DESKTOP, SPACE, data)
    named = {DESKTOP.public_key}
    assert open_order(ROSTER, data, signature, [approval], approvers=named)
    for part in ("key", "signature"):
        for wrong in flipped(getattr(approval, part), one_bit_a_byte(getattr(approval, part))):
            with pytest.raises(OrderError):
                open_order(ROSTER, data, signature, [replace(approval, **{part: wrong})], approvers=named)


TABLET, GHOST, SECOND, PAPER, NEW = (Identity(bytes([number]) * 32) for number in range(1, 6))


def family() -> Roster:
    """The laptop began the space, and added desktop and phone; the phone has added a tablet, and a recovery code."""
    roster = ROSTER.add(LAPTOP, device(PHONE, "phone"), KEYS, now=NOW + 3)
    roster = roster.add(PHONE, device(TABLET, "tablet"), KEYS, now=NOW + 4)
    return roster.add(PHONE, device(PAPER, "paper", is_paper=True), KEYS, now=NOW + 5)


def taken(roster: Roster, signer: Identity, approver: Identity, *named: Identity) -> bool:
    """Whether an order is followed that these two have signed."""
    data = order(signer=signer.public_key.hex()).encode()
    given = [approve_order(approver, SPACE, data)]
    try:
        open_order(roster, data, sign_order(signer, SPACE, data), given, approvers={each.public_key for each in named})
    except OrderSignerError:
        return False
    return True


def test_two_devices_stand_for_an_order_if_neither_came_by_the_other() -> None:
    roster = family()
    assert taken(roster, DESKTOP, PHONE)
    assert taken(roster, PHONE, DESKTOP)
    assert taken(roster, DESKTOP, TABLET)
    for one, other in ((LAPTOP, DESKTOP), (LAPTOP, TABLET), (PHONE, TABLET)):
        assert not taken(roster, one, other)
        assert not taken(roster, other, one)


@pytest.mark.parametrize("stolen", [LAPTOP, DESKTOP, PHONE, TABLET])
def test_the_holder_of_one_device_is_not_two(stolen: Identity) -> None:
    """It adds another, under any name and time, or two that approve each other, or one that adds one; or changes its own key."""
    roster = family()
    keys = roster.open(WrapKey(stolen))
    one = roster.add(stolen, device(GHOST, "desktop"), keys, now=NOW - 400 * 86_400)
    two = one.add(GHOST, device(SECOND, "desktop"), one.open(WrapKey(GHOST)), now=NOW)
    assert not taken(one, stolen, GHOST)
    assert not taken(one, GHOST, stolen)
    for signer, approver in ((stolen, SECOND), (SECOND, stolen), (GHOST, SECOND), (SECOND, GHOST)):
        assert not taken(two, signer, approver)
    changed, _ = one.remove(GHOST, stolen.public_key, keys, now=NOW)
    assert changed.above(GHOST.public_key)[0] == stolen.public_key
    if stolen is not LAPTOP:
        # Below the first device two that one has added have nobody else above them.
        twins = one.add(stolen, device(SECOND, "desktop"), keys, now=NOW)
        assert not taken(twins, GHOST, SECOND)


def test_a_recovery_code_approves_nothing() -> None:
    roster = family()
    assert not taken(roster, DESKTOP, PAPER)
    assert not taken(roster, DESKTOP, PAPER, PAPER)


def test_a_device_that_has_changed_its_key_is_the_same_one() -> None:
    roster = family()
    keys = roster.open(WrapKey(PHONE))
    roster = roster.add(PHONE, device(NEW, "phone"), keys, now=NOW + 6)
    after, _ = roster.remove(NEW, PHONE.public_key, keys, now=NOW + 7)
    assert after.above(TABLET.public_key) == [each.public_key for each in (TABLET, PHONE, LAPTOP)]
    assert taken(after, DESKTOP, NEW)
    assert not taken(after, NEW, TABLET)
    assert not taken(roster, PHONE, NEW)


def test_whom_a_person_has_named_may_approve_whatever_came_by_it_but_itself() -> None:
    roster = family()
    assert taken(roster, TABLET, PHONE, PHONE)
    assert taken(roster, LAPTOP, DESKTOP, DESKTOP)
    assert not taken(roster, LAPTOP, DESKTOP, PHONE)
    assert not taken(roster, DESKTOP, DESKTOP, DESKTOP)


def test_an_order_ends_with_its_device_and_its_time() -> None:
    """A removed one is named, so that a person knows why its tasks stand still."""
    roster = ROSTER.add(LAPTOP, device(PHONE, "old phone"), KEYS, now=NOW)
    data = order(signer=PHONE.public_key.hex()).encode()
    signature = sign_order(PHONE, SPACE, data)
    assert open_order(roster, data, signature, now=NOW)
    with pytest.raises(OrderError, match="expired"):
        open_order(roster, data, signature, now=order().expires)
    after, _ = roster.remove(LAPTOP, PHONE.public_key, KEYS, now=NOW)
    with pytest.raises(OrderSignerError, match="old phone"):
        open_order(after, data, signature, now=NOW)


@pytest.mark.parametrize(
    ("at", "now"),
    [
        (NIGHT + 1, NIGHT + 2),
        (NIGHT - 86_400, NIGHT),
        (NIGHT, NIGHT - orders.CLOCK_SKEW_S - 1),
        (NIGHT, NOW + orders.ONCE_LASTS_S),
        (0, NIGHT),
    ],
)
def test_a_daemon_cannot_choose_when(at: int, now: int) -> None:
    order().check_slot(NIGHT, now=NIGHT)
    with pytest.raises(OrderError):
        order().check_slot(at, now=now)


def test_a_daemon_cannot_choose_when_it_comes_again() -> None:
    """Its slots are those of the schedule, later by its id, and none from before it was given."""
    nightly = order(schedule="0 2 * * *", expires=NOW + orders.ALWAYS_LASTS_S)
    first, second = islice(nightly.times(after=NOW), 2)
    assert (first, second) == (NIGHT + int(nightly.id, 16) % 301, first + 86_400)
    nightly.check_slot(first, now=first)
    nightly.check_slot(second, now=second + 3_600)
    for at in (first + 1, first - 1, NIGHT, first - 2 * 86_400, second):
        with pytest.raises(OrderError):
            nightly.check_slot(at, now=first)


@given(st.binary(max_size=200))
def test_whatever_comes_is_an_order_or_refused(data: bytes) -> None:
    with pytest.raises(OrderError):
        Order.parse(data)


def test_what_is_taken_is_what_would_be_written() -> None:
    """Drawn texts in, the same texts out, byte for byte."""
    draw = random.Random(7)
    for _ in range(50):
        text = "".join(chr(draw.choice((9, 10, 34, 92, 127, 0x20AC, 0x1F600, 0x2028, 65))) for _ in range(30))
        whole = order(description=text, priority=draw.randint(1, 10), repo=draw.choice(("", "a:b", "https://x/y")))
        assert Order.parse(whole.encode()) == whole


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("description", ""),
        ("description", "x" * 8_001),
        ("description", "a\0b"),
        ("description", "\ud800"),
        ("project", " "),
        ("project", "a\nb"),
        ("recipe", "Review"),
        ("recipe", "../review"),
        ("repo", "-oProxyCommand=sh"),
        ("repo", "ext::sh -c id"),
        ("repo", "https://x/ y"),
        ("timeout_ms", 999),
        ("priority", 0),
        ("context", "[1]"),
        ("max_microusd", -1),
        ("retries", 6),
        ("expires", NOW - 1),
        ("at", None),
    ],
)
def test_an_order_keeps_its_bounds(field: str, value: Any) -> None:
    with pytest.raises(ToolError):
        order(**{field: value}).encode()


def test_the_largest_order_fits() -> None:
    """Four bytes a character would not: then it is said."""
    context = '{"a":"' + "x" * (orders.MAX_CONTEXT_CHARS - 8) + '"}'
    assert len(order(description="€" * orders.MAX_DESCRIPTION_CHARS, context=context).encode()) < 64 * 1024
