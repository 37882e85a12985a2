"""Seeds out of the frozen vectors, so that no binary corpus has to be stored."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).parents[1] / "tests" / "vectors" / "confide"


@cache
def frozen(name: str) -> Any:
    """The content of one file of frozen vectors."""
    return json.loads((_FOLDER / f"{name}.json").read_text())


def frozen_plaintexts() -> Iterator[bytes]:
    """The plaintexts of all frozen bad frames that fit a small record."""
    for case in frozen("frozen")["bad_frames"]:
        yield bytes.fromhex(case["plaintext"])[:256]
