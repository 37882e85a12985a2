"""What can be said of what waits on this machine without the journal itself, which most commands never load."""

from __future__ import annotations

import secrets
from pathlib import Path


def is_empty(journal: Path) -> bool:
    """Whether nothing waits in the journal of this folder. One system call, and no lock."""
    return not (journal / "queue").exists()


def new_id() -> str:
    """Of an operation, 32 hex digits."""
    return secrets.token_hex(16)
