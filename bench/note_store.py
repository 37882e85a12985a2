"""`memory_store` of a note through `confide mcp`, in a space of 10,000 notes, duplicate check and the packaged model included.

Beside it, in the same minutes: the same texts stored in file form, each in a file of its own, and what the model alone takes for each.
The three take turns, so that whatever else the machine does meets them alike.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from tests.support.programs.processes import Machine
from tests.support.programs.wire import Wire

from bench.texts import documentation, pieces
from confide_daemon.embedding.local.minilm import load_minilm

T = TypeVar("T")

NOTES = 10_000
STORED = 100  # of each kind
WARM_UP = 10
AT_ONCE = 1000  # files written before each comparison, so that none takes too long
SYNC_DEADLINE_S = 1800.0
GOAL_MS = 25.0


def main() -> None:
    """Fill a space, store, and print the medians."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else NOTES
    texts = list(
        dict.fromkeys(piece for _, text in documentation(packages=True) for piece in pieces(text) if len(piece) > 80)
    )
    model = load_minilm()
    with tempfile.TemporaryDirectory(prefix="confide-bench-") as folder:
        machine = Machine(Path(folder), "bench", has_model=True)
        try:
            with Wire(machine) as wire:
                wire.open()
                fill(machine, wire, texts[:count])
                notes, files, alone = [], [], []
                duplicates = 0
                for number, text in enumerate(texts[count : count + STORED + WARM_UP]):
                    # Half of what agents store they have stored before, in other words.
                    said = text if number % 2 else _reworded(texts[number])
                    note = {"content": said, "title": f"Stored {number}", "tags": ["bench"]}
                    took, stored = _timed(wire.tool, "memory_store", note)
                    notes.append(took)
                    duplicates += bool(stored["structuredContent"]["duplicates"])
                    file = {"content": said, "path": f"memory/file-{number}.md"}
                    files.append(_timed(wire.tool, "memory_store", file)[0])
                    alone.append(_timed(model.embed_documents, [said])[0])
        finally:
            machine.stop_local_daemon()
    note_ms, file_ms, own_ms = (statistics.median(times[WARM_UP:]) for times in (notes, files, alone))
    slow = statistics.quantiles(notes[WARM_UP:], n=20)[-1]
    print(
        f"memory_store of a note at {count:,} notes: p50 {note_ms:.1f} ms, p95 {slow:.1f} ms (goal: p50 {GOAL_MS:.0f} ms)"
    )
    print(f"  the same text in file form: p50 {file_ms:.1f} ms; a note takes {note_ms / file_ms:.2f} times that")
    print(f"  the model alone for one such text: p50 {own_ms:.1f} ms; {duplicates} of {len(notes)} had duplicates")


def fill(machine: Machine, wire: Wire, texts: list[str]) -> None:
    """Write the notes as files, as a person or a clone would bring them."""
    started = time.perf_counter()
    for number, text in enumerate(texts):
        head = f"---\ntitle: Note {number}\ntags: [t{number % 50}, common]\nimportance: normal\n---\n\n"
        machine.write(f"memory/notes/note-{number:05}.md", f"{head}{text}\n")
        if number % AT_ONCE == AT_ONCE - 1 or number == len(texts) - 1:
            wire.tool("memory_sync", {}, timeout_s=SYNC_DEADLINE_S)
    status = wire.tool("memory_status", {})["structuredContent"]
    took = time.perf_counter() - started
    print(f"{status['totalChunks']:,} pieces of {len(texts):,} notes in {took:.0f} s")


def _reworded(text: str) -> str:
    words = text.split()
    return " ".join([*words[:-1], "indeed", words[-1]])


def _timed(work: Callable[..., T], *arguments: object) -> tuple[float, T]:
    """(milliseconds, what it answers)."""
    started = time.perf_counter()
    answer = work(*arguments)
    return (time.perf_counter() - started) * 1e3, answer


if __name__ == "__main__":
    main()
