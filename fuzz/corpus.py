"""Seeds out of the frozen vectors, so that no binary corpus has to be stored."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from tests.support.crypto.frozen.scripts import plaintext

_FOLDER = Path(__file__).parents[1] / "tests" / "vectors" / "confide"


@cache
def frozen(name: str) -> Any:
    """The content of one file of frozen vectors."""
    return json.loads((_FOLDER / f"{name}.json").read_text())


def frozen_sessions() -> Iterator[tuple[bool, list[bytes]]]:
    """For each frozen session whose frames fit small records: whether they are the daemon's, and their plaintexts without the padding."""
    for case in frozen("frozen")["bad_frames"]:
        yield True, [bytes.fromhex(case["plaintext"])[:256].rstrip(b"\0")]
    for case in frozen("frames")["cases"]:
        frames = [step["get"] for step in case["steps"] if "get" in step and "times" not in step]
        made = [plaintext(frame) for frame in frames]
        if all(len(frame) <= 256 for frame in made) and "payload" in frames[0]:
            yield case["end"] == "client", [frame.rstrip(b"\0") for frame in made]
