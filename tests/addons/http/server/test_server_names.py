"""By which names a server's gateway is called, what it says of itself, and how fast one client may ask."""

from __future__ import annotations

import socket
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.clock import Clock
from tests.support.deadline import DEADLINE_S

from confide_daemon.addons import Peers
from confide_daemon.server.listening.listener import listen_arguments
from confide_daemon.server.rates import TokenBucket
from confide_http.door.crowd import holder_of
from confide_http.door.refusals import RefusalError
from confide_http.door.request_limits import MAX_BODY_BYTES
from confide_http.door.serving import listen
from confide_http.server.answering import gateway_client as clients
from confide_http.server.answering.gateway_client import TokenClient
from confide_http.server.names import hosts_of, origin_of
from confide_http.settings import GatewayConfig


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
            "https://memory.example.org",
        ),
        (
            GatewayConfig("10.1.2.3:7735", public_url="https://memory.example.org:443"),
            {"10.1.2.3:7735", "memory.example.org", "memory.example.org:443"},
            "https://memory.example.org",
        ),
        (
            GatewayConfig("10.1.2.3:7735", public_url="HTTPS://MEMORY.example.org:08443/"),
            {"10.1.2.3:7735", "memory.example.org:8443"},
            "https://memory.example.org:8443",
        ),
        (
            GatewayConfig("10.1.2.3:7735", public_url="https://[FD00:0:0::1]:443"),
            {"10.1.2.3:7735", "[fd00::1]", "[fd00::1]:443"},
            "https://[fd00::1]",
        ),
        (
            GatewayConfig("127.0.0.1:7735", public_url="http://LOCALHOST:80", hosts=("a.example:443", "b.example:80")),
            {
                *("127.0.0.1:7735", "localhost:7735", "[::1]:7735", "localhost", "localhost:80"),
                *("a.example:443", "b.example:80", "b.example"),
            },
            "http://localhost",
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


def test_where_it_listens_on_the_port_that_goes_without_saying_that_is_not_said() -> None:
    config = GatewayConfig("Memory.example.org:443", "c", "k")
    assert origin_of(config, 443) == "https://memory.example.org"
    assert hosts_of(config, 443) == {"memory.example.org", "memory.example.org:443"}


@pytest.mark.parametrize("url", ["https://a.example:0", "https://a.example:65536", "https://a.example:", "https://a/b"])
def test_what_is_no_address_is_told(url: str) -> None:
    found = GatewayConfig("127.0.0.1:7735", public_url=url).problem()
    assert found is not None
    assert found[0] == "public_url"


@pytest.mark.parametrize("listened", ["machines", "gateway"])
def test_everywhere_is_both_families(listened: str) -> None:
    """Of the machines' port and the metrics, and of the gateway: one rule."""
    try:
        taken = listen("::", 0) if listened == "gateway" else listen_arguments("::", 0)["sock"]
    except OSError:
        pytest.skip("this machine has no IPv6")
    with taken:
        port = taken.getsockname()[1]
        for address in ("127.0.0.1", "::1"):
            socket.create_connection((address, port), DEADLINE_S).close()
    assert listen_arguments("0:0::0", 0)["sock"].close() is None
    assert listen_arguments("localhost", 1) == {"host": "localhost", "port": 1}


def test_an_ipv4_address_is_one_holder_on_a_socket_of_both_families() -> None:
    """And not all of them one, who would share what each may have."""
    assert holder_of("::ffff:192.0.2.1") == holder_of("192.0.2.1") != holder_of("::ffff:192.0.2.2")
    assert holder_of("2001:db8::1") == holder_of("2001:db8::2")


async def test_who_asks_too_fast_is_told_to_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    nobody: Any = None
    daemon: Any = SimpleNamespace(peers=Peers())
    client = TokenClient(nobody, daemon)
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
    daemon: Any = SimpleNamespace(peers=Peers())
    client, now = TokenClient(nobody, daemon), Clock(0.0)
    client._bucket = TokenBucket(20.0, 200.0, clock=now)
    client.require_credit()
    await client.pay(b" " * MAX_BODY_BYTES)
    with pytest.raises(RefusalError) as refused:
        client.require_credit()
    assert refused.value.status == 429
    now.now += float(refused.value.headers["Retry-After"])
    client.require_credit()
