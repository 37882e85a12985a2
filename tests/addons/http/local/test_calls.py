"""Which calls of which token go to the daemon, and with what this machine says of them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from confide_http.door.refusals import RefusalError
from confide_http.local.calls import Calls, operation_of, scope_of
from confide_http.local.request_identity import READ, SECRETS, WRITE, RequestIdentity
from confide_http.local.upstream import UpstreamSession
from confide_memory.tools.call import CLASS, OPERATION, WITHIN
from confide_proxy.config import ProxyConfig
from confide_proxy.mcp import catalogue as catalogues
from confide_proxy.paths import ProxyPaths
from confide_proxy.sync.project import Project

ALL = frozenset({READ, WRITE, SECRETS})
CLAIMED: dict[str, Any] = {
    "confide/class": "owner",
    "confide/operation": "0" * 32,
    "confide/within": {"scope": "write"},
}


@pytest.fixture
async def exchange(tmp_path: Path) -> UpstreamSession:
    """One whose daemon is of this version; what it would be sent stays in `tunnel._outgoing`."""
    paths = ProxyPaths(tmp_path / "proxy.toml", tmp_path / "proxy", tmp_path / "global", tmp_path / "daemon")
    found = UpstreamSession(paths, ProxyConfig(), Project("shop", tmp_path, is_git=False))
    found.link.is_up, found.link.attached = True, {"bounds": True}
    found.tunnel._was_up = found.tunnel._is_live = True
    return found


async def sent(exchange: UpstreamSession, identity: RequestIdentity, tool: str, **arguments: Any) -> dict[str, Any]:
    """The parameters of the call as they would go up."""
    params = {"name": tool, "arguments": arguments, "_meta": dict(CLAIMED)}
    asking = asyncio.ensure_future(Calls(exchange).outcome(identity, params))
    await asyncio.sleep(0)
    for _ in range(3):
        await asyncio.sleep(0)
    assert not asking.done(), asking.exception()
    line = exchange.tunnel._outgoing._lines[-1]
    asking.cancel()
    found: dict[str, Any] = line.message["params"]
    return found


async def test_what_this_machine_says_of_a_call_no_client_says(exchange: UpstreamSession) -> None:
    """Class, bounds and operation are not its to give."""
    meta = (await sent(exchange, RequestIdentity("a", "a", ALL), "memory_store", content="x"))["_meta"]
    assert meta[CLASS] == "untrusted"
    assert meta[OPERATION] != CLAIMED[OPERATION]
    trusted = RequestIdentity("b", "b", ALL, class_="")
    assert CLASS not in (await sent(exchange, trusted, "memory_store", content="x"))["_meta"]
    limited = RequestIdentity("c", "c", frozenset({READ}), frozenset({"shop"}))
    meta = (await sent(exchange, limited, "memory_search", query="x"))["_meta"]
    assert meta[WITHIN] == {"projects": ["shop"], "scope": "read"}


async def test_a_limited_token_looks_in_its_own_projects(exchange: UpstreamSession) -> None:
    """Where it names none, and the gateway's is none of them."""
    limited = RequestIdentity("c", "c", ALL, frozenset({"aviary", "zoo"}))
    assert (await sent(exchange, limited, "memory_search", query="x"))["arguments"]["project"] == "*"
    assert (await sent(exchange, limited, "memory_read", path="a.md"))["arguments"]["project"] == "aviary"
    with pytest.raises(RefusalError) as refused:
        await Calls(exchange).outcome(
            limited, {"name": "memory_search", "arguments": {"query": "x", "project": "shop"}}
        )
    assert refused.value.status == 403


@pytest.mark.parametrize("tool", ["memory_import", "memory_nothing"])
async def test_what_is_not_served_is_not_there(exchange: UpstreamSession, tool: str) -> None:
    with pytest.raises(RefusalError) as refused:
        async with asyncio.timeout(1):
            await Calls(exchange).outcome(
                RequestIdentity("a", "a", ALL), {"name": tool, "arguments": {"paths": ["/etc"]}}
            )
    assert refused.value.status == 404


async def test_an_older_daemon_gets_no_call_that_it_would_not_bound(exchange: UpstreamSession) -> None:
    exchange.link.attached = {"bounds": False}
    with pytest.raises(RefusalError) as refused:
        async with asyncio.timeout(1):
            await Calls(exchange).outcome(
                RequestIdentity("c", "c", ALL, frozenset({"shop"})),
                {"name": "memory_search", "arguments": {"query": "x"}},
            )
    assert (refused.value.status, refused.value.code) == (503, "unavailable")


async def test_secrets_are_for_their_scope_and_the_whole_space(exchange: UpstreamSession) -> None:
    for identity in (
        RequestIdentity("a", "a", frozenset({READ, WRITE})),
        RequestIdentity("c", "c", ALL, frozenset({"shop"})),
    ):
        with pytest.raises(RefusalError) as refused:
            await Calls(exchange).outcome(identity, {"name": "secret_get", "arguments": {"id": "0" * 32}})
        assert refused.value.status == 403
        assert "secret_get" not in Calls(exchange).tools(identity)


def test_each_tool_takes_a_scope() -> None:
    """Only those that ask take the least: by this program's own list, whatever a daemon says of its tools."""
    reading = {name for name in catalogues.packaged_catalogue().tools if scope_of(name) == READ}
    assert reading == {
        *("memory_search", "memory_read", "memory_status", "memory_get", "memory_list", "memory_history"),
        *("context_info", "entity_list", "entity_search", "task_list", "task_results"),
    }
    assert scope_of("secret_get") == SECRETS
    assert scope_of("memory_of_next_year") == WRITE


@pytest.mark.parametrize("tool", ["task_add", "task_cancel"])
async def test_no_program_has_this_machine_sign_an_order(exchange: UpstreamSession, tool: str) -> None:
    """A token that may do all is told that there is no such tool; a person at the panel may."""
    with pytest.raises(RefusalError) as refused:
        async with asyncio.timeout(1):
            await Calls(exchange).outcome(
                RequestIdentity("a", "a", ALL), {"name": tool, "arguments": {"description": "x", "id": "0" * 16}}
            )
    assert refused.value.status == 404
    assert tool not in Calls(exchange).tools(RequestIdentity("a", "a", ALL))
    assert tool in Calls(exchange).tools(RequestIdentity("panel", "panel:1", ALL, class_="owner", is_of_token=False))


def test_a_key_means_something_else_to_every_token() -> None:
    ann, bob = RequestIdentity("ann", "1", ALL), RequestIdentity("bob", "2", ALL)
    assert operation_of(ann, "x") == operation_of(ann, "x") != operation_of(bob, "x")
    assert len(operation_of(ann, "x")) == 32
