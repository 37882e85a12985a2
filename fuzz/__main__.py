"""The runner: divides executions over targets, runs two at a time, prints a table, ends non-zero on a crash."""

from __future__ import annotations

import argparse
import importlib.util
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fuzz.targets import TARGETS

ROOT: Final = Path(__file__).parents[1]
EXECUTIONS: Final = 10_000_000
AT_ONCE: Final = 2
_DONE: Final = re.compile(r"^Done (\d+) runs in \d+ second", re.MULTILINE)
_AT: Final = re.compile(r"^#(\d+)\s", re.MULTILINE)
MISSING: Final = "fuzzing needs atheris, which is not installed here\nhint: pip install '.[fuzz]' in the clone (Linux and macOS, CPython)\n"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one target; `log` is libFuzzer's, for a crash."""

    name: str
    executions: int
    crashes: list[Path]
    failed: bool
    seconds: float
    log: str


def run(name: str, executions: int, seconds: int, folder: Path) -> Outcome:
    """Fuzz one target in a process of its own, from its seeds."""
    target = TARGETS[name]
    corpus, found = folder / name / "corpus", folder / name / "crashes"
    corpus.mkdir(parents=True)
    found.mkdir()
    for number, seed in enumerate(target.seeds()):
        (corpus / f"seed-{number:03}").write_bytes(seed)
    command = [
        sys.executable,
        "-m",
        "fuzz.one",
        name,
        f"-runs={executions}",
        f"-max_total_time={seconds}",
        f"-max_len={target.max_length}",
        f"-artifact_prefix={found}/",
        "-timeout=20",
        "-rss_limit_mb=2048",
        str(corpus),
    ]
    began = time.monotonic()
    ended = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    took = time.monotonic() - began
    log = ended.stdout.decode(errors="replace")
    done = _DONE.findall(log) or _AT.findall(log) or ["0"]
    return Outcome(name, int(done[-1]), sorted(found.iterdir()), ended.returncode != 0, took, log)


def table(outcomes: list[Outcome]) -> str:
    """Target, executions, crashes, seconds, and a line for all."""
    rows = [(o.name, f"{o.executions:,}", str(len(o.crashes)), f"{o.seconds:.0f}") for o in outcomes]
    total = sum(o.executions for o in outcomes), sum(len(o.crashes) for o in outcomes), sum(o.seconds for o in outcomes)
    rows.append(("all", f"{total[0]:,}", str(total[1]), f"{total[2]:.0f}"))
    lines = [("target", "executions", "crashes", "seconds"), *rows]
    return "".join(f"{a:<10} {b:>12} {c:>8} {d:>8}\n" for a, b, c, d in lines)


def main() -> int:
    """0: no crash; 1: a crash, whose input is kept; 2: nothing could be run."""
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("--executions", type=int, default=EXECUTIONS, help="over all targets (default 10,000,000)")
    parser.add_argument("--seconds", type=int, default=3600, help="at most, for each target (default 3600)")
    parser.add_argument("--only", nargs="+", choices=list(TARGETS), default=list(TARGETS), metavar="TARGET")
    options = parser.parse_args()
    if importlib.util.find_spec("atheris") is None:
        sys.stderr.write(MISSING)
        return 2
    folder = Path(tempfile.mkdtemp(prefix="confide-fuzz-"))
    shares = sum(TARGETS[name].share for name in options.only)

    def one(name: str) -> Outcome:
        outcome = run(name, options.executions * TARGETS[name].share // shares, options.seconds, folder)
        sys.stderr.write(f"{name}: {outcome.executions:,} executions in {outcome.seconds:.0f} s\n")
        return outcome

    with ThreadPoolExecutor(AT_ONCE) as pool:
        outcomes = list(pool.map(one, options.only))
    sys.stdout.write(table(outcomes))
    bad = [outcome for outcome in outcomes if outcome.failed or outcome.crashes]
    if not bad:
        shutil.rmtree(folder)
    for outcome in bad:
        inputs = " ".join(str(path) for path in outcome.crashes) or "no input kept"
        sys.stderr.write(f"\n{outcome.name} failed: {inputs}\n{outcome.log[-4000:]}\n")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
