"""Real clients, from npm, against a scripted model on loopback: `python -m tests.clients [--only claude,codex,gemini,opencode]`.

Each starts `confide mcp`, and calls our tools with nobody logged in: what reaches its model is read from the requests that the model got.
One line a check; exit code 1 where one fails. `make clients` installs the clients into .venv/clients, or into the folder that
CONFIDE_CLIENTS names.

A family of checks (tools, connecting) is a function of a client's module that gets the trial, and stands in its `CHECKS`. What is checked
of plugins and hooks has modules of its own here, whose functions stand in `MORE`.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path

from tests.clients import (
    actions,
    answered,
    at_the_server,
    by_url,
    claude,
    codex,
    cost,
    gemini,
    installed,
    nights,
    opencode,
    recorded,
    unasked,
    used_unseen,
)
from tests.clients.trial import Trial

ROOT = Path(__file__).parents[2]
CLIENTS = {"claude": claude, "codex": codex, "gemini": gemini, "opencode": opencode}
FAMILIES = (
    installed.INSTALLED,
    unasked.UNASKED,
    actions.ACTIONS,
    answered.ANSWERED,
    cost.COST,
    by_url.BY_URL,
    at_the_server.AT_THE_SERVER,
    nights.NIGHTS,
    recorded.RECORDED,
    used_unseen.USED,
)
MORE: dict[str, tuple[Callable[[Trial], None], ...]] = {
    name: tuple(check for family in FAMILIES for check in family.get(name, ())) for name in CLIENTS
}
"""Further checks, by the client that they need."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.clients", description="Checks with the real clients.")
    parser.add_argument("--only", default=",".join(CLIENTS), help="names of clients, with commas between")
    parser.add_argument("--checks", default="", help="only those of this name, such as connecting")
    parser.add_argument("--packages", action="store_true", help="print what npm is to install, and end")
    options = parser.parse_args()
    if options.packages:
        print(*(module.PACKAGE for module in CLIENTS.values()))
        return 0
    names = [name for name in options.only.split(",") if name]
    if unknown := [name for name in names if name not in CLIENTS]:
        print(f"there is no client '{unknown[0]}' here; there are {', '.join(CLIENTS)}", file=sys.stderr)
        return 2
    folder = Path(os.environ.get("CONFIDE_CLIENTS") or ROOT / ".venv/clients").absolute()
    present = [name for name in names if (folder / CLIENTS[name].PROGRAM).exists()]
    for name in names:
        if name not in present:
            print(
                f"skip {name}: {CLIENTS[name].PACKAGE} is not in {folder}; make clients installs it where there is npm"
            )
    if not present:
        return 0
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    trial = Trial(folder)
    try:
        with trial.daemons():
            for name in present:
                for check in (*CLIENTS[name].CHECKS, *MORE.get(name, ())):
                    if options.checks in ("", check.__name__):
                        _tried(trial, name, check)
    finally:
        trial.close()
    print(f"{trial.failed} failed" if trial.failed else "all passed")
    return 1 if trial.failed else 0


def _tried(trial: Trial, name: str, check: Callable[[Trial], None]) -> None:
    try:
        check(trial)
    except Exception as error:
        # One client that cannot be run must not hide the others.
        trial.check(f"{name}: {check.__name__} ran to its end", False, f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    sys.exit(main())
