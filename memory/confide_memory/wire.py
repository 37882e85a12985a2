"""All requests and what their answers carry (PROTOCOL.md 9), by their names, in two tables for both ends.

Each module that has some adds them when it is imported, and whoever asks or answers one imports its
module. So an add-on's requests are known wherever the add-on is at work, and the core names none.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from confide_memory.forms import Kind

Fields = Mapping[str, Kind]
"""What one carries: the form of each field, by its name."""

REQUESTS: Final[dict[str, Fields]] = {}
ANSWERS: Final[dict[str, Fields]] = {}
HAS_LEFT: Final = "this memory was moved to another daemon"
"""So the sentence begins with which a daemon that was left refuses what is not of a move."""
_NONE: Final[Mapping[str, Fields]] = MappingProxyType({})


def add(requests: Mapping[str, Fields] = _NONE, answers: Mapping[str, Fields] = _NONE) -> None:
    """Make them known. Raises ValueError: another module has one of these names."""
    if twice := (requests.keys() & REQUESTS.keys()) | (answers.keys() & ANSWERS.keys()):
        raise ValueError(f"two modules have requests of one name: {', '.join(sorted(twice))}")
    REQUESTS.update(requests)
    ANSWERS.update(answers)
