"""The door of a daemon that knows the laptop; and which tests `make channel` runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.crypto.channels import LAPTOP, Door

ROOM = Path(__file__).parent
DRAWN = {"test_fuzz.py", "test_protocol_tampering.py", "test_protocol_adversary.py"}
"""Modules that draw for long."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What draws or takes long reaches no branch that nothing else does, and costs twice as much while branches are counted."""
    room = str(ROOM)
    for item in items:
        is_counted = str(item.path).startswith(room) and item.path.name not in DRAWN
        if is_counted and not item.get_closest_marker("long"):
            item.add_marker("channel")


@pytest.fixture
def door() -> Door:
    """Known: the laptop."""
    return Door(LAPTOP.public_key)
