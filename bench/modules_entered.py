"""How many modules and functions of ours one `memory_search` and one plain `memory_store` run through, and what goes over the wire besides.

A real `confide mcp` is asked through a real daemon; both start with a `sitecustomize` of this bench's own, whose profiling hook notes,
while a call is on its way, the modules and functions whose code runs and the requests that are made. Lambdas,
comprehensions and bodies of classes are no functions here. The programs themselves know nothing of it.
"""

from __future__ import annotations

import argparse
import mmap
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.support.programs.processes import Machine
from tests.support.programs.wire import Wire

ROUNDS = 9
WARM_UP = 3
QUIET_S = 1.0
"""Between two calls: what one sets off must not count for the next, and shows as its aftermath."""
MOST_SEARCHED, MOST_STORED, MOST_REQUESTS = (45, 240), (50, 380), 2
FOLDER_KEY: Final = "CONFIDE_BENCH_ENTERED"
BESIDE: Final = {
    "confide_proxy.sync.watching.watcher": "hears from the system that a file was written, in a thread of its own; no answer waits for it",
}
"""Entered while a call is on its way, and not by it."""
WHY: Final = {
    "is-sensitive": "may this text go in clear into the file that it is put into?",
    "records": "the records of what was sealed, before the text that names them",
    "record": "is a word of the question sealed in this space?",
    "flush": "the daemon has the file sent first, so that an edit on the disk is not lost",
    "apply": "the daemon has the file written here, before the tool answers",
    "put": "a file that changed here goes up",
    "compare": "the files of a folder against the daemon's",
    "ping": "is anybody there? after a second without an answer",
    "workplace": "where does the agent work, for what it is told of its project?",
    "backlog": "how much waits on that machine?",
}

OFFLINE: Final = "confide_proxy.offline.local_tools"
"""Entered where this machine answers by itself, since the daemon is too slow."""

HOOK: Final = f'''
import mmap, os, sys, threading

folder = os.environ["{FOLDER_KEY}"]
gate = mmap.mmap(os.open(os.path.join(folder, "gate"), os.O_RDONLY), 1, prot=mmap.PROT_READ)
told = os.open(os.path.join(folder, "told"), os.O_WRONLY | os.O_APPEND)
side = "daemon" if "confide_daemon" in sys.orig_argv else "proxy"
known, seen, of = {{}}, set(), 0

def module_of(file):
    parts = file.split(os.sep)
    ours = next((at for at, part in enumerate(parts) if part.startswith("confide_") and "." not in part), None)
    return ".".join(parts[ours:]).removesuffix(".py").removesuffix(".__init__") if ours is not None else ""

def hook(frame, event, argument):
    global of
    number = gate[0]
    if not number or event != "call":
        return
    if number != of:
        seen.clear()
        of = number
    code = frame.f_code
    file = code.co_filename
    module = known.get(file)
    if module is None:
        module = known[file] = module_of(file)
    if module and module not in seen:
        seen.add(module)
        os.write(told, f"{{number}} {{side}} module {{module}}\\n".encode())
    if module and code not in seen and code.co_name[0] != "<" and code.co_flags & 1:
        seen.add(code)
        os.write(told, f"{{number}} {{side}} function {{module}}:{{code.co_qualname}}\\n".encode())
    if code.co_name == "encode_request" and module:
        os.write(told, f"{{number}} {{side}} request {{frame.f_locals['op']}}\\n".encode())

threading.setprofile(hook)
sys.setprofile(hook)
'''


class Entered(NamedTuple):
    """What was noted between one question and its answer, and between that and the next question."""

    modules: dict[str, str]
    functions: frozenset[tuple[str, str]]
    """Side and name."""
    requests: list[str]
    aftermath: list[str]


class Gate:
    """Tells the hooks in the programs which call is on its way; they write down what they see."""

    def __init__(self, folder: Path) -> None:
        (folder / "sitecustomize.py").write_text(HOOK)
        (folder / "gate").write_bytes(b"\0")
        (folder / "told").touch()
        self.env = {FOLDER_KEY: str(folder), "PYTHONPATH": str(folder)}
        self._told = folder / "told"
        with (folder / "gate").open("r+b") as file:
            self._byte = mmap.mmap(file.fileno(), 1)
        self._number = 0

    def watched(self, ask: Callable[[], dict[str, Any]]) -> Entered:
        """Ask, and what that set off."""
        noted = len(self._told.read_bytes())
        with self._open():
            answer = ask()
        assert not answer.get("isError"), answer
        with self._open():
            time.sleep(QUIET_S)
        lines = [line.split() for line in self._told.read_bytes()[noted:].decode().splitlines()]
        own, after = str(self._number - 1), str(self._number)
        modules: dict[str, str] = {}
        functions = frozenset((side, name) for number, side, kind, name in lines if (number, kind) == (own, "function"))
        for number, side, kind, name in lines:
            if (number, kind) == (own, "module"):
                modules[name] = side if modules.get(name, side) == side else "both"
        if OFFLINE in modules:
            sys.exit("the daemon did not answer in time: this machine is too busy to count on")
        requests = {
            when: [f"{side}: {name}" for number, side, kind, name in lines if (number, kind) == (when, "request")]
            for when in (own, after)
        }
        return Entered(modules, functions, requests[own], requests[after])

    @contextmanager
    def _open(self) -> Iterator[None]:
        self._number += 1
        assert self._number < 256, "a byte numbers the calls"
        self._byte[0] = self._number
        yield
        self._byte[0] = 0


def main() -> None:
    """Ask, store, and print what each took."""
    parser = argparse.ArgumentParser(prog="python -m bench.modules_entered", description=__doc__)
    parser.add_argument(
        "--list", action="store_true", help="name the modules and functions, and on which side each was entered"
    )
    is_listed = parser.parse_args().list
    with tempfile.TemporaryDirectory(prefix="confide-bench-") as name:
        folder = Path(name)
        (folder / "hook").mkdir()
        gate = Gate(folder / "hook")
        machine = Machine(folder, "bench", has_model=True)
        machine.env |= gate.env
        machine.write("MEMORY.md", "# Bench\n\nWe measure how far a call goes.\n")
        try:
            with Wire(machine, start=subprocess.Popen) as wire:
                wire.open()
                wire.tool("memory_sync", {})
                searches, stores = [], []
                for number in range(ROUNDS + WARM_UP):
                    said = f"The region of deployment {number} is decided."
                    stored, asked = {"content": said}, {"query": f"how far does call {number} go"}
                    stores.append(gate.watched(partial(wire.tool, "memory_store", stored)))
                    searches.append(gate.watched(partial(wire.tool, "memory_search", asked)))
        finally:
            machine.stop_local_daemon()
    _show("memory_search", searches[WARM_UP:], MOST_SEARCHED, is_listed=is_listed)
    _show("memory_store", stores[WARM_UP:], MOST_STORED, is_listed=is_listed)


def _show(tool: str, rounds: list[Entered], most: tuple[int, int], *, is_listed: bool) -> None:
    # What a clock set off just then is in few rounds.
    counts = Counter(module for each in rounds for module in each.modules)
    seen = sorted(module for module, count in counts.items() if 2 * count > len(rounds))
    usual = [module for module in seen if module not in BESIDE]
    sides = Counter(rounds[-1].modules.get(module, "one of them, at times") for module in usual)
    ran = Counter(name for each in rounds for name in each.functions)
    functions = sorted(
        name for name, count in ran.items() if 2 * count > len(rounds) and name[1].partition(":")[0] not in BESIDE
    )
    print(
        f"{tool}: {len(usual)} modules entered (goal: {most[0]}); {', '.join(f'{n} {side}' for side, n in sides.items())}"
    )
    print(f"  {len(functions)} functions at both ends (goal: {most[1]})")
    if is_listed:
        print("".join(f"    {rounds[-1].modules.get(module, '-'):6} {module}\n" for module in usual), end="")
        print("".join(f"    {side:6} {name}\n" for side, name in functions), end="")
    for module in BESIDE.keys() & {*seen}:
        print(f"  beside it: {module}, which {BESIDE[module]}")
    for what, lists in (
        (f"besides the call (goal: {MOST_REQUESTS})", [each.requests for each in rounds]),
        ("after its answer", [each.aftermath for each in rounds]),
    ):
        shown, often = Counter(map(tuple, lists)).most_common(1)[0]
        print(f"  requests {what}: {len(shown)} in {often} of {len(rounds)} rounds")
        for request in shown:
            print(f"    {request:24} {WHY.get(request.split()[-1], '')}")


if __name__ == "__main__":
    main()
