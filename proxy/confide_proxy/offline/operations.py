"""Functions about the queue of calls that do not open it, so that most commands never load its
module.
"""

from __future__ import annotations

import secrets
from pathlib import Path

from confide_memory.tools import call as call_keys


def is_empty(journal: Path) -> bool:
    """Return True if no call is queued in this journal folder. Costs one system call and takes no
    lock.
    """
    return not (journal / "queue").exists()


def new_id() -> str:
    """Return a new operation id, 32 hex digits."""
    return secrets.token_hex(16)


def new_meta() -> dict[str, str]:
    """Return the `_meta` field for a tool call that changes something: a new operation id, and the
    current time.
    """
    return {call_keys.OPERATION: new_id(), call_keys.SAID: call_keys.said_now()}
