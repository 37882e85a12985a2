"""A note that supersedes another may not be superseded by it, at however many removes: neither would be the newer one."""

from __future__ import annotations

from collections.abc import Sequence

from confide_daemon.errors import ToolError
from confide_daemon.store import Store

KIND = "supersedes"
# A chain of more is followed no further; each step is a look into an index.
MAX_NOTES = 1000


def refuse(store: Store, identity: str, others: Sequence[str], projects: frozenset[str] | None) -> None:
    """Refuse that the note supersedes these.

    Args:
        projects: where the caller reaches; what lies elsewhere is not told of. None: anywhere.

    Raises:
        ToolError: one of them supersedes it already, directly or by others in between.
    """
    seen, waiting = set(others), list(others)
    while waiting and len(seen) < MAX_NOTES:
        stated = store.note_relations(waiting, projects)
        found = {one.other for one in stated if one.kind == KIND and one.note in seen} - seen
        if identity in found or identity in seen:
            raise ToolError(
                "these notes would supersede each other in a circle",
                hint=f"take the older statement back first: memory_update with relation {KIND} and without that note in relatedTo",
            )
        waiting = sorted(found)
        seen |= found
