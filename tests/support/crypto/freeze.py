"""Adds cases to the frozen vectors under `tests/vectors/confide`. What is there already is never written again.

    .venv/bin/python -m tests.support.crypto.freeze          # which cases are missing; ends with 1 if any are
    .venv/bin/python -m tests.support.crypto.freeze --add    # adds them

A case is known by its name within its file. `frozen.json` is older than this form, and complete.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from tests.support.crypto.frozen import frames, handshakes, sealing, sessions, texts

FOLDER: Final = Path(__file__).parents[2] / "vectors" / "confide"


def _orders() -> Iterator[dict[str, Any]]:
    from tests.support.crypto.frozen import orders  # an add-on's, which need not be there

    return orders.orders()


MAKERS: Final[dict[str, Callable[[], Iterator[dict[str, Any]]]]] = {
    "keys": texts.keys,
    "invites": texts.invites,
    "handshakes": handshakes.handshakes,
    "frames": frames.frames,
    "rekeys": sessions.rekeys,
    "requests": sessions.requests,
    "rotations": sessions.rotations,
    "successions": sessions.successions,
    "records": sealing.records,
    "rosters": sealing.rosters,
    "pairings": sealing.pairings,
    "recoveries": sealing.recoveries,
    "orders": _orders,
}
"""What makes the cases of each file."""


def frozen(name: str) -> list[dict[str, Any]]:
    """The cases of one file, in order; none if there is no file."""
    path = FOLDER / f"{name}.json"
    return json.loads(path.read_text())["cases"] if path.exists() else []


def missing(name: str) -> list[dict[str, Any]]:
    """What the maker of one file has and the file has not."""
    known = {case["name"] for case in frozen(name)}
    made = list(MAKERS[name]())
    names = [case["name"] for case in made]
    if len(set(names)) != len(names):
        raise AssertionError(f"{name}: two cases of one name")
    return [case for case in made if case["name"] not in known]


def add(name: str, cases: list[dict[str, Any]]) -> None:
    """Write `cases` behind those that are there: a case a line, so that a change shows."""
    rows = ",\n".join(json.dumps(case, ensure_ascii=True) for case in [*frozen(name), *cases])
    (FOLDER / f"{name}.json").write_text(f'{{"cases": [\n{rows}\n]}}\n')


def main() -> int:
    """0: nothing is missing any more."""
    adds = sys.argv[1:] == ["--add"]
    count = 0
    for name in MAKERS:
        cases = missing(name)
        count += len(cases)
        for case in cases:
            print(f"{name}: {'added' if adds else 'missing'}: {case['name']}")
        if cases and adds:
            add(name, cases)
    print(f"{count} {'added' if adds else 'missing'}")
    return 1 if count and not adds else 0


if __name__ == "__main__":
    sys.exit(main())
