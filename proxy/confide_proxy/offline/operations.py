"""Facts about the queue that need no access to the journal itself, which most commands never load."""

from __future__ import annotations

import secrets
from pathlib import Path

from confide_memory.tools import call as call_keys


def is_empty(journal: Path) -> bool:
    """Return True if no call is queued in the journal of this folder. Costs one system call and no
    lock.
    """
    return not (journal / "queue").exists()


def new_id() -> str:
    """Return a new operation id, 32 hex digits."""
    return secrets.token_hex(16)


def new_meta() -> dict[str, str]:
    """Return the `_meta` of a call that changes something: a new operation id, and the time."""
    return {call_keys.OPERATION: new_id(), call_keys.SAID: call_keys.said_now()}
