"""How much a property draws: a sixth in the suite, all of it under `make fuzz`."""

from __future__ import annotations

import os

IS_THOROUGH = os.environ.get("CONFIDE_THOROUGH") == "1"


def draws(many: int) -> int:
    """Of so many examples, those that are drawn this time."""
    return many if IS_THOROUGH else max(10, many // 6)
