"""Drawn schedules of forgetting with kills, older copies and nodes, and every byte scanned at the end of each.

    python -m bench.forget [--schedules 500] [--nodes 0] [--seed 1] [--json]

Each schedule stores a text in revisions, other files, transcripts and a device's folder, has it forgotten in a process that is killed at
a random moment, finishes, lets an old device and a transcript bring it again, and most put an older database back
(`tests/support/kills/forget_schedule.py`). With `--nodes`, so many more run on two nodes over a PostgreSQL, whose folder is read too
(`tests/support/kills/forget_nodes_schedule.py`). Budget: no word of it and none of its vectors anywhere.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.support.daemon.postgres import server
from tests.support.kills.forget_nodes_schedule import WAL, NodesSchedule
from tests.support.kills.forget_schedule import Schedule

_SEEDS = 100_000


@dataclass
class Found:
    """The outcome of all schedules.

    Attributes:
        sealed: schedules on nodes after which PostgreSQL had ciphertext of deleted rows, by place.
        seconds: wall time.
    """

    schedules: int = 0
    killed: int = 0
    of_text: int = 0
    put_back: int = 0
    residues: Counter[str] = field(default_factory=Counter)
    sealed: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0

    def run(self, number: int, begin: Callable[[Path], Schedule]) -> None:
        """Run one schedule in a folder of its own."""
        with tempfile.TemporaryDirectory(prefix="confide-forget-") as name:
            schedule = begin(Path(name))
            outcome = asyncio.run(schedule.run())
        self.schedules += 1
        self.killed += outcome.was_killed
        self.of_text += outcome.is_of_text
        self.residues.update(outcome.residues)
        for found in outcome.residues:
            print(f"schedule {number}: {found}", file=sys.stderr)
        if isinstance(schedule, NodesSchedule):
            self.put_back += schedule.was_put_back
            self.sealed.update(place for place, count in asdict(schedule.remains).items() if count)


def measure(schedules: int, nodes: int, seed: int) -> Found:
    """Run the schedules of a seed."""
    began = time.perf_counter()
    found = Found()
    for number in range(schedules):
        found.run(number, lambda folder, number=number: Schedule(folder, seed * _SEEDS + number))
    if nodes:
        with server(settings=WAL) as postgres:
            for number in range(nodes):
                found.run(number, lambda folder, number=number: NodesSchedule(folder, seed * _SEEDS + number, postgres))
    found.seconds = round(time.perf_counter() - began, 1)
    return found


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--schedules", type=int, default=500)
    parser.add_argument("--nodes", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    found = measure(options.schedules, options.nodes, options.seed)
    if options.json:
        print(json.dumps({**vars(found), "residues": dict(found.residues), "sealed": dict(found.sealed)}))
    else:
        residues = dict(found.residues) or "none"
        print(
            f"{found.schedules} schedules, {found.killed} killed, {found.put_back} stores put back, residues: {residues}"
        )
        if found.sealed:
            print(f"ciphertext of deleted rows in PostgreSQL, in so many: {dict(found.sealed)}")
    if found.residues:
        sys.exit(1)


if __name__ == "__main__":
    main()
