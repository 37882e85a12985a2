"""What no request passes, whoever makes it: pure predicates."""

from __future__ import annotations

import pytest

from confide_proxy.gateway.door.guard import holds_token, is_own_host, is_own_origin


@pytest.mark.parametrize("host", ["127.0.0.1:7734", "localhost:7734", "LOCALHOST:7734", "[::1]:7734"])
def test_our_own_addresses_are_ours(host: str) -> None:
    assert is_own_host(host, 7734)
    assert is_own_origin(f"http://{host}", 7734)


@pytest.mark.parametrize(
    "host",
    [
        None,
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
    ids=str,
)
def test_a_name_that_leads_here_is_none_of_ours(host: str | None) -> None:
    assert not is_own_host(host, 7734)


@pytest.mark.parametrize(
    "origin",
    [
        *("null", "", "https://evil.example", "http://evil.example:7734", "https://localhost:7734", "file://"),
        *("http://localhost", "http://localhost:3000", "http://localhost:7734@evil.example", "localhost:7734"),
    ],
)
def test_pages_of_others_are_none_of_ours(origin: str) -> None:
    """Another port of this machine is another program's."""
    assert not is_own_origin(origin, 7734)


@pytest.mark.parametrize(
    "query",
    [
        *("token=x", "access_token=x", "a=1&API_KEY=x", "key", "authorization=Bearer%20x", "bearer=", "%74oken=x"),
        *("q=cfd_abc", "q=a&cfd_abc=", "since=cfd%5Fabc"),
    ],
)
def test_a_token_in_an_address_is_seen(query: str) -> None:
    """However it is spelled."""
    assert holds_token(query.encode())


@pytest.mark.parametrize("query", ["", "since=7d&limit=20", "q=tokens", "category=facts", "keyword=x", "%ff=%00"])
def test_what_is_none_passes(query: str) -> None:
    assert not holds_token(query.encode())
