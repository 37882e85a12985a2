"""How long a client waits for `confide hook`: with a search in a real daemon, with nobody listening, with a listener that is stopped.

Each is a process of its own, started as a client starts it. Beside them stand a bare interpreter and one with what a hook needs of the
standard library: what is above that is ours.
"""

from __future__ import annotations

import json
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.support.programs.processes import CONFIDE, Machine, wait_until
from tests.support.programs.wire import Wire

from bench.everyday import ANSWERED, NOTES

ROUNDS: Final = 40
WARM_UP: Final = 5
STOPPED_ROUNDS: Final = 8
SEARCHED, SEARCHED_P95, ALONE, STOPPED = 50.0, 100.0, 30.0, 450.0


class Taken(NamedTuple):
    """What one process took from its start to its end, and what it said."""

    ms: float
    cpu_ms: float
    said: bytes


def main() -> None:
    """Time them, and print each figure beside its goal."""
    with tempfile.TemporaryDirectory(prefix="confide-bench-") as name:
        machine = Machine(Path(name), "bench", has_model=True)
        for note, text in NOTES.items():
            machine.write(f"memory/{note}.md", f"# {note.capitalize()}\n\n{text}\n")
        sync = [CONFIDE, "sync"]
        subprocess.run(sync, cwd=machine.project, env=machine.env, check=True, stdout=subprocess.DEVNULL, timeout=900)
        try:
            with Wire(machine, start=subprocess.Popen) as wire:
                wire.open()
                wait_until("somebody to listen", (machine.home / "proxy/hooks.sock").exists)
                wire.tool("memory_search", {"query": "warm up"})
                prompts = list(ANSWERED)
                searched = [
                    hook(machine, prompts[number % len(prompts)], f"s{number}") for number in range(ROUNDS + WARM_UP)
                ]
                wire.process.send_signal(signal.SIGSTOP)
                stopped = [hook(machine, prompts[0], f"t{number}") for number in range(STOPPED_ROUNDS)]
                wire.process.send_signal(signal.SIGCONT)
            alone = [hook(machine, prompts[0], f"u{number}") for number in range(ROUNDS)]
        finally:
            machine.stop_local_daemon()
    bare = [timed([sys.executable, "-c", "pass"], b"", None) for _ in range(ROUNDS)]
    library = [timed([sys.executable, "-c", "import json, os, socket"], b"", None) for _ in range(ROUNDS)]
    answered = sum(1 for each in searched[WARM_UP:] if each.said)
    show(
        "with a search",
        searched[WARM_UP:],
        f"p50 {SEARCHED:.0f}, p95 {SEARCHED_P95:.0f} ms; {answered} of {ROUNDS} had a hit",
    )
    show("nobody listens", alone, f"p50 {ALONE:.0f} ms")
    show("a stopped listener", stopped, f"at most {STOPPED:.0f} ms")
    show("python -c pass", bare, "")
    show("python, json and socket", library, "")


def show(what: str, taken: list[Taken], goal: str) -> None:
    times = sorted(each.ms for each in taken)
    p95 = times[int(len(times) * 0.95) - 1]
    told = f"p50 {statistics.median(times):6.1f}   p95 {p95:6.1f}   at most {max(times):6.1f} ms"
    told += f"   processor {statistics.median(each.cpu_ms for each in taken):5.1f} ms"
    print(f"{what:24} {told}   {f'(goal: {goal})' if goal else ''}")


def hook(machine: Machine, prompt: str, session: str) -> Taken:
    """One event."""
    told = {"hook_event_name": "UserPromptSubmit", "session_id": session, "cwd": str(machine.project), "prompt": prompt}
    return timed([CONFIDE, "hook"], json.dumps(told).encode(), machine)


def timed(command: list[str], stdin: bytes, machine: Machine | None) -> Taken:
    where: dict[str, Any] = {} if machine is None else {"env": machine.env, "cwd": machine.project}
    began, spent = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, input=stdin, capture_output=True, check=True, **where)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - spent.ru_utime - spent.ru_stime
    return Taken((time.perf_counter() - began) * 1000, cpu_s * 1000, done.stdout)


if __name__ == "__main__":
    main()
