"""`make proof`: every scenario of crypto/formal/ through ProVerif, one after the other, and what came of it.

A scenario's first line says which libraries it takes and what each of its queries is expected to be: some must be false, with an attack.

    python -m bench.proof [--seconds 1800] [--results FILE] [NAME ...]

`NAME` is the beginning of a scenario's file name. `PROVERIF` in the environment names the program where it is not on the way. Ends with
1 where a result is another than the expected one; a scenario that does not end in time is told, and no failure.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

FORMAL = Path(__file__).parents[1] / "crypto" / "formal"
_HEAD = re.compile(r"\(\* with: ([a-z_ ]+); expected: ((?:true|false| )+) \*\)")
_RESULT = re.compile(r"^RESULT (?!\(even)(.*?)( cannot be proved| is true| is false)\.?", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Scenario:
    """One question, or a few, of a model."""

    name: str
    libraries: tuple[str, ...]
    expected: tuple[str, ...]
    """Of each query: true, or false where ProVerif is to find an attack."""

    @classmethod
    def read(cls, file: Path) -> Scenario:
        """Raises ValueError: its first line does not say what it takes and what is expected."""
        head = _HEAD.match(file.read_text("ascii"))
        if head is None:
            raise ValueError(f"{file.name} does not begin with what it takes and what is expected")
        return cls(file.stem, tuple(head[1].split()), tuple(head[2].split()))

    def command(self, proverif: str) -> list[str]:
        libraries = [part for name in self.libraries for part in ("-lib", f"{name}.pvl")]
        return ["nice", proverif, *libraries, f"{self.name}.pv"]


def scenarios() -> list[Scenario]:
    return [Scenario.read(file) for file in sorted(FORMAL.glob("*.pv"))]


def results(output: str) -> tuple[str, ...]:
    """What ProVerif says of each query, in their order: true, false or unproven."""
    words = {" is true": "true", " is false": "false"}
    return tuple(words.get(verdict, "unproven") for _, verdict in _RESULT.findall(output))


def run(scenario: Scenario, proverif: str, seconds: float) -> tuple[str, float]:
    """How a scenario ended (as `results` in one line, or why there are none) and after how many seconds."""
    begun = time.monotonic()
    try:
        done = subprocess.run(
            scenario.command(proverif), cwd=FORMAL, capture_output=True, text=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired:
        return f"did not end in {seconds:.0f} s", time.monotonic() - begun
    found = results(done.stdout)
    if done.returncode or not found:
        last = (done.stdout + done.stderr).strip().splitlines()[-1:]
        return f"failed: {' '.join(last)}", time.monotonic() - begun
    return " ".join(found), time.monotonic() - begun


def main() -> int:
    parser = argparse.ArgumentParser(description="Run the models of crypto/formal through ProVerif.")
    parser.add_argument("names", nargs="*", help="beginnings of names; all without any")
    parser.add_argument("--seconds", type=float, default=1800, help="for each scenario")
    parser.add_argument("--results", type=Path, help="a file that gets a line for each")
    options = parser.parse_args()
    proverif = shutil.which(os.environ.get("PROVERIF", "proverif"))
    if proverif is None:
        print("proverif is not installed, so nothing was proven: crypto/formal/README.md says how to build it")
        return 0
    failures = 0
    for scenario in scenarios():
        if options.names and not scenario.name.startswith(tuple(options.names)):
            continue
        said, seconds = run(scenario, proverif, options.seconds)
        is_open = said.startswith("did not end")
        as_expected = (
            "open" if is_open else "as expected" if tuple(said.split()) == scenario.expected else "NOT AS EXPECTED"
        )
        failures += as_expected == "NOT AS EXPECTED"
        line = f"{scenario.name:36} {said:28} {seconds:7.0f} s   {as_expected}"
        print(line, flush=True)
        if options.results:
            with options.results.open("a") as file:
                file.write(f"{line}\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
