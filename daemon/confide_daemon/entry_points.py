"""Finds and loads the entry points of installed packages, by which add-ons register."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from typing import Any, Final

from confide_memory.errors import AddonError

ADDONS: Final = "confide.addons.daemon"
"""The group of add-ons, each of which is a class."""


def entries(group: str) -> list[EntryPoint]:
    """Return the entry points of a group, sorted by name. Skip entries whose package is missing, as
    in a copy without add-ons.
    """
    found = sorted(entry_points(group=group), key=lambda entry: entry.name)
    return [entry for entry in found if find_spec(entry.module.partition(".")[0]) is not None]


def load_group(group: str) -> list[Any]:
    """Load all objects that are registered in an entry point group. Raises AddonError if one cannot
    be loaded.
    """
    found = []
    for entry in entries(group):
        try:
            found.append(entry.load())
        except Exception as error:  # whatever it does while it is imported
            raise AddonError(entry.name, error) from error
    return found
