"""How much a property draws, or how often a thing is tried: less in the suite, all of it under `make fuzz`."""

from __future__ import annotations

import os

IS_THOROUGH = os.environ.get("CONFIDE_THOROUGH") == "1"


def draws(many: int, few: int | None = None) -> int:
    """Of so many examples, those that are drawn this time: in the suite `few`, or else a sixth."""
    return many if IS_THOROUGH else max(10, many // 6) if few is None else few
