"""How long a person waits for `confide status`, `search` and `store`: with a warm daemon, and with none running, against a bare Python."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

ROUNDS = 15
COLD_ROUNDS = 5
BIN = Path(sys.executable).parent
DEADLINE_S = 60.0
COMMANDS = {
    "status": ("status",),
    "search": ("search", "why postgres"),
    "store": ("store", "--again", "We chose postgres over mysql for its row locks."),
}


def main() -> None:
    """Print medians in milliseconds, and as a multiple of `python -c pass` in the same rounds."""
    with tempfile.TemporaryDirectory() as temporary:
        project = Path(temporary, "project")
        project.mkdir()
        (project / "MEMORY.md").write_text("# Facts\n\nThe API listens on port 8010.\n")
        env = {**os.environ, "CONFIDE_HOME": str(Path(temporary, "home"))}
        # A command is compiled once in its life, whatever the environment of this workplace says.
        env.pop("PYTHONDONTWRITEBYTECODE", None)

        def timed(command: Sequence[str | Path]) -> float:
            began = time.perf_counter()
            subprocess.run(command, cwd=project, env=env, check=True, capture_output=True, timeout=DEADLINE_S)
            return (time.perf_counter() - began) * 1e3

        confide = BIN / "confide"
        timed([confide, "quickstart"])
        try:
            for arguments in COMMANDS.values():
                timed([confide, *arguments])
            bare: list[float] = []
            warm: dict[str, list[float]] = {name: [] for name in COMMANDS}
            for _ in range(ROUNDS):
                bare.append(timed([sys.executable, "-c", "pass"]))
                for name, arguments in COMMANDS.items():
                    warm[name].append(timed([confide, *arguments]))
            reference = statistics.median(bare)
            print(f"python -c pass: {reference:.0f} ms")
            for name, times in warm.items():
                median = statistics.median(times)
                print(f"{name}, warm: {median:.0f} ms, {median / reference:.1f}x")
            cold = []
            for _ in range(COLD_ROUNDS):
                timed([confide, "stop"])
                cold.append(timed([confide, *COMMANDS["search"]]))
            print(f"search, the daemon has to start: {statistics.median(cold):.0f} ms, worst {max(cold):.0f}")
        finally:
            timed([confide, "stop"])


if __name__ == "__main__":
    main()
