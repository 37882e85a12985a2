"""The runner: makes each fault of `list.toml` in a copy of the tree, and asks the tests that are to notice it."""

from __future__ import annotations

import argparse
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mutants.mutant import ROOT, Mutant, mutants

AT_ONCE: Final = 2
DEADLINE_S: Final = 900.0
"""For the tests of one fault; a fault that makes them hang is noticed as well."""
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

    def fail_without_a_fault(self, tests: Iterable[str]) -> list[str]:
        """Which of these tests fail in the copy as it is: what fails later would say nothing."""
        run = self._pytest(["-n", "4", "--dist", "worksteal", *tests], None)
        return _failed(run.stdout) or ([run.stdout[-2000:] + run.stderr[-2000:]] if run.returncode else [])

    def try_out(self, mutant: Mutant) -> Outcome:
        """Make the fault, run its tests until one fails, and mend it."""
        file, began = self._folder / mutant.file, time.monotonic()
        text = file.read_text(encoding="utf-8")
        file.write_text(mutant.applied_to(text), encoding="utf-8")
        try:
            run = self._pytest(["-x", *mutant.tests], DEADLINE_S)
        except subprocess.TimeoutExpired:
            return Outcome(mutant, is_caught=True, said="the tests hang", seconds=DEADLINE_S)
        finally:
            file.write_text(text, encoding="utf-8")
        failed = _failed(run.stdout)
        said = failed[0].split(" - ")[0].split("/", 1)[-1] if failed else (run.stdout or run.stderr)[-300:].strip()
        return Outcome(mutant, run.returncode == _FAILED, said, time.monotonic() - began)

    def _pytest(self, arguments: Iterable[str], deadline_s: float | None) -> subprocess.CompletedProcess[str]:
        command = [".venv/bin/python", "-m", "pytest", "-p", "no:cacheprovider", *arguments]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        return subprocess.run(
            command, cwd=self._folder, env=environment, capture_output=True, text=True, timeout=deadline_s
        )


def _failed(output: str) -> list[str]:
    return [line for line in output.splitlines() if line.startswith(("FAILED", "ERROR"))]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m mutants", description=__doc__)
    parser.add_argument("--only", default="", help="those whose file, or whose loss, has this in it")
    parser.add_argument("--at-once", type=int, default=AT_ONCE, help="copies of the tree")
    options = parser.parse_args()
    chosen = [one for one in mutants() if options.only in one.file or options.only in one.loses]
    copies: queue.SimpleQueue[Copy] = queue.SimpleQueue()

    def run(mutant: Mutant) -> Outcome:
        copy = copies.get()
        try:
            outcome = copy.try_out(mutant)
        finally:
            copies.put(copy)
        verdict = "caught " if outcome.is_caught else "LIVES  "
        print(f"{verdict} {outcome.seconds:5.0f} s  {mutant.file}: {mutant.loses}\n    {outcome.said}", flush=True)
        return outcome

    with tempfile.TemporaryDirectory(prefix="confide-mutants-") as folder:
        for number in range(min(options.at_once, len(chosen))):
            copies.put(copy := Copy(Path(folder) / str(number)))
            failed = [] if number else copy.fail_without_a_fault(sorted({test for one in chosen for test in one.tests}))
            if failed:
                print("the tests fail without any fault: mend that first", *failed, sep="\n", file=sys.stderr)
                return 1
        with ThreadPoolExecutor(options.at_once) as pool:
            outcomes = list(pool.map(run, chosen))
    living = [outcome for outcome in outcomes if not outcome.is_caught]
    print(f"{len(outcomes)} faults, {len(outcomes) - len(living)} noticed")
    return 1 if living or not outcomes else 0


if __name__ == "__main__":
    sys.exit(main())
