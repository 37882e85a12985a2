"""Entry points of what is installed, and is there."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from typing import Any, Final

from confide_memory.errors import AddonError

ADDONS: Final = "confide.addons.daemon"
"""The group of add-ons, each a class."""


def entries(group: str) -> list[EntryPoint]:
    """Return those of a group, by name. One whose package is gone, as in a copy without add-ons, is not installed."""
    found = sorted(entry_points(group=group), key=lambda entry: entry.name)
    return [entry for entry in found if find_spec(entry.module.partition(".")[0]) is not None]


def loaded(group: str) -> list[Any]:
    """Return what the entry points of a group name. Raises AddonError: one of them cannot be loaded."""
    found = []
    for entry in entries(group):
        try:
            found.append(entry.load())
        except Exception as error:  # whatever it does while it is imported
            raise AddonError(entry.name, error) from error
    return found
