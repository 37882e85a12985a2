"""File descriptors: each connection is one, and a process that has none left can neither accept nor open a database."""

from __future__ import annotations

import logging
import resource
from typing import Final

from confide_daemon.errors import DescriptorsError
from confide_daemon.strangers import MAX_STRANGERS

log = logging.getLogger(__name__)

RESERVE: Final = 128
"""The registry, the model, the log, and what Python opens for a moment."""
PER_SPACE: Final = 10
"""A writer and two readers, each with the database, its log and the log's index; and one while a change is folded in."""
FEWEST_SESSIONS: Final = 16


def make_room(max_sessions: int, *, spaces: int) -> int:
    """How many sessions this process can hold, `max_sessions` at most; raises its soft limit of open files as far as that needs.

    Args:
        max_sessions: as configured.
        spaces: how many there are; all of them may be open at once.
    Raises:
        DescriptorsError: the hard limit leaves room for hardly anybody.
    """
    others = MAX_STRANGERS + RESERVE + PER_SPACE * (spaces + 1)
    allowed = _raise_to(max_sessions + others)
    if allowed >= max_sessions + others:
        return max_sessions
    room = allowed - others
    if room < FEWEST_SESSIONS:
        raise DescriptorsError(allowed, others + FEWEST_SESSIONS)
    log.warning(
        "only %d sessions at once, not %d: this process may open %d files; raise the limit (ulimit -Hn) for more",
        room,
        max_sessions,
        allowed,
    )
    return room


def _raise_to(wanted: int) -> int:
    """Raise the soft limit to `wanted`, or as far as it goes; what it is now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return wanted
    # macOS calls the hard limit infinite and takes no more than OPEN_MAX, 10240.
    for target in (wanted, 10240):
        reachable = target if hard == resource.RLIM_INFINITY else min(target, hard)
        if reachable <= soft:
            break
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (reachable, hard))
        except (OSError, ValueError):
            continue
        return reachable
    return soft
