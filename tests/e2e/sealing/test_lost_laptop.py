"""A laptop is stolen with an agent's session open, and shut out with one command: what the thief's agent still gets (docs/devices.md)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.programs.pair import joined
from tests.support.programs.processes import Inside, running_daemon, wait_until
from tests.support.programs.wire import OPENING, Wire

TOKEN = "ghp_" + "aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bC1dF3hJ5"
CALLS: dict[str, dict[str, Any]] = {
    "memory_search": {"query": "quillfeather plan"},
    "memory_read": {"path": "memory/since.md"},
    "secret_get": {},
    "memory_store": {"content": "A word of the thief."},
    "memory_sync": {},
}


def test_an_open_session_of_a_lost_laptop_ends_and_gets_nothing_more(tmp_path: Path) -> None:
    """Neither what is stored since, nor a secret, nor a place for what it stores; the laptop's own files are all that it has."""
    with running_daemon(tmp_path) as daemon:
        (ann,) = joined(tmp_path, daemon, "ann")
        laptop = Inside(tmp_path, "laptop")
        laptop.call_project("shared")
        laptop.run("join", ann.json("device", "invite", "laptop", "--no-wait")["invite"])
        ann.write("memory/deploy.md", f"# Deploy\n\nThe pipeline pushes with {TOKEN} on Mondays.\n")
        ann.run("sync")
        assert laptop.json("device", "ls")["canSeal"]
        laptop.run("sync")
        (laptop.home / "proxy.toml").write_text('[secrets]\nsecret_get = "allow"\n')
        (secret,) = ann.json("secrets", "ls")
        with Wire(laptop) as wire:
            wire.call("initialize", OPENING)
            wire.send({"method": "notifications/initialized"})
            assert "pipeline" in str(wire.tool("memory_search", {"query": "pipeline"}))
            assert TOKEN in str(wire.tool("secret_get", {"id": secret["id"]}))
            ended = daemon.log.read_text().count("ended after")
            assert ann.json("device", "lost", "laptop", "--yes")["hasAccess"] is False
            wait_until("its session to end", lambda: daemon.log.read_text().count("ended after") > ended)
            ann.write("memory/since.md", "# Since\n\nThe quillfeather plan is new.\n")
            ann.run("sync")
            for tool, arguments in CALLS.items():
                given = {"id": secret["id"]} if tool == "secret_get" else arguments
                answer = str(wire.call("tools/call", {"name": tool, "arguments": given}))
                assert "this device's key was revoked" in answer, answer
                assert "plan is new" not in answer
                assert TOKEN not in answer
        for command in (("device", "ls"), ("sync",)):
            assert TOKEN not in (said := laptop.run(*command, code=6))
            assert "revoked" in said
        assert not (laptop.project / "memory/since.md").exists()
        assert "thief" not in ann.run("search", "word of the thief")


def test_status_and_doctor_name_who_a_removal_waits_for(tmp_path: Path) -> None:
    """A laptop that has not connected since something was forgotten; and one that is lost while the daemon is away."""
    with running_daemon(tmp_path) as daemon:
        (ann,) = joined(tmp_path, daemon, "ann")
        laptop = Inside(tmp_path, "laptop")
        laptop.call_project("shared")
        laptop.run("join", ann.json("device", "invite", "laptop", "--no-wait")["invite"])
        ann.write("memory/log.md", "# Log\n\nThe zanzibar plan begins at dawn.\n")
        ann.run("sync")
        laptop.run("sync")
        assert "removals" not in ann.run("status")
        ann.run("forget", "memory/log.md", "--yes")
        for command in ("status", "doctor"):
            assert "laptop still has what was forgotten since 20" in " ".join(ann.run(command).split())
        (waiting,) = ann.json("status")["removals"]
        assert waiting.startswith("laptop still has")
        laptop.run("sync")
        laptop.run("status")  # tells the daemon that it has removed it
        assert "removals" not in ann.run("status")
        assert ann.json("status")["removals"] == []
    ann.run("device", "lost", "laptop", "--yes", code=5)
    assert "laptop is declared lost, and has access" in " ".join(ann.run("status", code=5).split())
