"""Measures notes at tool calls: the share of covered failures and of other calls that get one, and the time of a hook.

    python -m bench.action.judge [--no-time]

Memory is a year of a shop's daily logs with the notes among them, as the daemon's own code reads it; the answers are those of the
process that answers hooks. The times are of real hooks beside a real session, and of a bare Python that reads the event and asks a socket.
"""

from __future__ import annotations

import argparse
import asyncio
import html
import json
import random
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tests.support.programs.processes import CONFIDE, Machine, wait_until
from tests.support.programs.wire import Wire

from bench.action import sessions
from bench.hooks import WARM_UP, Taken, timed
from bench.quiet.growing import logs
from confide_memory.actions.triggers import entries, order, trigger_fields
from confide_memory.forms import MAX_ACTIONS
from confide_proxy.clients.hooks import PLUGIN
from confide_proxy.hooks import block, events
from confide_proxy.hooks.server.action_recall import ActionPlace, ActionRecall
from confide_proxy.hooks.server.form import tokens

SEED: Final = 43
COVERED, DEVELOPMENT, FRESH, UNCOVERED, BENIGN = 40, 251, 60, 80, 5000
DAYS: Final = 360
ROUNDS: Final = 200
PROJECT: Final = "shop"
CALLS: Final = 100
TRIES: Final = 3
_ASKING: Final = """
import json, socket, sys
told = json.loads(sys.stdin.buffer.read())
with socket.socket(socket.AF_UNIX) as connection:
    connection.connect(sys.argv[1])
    connection.sendall(json.dumps({"kind": "turn", "cwd": told["cwd"]}).encode() + b"\\n")
    connection.recv(65536)
"""


_OPENCODE: Final = """
const [script, socket, directory, rounds] = process.argv.slice(1)
const { Confide } = await import(script)
const hooks = await Confide({ client: { mcp: { status: async () => ({}) } }, directory }, { program: "none", socket })
const args = { command: "npx prisma migrate reset --force" }
for (let number = 0; number < rounds; number++) {
  const began = performance.now()
  await hooks["tool.execute.after"]({ tool: "bash", sessionID: `o${number}`, args }, { output: "", metadata: { exit: 0 } })
  console.log(performance.now() - began)
  await new Promise((done) => setTimeout(done, 20)) // an agent's tool calls do not follow each other at once
}
"""


class Daemon:
    """A daemon that answers `actions` with the entries of the files."""

    def __init__(self, files: Mapping[str, str]) -> None:
        newest = sorted(files.items(), reverse=True)
        found = [(path, entry) for path, text in newest for entry in entries(text)]
        self._entries = [
            {
                **{"project": PROJECT, "path": path, "startLine": entry.line, "id": None, "snippet": entry.text[:600]},
                **{"author": "laptop", "updatedAt": "2026-11-20T10:00:00Z", "class": "agent"},
                "triggers": [{"kind": one.kind, "key": one.key} for one in entry.triggers],
            }
            for _, (path, entry) in sorted(
                zip(order([entry for _, entry in found]), found, strict=True), key=lambda one: one[0]
            )
        ]

    @property
    def size(self) -> int:
        return len(self._entries)

    async def request(
        self,
        op: str,  # noqa: ARG002 - as a link has it
        body: dict[str, object],  # noqa: ARG002
        *,
        timeout_s: float,  # noqa: ARG002
        bulk: bool = False,  # noqa: ARG002
    ) -> dict[str, object]:
        return {"version": "1", "entries": self._entries[:MAX_ACTIONS]}

    async def upload(self, op: str, body: dict[str, object], data: bytes, *, timeout_s: float) -> dict[str, object]:
        raise NotImplementedError


def main() -> None:
    """Judge and time, and print each figure beside its goal."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--no-time", action="store_true", help="judge only")
    parser.add_argument("--verbose", action="store_true", help="print what was missed, and what was shown wrongly")
    arguments = parser.parse_args()
    chance = random.Random(SEED)
    covered = {
        "covered failures": sessions.failures(chance, COVERED, of="covered"),
        "  by which the code was changed": sessions.failures(chance, DEVELOPMENT, of="development"),
        "  written when the code was done": sessions.failures(chance, FRESH, of="fresh"),
    }
    notes = dict.fromkeys([*(one.note for some in covered.values() for one in some), *sessions.CAUTIONS])
    lines = [line for text in logs(DAYS).values() for line in text.split("\n") if line.startswith("- ")]
    print(
        f"{'lines of logs with a command or an error':40} {sum(map(bool, map(trigger_fields, lines)))} of {len(lines)}"
    )
    with tempfile.TemporaryDirectory(prefix="confide-bench-") as name:
        files = memory(chance, list(notes))
        root = Path(name) / "project"
        for path, text in files.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text, encoding="utf-8")
        asyncio.run(judged(files, root, chance, covered, is_verbose=arguments.verbose))
    if not arguments.no_time:
        live(files, covered, sessions.uncovered(random.Random(SEED), UNCOVERED))


def memory(chance: random.Random, notes: list[str]) -> dict[str, str]:
    """A year of daily logs, with the notes among their lines."""
    files = logs(DAYS)
    for note, path in zip(notes, chance.sample(sorted(files), len(notes)), strict=True):
        indented = note.replace("\n", "\n  ")
        files[path] = f"{files[path]}- {indented}\n"
    return files


async def judged(
    files: Mapping[str, str],
    root: Path,
    chance: random.Random,
    covered: Mapping[str, list[sessions.Failure]],
    *,
    is_verbose: bool,
) -> None:
    """Ask about each call, and print what came."""
    daemon = Daemon(files)
    recall = ActionRecall(daemon)
    place = ActionPlace(PROJECT, str(root), str(root / "none"))
    print(f"{len(files)} files, {daemon.size} entries that concern an action")

    async def lines(asked: dict[str, object]) -> list[str]:
        return [line.line for line in await recall.fitting(place, {"cwd": str(root), **asked})]

    def tell(what: str, one: sessions.Failure, first: list[str]) -> None:
        if is_verbose:
            print(f"  {what}: {one.command}\n    {one.output!r}\n    {one.note!r}\n    {first}")

    for name, some in covered.items():
        met, wrong, most = 0, 0, 0
        for one in some:
            first = (await lines(failed(one)))[:1]
            is_met = is_of(one, first)
            met += is_met
            wrong += bool(first) and not is_met
            if not is_met:
                tell("missed", one, first)
            most = max([most, *(len(block.frame_lines([line]).encode()) for line in first)])
        print(f"{name:40} {100 * met / len(some):5.1f} % met (goal: 95), {wrong} by another note, {most} bytes at most")
    some = sessions.uncovered(chance, UNCOVERED)
    seen = 0
    for one in some:
        if found := await lines(failed(one)):
            seen += 1
            tell("shown", one, found[:1])
    print(f"{'failures that no note covers':40} {seen} of {len(some)} see a line")
    calls, spent = sessions.benign(chance, BENIGN), list[float]()
    seen = 0
    for number, (tool, what, output) in enumerate(calls):
        given: dict[str, object] = (
            {"command": what, "paths": []} if tool == "Bash" else {"command": "", "paths": [what]}
        )
        before = await lines({"kind": events.BEFORE, **given})
        after = await lines({"kind": events.AFTER, "output": output, "failed": None, **given})
        seen += bool(before or after)
        if before or after:
            tell("shown", sessions.Failure(what, output, ""), (before + after)[:1])
        if number % CALLS == 0:
            spent.append(0.0)
        spent[-1] += sum(tokens(line) for line in (before + after)[:1])
    print(f"{'benign calls':40} {100 * seen / len(calls):5.2f} % of {len(calls)} see a line (goal: < 0.5)")
    print(f"{'tokens of 100 benign calls':40} {max(spent):5.0f} at most, without what was shown once (goal: 400)")


def is_of(one: sessions.Failure, shown: list[str]) -> bool:
    """Return True if the note of a failure is among what was shown."""
    words = one.note.strip("`").split("\n")[-1][-40:][:20]
    return any(words in html.unescape(line) for line in shown)


def failed(one: sessions.Failure) -> dict[str, object]:
    return {"kind": events.AFTER, "command": one.command, "paths": [], "output": one.output, "failed": True}


def live(
    files: Mapping[str, str], covered: Mapping[str, list[sessions.Failure]], uncovered: list[sessions.Failure]
) -> None:
    """Ask a real session about each failure, which also searches by meaning, and time hooks beside it, each in turn with a bare Python
    that asks the same socket.
    """
    with tempfile.TemporaryDirectory(prefix="confide-bench-") as name:
        machine = Machine(Path(name), "bench", has_model=True)
        for path, text in files.items():
            machine.write(path, text)
        sync = [CONFIDE, "sync"]
        subprocess.run(sync, cwd=machine.project, env=machine.env, check=True, stdout=subprocess.DEVNULL, timeout=900)
        try:
            with Wire(machine, start=subprocess.Popen) as wire:
                wire.open()
                path = machine.home / "proxy/hooks.sock"
                wait_until("somebody to listen", path.exists)
                known = covered["covered failures"][0]
                wait_until("the entries", lambda: bool(answered(path, machine, known, str(time.monotonic()))))
                for name, some in (*covered.items(), ("failures that no note covers", uncovered)):
                    shown = [asked(path, machine, one, f"{name} {number}") for number, one in enumerate(some)]
                    met = sum(is_of(one, said) for one, said in zip(some, shown, strict=True) if one.note)
                    other = sum(map(bool, shown)) - met
                    print(f"{name:40} {met} of {len(some)} met in a real session, {other} by another note")
                taken: dict[str, list[Taken]] = {"bare": [], "before": [], "after": []}
                for number in range(ROUNDS):
                    told = event(machine, number)
                    taken["bare"].append(timed([sys.executable, "-c", _ASKING, str(path)], told["before"], machine))
                    for kind in ("before", "after"):
                        taken[kind].append(timed([CONFIDE, "hook"], told[kind], machine))
                in_process = opencode_ms(machine, path)
        finally:
            machine.stop_local_daemon()
    p95 = {kind: sorted(one.ms for one in some)[int(len(some) * 0.95) - 1] for kind, some in taken.items()}
    for kind, goal in (("before", 1.8), ("after", 3.0)):
        median = statistics.median(one.ms for one in taken[kind]) / statistics.median(one.ms for one in taken["bare"])
        print(
            f"hook {kind} a tool: p95 {p95[kind]:.0f} ms, {p95[kind] / p95['bare']:.2f} times a bare Python's {p95['bare']:.0f} ms "
            f"(goal: {goal}); median {median:.2f} times"
        )
    if in_process:
        at = sorted(in_process)[int(len(in_process) * 0.95) - 1]
        median = statistics.median(in_process)
        print(f"in OpenCode's own process: p95 {at:.1f} ms (goal: 10); median {median:.1f} ms")


def opencode_ms(machine: Machine, path: Path) -> list[float]:
    """Time the tool calls of Confide's script for OpenCode in Node.js; none without Node.js."""
    if (node := shutil.which("node")) is None:
        return []
    given = [(PLUGIN / "opencode/confide.js").as_uri(), str(path), str(machine.project), str(ROUNDS + WARM_UP)]
    command = [node, "--input-type=module", "-e", _OPENCODE, *given]
    done = subprocess.run(command, env=machine.env, capture_output=True, text=True, check=True, timeout=60)
    return [float(line) for line in done.stdout.split()][WARM_UP:]


def asked(path: Path, machine: Machine, one: sessions.Failure, session: str) -> list[str]:
    """Ask about a failure until the session shows a note: on a busy machine an answer may come too late for its hook."""
    for number in range(TRIES):
        if said := answered(path, machine, one, f"{session} {number}"):
            return said
    return []


def answered(path: Path, machine: Machine, one: sessions.Failure, session: str) -> list[str]:
    """Return the lines that a session shows after a failure; none if no note covers it."""
    told = {**failed(one), "cwd": str(machine.project), "session": session}
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(30)
        connection.connect(str(path))
        connection.sendall(json.dumps(told).encode() + b"\n")
        with connection.makefile("rb") as answer:
            context = json.loads(answer.readline()).get("context", "")
    return [line for line in context.split("\n") if line.startswith("- ")]


def event(machine: Machine, number: int) -> dict[str, bytes]:
    """The events of one call: before it, and after it has failed with a message that no note has."""
    told: dict[str, Any] = {"session_id": f"s{number}", "cwd": str(machine.project), "tool_name": "Bash"}
    told["tool_input"] = {"command": "npx prisma migrate reset --force"}
    error = f"Exit code 1\nError: the heron service did not answer to request {number} of the orders queue"
    return {
        "before": json.dumps({**told, "hook_event_name": "PreToolUse"}).encode(),
        "after": json.dumps({**told, "hook_event_name": "PostToolUseFailure", "error": error}).encode(),
    }


if __name__ == "__main__":
    main()
