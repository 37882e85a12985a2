"""The runner: makes each fault of `list.toml` in a copy of the tree, and asks the tests that are to notice it.

A test that fails is asked once more in the copy as it was: one that fails there as well says nothing about the fault. So nothing has to run
before the first fault, and a run can be put together from parts (`--kept`).
"""

from __future__ import annotations

import argparse
import ast
import difflib
import hashlib
import json
import os
import queue
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mutants.mutant import ROOT, Mutant, mutants

AT_ONCE: Final = 2
DEADLINE_S: Final = 900.0
"""For the tests of one fault; a fault that makes them hang is noticed as well."""
_OPTIONS: Final = ("-p", "no:cacheprovider", "--timeout", "120")
"""A test that hangs has failed; the suite lets one hang for longer."""
GRACE_S: Final = 60.0
"""Beyond that deadline, for the process that has it kept."""
_UNANSWERED: Final = -1
_FAILED: Final = 1
"""pytest's exit code where tests failed. Any other one says that nothing was asked."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one fault.

    Attributes:
        is_caught: a test failed, or hung.
        said: the first test that did, or what went wrong.
    """

    mutant: Mutant
    is_caught: bool
    said: str
    seconds: float


class Copy:
    """The tracked files of the tree as they are now, with what they need to run in an environment of their own."""

    def __init__(self, folder: Path) -> None:
        """Blocks for half a minute. Raises CalledProcessError: it cannot be made."""
        self._folder = folder
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True).stdout.decode()
        for name in filter(None, listed.split("\0")):
            if (ROOT / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, folder / name)
        subprocess.run(
            ["make", ".venv/.installed", f"PYTHON={sys.executable}"], cwd=folder, check=True, capture_output=True
        )
        self._asked = asking(folder, [".venv/bin/python", "-m", "mutants.asked"])

    def try_out(self, mutant: Mutant) -> Outcome:
        """Make the fault, run its tests until one fails, and mend it."""
        file, began = self._folder / mutant.file, time.monotonic()
        text = file.read_text(encoding="utf-8")
        file.write_text(mutant.made(), encoding="utf-8")
        try:
            code, output = self._ask(["-x", *mutant.tests])
        finally:
            file.write_text(text, encoding="utf-8")
        failed = [line.split(" - ")[0].split(" ", 1)[-1] for line in _failed(output)]
        is_caught, said = code == _FAILED, failed[0] if failed else output[-300:].strip()
        if code == -signal.SIGKILL:
            is_caught, said = True, "the tests hang"
        elif is_caught and self._ask(failed)[0]:
            is_caught, said = False, f"{said} fails without the fault as well"
        return Outcome(mutant, is_caught, said, time.monotonic() - began)

    def close(self) -> None:
        """Let the process in it end."""
        self._asked.stdin.close()  # type: ignore[union-attr]
        self._asked.wait(DEADLINE_S)

    def _ask(self, arguments: list[str]) -> tuple[int, str]:
        """The exit code of pytest, and what it printed."""
        output = self._folder / ".venv" / "said"
        question = {"arguments": [*_OPTIONS, *arguments], "output": str(output), "seconds": DEADLINE_S}
        code = answer(self._asked, question, DEADLINE_S + GRACE_S)
        if code is None:
            self._asked = asking(self._folder, [".venv/bin/python", "-m", "mutants.asked"])
            return _UNANSWERED, "the process that runs the tests ended without an answer, or gave none in time"
        return code, output.read_text(encoding="utf-8", errors="replace")


def asking(folder: Path, command: list[str]) -> subprocess.Popen[str]:
    """A process that takes questions on stdin, and answers each with a line (`mutants.asked`)."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return subprocess.Popen(
        command, cwd=folder, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )


def answer(asked: subprocess.Popen[str], question: dict[str, object], seconds: float) -> int | None:
    """What it answers; None where it ends without an answer, or gives none in time. It is ended then."""
    assert asked.stdin is not None
    assert asked.stdout is not None
    line = ""
    with suppress(BrokenPipeError):
        asked.stdin.write(json.dumps(question) + "\n")
        asked.stdin.flush()
        if select.select([asked.stdout], [], [], seconds)[0]:
            line = asked.stdout.readline()
    if line:
        return int(line)
    asked.kill()
    asked.wait()
    for pipe in (asked.stdin, asked.stdout):
        with suppress(BrokenPipeError):
            pipe.close()
    return None


def _failed(output: str) -> list[str]:
    return [line for line in output.splitlines() if line.startswith(("FAILED tests/", "ERROR tests/"))]


def _mark(mutant: Mutant) -> str:
    """Names a fault of the code as it is now: another text of the file, or another list of tests, is asked again."""
    return hashlib.sha256("\0".join([mutant.file, mutant.made(), *mutant.tests]).encode()).hexdigest()


def _shown(mutant: Mutant) -> str:
    """What it changes, as a comparison of the file without its comments."""
    text = mutant.path.read_text(encoding="utf-8")
    before = ast.unparse(ast.parse(text)) if mutant.path.suffix == ".py" else text
    lines = difflib.unified_diff(before.splitlines(), mutant.made().splitlines(), lineterm="", n=1)
    return "\n".join([*lines][2:]) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m mutants", description=__doc__)
    parser.add_argument("--only", default="", help="those whose file, definition or loss has this in it")
    parser.add_argument(
        "--kept", type=Path, help="a file of what was noticed: that is not asked again while its code stays"
    )
    parser.add_argument("--at-once", type=int, default=AT_ONCE, help="copies of the tree")
    parser.add_argument("--show", action="store_true", help="print what each changes, and run nothing")
    options = parser.parse_args()
    listed = [one for one in mutants() if any(options.only in said for said in (one.file, one.within, one.loses))]
    if options.show:
        print("\n".join(f"{one.file}: {one.loses}\n{_shown(one)}" for one in listed))
        return 0 if listed else 1
    kept = set(options.kept.read_text().split()) if options.kept and options.kept.exists() else set()
    chosen = {one: mark for one in listed if (mark := _mark(one)) not in kept}
    copies: queue.SimpleQueue[Copy] = queue.SimpleQueue()

    def run(mutant: Mutant) -> Outcome:
        copy = copies.get()
        try:
            outcome = copy.try_out(mutant)
        finally:
            copies.put(copy)
        verdict = "caught " if outcome.is_caught else "LIVES  "
        print(f"{verdict} {outcome.seconds:5.0f} s  {mutant.file}: {mutant.loses}\n    {outcome.said}", flush=True)
        if outcome.is_caught and options.kept:
            with options.kept.open("a") as file:
                file.write(chosen[mutant] + "\n")
        return outcome

    with tempfile.TemporaryDirectory(prefix="confide-mutants-") as folder:
        made = [Copy(Path(folder) / str(number)) for number in range(min(options.at_once, len(chosen)))]
        for copy in made:
            copies.put(copy)
        with ThreadPoolExecutor(options.at_once) as pool:
            outcomes = list(pool.map(run, chosen))
        for copy in made:
            copy.close()
    living = [outcome for outcome in outcomes if not outcome.is_caught]
    print(
        f"{len(listed)} faults, {len(listed) - len(living)} noticed, {len(listed) - len(chosen)} of them in an earlier run"
    )
    return 1 if living or not listed else 0


if __name__ == "__main__":
    sys.exit(main())
