"""The four trust classes of stored text, which depend on its author (docs/agents.md). They decide
which text may be shown to a model that did not search for it.

The daemon stores the class beside the text, from its own knowledge; a text cannot set its own
class. A class is lowered automatically, and raised only by a user.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

OWNER: Final = "owner"
"""A person: files that were saved and synced, commands, the panel."""
AGENT: Final = "agent"
"""An agent, by a tool."""
DERIVED: Final = "derived"
"""Rules, judges and summaries, which derived it from conversations."""
UNTRUSTED: Final = "untrusted"
"""No trusted author: imported or fetched text, transcripts, and text that addresses a model."""

CLASSES: Final = (OWNER, AGENT, DERIVED, UNTRUSTED)
"""From the highest to the lowest."""
TRUSTED: Final = frozenset({OWNER, AGENT, DERIVED})


def lowest(classes: Iterable[str]) -> str:
    """Return the least trusted of the classes; `untrusted` if there are no classes, or one of them
    is unknown.
    """
    ranks = [CLASSES.index(one) if one in CLASSES else len(CLASSES) - 1 for one in classes]
    return CLASSES[max(ranks, default=len(CLASSES) - 1)]
