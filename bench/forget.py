"""Drawn schedules of forgetting with kills and older copies, and every byte scanned at the end of each.

    python -m bench.forget [--schedules 500] [--seed 1] [--json]

Each schedule stores a text in revisions, other files, transcripts and a device's folder, has it forgotten in a process that is killed at
a random moment, finishes, lets an old device and a transcript bring it again, and most put an older database back
(`tests/support/kills/forget_schedule.py`). Budget: no word of it and none of its vectors anywhere.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tests.support.kills.forget_schedule import Schedule


def measure(schedules: int, seed: int) -> dict[str, Any]:
    began = time.perf_counter()
    residues: Counter[str] = Counter()
    killed = of_text = 0
    for number in range(schedules):
        with tempfile.TemporaryDirectory(prefix="confide-forget-") as name:
            outcome = asyncio.run(Schedule(Path(name), seed * 100_000 + number).run())
        killed += outcome.was_killed
        of_text += outcome.is_of_text
        residues.update(outcome.residues)
        for found in outcome.residues:
            print(f"schedule {number}: {found}", file=sys.stderr)
    return {
        "schedules": schedules,
        "killed": killed,
        "ofText": of_text,
        "residues": dict(residues),
        "seconds": round(time.perf_counter() - began, 1),
    }


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--schedules", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    found = measure(options.schedules, options.seed)
    if options.json:
        print(json.dumps(found))
    else:
        print(f"{found['schedules']} schedules, {found['killed']} killed, residues: {found['residues'] or 'none'}")
    if found["residues"]:
        sys.exit(1)


if __name__ == "__main__":
    main()
