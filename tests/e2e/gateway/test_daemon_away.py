"""With the daemon out of reach the gateway answers as `confide mcp` does: from this machine's files, and stores wait, whose word they are
not forgotten."""

from __future__ import annotations

from pathlib import Path

from tests.support.network.relay import RecordingRelay
from tests.support.programs.gateway import Gateway, serving
from tests.support.programs.processes import Machine, running_daemon, wait_until


def is_up(gateway: Gateway, token: str) -> bool:
    told = gateway.request("GET", "/health", token=token).json
    return bool(told["link"]["state"] == "up" and told["status"] == "ok")


def test_searches_are_answered_and_stores_wait(tmp_path: Path) -> None:
    with running_daemon(tmp_path) as daemon, RecordingRelay(daemon.port) as relay:
        machine = Machine(tmp_path, "ann")
        machine.write("MEMORY.md", "# Birds\n\nThe heron fishes at dawn.\n")
        machine.run("join", daemon.invite("ann", port=relay.port))
        with serving(machine) as gateway:
            writer = gateway.token("writer", "--scope", "write")
            limited = gateway.token(
                "limited", "--scope", "write", "--project", machine.json("status")["project"] or "project"
            )
            wait_until("the link", lambda: is_up(gateway, writer))
            relay.cut()
            body = {"content": "Storks come back in March.", "title": "Storks"}
            kept = gateway.request("POST", "/api/memories", body, token=writer)
            assert (kept.status, kept.json["queued"]) == (202, True)
            found = gateway.request(
                "POST", "/api/memories/recall", {"query": "when does the heron fish"}, token=writer
            ).json
            assert found["searchMode"] == "offline"
            assert "dawn" in found["memories"][0]["content"]
            # Nobody but the daemon keeps it to its projects.
            refused = gateway.request("POST", "/api/memories", {"content": "x"}, token=limited)
            assert (refused.status, refused.code) == (503, "unavailable"), refused.body
            assert refused.headers["retry-after"]
            told = gateway.request("GET", "/health", token=writer).json
            assert (told["status"], told["reason"], told["link"]["state"]) == ("degraded", "link", "down")
            assert gateway.request("GET", "/health").json["status"] == "ok"  # it lives
            relay.mend()
            wait_until("the link", lambda: is_up(gateway, writer))
            wait_until(
                "what waited",
                lambda: gateway.request("GET", f"/api/memories/{kept.json['id']}", token=writer).status == 200,
            )
            got = gateway.request("GET", f"/api/memories/{kept.json['id']}", token=writer).json
            assert (got["content"], got["class"]) == ("Storks come back in March.", "untrusted")
