"""What no request passes, whoever makes it: pure predicates."""

from __future__ import annotations

from typing import Any

import pytest

from confide_http.door.guard import GatewayNames, Guard, holds_token, problem_of


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


LINK = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}


@pytest.mark.parametrize(
    ("method", "path", "more", "status"),
    [
        ("GET", "/in/x", {}, None),
        ("GET", "/in/x", {"sec-fetch-dest": "iframe"}, 403),
        ("GET", "/in/x", {"sec-fetch-mode": "no-cors"}, 403),
        ("GET", "/in/x", {"origin": "https://evil.example"}, 403),
        ("GET", "/in/x", {"host": "evil.example"}, 421),
        ("POST", "/in/x", {}, 403),
        ("GET", "/other", {}, 403),
    ],
    ids=str,
)
def test_a_person_may_follow_a_link_to_some_pages_alone(
    method: str, path: str, more: dict[str, str], status: int | None
) -> None:
    """No frame, no picture and no form of another site comes along."""
    names = GatewayNames({"here.example"}, open_to_links=("/in/",))
    headers = [(name.encode(), value.encode()) for name, value in {"host": "here.example", **LINK, **more}.items()]
    scope = {"type": "http", "method": method, "path": path, "headers": headers, "query_string": b""}
    refusal = problem_of(scope, names)
    assert (refusal and refusal.status) == status


async def test_no_answer_is_framed_unless_it_says_so_itself() -> None:
    """Whatever it says otherwise: a policy of its own stays, and each has one."""
    for own, told in (
        (None, b"default-src 'none'; frame-ancestors 'none'"),
        (b"frame-ancestors 'self'", b"frame-ancestors 'self'"),
    ):

        async def app(_scope: Any, _receive: Any, send: Any, own: bytes | None = own) -> None:
            headers = [] if own is None else [(b"Content-Security-Policy", own)]
            await send({"type": "http.response.start", "status": 200, "headers": headers})

        sent: list[Any] = []

        async def send(message: Any, sent: list[Any] = sent) -> None:
            sent.append(message)

        scope = {
            "type": "http",
            "method": "GET",
            "path": "/",
            "headers": [(b"host", b"here.example")],
            "query_string": b"",
        }
        await Guard(app, GatewayNames({"here.example"}), hint="x")(scope, nobody, send)
        found = [value for name, value in sent[0]["headers"] if name.lower() == b"content-security-policy"]
        assert found == [told]


async def nobody() -> Any:
    raise AssertionError
