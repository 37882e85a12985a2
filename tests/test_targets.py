"""Each test belongs to one of the targets `make test`, `make e2e` and `make channel`."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parent.parent


def collected(marks: str) -> Counter[str]:
    """So many tests of each module would run. Modules are found and not named: a named one is never passed over."""
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-n", "0", "-m", marks, "tests"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.findall(r"^(tests/\S+): (\d+)$", done.stdout, re.MULTILINE)
    return Counter({module: int(count) for module, count in found})


def test_each_test_runs_in_one_target() -> None:
    targets = [collected(marks) for marks in ("not channel and not e2e", "e2e and not channel", "channel")]
    assert all(targets)
    assert sum(targets, Counter[str]()) == collected("")
