"""What a daemon that serves one person takes of memory: after a thousand searches, and while its model rests.

    python -m bench daemon_memory

One machine, thirty notes, a thousand questions that were not asked before. Then nobody asks anything until the model is dropped
(`unload_after_s`), and a question has it loaded again.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
from tests.support.daemon.loopback import Machine
from tests.support.programs import forked
from tests.support.programs.processes import Daemon, running_daemon

from confide_crypto.keys.identity import Identity, format_public_key, parse_daemon_key
from confide_crypto.transport.open_channel import connect

NOTES = 30
SEARCHES = 1000
UNLOAD_AFTER_S = 5
RESTS = 3
MOST_MB, MOST_RESTING_MB, MOST_BACK_MS = 150.0, 90.0, 300.0
CONFIG = f"""
[embedding]
unload_after_s = {UNLOAD_AFTER_S}
[at_rest]
custody = "server"
"""


def megabytes(process: psutil.Process) -> tuple[float, float]:
    """Resident, and of it anonymous."""
    anonymous = sum(part.anonymous for part in process.memory_maps())
    return process.memory_info().rss / 1e6, anonymous / 1e6


async def ask(client: Any, question: str) -> float:
    """A search by meaning, milliseconds."""
    started = time.perf_counter()
    result = await client.call_tool("memory_search", {"query": question})
    elapsed = (time.perf_counter() - started) * 1e3
    assert not result.is_error, result
    said = str(result.structured_content)
    print(f"  a question {'by words alone' if 'keywords alone' in said else 'by meaning'}: {elapsed:.0f} ms")
    return elapsed


async def measure(daemon: Daemon) -> bool:
    """Print the rows; whether the figures are kept."""
    assert daemon._process is not None
    process = psutil.Process(daemon._process.pid)
    static = parse_daemon_key(daemon.run("key").strip())
    caller = Identity.generate()
    daemon.run("device", "add", format_public_key(caller.public_key, "worker"))
    async with Machine(await connect(f"ws://127.0.0.1:{daemon.port}/", caller, static)) as machine:
        await machine.attach()
        for number in range(NOTES):
            text = f"# Parcel {number}\n\nThe parcel API number {number} listens on port {8000 + number}.\n"
            await machine.put(f"memory/parcel-{number}.md", text)
        async with machine.mcp() as client:
            for number in range(SEARCHES):
                await client.call_tool("memory_search", {"query": f"where does parcel {number} listen"})
            used = megabytes(process)
            print(f"after {SEARCHES:,} searches: {used[0]:.0f} MB resident, {used[1]:.0f} of them anonymous")
            resting, back = (0.0, 0.0), 0.0
            for turn in range(RESTS):
                await asyncio.sleep(2 * UNLOAD_AFTER_S)
                resting = megabytes(process)
                print(f"the model rests: {resting[0]:.0f} MB resident, {resting[1]:.0f} of them anonymous")
                back = max(back, await ask(client, f"which port has the API in turn {turn}"))
    rows = (("MB used", used[0], MOST_MB), ("MB at rest", resting[0], MOST_RESTING_MB), ("ms back", back, MOST_BACK_MS))
    for name, value, most in rows:
        print(f"{name:10} {value:6.0f}  must be <= {most:g}{'' if value <= most else '  NOT KEPT'}")
    return all(value <= most for _, value, most in rows)


def main(_arguments: Sequence[str] = ()) -> int:
    """Print the figures; 1 if one is not kept."""
    forked.IS_SUPPORTED = False  # type: ignore[misc] # a process that was forked weighs what its parent has loaded
    with tempfile.TemporaryDirectory(prefix="confide-bench-") as folder:
        root = Path(folder)
        (root / "server-home").mkdir()
        (root / "server-home" / "daemon.toml").write_text(CONFIG)
        with running_daemon(root, has_model=True) as daemon:
            return int(not asyncio.run(measure(daemon)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
