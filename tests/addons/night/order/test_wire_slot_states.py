"""What becomes of a slot: one table, and what it lacks is refused."""

from __future__ import annotations

import pytest

from confide_night.errors import TaskStateError
from confide_night.order.order import FINAL, HELD, Slot, SlotEvent, after


def test_what_has_ended_stays_so() -> None:
    for state in FINAL:
        for event in SlotEvent:
            with pytest.raises(TaskStateError):
                after(state, event)


def test_every_state_is_reached_and_every_slot_ends() -> None:
    reached, edge = {Slot.READY}, {Slot.READY}
    follows: dict[Slot, set[Slot]] = {}
    while edge:
        state = edge.pop()
        for event in SlotEvent:
            try:
                found = after(state, event)
            except TaskStateError:
                continue
            follows.setdefault(state, set()).add(found)
            edge |= {found} - reached
            reached.add(found)
    assert reached == set(Slot)
    assert set(follows) == {Slot.READY, *HELD}
    assert all(found & FINAL for found in follows.values())


def test_nothing_runs_that_was_not_claimed_and_begun() -> None:
    for state in Slot:
        if state is not Slot.LEASED:
            with pytest.raises(TaskStateError):
                after(state, SlotEvent.START)
        if state is not Slot.RUNNING:
            with pytest.raises(TaskStateError):
                after(state, SlotEvent.SUCCEED)
