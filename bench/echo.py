"""What the seal costs: a 2 KiB echo through the whole channel against a plain websocket, two processes on loopback.

    python -m bench.echo [--rounds 7] [--trips 1500]

Every round runs plain and sealed one after the other, so that a noisy machine hurts both. Medians over the rounds. The budget: a sealed
round trip within 1.5 times a plain one.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from tests.support.crypto.channels import Door, no_request
from websockets.asyncio.client import connect as dial_websocket
from websockets.asyncio.server import ServerConnection

from bench.other_process import CLIENT, DAEMON, serving
from confide_crypto.transport.open_channel import Connection, accept, connect, websocket_options

MESSAGE = bytes(2048)
MAX_RATIO = 1.5


async def echo_sealed(ws: ServerConnection) -> None:
    connection = await accept(ws, DAEMON, Door(CLIENT.public_key))

    async def on_request(op: str, body: dict[str, Any]) -> dict[str, Any]:
        return body if op == "echo" else {}

    await connection.serve(on_message=connection.send_message, on_request=on_request)


async def echo_plain(ws: ServerConnection) -> None:
    async for message in ws:
        await ws.send(message)


async def time_trips(trip: Callable[[], Awaitable[object]], count: int) -> list[float]:
    """Microseconds of each of `count` round trips."""
    times = []
    for _ in range(count):
        started = time.perf_counter()
        await trip()
        times.append((time.perf_counter() - started) * 1e6)
    return times


async def measure_plain(port: int, trips: int) -> dict[str, Any]:
    async with dial_websocket(f"ws://127.0.0.1:{port}/", proxy=None, **websocket_options()) as ws:

        async def trip() -> None:
            await ws.send(MESSAGE)
            await ws.recv()

        await time_trips(trip, 100)
        return {"trips": await time_trips(trip, trips)}


async def measure_sealed(port: int, trips: int) -> dict[str, Any]:
    connection = await connect(f"ws://127.0.0.1:{port}/", CLIENT, DAEMON.static_key)
    result: dict[str, Any] = {}
    rally = Rally(connection, 100 + trips)
    text = MESSAGE.decode()

    async def request() -> None:
        await connection.request("echo", {"text": text})

    async with asyncio.TaskGroup() as group:
        group.create_task(connection.serve(on_message=rally.on_message, on_request=no_request))
        await rally.serve_first()
        result["trips"] = rally.times[100:]
        result["requests"] = await time_trips(request, trips // 3)
        await connection.close()
    return result


class Rally:
    """Sends the next message from the callback that gets the last one's echo, as the tunnel writes to its client from there."""

    def __init__(self, connection: Connection, count: int) -> None:
        self.times: list[float] = []
        self._connection = connection
        self._count = count
        self._over = asyncio.Event()
        self._started = 0.0

    async def serve_first(self) -> None:
        self._started = time.perf_counter()
        await self._connection.send_message(MESSAGE)
        await self._over.wait()

    async def on_message(self, _data: bytes) -> None:
        now = time.perf_counter()
        self.times.append((now - self._started) * 1e6)
        if len(self.times) == self._count:
            self._over.set()
            return
        self._started = now
        await self._connection.send_message(MESSAGE)


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


async def run_rounds(plain_port: int, sealed_port: int, rounds: int, trips: int) -> dict[str, Any]:
    plain, sealed = [], []
    for _ in range(rounds):
        plain.append(await measure_plain(plain_port, trips))
        sealed.append(await measure_sealed(sealed_port, trips))
    ratios = [statistics.median(s["trips"]) / statistics.median(p["trips"]) for p, s in zip(plain, sealed, strict=True)]

    def median(rows: list[dict[str, Any]], key: str) -> float:
        return statistics.median(
            statistics.median(row[key]) if isinstance(row[key], list) else row[key] for row in rows
        )

    return {
        "plain_us": median(plain, "trips"),
        "sealed_us": median(sealed, "trips"),
        "sealed_p99_us": statistics.median(percentile(row["trips"], 0.99) for row in sealed),
        "request_us": median(sealed, "requests"),
        "ratio": statistics.median(ratios),
        "ratio_worst": max(ratios),
    }


def places(value: float) -> int:
    """Decimals worth printing."""
    return 2 if value < 10 else 0


def main(arguments: Sequence[str] = ()) -> int:
    """Print the numbers; 1 if the budget is not met."""
    parser = argparse.ArgumentParser(prog="python -m bench.echo", description="What the seal costs.")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--trips", type=int, default=1500)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(arguments)
    with serving(echo_plain, echo_sealed) as other:
        result = asyncio.run(run_rounds(other.ports[0], other.ports[1], options.rounds, options.trips))
    within = result["ratio"] <= MAX_RATIO
    if options.json:
        print(json.dumps({**result, "max_ratio": MAX_RATIO, "ok": within}))
    else:
        r = {name: f"{value:.{places(value)}f}" for name, value in result.items()}
        print(
            f"2 KiB echo, p50       plain {r['plain_us']} us   sealed {r['sealed_us']} us   p99 {r['sealed_p99_us']} us"
        )
        print(f"ratio                 {r['ratio']} (worst round {r['ratio_worst']}), must be <= {MAX_RATIO}")
        print(f"2 KiB request, p50    {r['request_us']} us (JSON both ways, one task per request)")
    return 0 if within else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
