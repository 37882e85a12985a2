"""Entry points of what is installed, and is there."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec


def entries(group: str) -> list[EntryPoint]:
    """Return those of a group, by name. One whose package is gone, as in a copy without add-ons, is not installed."""
    found = sorted(entry_points(group=group), key=lambda entry: entry.name)
    return [entry for entry in found if find_spec(entry.module.partition(".")[0]) is not None]
