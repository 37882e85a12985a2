"""The first load of a folder of notes: real programs, the packaged model, and where the seconds of a core go.

    python -m bench.vault [--notes 2000]

A vault is made of the documentation in this Python's standard library and packages: 4.5 kB a note, with front matter, tags and wiki links.
`confide sync` sends it to a real daemon and waits until every piece has its vector. Counted are seconds of a core, of both programs, which
other work on the machine does not change much; the reference is the bare model (`bench.indexing`) on the very pieces, in the same run.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.support.programs.pair import joined
from tests.support.programs.processes import CONFIDE, running_daemon

from bench.indexing import Bare
from bench.texts import SEED, documentation
from confide_daemon.config import ChunkSettings
from confide_daemon.retrieval.chunker import cut

NOTE_CHARACTERS = 4500
MIN_RATIO = 0.85
"""Of the bare model's seconds of a core to those of both programs together."""
DEADLINE_S = 1800.0
FOLDERS = ("ideas", "people", "work/projects", "reading", "daily")


def make(folder: Path, notes: int) -> list[str]:
    """Writes so many notes; their texts."""
    chance = random.Random(SEED)
    paragraphs = [
        part.strip()
        for _, text in documentation(packages=True)
        for part in text.split("\n\n")
        if 80 < len(part.strip()) < 1200
    ]
    texts = []
    for number in range(notes):
        text = f"---\ntags: [topic{number % 40}, vault]\naliases: [N{number}]\n---\n# Note {number:04}\n\n"
        while len(text) < NOTE_CHARACTERS:
            text += f"{chance.choice(paragraphs)}\n\n"
            text += f"See [[Note {chance.randrange(notes):04}]] and #tag{chance.randrange(60)}.\n\n"
        path = folder / chance.choice(FOLDERS) / f"Note {number:04}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        texts.append(text)
    return texts


def process_seconds(pid: int) -> float:
    """Of a core, in all threads of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(root: Path, notes: int) -> dict[str, float]:
    with running_daemon(root, has_model=True) as daemon:
        (machine,) = joined(root, daemon, "laptop")
        texts = make(machine.project, notes)
        (machine.home / "proxy.toml").write_text('extra = ["**/*.md"]\n')
        pid = json.loads((daemon.data / "daemon.address").read_bytes())["pid"]
        daemon_before, client_before, started = process_seconds(pid), os.times(), time.perf_counter()
        done = subprocess.run(
            [CONFIDE, "sync"],
            cwd=machine.project,
            env=machine.env,
            timeout=DEADLINE_S,
            capture_output=True,
            text=True,
            check=False,
        )
        elapsed, client = time.perf_counter() - started, os.times()
        if done.returncode:
            raise SystemExit(f"bench: confide sync ended with {done.returncode}:\n{done.stderr}")
        used = process_seconds(pid) - daemon_before
    pieces = list({piece.text: None for text in texts for piece in cut(text, ChunkSettings())})
    bare = Bare()
    bare.embed(pieces[:64])
    before, began = time.process_time(), time.perf_counter()
    bare.embed(pieces)
    return {
        "pieces": len(pieces),
        "elapsed_s": elapsed,
        "daemon_s": used,
        "client_s": client.children_user
        + client.children_system
        - client_before.children_user
        - client_before.children_system,
        "bare_s": time.process_time() - before,
        "bare_elapsed_s": time.perf_counter() - began,
    }


def main(arguments: Sequence[str] = ()) -> int:
    """Print the numbers; 1 if what is beside the model costs too much."""
    parser = argparse.ArgumentParser(prog="python -m bench.vault", description="The first load of a folder of notes.")
    parser.add_argument("--notes", type=int, default=2000)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="confide-bench-") as folder:
        told = measure(Path(folder), options.notes)
    pieces, together = told["pieces"], told["daemon_s"] + told["client_s"]
    ratio = told["bare_s"] / together
    print(f"{options.notes} notes, {pieces:.0f} pieces, load {os.getloadavg()[0]:.1f}")
    print(
        f"through everything: {pieces / told['elapsed_s']:.0f} pieces/s; the bare model: {pieces / told['bare_elapsed_s']:.0f} pieces/s"
    )
    print(f"pieces a second of a core: {pieces / together:.0f}; the bare model: {pieces / told['bare_s']:.0f}")
    print(
        f"seconds of a core: daemon {told['daemon_s']:.1f}, client {told['client_s']:.1f}; the bare model {told['bare_s']:.1f}"
    )
    print(f"ratio {ratio:.2f}x (must be >= {MIN_RATIO}x)")
    return 0 if ratio >= MIN_RATIO else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
