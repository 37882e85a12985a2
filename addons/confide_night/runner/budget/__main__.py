"""The process of the budget gateway: `python -m confide_night.runner.budget FD`.

Its terms arrive as one line on stdin, so that no key is in a list of processes or in an
environment. It ends when stdin closes, thus when its parent ends. The sandbox passes the listener
over the socket FD. The process prints its events to stdout, one JSON object per line. Instead of
serving a listener, it can answer one question of the terms (`ask`).
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import json
import logging
import socket
import sys
from collections.abc import Iterator
from typing import Any, Final

import httpx2
import uvicorn

from confide_night.runner.budget.budget_gateway import BudgetGateway, RunTerms
from confide_night.runner.budget.meter import Meter
from confide_night.runner.settings.prices import Price, price_of
from confide_proxy.run.egress.header_secrets import Destination

HANDED_S: Final = 30.0
"""Seconds to wait for the listener from the sandbox."""
ASK_S: Final = 600.0
_MOST_CONNECTIONS: Final = 64


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Ignore signals; the process ends with its stdin."""
        yield


def _tell(said: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(said) + "\n")
    sys.stdout.flush()


async def _listener(descriptor: int) -> socket.socket:
    """Receive the listening socket from the sandbox. Raises TimeoutError or OSError if none
    arrives.
    """
    loop = asyncio.get_running_loop()
    with socket.socket(fileno=descriptor) as way_in:
        way_in.setblocking(False)
        is_there = asyncio.Event()
        loop.add_reader(way_in, is_there.set)
        try:
            async with asyncio.timeout(HANDED_S):
                await is_there.wait()
        finally:
            loop.remove_reader(way_in)
        _, ancillary, _, _ = way_in.recvmsg(1, socket.CMSG_SPACE(4))
        for level, kind, data in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                found = socket.socket(fileno=array.array("i", data[:4])[0])
                found.setblocking(False)
                return found
    raise OSError("no listener came")


async def _serve(gateway: BudgetGateway, descriptor: int) -> None:
    listening = await _listener(descriptor)
    settings = uvicorn.Config(
        gateway.app,
        http="h11",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        limit_concurrency=_MOST_CONNECTIONS,
        timeout_graceful_shutdown=1,
    )
    _tell({"listening": True})
    with listening:
        await _Server(settings).serve(sockets=[listening])


async def _ask(gateway: BudgetGateway, question: dict[str, Any]) -> None:
    """Send one request to the gateway itself, which counts it like an agent's request."""
    within = httpx2.ASGITransport(app=gateway.app)
    async with httpx2.AsyncClient(transport=within, base_url="http://gateway", timeout=ASK_S) as client:
        answer = await client.post(question["path"], json=question["body"], headers=question.get("headers", {}))
        _tell({"answer": {"status": answer.status_code, "text": answer.text}})


async def _run(descriptor: int) -> None:
    reader = asyncio.StreamReader(limit=2**22)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    said = json.loads(await reader.readline())
    own = {name: Price.of(table) for name, table in said["prices"].items()}
    terms = RunTerms(
        said["api"],
        said["url"],
        said["key"],
        lambda model: price_of(model, own),
        {
            found: headers
            for host, headers in said.get("hosts", {}).items()
            if (found := Destination.parse(host)) is not None
        },
        said.get("hidden", ()),
    )
    gateway = BudgetGateway(terms, Meter(said["limit_usd"]), _tell)
    work = _ask(gateway, said["ask"]) if said.get("ask") else _serve(gateway, descriptor)
    doing, ending = asyncio.create_task(work), asyncio.create_task(reader.read())
    await asyncio.wait({doing, ending}, return_when=asyncio.FIRST_COMPLETED)
    if doing.done():
        doing.result()


def main() -> None:
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access", "httpx2", "httpcore2"):
        quiet = logging.getLogger(name)
        # These would log addresses and error texts.
        quiet.propagate, quiet.handlers = False, [logging.NullHandler()]
    # Current requests end with the process, since no client is left to receive the answers.
    with contextlib.suppress(KeyboardInterrupt, BrokenPipeError):
        asyncio.run(_run(int(sys.argv[1])))


if __name__ == "__main__":
    main()
