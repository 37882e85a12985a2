"""The four classes of what is stored, by who made it (docs/classes.md): what may be put before a model that did not ask for it.

A daemon keeps them beside the texts, by what it knows itself; no text says its own. They only sink by themselves: a person raises one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

OWNER: Final = "owner"
"""A person: files saved and synced, commands, the panel."""
AGENT: Final = "agent"
"""An agent, by a tool."""
DERIVED: Final = "derived"
"""Rules, judges and summaries, which made it of what was said."""
UNTRUSTED: Final = "untrusted"
"""Nobody vouches for it: what was imported or fetched, transcripts, and text that speaks to a model."""

CLASSES: Final = (OWNER, AGENT, DERIVED, UNTRUSTED)
"""From the highest to the lowest."""
TRUSTED: Final = frozenset({OWNER, AGENT, DERIVED})


def lowest(classes: Iterable[str]) -> str:
    """The lowest of the classes; `untrusted` of none, and of what is none."""
    ranks = [CLASSES.index(one) if one in CLASSES else len(CLASSES) - 1 for one in classes]
    return CLASSES[max(ranks, default=len(CLASSES) - 1)]
