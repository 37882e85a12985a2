"""Where `confide http serve` listens, and how it is called there."""

from __future__ import annotations

import errno
import socket

import pytest

from confide_http.errors import GatewayError
from confide_http.local import gateway_server
from confide_http.local.gateway_app import names


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.1", "::", "example.org", "", "127.0.0.1.evil.example"])
def test_other_addresses_are_refused(host: str) -> None:
    with pytest.raises(GatewayError, match="this device only"):
        gateway_server.loopback(host)


@pytest.mark.parametrize(
    ("host", "address"), [("localhost", "127.0.0.1"), ("127.0.0.9", "127.0.0.9"), ("::1", "::1"), ("[::1]", "::1")]
)
def test_loopback_is_taken(host: str, address: str) -> None:
    assert gateway_server.loopback(host) == address


def test_a_port_that_is_taken_is_said_to_be() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(GatewayError, match="is taken"):
            gateway_server.listen("127.0.0.1", other.getsockname()[1])


def test_another_port_is_taken_in_its_place_where_that_is_asked_for() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        held = gateway_server.listen("127.0.0.1", other.getsockname()[1], any_port=True)
        try:
            assert held[0].getsockname()[1] != other.getsockname()[1]
        finally:
            for each in held:
                each.close()


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as tried:
            tried.bind(("::1", 0))
    except OSError:
        return False
    return True


def _listen(other: socket.socket, where: tuple[str, int]) -> None:
    other.bind(where)
    other.listen()


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "127.0.0.9"])
def test_nobody_else_can_have_an_address_that_localhost_leads_to(host: str) -> None:
    """Who asked for `localhost` would give a neighbour the token."""
    held = gateway_server.listen(host, 0)
    try:
        port = held[0].getsockname()[1]
        assert held[0].getsockname()[0] == host
        for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"), (socket.AF_INET6, "::")):
            with socket.socket(family) as other:
                other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                with pytest.raises(OSError, match="in use"):
                    _listen(other, (address, port))
    finally:
        for each in held:
            each.close()


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
@pytest.mark.parametrize(("theirs", "ours"), [("::1", "127.0.0.1"), ("127.0.0.1", "::1")])
def test_one_that_somebody_has_already_is_not_shared_with_them(theirs: str, ours: str) -> None:
    with socket.socket(socket.AF_INET6 if ":" in theirs else socket.AF_INET) as other:
        other.bind((theirs, 0))
        other.listen()
        with pytest.raises(GatewayError, match="is taken"):
            gateway_server.listen(ours, other.getsockname()[1])


def test_a_machine_without_ipv6_has_the_other_one(monkeypatch: pytest.MonkeyPatch) -> None:
    real = gateway_server.serving.listen

    def listen(host: str, port: int) -> socket.socket:
        if ":" in host:
            raise OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address")
        return real(host, port)

    monkeypatch.setattr(gateway_server.serving, "listen", listen)
    (held,) = gateway_server.listen("127.0.0.1", 0)
    held.close()


@pytest.mark.parametrize("host", ["127.0.0.1:7734", "localhost:7734", "LOCALHOST:7734", "[::1]:7734"])
def test_our_own_addresses_are_ours(host: str) -> None:
    assert names(7734).has_host(host)
    assert names(7734).has_origin(f"http://{host}")


@pytest.mark.parametrize(
    "host",
    [
        "",
        "127.0.0.1",
        "127.0.0.1:80",
        "127.0.0.1:77340",
        "127.0.0.2:7734",
        "localhost.evil.example:7734",
        "evil.example:7734",
        "evil.example",
        "localhost:7734.evil.example",
        "user@localhost:7734",
        "localhost:7734, evil.example",
        "::1:7734",
        "0.0.0.0:7734",
    ],
)
def test_a_name_that_leads_here_is_none_of_ours(host: str) -> None:
    assert not names(7734).has_host(host)


@pytest.mark.parametrize(
    "origin",
    [
        *("null", "", "https://evil.example", "http://evil.example:7734", "https://localhost:7734", "file://"),
        *("http://localhost", "http://localhost:3000", "http://localhost:7734@evil.example", "localhost:7734"),
    ],
)
def test_pages_of_others_are_none_of_ours(origin: str) -> None:
    """Another port of this machine is another program's."""
    assert not names(7734).has_origin(origin)


def test_the_port_of_http_is_not_written() -> None:
    assert names(80).has_host("localhost")
    assert names(80).has_host("localhost:80")
    assert not names(7734).has_host("localhost")
