"""Whether a session grows: a million records through one channel, two processes on loopback.

    python -m bench.growth [--records 1000000]

Echoes of 200 bytes, requests and bodies in turn. Resident memory of both processes is read after a tenth of the records (everything is
loaded and warm by then) and at the end. The budget: at most 2 MiB more in either, which is noise of the allocator.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import Sequence
from typing import Any

import psutil
from tests.support.crypto.channels import Door, no_request
from websockets.asyncio.server import ServerConnection

from bench.other_process import CLIENT, DAEMON, serving
from confide_crypto.transport.inbox import Body
from confide_crypto.transport.open_channel import Connection, accept, connect

MAX_GROWTH_MIB = 2.0
BATCH = 64


async def answer(ws: ServerConnection) -> None:
    connection = await accept(ws, DAEMON, Door(CLIENT.public_key))

    async def on_request(_op: str, body: dict[str, Any]) -> dict[str, Any]:
        return body

    async def on_stream(_op: str, _params: dict[str, Any], body: Body) -> dict[str, Any]:
        return {"length": len(await body.read(1 << 20))}

    await connection.serve(on_message=connection.send_message, on_request=on_request, on_stream=on_stream)


class Load:
    """One connection, and how many records have gone through it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._heard: asyncio.Queue[bytes] = asyncio.Queue()
        self.records = 0

    async def on_message(self, data: bytes) -> None:
        self._heard.put_nowait(data)

    async def step(self) -> None:
        """A batch of messages that come back, a few requests, and a body."""
        for _ in range(BATCH):
            await self._connection.send_message(bytes(200))
        for _ in range(BATCH):
            await self._heard.get()
        for _ in range(4):
            await self._connection.request("echo", {"text": "x" * 200})
        await self._connection.upload("take", {}, bytes(100_000), timeout_s=30)
        self.records += 2 * BATCH + 2 * 4 + 1 + 7 + 1 + 1


def resident(pid: int) -> float:
    """MiB."""
    return float(psutil.Process(pid).memory_info().rss) / 2**20


async def run(port: int, server_pid: int, records: int) -> dict[str, float]:
    connection = await connect(f"ws://127.0.0.1:{port}/", CLIENT, DAEMON.static_key)
    load = Load(connection)
    pids = {"client": os.getpid(), "daemon": server_pid}
    started = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        group.create_task(connection.serve(on_message=load.on_message, on_request=no_request))
        while load.records < records // 10:
            await load.step()
        early = {name: resident(pid) for name, pid in pids.items()}
        while load.records < records:
            await load.step()
        late = {name: resident(pid) for name, pid in pids.items()}
        await connection.close()
    growth = {f"{name}_growth_mib": late[name] - early[name] for name in pids}
    sizes = {f"{name}_mib": late[name] for name in pids}
    return {"records": load.records, "seconds": time.perf_counter() - started, **sizes, **growth}


def main(arguments: Sequence[str] = ()) -> int:
    """Print the numbers; 1 if the budget is not met."""
    parser = argparse.ArgumentParser(prog="python -m bench.growth", description="Whether a session grows.")
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(arguments)
    with serving(answer) as other:
        result = asyncio.run(run(other.ports[0], other.pid, options.records))
    within = max(result["client_growth_mib"], result["daemon_growth_mib"]) <= MAX_GROWTH_MIB
    if options.json:
        print(json.dumps({**result, "max_growth_mib": MAX_GROWTH_MIB, "ok": within}))
    else:
        print(f"{result['records']:,} records in {result['seconds']:.0f} s, from the first tenth to the end:")
        for name in ("client", "daemon"):
            grown, size = result[f"{name}_growth_mib"], result[f"{name}_mib"]
            print(f"{name:<8} {grown:+.2f} MiB (of {size:.0f}), must be <= {MAX_GROWTH_MIB:.0f}")
    return 0 if within else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
