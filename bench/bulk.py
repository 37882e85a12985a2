"""What the seal costs in bulk: a body over a stream against plain websocket messages of the same frame size, two processes on loopback.

    python -m bench.bulk [--rounds 7] [--mib 96]

Every round runs plain and sealed one after the other, so that a noisy machine hurts both; both end with an answer of the other process
that everything has come. Medians over the rounds. The budget: at least half of plain.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

from tests.support.crypto.channels import Door, no_message, no_request
from websockets.asyncio.client import connect as dial_websocket
from websockets.asyncio.server import ServerConnection

from bench.other_process import CLIENT, DAEMON, serving
from confide_crypto.channel.protocol import BUCKETS
from confide_crypto.handshake.noise import TAG_LENGTH
from confide_crypto.transport.inbox import Body
from confide_crypto.transport.open_channel import accept, connect, websocket_options

FRAME = BUCKETS[-1] + TAG_LENGTH
PART = 256 * 1024
MIN_RATIO = 0.5
DEADLINE_S = 120.0


async def take_sealed(ws: ServerConnection) -> None:
    connection = await accept(ws, DAEMON, Door(CLIENT.public_key))

    async def on_stream(_op: str, _params: dict[str, Any], body: Body) -> dict[str, Any]:
        return {"length": sum([len(piece) async for piece in body])}

    await connection.serve(on_message=no_message, on_request=no_request, on_stream=on_stream)


async def take_plain(ws: ServerConnection) -> None:
    length = 0
    async for message in ws:
        length += len(message)
        if len(message) < FRAME:
            await ws.send(str(length))
            length = 0


async def parts(length: int) -> AsyncIterator[bytes]:
    part = bytes(PART)
    for _ in range(length // PART):
        yield part


async def send_plain(port: int, length: int) -> float:
    """MB/s, one way."""
    async with dial_websocket(f"ws://127.0.0.1:{port}/", proxy=None, **websocket_options()) as ws:
        started = time.perf_counter()
        async for part in parts(length):
            for begin in range(0, PART - FRAME + 1, FRAME):
                await ws.send(part[begin : begin + FRAME])
        await ws.send(b"")
        taken = int(await ws.recv())
        return taken / (time.perf_counter() - started) / 1e6


async def send_sealed(port: int, length: int) -> float:
    """MB/s, one way."""
    connection = await connect(f"ws://127.0.0.1:{port}/", CLIENT, DAEMON.static_key)
    async with asyncio.TaskGroup() as group:
        group.create_task(connection.serve(on_message=no_message, on_request=no_request))
        started = time.perf_counter()
        answer = await connection.upload("bench", {}, parts(length), timeout_s=DEADLINE_S)
        speed: float = answer["length"] / (time.perf_counter() - started) / 1e6
        await connection.close()
    return speed


async def run_rounds(plain_port: int, sealed_port: int, rounds: int, length: int) -> dict[str, float]:
    plain, sealed = [], []
    for _ in range(rounds):
        plain.append(await send_plain(plain_port, length))
        sealed.append(await send_sealed(sealed_port, length))
    ratios = [theirs / ours for ours, theirs in zip(plain, sealed, strict=True)]
    return {
        "plain_mb_s": statistics.median(plain),
        "sealed_mb_s": statistics.median(sealed),
        "ratio": statistics.median(ratios),
        "ratio_worst": min(ratios),
    }


def main(arguments: Sequence[str] = ()) -> int:
    """Print the numbers; 1 if the budget is not met."""
    parser = argparse.ArgumentParser(prog="python -m bench.bulk", description="What the seal costs in bulk.")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--mib", type=int, default=96)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(arguments)
    with serving(take_plain, take_sealed) as other:
        result = asyncio.run(run_rounds(other.ports[0], other.ports[1], options.rounds, options.mib * 1024 * 1024))
    within = result["ratio"] >= MIN_RATIO
    if options.json:
        print(json.dumps({**result, "min_ratio": MIN_RATIO, "ok": within}))
    else:
        print(
            f"frames of {FRAME} bytes  plain {result['plain_mb_s']:.0f} MB/s   sealed stream {result['sealed_mb_s']:.0f} MB/s"
        )
        print(
            f"ratio                 {result['ratio']:.2f} (worst round {result['ratio_worst']:.2f}), must be >= {MIN_RATIO}"
        )
    return 0 if within else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
