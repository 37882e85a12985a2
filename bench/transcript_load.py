"""What a folder of transcripts on its way up does to a search: real daemon, real proxy, 200 MB as Claude Code writes them.

    python -m bench.transcript_load [--mb 200] [--calls 200] [--minutes 5]

The same search through the same `confide mcp`, first with nothing else going on, then while the proxy sends. The budget: the p95 of a call
meanwhile within 3 times its idle p95. It ends when everything has gone through, or after `--minutes`.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.support.documents.transcripts import ClaudeSession, tool
from tests.support.documents.transcripts import text as block
from tests.support.programs.processes import Daemon, Machine, running_daemon
from tests.support.programs.wire import Wire

from bench.upload import percentile, text, time_call

MAX_RATIO = 3.0
FILE_BYTES = 4_000_000


def write_session(session: ClaudeSession, size: int, seed: int, *, output_words: int = 600) -> None:
    """About `size` bytes: of them a tenth is what was said, the rest outputs of tools and what the client notes."""
    chance = random.Random(seed)
    words = text(1_000_000, seed).replace("#", "").split()
    while not session.path.exists() or session.path.stat().st_size < size:
        start = chance.randrange(len(words) - output_words - 140)
        session.user(sentences(words[start : start + 40]))
        session.assistant(block(sentences(words[start + 40 : start + 140])))
        session.assistant(tool("Bash", command=f"grep -rn {words[start]} src/"))
        output = "\n".join(" ".join(words[start + n : start + n + 12]) for n in range(0, output_words, 12))
        session.user(
            [{"type": "tool_result", "tool_use_id": "toolu_1", "content": output}], toolUseResult={"stdout": output}
        )


def sentences(words: list[str]) -> str:
    """The words with an end every ten."""
    return " ".join(" ".join(words[at : at + 10]) + "." for at in range(0, len(words), 10))


def pending_bytes(machine: Machine) -> int:
    """What the proxy has not gone through, from its own notes: a command that asks would take time from what is measured."""
    offsets: dict[str, int] = {}
    for file in (machine.home / "proxy" / "transcripts").glob("*.jsonl"):
        for line in file.read_bytes().splitlines():
            session, _, _, _, offset, *_ = json.loads(line)
            offsets[session] = offset
    sizes = {file.stem: file.stat().st_size for file in projects_of(machine).rglob("*.jsonl")}
    return sum(size - offsets.get(session, 0) for session, size in sizes.items())


def machine_with(root: Path, daemon: Daemon, *, port: int | None = None) -> Machine:
    """One that has joined and sends transcripts, with notes to search in."""
    machine = Machine(root, "laptop", has_model=True)
    machine.write("memory/notes.md", text(40_000, 0) + "\n## Locks\n\nWe chose the row lock of postgres.\n")
    machine.run("join", daemon.invite("laptop", port=port))
    machine.run("sync")
    (machine.home / "proxy.toml").write_text('transcripts = ["claude-code"]\ntranscript_quiet_s = 1\n')
    return machine


def projects_of(machine: Machine) -> Path:
    """Where that machine's Claude Code keeps its transcripts."""
    return Path(machine.env["HOME"]) / ".claude" / "projects"


def measure(root: Path, megabytes: float, calls: int, minutes: float) -> dict[str, float]:
    """The figures, in milliseconds and MB."""
    with running_daemon(root, has_model=True) as daemon:
        machine = machine_with(root, daemon)
        held_back = root / "held-back"
        count = max(1, round(megabytes * 1_000_000 / FILE_BYTES))
        for number in range(count):
            write_session(ClaudeSession(held_back, machine.project, f"session-{number}"), FILE_BYTES, number)
        total = sum(file.stat().st_size for file in held_back.rglob("*.jsonl"))
        with Wire(machine) as wire:
            wire.open()
            for _ in range(20):
                time_call(wire)
            idle = [time_call(wire) for _ in range(calls)]
            projects_of(machine).parent.mkdir()
            held_back.rename(projects_of(machine))
            started = time.perf_counter()
            busy: list[float] = []
            pending = total
            while pending and time.perf_counter() - started < minutes * 60:
                busy += [time_call(wire) for _ in range(100)]
                pending = pending_bytes(machine)
                print(round(time.perf_counter() - started), pending, round(percentile(busy, 0.95)), file=sys.stderr)
            took = time.perf_counter() - started
            found = wire.tool("memory_status", {})["structuredContent"]["sources"].get("sessions", {})
    return {
        "idle_p50_ms": statistics.median(idle),
        "idle_p95_ms": percentile(idle, 0.95),
        "busy_p50_ms": statistics.median(busy),
        "busy_p95_ms": percentile(busy, 0.95),
        "ratio_p95": percentile(busy, 0.95) / percentile(idle, 0.95),
        "calls": len(busy),
        "took_s": took,
        "gone_through_mb": (total - pending) / 1e6,
        "mb_per_s": (total - pending) / 1e6 / took,
        "pieces": found.get("chunks", 0),
    }


def main(arguments: Sequence[str] = ()) -> int:
    """Print the numbers; 1 if the budget is not met."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.transcript_load", description="A search while transcripts go up."
    )
    parser.add_argument("--mb", type=float, default=200)
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="confide-bench-") as folder:
        result = measure(Path(folder), options.mb, options.calls, options.minutes)
    within = result["ratio_p95"] <= MAX_RATIO
    if options.json:
        print(json.dumps({**result, "max_ratio": MAX_RATIO, "ok": within}))
    else:
        print(f"memory_search idle           p50 {result['idle_p50_ms']:.1f} ms   p95 {result['idle_p95_ms']:.1f} ms")
        print(
            f"during {result['gone_through_mb']:.0f} MB in {result['took_s']:.0f} s      p50 {result['busy_p50_ms']:.1f} ms"
            f"   p95 {result['busy_p95_ms']:.1f} ms   ({result['calls']} calls)"
        )
        print(f"ratio of the p95             {result['ratio_p95']:.2f}, must be <= {MAX_RATIO}")
        print(f"transcripts gone through     {result['mb_per_s']:.1f} MB/s, {result['pieces']:.0f} pieces")
    return 0 if within else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
