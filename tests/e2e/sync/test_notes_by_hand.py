"""Notes with real programs: the same files in a person's editor and an agent's tools, with and without the daemon."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.network.relay import RecordingRelay
from tests.support.programs.processes import Inside, running_daemon, wait_until
from tests.support.programs.wire import Wire


def test_a_person_and_an_agent_work_on_one_note(tmp_path: Path) -> None:
    """What is written by hand is there in the tools and stays in the file; deletions leave the disk; what waited is made once."""
    with running_daemon(tmp_path) as daemon, RecordingRelay(daemon.port) as relay:
        machine = Inside(tmp_path, "ann")
        (machine.home / "proxy.toml").write_text('toolsets = ["all"]\ndebounce_ms = 60000\n')
        machine.run("join", daemon.invite("ann", port=relay.port))
        with Wire(machine) as wire:
            wire.open()

            def call(tool: str, **arguments: Any) -> dict[str, Any]:
                result = wire.tool(tool, arguments)
                assert not result.get("isError"), result
                structured: dict[str, Any] = result["structuredContent"]
                return structured

            stored = call("memory_store", content="Deploys are on Tuesdays.", title="Deploys", tags=["ops"])
            file = machine.project / stored["path"]
            # On a busy machine an answer need not wait for the disk.
            wait_until("the note to be written here", file.exists)
            # Saved an instant before the agent changes another line: both are there afterwards.
            text = (
                file.read_text()
                .replace("tags: [ops]\n", "tags: [ops] # by Ann\nmood: fine\n")
                .replace("Tuesdays", "Mondays")
            )
            file.write_text(text)
            changed = call("memory_update", id=stored["id"], importance="high")
            assert (changed["onDisk"], changed["content"], changed["level"]) == (
                True,
                "Deploys are on Mondays.",
                "high",
            )
            assert "tags: [ops] # by Ann\nmood: fine\n" in file.read_text()
            assert "importance: high\n" in file.read_text()
            history = call("memory_history", id=stored["id"])
            assert [one["revision"] for one in history["revisions"]] == list(range(changed["revision"], 0, -1))

            file.write_text(file.read_text().replace("Mondays", "Fridays"))
            kept = call("memory_delete", id=stored["id"])
            assert (kept["deleted"], kept["onDisk"]) == (False, True)
            assert "just edited" in kept["warnings"][0]
            assert "Fridays" in file.read_text()
            assert call("memory_delete", id=stored["id"])["onDisk"] is True
            assert not file.exists()
            machine.run("restore", stored["path"])
            wait_until("the file to be back", file.exists)
            assert call("memory_list")["total"] == 1

            relay.cut()
            kept = call("memory_store", content="Backups are on Sundays.", entity="backups")
            assert kept["queued"] is True
            assert call("memory_update", id=kept["id"], status="planned")["queued"] is True
            assert call("memory_delete", id=stored["id"])["queued"] is True
            assert 'status: "planned"' in machine.run("queue", "--show")
            relay.mend()
            wait_until("the queue to be empty", lambda: machine.json("queue")["queuedOffline"] == 0)
            assert machine.json("queue")["deadLetters"] == 0
            wait_until("the files to follow", lambda: (machine.project / kept["path"]).exists() and not file.exists())
            listed = call("memory_list")
            assert [(one["id"], one["status"]) for one in listed["memories"]] == [(kept["id"], "planned")]
            assert listed["total"] == 1
            assert "status: planned\n" in (machine.project / kept["path"]).read_text()
