"""Websocket servers in a process of their own, so that both ends of what is measured have a processor."""

from __future__ import annotations

import asyncio
import multiprocessing
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection as Pipe

from websockets.asyncio.server import ServerConnection, serve

from confide_crypto.keys.identity import Identity
from confide_crypto.transport.open_channel import websocket_options

CLIENT, DAEMON = Identity(bytes(range(32))), Identity(bytes(range(32, 64)))
END_S = 5.0

Handler = Callable[[ServerConnection], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class OtherProcess:
    """The process, and the loopback port of each of its servers."""

    pid: int
    ports: list[int]


@contextmanager
def serving(*handlers: Handler) -> Iterator[OtherProcess]:
    """One server for each handler, which must be a function of a module; they end with the block."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_run, args=(theirs, handlers))
    process.start()
    assert process.pid is not None
    try:
        yield OtherProcess(process.pid, ours.recv())
    finally:
        ours.send(None)
        process.join(END_S)
        if process.is_alive():
            process.kill()


def _run(pipe: Pipe, handlers: tuple[Handler, ...]) -> None:
    async def run() -> None:
        async with AsyncExitStack() as stack:
            servers = [
                await stack.enter_async_context(serve(handler, "127.0.0.1", 0, **websocket_options()))
                for handler in handlers
            ]
            pipe.send([server.sockets[0].getsockname()[1] for server in servers])
            await asyncio.get_running_loop().run_in_executor(None, pipe.poll, None)

    asyncio.run(run())
