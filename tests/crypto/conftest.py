"""The door of a daemon that knows the laptop."""

from __future__ import annotations

import pytest
from tests.support.crypto.channels import LAPTOP, Door


@pytest.fixture
def door() -> Door:
    """Known: the laptop."""
    return Door(LAPTOP.public_key)
