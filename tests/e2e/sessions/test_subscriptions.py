"""Resources over the real proxy: lists without a daemon, subscriptions that outlive a link, streams that keep nobody."""

from __future__ import annotations

import time
from typing import Any

from tests.support.deadline import DEADLINE_S
from tests.support.network.relay import RecordingRelay
from tests.support.programs.processes import Daemon, Machine, wait_until
from tests.support.programs.wire import Wire

MODERN = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "wire", "version": "1"},
}
URI = "memory://core"


def heard(wire: Wire, method: str, *, timeout_s: float = DEADLINE_S) -> dict[str, Any]:
    """The parameters of the next such notification."""
    end = time.monotonic() + timeout_s
    while True:
        message = wire.next(max(0.01, end - time.monotonic()))
        if message.get("method") == method:
            return dict(message.get("params", {}))


def updated_by(wire: Wire, arguments: dict[str, Any], **meta: Any) -> dict[str, Any]:
    """Store a note. Returns the parameters of the first news that follow, which may come before the answer."""
    asked = wire.ask("tools/call", {"_meta": meta, "name": "memory_store", "arguments": arguments})
    news: dict[str, Any] = {}
    is_answered = False
    while not (news and is_answered):
        message = wire.next()
        if message.get("id") == asked:
            assert not message["result"].get("isError"), message
            is_answered = True
        elif message.get("method") == "notifications/resources/updated":
            news = news or dict(message["params"])
    return news


def test_prompts_and_kinds_of_resources_are_listed_without_a_daemon(machine: Machine, relay: RecordingRelay) -> None:
    relay.cut()
    with Wire(machine) as wire:
        opened = wire.open()
        assert set(opened["capabilities"]) == {"prompts", "resources", "tools"}
        assert [one["name"] for one in wire.call("prompts/list")["result"]["prompts"]] == [
            "remember",
            "recall",
            "morning_report",
        ]
        assert len(wire.call("resources/templates/list")["result"]["resourceTemplates"]) == 2
        refused = wire.call("resources/read", {"uri": URI})
        assert "cannot be reached" in refused["error"]["message"] or "daemon" in refused["error"]["message"]


def test_a_subscription_outlives_the_link(machine: Machine, relay: RecordingRelay) -> None:
    with Wire(machine) as wire:
        wire.open()
        assert wire.call("resources/subscribe", {"uri": URI})["result"] == {}
        relay.cut()
        relay.mend()
        # Anything may have changed meanwhile, so the client is told to look.
        assert heard(wire, "notifications/resources/updated") == {"uri": URI}
        assert updated_by(wire, {"content": "Never on Fridays.", "importance": "core"}) == {"uri": URI}
        assert wire.call("resources/unsubscribe", {"uri": URI})["result"] == {}


def test_a_subscription_that_was_refused_is_none(machine: Machine, relay: RecordingRelay) -> None:
    """By the daemon, or since it is away: the client was told so, and hears nothing of it later."""
    with Wire(machine) as wire:
        wire.open()
        assert wire.call("resources/subscribe", {"uri": URI})["result"] == {}
        assert "no such" in wire.call("resources/subscribe", {"uri": "file:///etc/passwd"})["error"]["message"]
        relay.cut()
        assert "error" in wire.call("resources/subscribe", {"uri": "memory://high"})
        relay.mend()
        seen = []
        while len(seen) < 2:
            wire.ask(
                "tools/call", {"name": "memory_store", "arguments": {"content": "On Mondays.", "importance": "high"}}
            )
            while (message := wire.next()).get("method") is not None:
                if message["method"] == "notifications/resources/updated":
                    seen.append(message["params"]["uri"])
    assert set(seen) == {URI}


def test_a_stream_of_news_waits_for_ever_and_keeps_nobody(machine: Machine, relay: RecordingRelay) -> None:
    """It has no deadline, outlives the link, and does not hold the session at its end."""
    with Wire(machine) as wire:
        ask = {"_meta": MODERN, "notifications": {"resourceSubscriptions": [URI], "resourcesListChanged": True}}
        first = wire.ask("subscriptions/listen", ask)
        acknowledged = heard(wire, "notifications/subscriptions/acknowledged")
        assert acknowledged["_meta"]["io.modelcontextprotocol/subscriptionId"] == first
        assert updated_by(wire, {"content": "A rule.", "importance": "core"}, **MODERN)["uri"] == URI
        relay.cut()
        relay.mend()
        # Anything may have changed meanwhile, so the client is told to look.
        told = heard(wire, "notifications/resources/updated")
        assert (told["uri"], told["_meta"]["io.modelcontextprotocol/subscriptionId"]) == (URI, first)
        started = time.monotonic()
    assert time.monotonic() - started < 9.5  # a call that has no answer is given up after 10 s


def test_what_changes_while_the_link_is_renewed_is_told(machine: Machine) -> None:
    """Between the last news of the old connection and the first of the new one nobody tells of a change, so the client is told to look."""
    (machine.home / "proxy.toml").write_text("renew_s = 1\n")
    with Wire(machine) as wire:
        wire.open()
        assert wire.call("resources/subscribe", {"uri": URI})["result"] == {}
        assert heard(wire, "notifications/resources/updated") == {"uri": URI}
    with Wire(machine) as wire:
        stream = wire.ask("subscriptions/listen", {"_meta": MODERN, "notifications": {"resourceSubscriptions": [URI]}})
        heard(wire, "notifications/subscriptions/acknowledged")
        told = heard(wire, "notifications/resources/updated")
        assert (told["uri"], told["_meta"]["io.modelcontextprotocol/subscriptionId"]) == (URI, stream)


def test_a_stream_of_news_goes_on_when_the_link_is_renewed(machine: Machine, daemon: Daemon) -> None:
    """It takes nothing but fresh keys, every hour: no reason to end a stream. Here every second."""
    (machine.home / "proxy.toml").write_text("renew_s = 1\n")

    def sessions() -> int:
        return daemon.log.read_text().count(f"{machine.name} connected")

    with Wire(machine) as wire:
        ask = {"_meta": MODERN, "notifications": {"resourceSubscriptions": [URI]}}
        stream = wire.ask("subscriptions/listen", ask)
        heard(wire, "notifications/subscriptions/acknowledged")
        for number in range(2):
            before = sessions()
            wait_until("the link to move twice", lambda before=before: sessions() >= before + 2)
            arguments = {"content": f"Rule {number}.", "importance": "core"}
            asked = wire.ask("tools/call", {"_meta": MODERN, "name": "memory_store", "arguments": arguments})
            seen: list[dict[str, Any]] = []
            while not {"notifications/resources/updated", asked} <= {one.get("method", one.get("id")) for one in seen}:
                seen.append(wire.next(30))
            methods = [one.get("method") for one in seen]
            assert "notifications/subscriptions/acknowledged" not in methods
            assert all(one.get("id") != stream for one in seen), seen
            told = next(one for one in seen if one.get("method") == "notifications/resources/updated")
            assert told["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"] == stream
        wire.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": stream}})
