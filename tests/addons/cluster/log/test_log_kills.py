"""kill -9 between the statements of a write, an opening, a snapshot and a change of the key: what was acknowledged is there, once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.daemon.postgres import SUPERUSER, Postgres

ROOT = Path(__file__).parents[4]
KILLS = ROOT / "tests" / "support" / "kills" / "log_kills.py"
# 1 tries every point; the suite, which runs often, some of them.
STRIDE = os.environ.get("CONFIDE_LOG_STRIDE", "80")


def killed(folder: Path, postgres: Postgres, when: str, stride: str) -> list[dict[str, Any]]:
    url = f"postgresql://{SUPERUSER}@127.0.0.1:{postgres.port}"
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(KILLS), str(folder), url, when, stride]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_what_was_acknowledged_outlives_a_kill_at_every_statement(postgres: Postgres, tmp_path: Path) -> None:
    """In the same folder, and where there is no file of it; a repeat is made once, and both copies are equal."""
    found = killed(tmp_path, postgres, "first", STRIDE)
    assert [one for one in found if one["wrong"]] == []
    assert not found[-1]["killed"]
    assert found[-1]["acknowledged"] == 9
    assert len(found) > 2


def test_it_would_be_noticed_if_an_entry_were_brought_after_its_answer(postgres: Postgres, tmp_path: Path) -> None:
    """The same schedules find losses in a program that answers first."""
    found = killed(tmp_path, postgres, "late", "11")
    assert any("is lost" in wrong for one in found for wrong in one["wrong"])
