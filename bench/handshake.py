"""What a handshake costs: `connect` to a real daemon on loopback, up to the welcome, and what a stranger's message 1 costs the daemon.

    python -m bench handshake

The reference is a plain websocket opened on the same machine in the same round. The budget: half of all within 5 ms.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path

from tests.support.programs.processes import Daemon, running_daemon
from websockets.asyncio.client import connect as dial_websocket
from websockets.asyncio.server import ServerConnection

from bench.other_process import serving
from confide_crypto.errors import HandshakeError
from confide_crypto.handshake.handshake import ClientHandshake, DaemonHandshake
from confide_crypto.keys.identity import Identity, format_public_key, parse_daemon_key
from confide_crypto.transport.open_channel import connect, websocket_options

ROUNDS = 7
TIMES = 60
PAUSE_S = 1.5
"""Between two rounds: the daemon takes 100 handshakes at once, and 50 more a second."""
MAX_P50_MS = 5.0
CPU_ROUNDS = 7
CPU_TIMES = 300
SERVER = Identity(bytes(range(32)))


async def stay_open(ws: ServerConnection) -> None:
    await ws.wait_closed()


async def time_opening(open_one: Callable[[], Awaitable[Callable[[], Awaitable[None]]]]) -> list[float]:
    """Milliseconds of opening each; `open_one` returns how to close it."""
    times = []
    for _ in range(TIMES):
        started = time.perf_counter()
        close = await open_one()
        times.append((time.perf_counter() - started) * 1e3)
        await close()
    return times


async def run_rounds(daemon: Daemon, plain_port: int) -> tuple[list[list[float]], list[list[float]]]:
    """The rounds of `connect`, and those of the reference."""
    static = parse_daemon_key(daemon.run("key").strip())
    caller = Identity.generate()
    daemon.run("device", "add", format_public_key(caller.public_key, "bench"))

    async def open_sealed() -> Callable[[], Awaitable[None]]:
        return (await connect(f"ws://127.0.0.1:{daemon.port}/", caller, static)).close

    async def open_plain() -> Callable[[], Awaitable[None]]:
        return (await dial_websocket(f"ws://127.0.0.1:{plain_port}/", proxy=None, **websocket_options())).close

    sealed, plain = [], []
    for _ in range(ROUNDS):
        plain.append(await time_opening(open_plain))
        sealed.append(await time_opening(open_sealed))
        await asyncio.sleep(PAUSE_S)
    return sealed, plain


def time_message1(message: bytes | None = None) -> float:
    """Microseconds of the daemon's processor for one message 1: `message`, which it reads and answers, or garbage."""
    rounds = []
    for _ in range(CPU_ROUNDS):
        messages = [message or os.urandom(1256) for _ in range(CPU_TIMES)]
        started = time.process_time()
        for each in messages:
            handshake = DaemonHandshake(SERVER)
            with suppress(HandshakeError):
                handshake.read_message1(each)
                handshake.write_message2()
        rounds.append((time.process_time() - started) / CPU_TIMES * 1e6)
    return statistics.median(rounds)


def main(_arguments: Sequence[str] = ()) -> int:
    """Print the table; 1 if the budget is not met."""
    with serving(stay_open) as other, tempfile.TemporaryDirectory(prefix="confide-bench-") as folder:
        root = Path(folder)
        (root / "server-home").mkdir()
        (root / "server-home" / "daemon.toml").write_text('[embedding]\nprovider = "none"\n')
        with running_daemon(root, has_model=True) as daemon:
            sealed_rounds, plain_rounds = asyncio.run(run_rounds(daemon, other.ports[0]))
    recorded = ClientHandshake(Identity.generate(), SERVER.static_key).write_message1()
    return show(sealed_rounds, plain_rounds, time_message1(), time_message1(recorded))


def show(sealed: list[list[float]], plain: list[list[float]], garbage_us: float, replayed_us: float) -> int:
    """Medians over the rounds."""
    p50 = statistics.median(map(statistics.median, sealed))
    reference = statistics.median(map(statistics.median, plain))
    ratio = statistics.median(statistics.median(s) / statistics.median(p) for s, p in zip(sealed, plain, strict=True))
    print(
        f"connect to welcome     p50 {p50:.2f} ms (must be <= {MAX_P50_MS:g})   p95 {statistics.median(map(p95, sealed)):.2f} ms"
    )
    print(
        f"plain websocket        p50 {reference:.2f} ms, p95 {statistics.median(map(p95, plain)):.2f} ms   ratio {ratio:.1f}x"
    )
    print(
        f"garbage message 1      {garbage_us:.0f} us of the daemon's processor; 50 a second are {garbage_us * 50 / 1e4:.2f} % of a core"
    )
    print(
        f"replayed message 1     {replayed_us:.0f} us with its answer;           50 a second are {replayed_us * 50 / 1e4:.2f} %"
    )
    return 0 if p50 <= MAX_P50_MS else 1


def p95(values: list[float]) -> float:
    """The 95th percentile."""
    return statistics.quantiles(values, n=20)[-1]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
