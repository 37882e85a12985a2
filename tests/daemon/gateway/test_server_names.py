"""By which names a server's gateway is called, what it says of itself, and how fast one client may ask."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.clock import Clock

from confide_daemon.config import GatewayConfig
from confide_daemon.gateway import client as clients
from confide_daemon.gateway.client import Client
from confide_daemon.gateway.names import hosts_of, origin_of
from confide_daemon.server.rates import TokenBucket
from confide_door.limits import MAX_BODY_BYTES
from confide_door.refusals import RefusalError


@pytest.mark.parametrize(
    ("config", "hosts", "origin"),
    [
        (
            GatewayConfig("127.0.0.1:7735"),
            {"127.0.0.1:7735", "localhost:7735", "[::1]:7735"},
            "http://127.0.0.1:7735",
        ),
        (
            GatewayConfig("10.1.2.3:7735", "c", "k"),
            {"10.1.2.3:7735"},
            "https://10.1.2.3:7735",
        ),
        (
            GatewayConfig("[fd00::1]:7735", "c", "k", hosts=("Memory.Example.org",)),
            {"[fd00::1]:7735", "memory.example.org"},
            "https://[fd00::1]:7735",
        ),
        (
            GatewayConfig("10.1.2.3:7735", public_url="https://Memory.example.org/"),
            {"10.1.2.3:7735", "memory.example.org", "memory.example.org:443"},
            "https://Memory.example.org",
        ),
        (
            GatewayConfig("10.1.2.3:7735", public_url="https://memory.example.org:443"),
            {"10.1.2.3:7735", "memory.example.org", "memory.example.org:443"},
            "https://memory.example.org:443",
        ),
        (
            GatewayConfig("10.1.2.3:7735", public_url="https://memory.example.org:8443"),
            {"10.1.2.3:7735", "memory.example.org:8443"},
            "https://memory.example.org:8443",
        ),
    ],
    ids=lambda value: value.listen if isinstance(value, GatewayConfig) else "",
)
def test_it_is_called_as_it_listens_and_as_configured(config: GatewayConfig, hosts: set[str], origin: str) -> None:
    assert config.problem() is None
    assert hosts_of(config, 7735) == hosts
    assert origin_of(config, 7735) == origin


async def test_who_asks_too_fast_is_told_to_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    nobody: Any = None
    daemon: Any = SimpleNamespace(holders=None)
    client = Client(nobody, daemon)
    client._bucket = TokenBucket(20.0, 2.5, clock=lambda: 0.0)
    monkeypatch.setattr(clients, "MAX_WAIT_S", 0.0)
    await client.pay(b"{}")
    await client.pay(b"{}")
    with pytest.raises(RefusalError) as refused:
        await client.pay(b"{}")
    assert (refused.value.status, refused.value.headers["Retry-After"]) == (429, "1")


async def test_who_owes_for_what_it_has_sent_is_read_no_further() -> None:
    """A body costs by its size: it is as dear to parse as many small ones."""
    nobody: Any = None
    daemon: Any = SimpleNamespace(holders=None)
    client, now = Client(nobody, daemon), Clock(0.0)
    client._bucket = TokenBucket(20.0, 200.0, clock=now)
    client.require_credit()
    await client.pay(b" " * MAX_BODY_BYTES)
    with pytest.raises(RefusalError) as refused:
        client.require_credit()
    assert refused.value.status == 429
    now.now += float(refused.value.headers["Retry-After"])
    client.require_credit()
