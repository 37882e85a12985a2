"""A server of a gigabyte is lost and restored: from the command to the first answer of a search, with real programs.

    python -m bench.restore [--megabytes 1000] [--rounds 3] [--json]

The daemon's folder is deleted, and the snapshot's pages are dropped from memory where the system allows. Then: `confided restore` with the
code from stdin, its doctor included; `confided serve`; and a machine's `confide search`. The budget: 60 s, in the median.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.support.programs.forked import run
from tests.support.programs.pair import joined
from tests.support.programs.processes import CONFIDED, NO_MODEL, SERVER_KEEPS, Daemon

from bench.backup import grow
from confide_daemon.access.registry import open_state
from confide_daemon.datadir.paths import DataFolder

MAX_S = 60.0
DEADLINE_S = 600.0


def measure(megabytes: int, rounds: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="confide-restore-") as name:
        root = Path(name)
        (root / "server-home").mkdir()
        backups = root / "backups"
        (root / "server-home/daemon.toml").write_text(f'{NO_MODEL}{SERVER_KEEPS}[backup]\nto = "{backups}"\n')
        daemon = Daemon(root)
        said = json.loads(daemon.run("backup", "init", "--to", str(backups), "--json").splitlines()[0])
        daemon.start()
        (ann,) = joined(root, daemon, "ann")
        ann.write("memory/a.md", "# Birds\n\nThe heron colony has nineteen nests.\n")
        ann.run("sync")
        daemon.stop()
        state = open_state(DataFolder(daemon.data))
        space_id = state.registry.spaces()["ann"]
        size = grow(state.folder.space(space_id), state.master.space_key(space_id), megabytes)
        state.close()
        daemon.run("backup")
        (snapshot,) = (path for path in backups.iterdir() if re.fullmatch(r"\d{4}-.*Z", path.name))
        steps: dict[str, list[float]] = {"restore": [], "serve": [], "search": [], "all": []}
        for _ in range(rounds):
            shutil.rmtree(daemon.data)
            drop_cached(snapshot)
            began = time.perf_counter()
            command = [CONFIDED, "restore", str(snapshot), "--code", "--data", str(daemon.data)]
            done = run(command, env=daemon.env, input=f"{said['recoveryCode']}\n", timeout=DEADLINE_S)
            assert done.returncode == 0, done.stdout + done.stderr
            restored = time.perf_counter()
            daemon.start()
            served = time.perf_counter()
            found = ann.json("search", "how many nests has the heron colony")["results"]
            answered = time.perf_counter()
            assert found[0]["path"] == "memory/a.md"
            daemon.stop()
            for step, took in zip(
                steps, (restored - began, served - restored, answered - served, answered - began), strict=True
            ):
                steps[step].append(took)
    median = {step: round(statistics.median(took), 2) for step, took in steps.items()}
    return {"megabytes": round(size / 1e6), "rounds": rounds, "seconds": median, "isWithin": median["all"] <= MAX_S}


def drop_cached(folder: Path) -> None:
    """As after the machine was started: what is in memory is read from the disk again."""
    for path in folder.rglob("*"):
        if path.is_file() and hasattr(os, "posix_fadvise"):
            descriptor = os.open(path, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = measure(options.megabytes, options.rounds)
    if options.json:
        print(json.dumps(found))
    else:
        told = ", ".join(f"{step} {took:.1f} s" for step, took in found["seconds"].items())
        print(f"{found['megabytes']} MB, median of {found['rounds']}: {told}")
    sys.exit(0 if found["isWithin"] else 1)


if __name__ == "__main__":
    main()
