"""What becomes of a task, and of its slots, each one moment at which it is due: the states, and the one table of what follows what."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from confide_memory.errors import TaskStateError


class Task(StrEnum):
    """What becomes of a task."""

    PROPOSED = "proposed"
    """Its recipe asks for a second device, which has not approved it."""
    ACTIVE = "active"
    PAUSED = "paused"
    DONE = "done"
    """Nothing of it is due any more."""
    CANCELLED = "cancelled"


class Slot(StrEnum):
    """What becomes of a slot."""

    READY = "ready"
    LEASED = "leased"
    """A runner has it, and has not said that it begins: so nothing of it runs."""
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    LOST = "lost"
    """It was begun, and nobody knows how it ended."""
    MISSED = "missed"
    """Nobody began it in time."""
    SKIPPED = "skipped"
    """It was not to be begun, since the one before it still ran."""


class Event(StrEnum):
    """What happens to a slot."""

    CLAIM = "claim"
    START = "start"
    SUCCEED = "succeed"
    FAIL = "fail"
    CANCEL = "cancel"
    LOSE = "lose"
    AGAIN = "again"
    """What never ran, or was turned away, is tried again."""
    MISS = "miss"
    SKIP = "skip"


FINAL: Final = frozenset({Slot.SUCCEEDED, Slot.FAILED, Slot.CANCELLED, Slot.LOST, Slot.MISSED, Slot.SKIPPED})
"""One of these it ends in, and nothing follows."""
HELD: Final = frozenset({Slot.LEASED, Slot.RUNNING})
"""In these a runner has it."""

_AFTER: Final[dict[tuple[Slot, Event], Slot]] = {
    (Slot.READY, Event.CLAIM): Slot.LEASED,
    (Slot.READY, Event.CANCEL): Slot.CANCELLED,
    (Slot.READY, Event.MISS): Slot.MISSED,
    (Slot.READY, Event.SKIP): Slot.SKIPPED,
    (Slot.READY, Event.LOSE): Slot.LOST,  # it may have been begun in the time that a restored daemon does not know
    (Slot.LEASED, Event.START): Slot.RUNNING,
    (Slot.LEASED, Event.AGAIN): Slot.READY,
    (Slot.LEASED, Event.FAIL): Slot.FAILED,
    (Slot.LEASED, Event.CANCEL): Slot.CANCELLED,
    (Slot.LEASED, Event.LOSE): Slot.LOST,
    (Slot.RUNNING, Event.SUCCEED): Slot.SUCCEEDED,
    (Slot.RUNNING, Event.FAIL): Slot.FAILED,
    (Slot.RUNNING, Event.CANCEL): Slot.CANCELLED,
    (Slot.RUNNING, Event.LOSE): Slot.LOST,
    (Slot.RUNNING, Event.AGAIN): Slot.READY,
}


def after(state: Slot, event: Event) -> Slot:
    """The state that follows. Raises TaskStateError: nothing of the kind can happen then."""
    found = _AFTER.get((state, event))
    if found is None:
        raise TaskStateError(state, event)
    return found
