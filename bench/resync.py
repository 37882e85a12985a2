"""What a second look costs: a tree of 10,000 pieces that nobody touched, and one changed line in a file of a megabyte.

    python -m bench.resync [--pieces 10000] [--rounds 5]

A real daemon and a real `confide mcp`, asked for `memory_sync`; once more as a person asks, `confide sync` from its start to its end.
Then a line in the middle of a file of one megabyte is changed, put in and taken out, in prose, a list and a table, and the new pieces
are counted in the daemon's database: those are what is embedded. Embedded by hashed words, since the first load would take minutes
and what is counted does not depend on the model; the packaged one takes some 13 ms a piece on top.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.support.programs.pair import joined
from tests.support.programs.processes import Machine, running_daemon
from tests.support.programs.wire import Wire

from bench.texts import documentation, questions
from confide_daemon.access.registry import open_state
from confide_daemon.datadir.paths import DataFolder
from confide_daemon.store.database import connect

MAX_S, MAX_EMBEDDED = 1.0, 3
MEGABYTE = 1_000_000
DEADLINE_S = 120.0
SEED = 5

Kind = Callable[[str, int], str]
KINDS: dict[str, Kind] = {
    "prose": lambda sentence, number: f"{sentence} ({number})\n",
    "list": lambda sentence, number: f"- {sentence} ({number})",
    "table": lambda sentence, number: f"| {number:06} | {sentence[:40].replace('|', ' ')} |",
}
HEADS = {"table": "| number | what |\n|---|---|\n"}


def fill(machine: Machine, pieces: int) -> int:
    """Notes of nearly seven pieces each, a hundred in a folder; how many files."""
    chance = random.Random(SEED)
    sentences = questions([text for _, text in documentation()], 4000)
    files = pieces // 6
    for number in range(files):
        sections = (f"## Part {part}\n\n" + ". ".join(chance.sample(sentences, 3)) + "." for part in range(6))
        machine.write(f"memory/{number // 100:03}/{number}.md", f"# Note {number}\n\n" + "\n\n".join(sections) + "\n")
    return files


class Pieces:
    """Counts the pieces that a space ever had; their numbers are never used again."""

    def __init__(self, folder: Path) -> None:
        data = DataFolder(folder)
        state = open_state(data)
        (space_id,) = state.registry.spaces().values()
        self._connection = connect(data.space(space_id), state.master.space_key(space_id), writer=False)
        state.close()

    def made(self) -> int:
        """So far."""
        rows = self._connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'chunk'").fetchall()
        return int(rows[0][0]) if rows else 0


def sync(wire: Wire, pieces: Pieces) -> tuple[float, int]:
    """Seconds, and pieces that were made."""
    before, started = pieces.made(), time.perf_counter()
    answer = wire.tool("memory_sync", {}, timeout_s=DEADLINE_S)
    elapsed = time.perf_counter() - started
    if answer.get("isError") or answer["structuredContent"]["warnings"]:
        raise SystemExit(f"bench: the sync did not do all: {answer['content'][0]['text'][:500]}")
    return elapsed, pieces.made() - before


def changed_lines(machine: Machine, wire: Wire, pieces: Pieces, kind: str, rounds: int) -> list[tuple[float, int]]:
    """Seconds and embedded pieces of each change in a file of a megabyte."""
    chance = random.Random(SEED)
    sentences = questions([text for _, text in documentation()], 4000)
    lines: list[str] = []
    size = 0
    while size < MEGABYTE:
        lines.append(KINDS[kind](chance.choice(sentences), len(lines)))
        size += len(lines[-1]) + 1

    def save() -> tuple[float, int]:
        machine.write(f"memory/{kind}.md", HEADS.get(kind, "") + "\n".join(lines) + "\n")
        return sync(wire, pieces)

    save()
    measured = []
    for number in range(rounds * 3):
        place = chance.randrange(len(lines) // 4, len(lines) * 3 // 4)
        if number % 3 == 0:
            lines[place] = KINDS[kind]("This line was changed by hand", place)
        elif number % 3 == 1:
            lines.insert(place, KINDS[kind]("This line was put in by hand", number))
        else:
            del lines[place]
        measured.append(save())
    return measured


def main(arguments: Sequence[str] = ()) -> int:
    """Print the figures; 1 if a budget is not met."""
    parser = argparse.ArgumentParser(prog="python -m bench.resync", description="What a second look costs.")
    parser.add_argument("--pieces", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="confide-bench-") as folder, running_daemon(Path(folder)) as daemon:
        (machine,) = joined(Path(folder), daemon, "laptop")
        files = fill(machine, options.pieces)
        with Wire(machine) as wire:
            wire.open()
            pieces = Pieces(daemon.data)
            loaded_s, loaded = sync(wire, pieces)
            unchanged = [sync(wire, pieces) for _ in range(options.rounds)]
            started = time.perf_counter()
            machine.run("sync")
            command_s = time.perf_counter() - started
            edits = {kind: changed_lines(machine, wire, pieces, kind, options.rounds) for kind in KINDS}
    resync_s = statistics.median(seconds for seconds, _ in unchanged)
    print(f"first load of {files:,} files, {loaded:,} pieces: {loaded_s:.1f} s")
    print(f"again, unchanged: {resync_s:.2f} s, worst {max(s for s, _ in unchanged):.2f} s (must be <= {MAX_S:.0f} s)")
    print(f"as a command, from its start to its end: {command_s:.2f} s")
    met = resync_s <= MAX_S and not any(count for _, count in unchanged)
    for kind, measured in edits.items():
        counts = sorted(count for _, count in measured)
        usual = statistics.median(counts)
        print(
            f"one line of a megabyte of {kind}: {usual:.0f} new pieces, at most {counts[-1]} of {len(counts)} changes "
            f"(must be <= {MAX_EMBEDDED}), {statistics.median(s for s, _ in measured) * 1e3:.0f} ms"
        )
        met = met and usual <= MAX_EMBEDDED
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
