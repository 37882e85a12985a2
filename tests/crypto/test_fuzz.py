"""The fuzz targets in short: every seed, and a thousand inputs made from seeds by a seeded generator. `make fuzz` is the long form."""

from __future__ import annotations

import importlib.util
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fuzz.targets import TARGETS
from tests.support.deadline import DEADLINE_S

EXECUTIONS = 1000
ROOT = Path(__file__).parents[2]


def mutated(seeds: list[bytes], chance: random.Random, most: int) -> Iterator[bytes]:
    """What a fuzzer does first: noise, changed bytes, cuts, and pieces of one seed behind another."""
    while True:
        data = bytearray(chance.choice(seeds))
        for _ in range(chance.randrange(1, 6)):
            place = chance.randrange(len(data) + 1)
            match chance.randrange(5):
                case 0:
                    data[place:place] = chance.randbytes(chance.randrange(1, 12))
                case 1:
                    del data[place : place + chance.randrange(1, 12)]
                case 2:
                    data[place : place + 1] = chance.randbytes(1)
                case 3:
                    data[place:] = chance.choice(seeds)
                case _:
                    data += chance.randbytes(chance.randrange(40))
        yield bytes(data[:most])


@pytest.mark.parametrize("name", TARGETS)
def test_only_documented_errors_come_out(name: str) -> None:
    target = TARGETS[name]
    seeds = list(target.seeds())
    for seed in seeds:
        target.run(seed)
    inputs = mutated(seeds, random.Random(name), target.max_length)
    for _ in range(EXECUTIONS):
        target.run(next(inputs))


def run_fuzz(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fuzz", *arguments],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )


def test_the_runner_says_how_to_get_what_it_needs() -> None:
    """Without atheris there is no long form; the suite has the short one."""
    script = (
        "import sys; sys.modules['atheris'] = None; sys.argv = ['fuzz']; import fuzz.__main__ as f; sys.exit(f.main())"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "'.[fuzz]'" in done.stderr


@pytest.mark.skipif(importlib.util.find_spec("atheris") is None, reason="atheris is not installed (confide[fuzz])")
def test_the_runner_counts_and_ends_well() -> None:
    done = run_fuzz("--executions", "2000", "--seconds", "30", "--only", "bodies", "frames")
    assert done.returncode == 0, done.stderr
    rows = {row.split()[0]: row.split()[1:] for row in done.stdout.splitlines()[1:]}
    assert set(rows) == {"bodies", "frames", "all"}
    assert int(rows["all"][0].replace(",", "")) >= 2000
    assert {row[1] for row in rows.values()} == {"0"}


@pytest.mark.skipif(importlib.util.find_spec("atheris") is None, reason="atheris is not installed (confide[fuzz])")
def test_a_crash_is_reported_with_its_input_and_ends_non_zero(tmp_path: Path) -> None:
    """A copy of the package in which one reader lets an exception through that nobody has documented."""
    broken = shutil.copytree(ROOT / "crypto", tmp_path / "crypto") / "confide_crypto" / "requests.py"
    source = broken.read_text()
    assert source.count("except (ValueError, RecursionError)") == 1
    broken.write_text(source.replace("except (ValueError, RecursionError)", "except ZeroDivisionError"))
    done = run_fuzz("--executions", "5000", "--seconds", "30", "--only", "bodies", PYTHONPATH=str(tmp_path / "crypto"))
    assert done.returncode == 1
    assert "bodies failed" in done.stderr
    assert "crash-" in done.stderr
