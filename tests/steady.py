"""Run the whole suite several times, and say what failed: `make steady N=10`, or `python -m tests.steady --help`.

Every second run has company, as on a newcomer's laptop: two processes that never rest, and nine programs that commit all the time, so
that any other has a tenth of the disk. A test that fails in such a run and not in a quiet one waits for luck instead of for a sign of
the program.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOGS = ROOT / ".venv" / "steady"
LONGEST_S = 3600
"""A run that takes longer is ended, and counts as failed."""
BUSY = 2
WRITERS = 9
ON_DISK = Path("/var/tmp")
"""Where tests have their files beside company: not in memory as /tmp may be, and as short as that, for the paths of sockets below it."""
PIECE = 256 * 2**10
"""Bytes of a writer's commit. With 4 MiB, a small commit beside them would wait 300 times as long as alone."""

_SPIN = "while True: pass"
_WRITE = f"""
import os, sys
piece, file = os.urandom({PIECE}), os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY, 0o600)
while True:
    os.pwrite(file, piece, 0)
    os.fsync(file)
"""
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)
_COUNTS = re.compile(r"^\d+ (?:passed|failed|error).* in [\d.]+s.*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a target of the Makefile."""

    number: int
    target: str
    company: str
    seconds: float
    code: int
    counts: str
    failed: tuple[str, ...]

    def row(self) -> str:
        outcome = "passed" if self.code == 0 else f"exit {self.code}"
        failures = ", ".join(self.failed) or ("see its log" if self.code else "")
        return f"| {self.number} | {self.target} | {self.company} | {self.seconds:.0f} s | {outcome} | {self.counts} | {failures} |"


@contextlib.contextmanager
def company(folder: Path) -> Iterator[None]:
    """Keep two processors busy and the disk below `folder`, until the block ends."""
    programs = [[_SPIN]] * BUSY + [[_WRITE, str(folder / f"writer-{number}")] for number in range(WRITERS)]
    others = [subprocess.Popen([sys.executable, "-c", *program]) for program in programs]
    try:
        yield
    finally:
        for each in others:
            each.kill()
            each.wait()


def run(number: int, target: str, *, beside: str = "nothing", folder: Path | None = None) -> Run:
    """Run `make target` once. `folder`: where its temporary files lie; None for where they always do."""
    environment = os.environ | ({} if folder is None else {"PYTEST_DEBUG_TEMPROOT": str(folder)})
    output = LOGS / f"{target}-{number}.log"
    began = time.monotonic()
    with output.open("wb") as file:
        process = subprocess.Popen(
            ["make", target], cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=file, stderr=file
        )
        try:
            code = process.wait(LONGEST_S)
        except subprocess.TimeoutExpired:
            process.terminate()
            code = process.wait() or 1
    text = output.read_text("utf-8", "replace")
    counts = "; ".join(_COUNTS.findall(text))
    return Run(
        number, target, beside, time.monotonic() - began, code, counts, tuple(sorted(set(_FAILED.findall(text))))
    )


def main() -> int:
    """Run them, a row of the table after each; exit code 1 where one failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.steady", description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=10, help="how many; every second one has company (default: 10)")
    parser.add_argument("--target", default="test", choices=["test", "e2e"], help="of the Makefile (default: test)")
    options = parser.parse_args()
    LOGS.mkdir(parents=True, exist_ok=True)
    print("| run | target | beside | time | result | tests | failed |\n|---|---|---|---|---|---|---|", flush=True)
    runs = []
    for number in range(1, options.runs + 1):
        if number % 2:
            runs.append(run(number, options.target))
        else:
            with tempfile.TemporaryDirectory(dir=ON_DISK) as name, company(Path(name)):
                runs.append(run(number, options.target, beside=f"{BUSY} busy, {WRITERS} writers", folder=ON_DISK))
        print(runs[-1].row(), flush=True)
    return int(any(each.code for each in runs))


if __name__ == "__main__":
    sys.exit(main())
