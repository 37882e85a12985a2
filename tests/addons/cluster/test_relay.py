"""When a node that holds a space is taken for gone: its address refuses, again and again; silence and one refusal are not enough."""

from __future__ import annotations

import asyncio
import socket
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.support.network.ports import free_port

from confide_cluster.daemon import relay
from confide_cluster.daemon.relay import Relays
from confide_cluster.daemon.spaces.leases import Holder
from confide_crypto.errors import ConnectionLost
from confide_daemon.addons import PeersHost
from confide_daemon.errors import EngineError


async def test_an_address_where_nobody_listens_refuses() -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    assert await relay.refuses(f"127.0.0.1:{free_port()}")
    assert loop.time() - began >= relay.REFUSED_FOR_S


async def test_one_that_takes_connections_does_not() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert not await relay.refuses(f"127.0.0.1:{listener.getsockname()[1]}")


async def test_silence_is_no_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a machine that is cut off: it may serve others. Nor is an address that leads nowhere."""

    async def silent(*_where: object) -> None:
        await asyncio.Event().wait()

    async def unreachable(*_where: object) -> None:
        raise OSError(113, "no route to host")

    monkeypatch.setattr(relay, "REFUSED_FOR_S", 0.05)
    for answer in (silent, unreachable):
        monkeypatch.setattr(asyncio, "open_connection", answer)
        assert not await relay.refuses("127.0.0.1:1")


async def test_one_that_is_there_again_is_not_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a node that was restarted meanwhile."""
    answers: list[Exception | None] = [ConnectionRefusedError(), ConnectionRefusedError(), None]
    real = asyncio.open_connection
    with socket.create_server(("127.0.0.1", 0)) as listener:

        async def open_connection(host: str, port: int) -> object:
            if (answer := answers.pop(0)) is not None:
                raise answer
            return await real(host, port)

        monkeypatch.setattr(asyncio, "open_connection", open_connection)
        monkeypatch.setattr(relay, "REFUSED_FOR_S", 0.5)
        assert not await relay.refuses(f"127.0.0.1:{listener.getsockname()[1]}")


async def test_whoever_cannot_be_passed_on_is_told_why() -> None:
    """The node that holds the space has no address for others: to send the machine away would have it come again for ever."""

    class Elsewhere:
        async def holder(self, _space_id: str) -> Holder:
            return Holder(7, "", 1)

    leases: Any = Elsewhere()
    nobody: Any = None
    machine: Any = SimpleNamespace(hello={}, peer_key=bytes(32), session_id="ab" * 16)
    relays = Relays(relay.Holders(leases, cast("PeersHost", SimpleNamespace(is_stopping=False))))
    with pytest.raises(EngineError, match="node 7 holds it") as told:
        await relays.serve(machine, "space", nobody)
    assert "[node]" in str(told.value.hint)


async def test_what_was_taken_in_is_passed_on_by_a_node_that_is_to_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request by HTTP is at most that; a session would begin, and is sent to another node."""

    class Held:
        async def holder(self, _space_id: str) -> Holder:
            return Holder(7, "127.0.0.1:1", 1)

    leases: Any = Held()
    nobody: Any = None
    here = relay.Holders(leases, cast("PeersHost", SimpleNamespace(is_stopping=True)))
    channel = SimpleNamespace(abort=lambda: None)

    async def dial(_holder: Holder, _speaker: object) -> Any:
        return channel

    monkeypatch.setattr(here, "_dial", dial)
    found = await here.reach("space", nobody, is_begun=True)
    assert found is not None
    assert (found.connection, found.node) == (channel, 7)
    with pytest.raises(ConnectionLost):
        await here.reach("space", nobody)
