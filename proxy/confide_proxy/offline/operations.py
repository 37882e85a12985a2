"""Facts about the queue that need no access to the journal itself, which most commands never load."""

from __future__ import annotations

import secrets
from pathlib import Path


def is_empty(journal: Path) -> bool:
    """Return True if no call is queued in the journal of this folder. Costs one system call and no
    lock.
    """
    return not (journal / "queue").exists()


def new_id() -> str:
    """Return a new operation id, 32 hex digits."""
    return secrets.token_hex(16)
