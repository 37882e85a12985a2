"""With the daemon out of reach: this machine answers from its files, keeps what is stored, and delivers it once, in order."""

from __future__ import annotations

import json
import secrets
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from tests.support.network.relay import RecordingRelay
from tests.support.programs.mcp_session import ERAS, Era, session
from tests.support.programs.processes import CONFIDE, Daemon, Inside, Machine, wait_until
from tests.support.programs.watch import watching
from tests.support.programs.wire import Wire

from confide_proxy.mcp.catalogue import PACKAGED


@pytest.fixture
def machine(tmp_path: Path, daemon: Daemon, relay: RecordingRelay) -> Machine:
    joined = Inside(tmp_path, f"ann-{secrets.token_hex(4)}")
    joined.write("MEMORY.md", "# Birds\n\nThe heron fishes at dawn.\n")
    joined.run("join", daemon.invite(joined.name, port=relay.port))
    return joined


def store(wire: Wire, content: str, **other: Any) -> dict[str, Any]:
    """A store that succeeds, on the daemon or in the queue."""
    result = wire.tool("memory_store", {"content": content, **other})
    assert not result.get("isError"), result
    structured: dict[str, Any] = result["structuredContent"]
    return structured


def is_up(wire: Wire) -> bool:
    return not wire.tool("memory_status", {}).get("isError")


def waiting(machine: Machine) -> tuple[int, int]:
    """How many calls wait, and how many were refused, as the command counts them."""
    listed = machine.json("queue")
    return listed["queuedOffline"], listed["deadLetters"]


def lines_of(machine: Machine, path: str) -> list[str]:
    file = machine.project / path
    return file.read_text().splitlines() if file.exists() else []


def test_a_note_that_waits_is_tied_to_the_files_as_they_were(machine: Machine, relay: RecordingRelay) -> None:
    """By a session and by a command; a file that changes before the daemon is back counts as changed."""
    source = machine.write("app.py", "def login(user):\n    return user.name\n")
    machine.write("db.py", "LIMIT = 3\n")
    with Wire(machine) as wire:
        wire.open()
        wait_until("the daemon", lambda: is_up(wire))
        relay.cut()
        queued = [store(wire, "`login()` in app.py takes the lock first", title="Locks")]
        queued += [store(wire, "db.py has the limit of connections", title="Limits")]
        queued += [machine.json("store", "app.py is run by the timer", "--title", "Timer")]
        assert all(each["queued"] for each in queued)
        source.write_text("def login(user):\n    return user.id\n")
        relay.mend()
        wait_until("all to arrive", lambda: waiting(machine) == (0, 0))
        wait_until("the files", lambda: all((machine.project / each["path"]).exists() for each in queued))
        stale = {each["path"]: each["state"] for each in machine.json("stale")["notes"]}
    assert stale == {queued[0]["path"]: "changed", queued[2]["path"]: "changed"}
    assert "seen:" in (machine.project / queued[1]["path"]).read_text()


def test_stores_wait_and_arrive_once_and_in_order(machine: Machine, relay: RecordingRelay) -> None:
    """The cable out: stores are queued within the deadline; the cable in: each is on disk once, in order, before what is said later."""
    with Wire(machine) as wire:
        wire.open()
        assert not store(wire, "- number 0", path="memory/log.md")["queued"]
        relay.cut()
        for number in range(1, 6):
            started = time.monotonic()
            kept = store(wire, f"- number {number}", path="memory/log.md")
            assert (kept["queued"], kept["revision"], kept["indexed"], kept["onDisk"]) == (True, 0, False, False)
            assert "since" in kept["warnings"][0]
            assert time.monotonic() - started < 9.5  # 2 s for another link; a call that is given up takes 10 s
        assert lines_of(machine, "memory/log.md") == ["- number 0"]
        relay.mend()
        wait_until("the link", lambda: is_up(wire))
        assert not store(wire, "- number 6", path="memory/log.md")["queued"]
        assert lines_of(machine, "memory/log.md") == [f"- number {number}" for number in range(7)]
        found = wire.tool("memory_search", {"query": "number 4", "minScore": 0})
        assert "number 4" in str(found["structuredContent"]["results"])
        status = wire.tool("memory_status", {})["structuredContent"]
        assert (status["queuedOffline"], status["deadLetters"]) == (0, 0)


def test_an_agent_that_goes_on_asking_does_not_put_off_the_return(machine: Machine, relay: RecordingRelay) -> None:
    """Each call tries the daemon again at once; the next try by itself comes no later for it."""
    with Wire(machine) as wire:
        wire.open()
        relay.cut()
        assert store(wire, "- on the train", path="memory/log.md")["queued"]
        for _ in range(14):
            wire.tool("memory_search", {"query": "heron"})
            time.sleep(0.25)
        time.sleep(1)  # the last call's own try is over
        relay.mend()
        wait_until("what was queued", lambda: lines_of(machine, "memory/log.md") == ["- on the train"])


@pytest.mark.parametrize("era", ERAS)
async def test_the_answers_fit_their_schemas(machine: Machine, relay: RecordingRelay, era: Era) -> None:
    """The official client, both eras: every answer while the daemon is away is of the form that the tool promises to who asks for it."""
    async with session(machine, era) as client:
        assert not (await client.call_tool("memory_store", {"content": "- The egret nests in reeds."})).is_error
        relay.cut()
        for tool, arguments in (
            ("memory_store", {"content": "- The bittern booms at night."}),
            ("memory_search", {"query": "heron at dawn", "maxTokens": 200, "since": "30d", "rank": "balanced"}),
            ("memory_search", {"query": "bittern"}),
            ("memory_read", {"path": "MEMORY.md"}),
        ):
            result = await client.call_tool(tool, arguments)
            assert not result.is_error, result.content
            assert result.structured_content is not None
            if tool == "memory_search":
                assert result.structured_content["searchMode"] == "offline"
                assert "(since " in result.structured_content["warnings"][0]
                assert result.structured_content["results"]
        for tool in ("memory_sync", "memory_status"):
            result = await client.call_tool(tool, {})
            assert result.is_error
            text = str(result.content)
            assert "(since " in text
            assert "keeps trying" in text
            assert "1 store waits on this device" in text


def test_what_was_stored_is_found_and_read_before_the_daemon_has_it(machine: Machine, relay: RecordingRelay) -> None:
    """By this session, by another one and by the command line; marked as waiting."""
    with Wire(machine) as wire, Wire(machine) as other:
        wire.open()
        other.open()
        assert is_up(wire)
        assert is_up(other)
        relay.cut()
        store(wire, "- The stilt wades on red legs.", path="MEMORY.md", heading="Birds")
        for session_ in (wire, other):
            found = session_.tool("memory_search", {"query": "stilt red legs"})["structuredContent"]
            assert found["results"][0]["path"] == "MEMORY.md"
            assert found["results"][0]["heading"] == "Birds"
            assert "queue" in found["warnings"][-1]
            text = session_.tool("memory_read", {"path": "MEMORY.md"})["structuredContent"]
            assert text["content"] == "# Birds\n\nThe heron fishes at dawn.\n\n- The stilt wades on red legs."
            assert "1 of its changes still wait" in text["warnings"][1]
        told = machine.run("search", "stilt red legs")
        assert "The stilt wades" in told
        assert "note: " in told
        assert "The stilt wades" in machine.run("read", "MEMORY.md")
        assert lines_of(machine, "MEMORY.md")[-1] == "The heron fishes at dawn."
        relay.mend()
        wait_until("the queue to be sent", lambda: is_up(wire) and waiting(machine) == (0, 0))
        wait_until("the file", lambda: lines_of(machine, "MEMORY.md")[-1] == "- The stilt wades on red legs.")


def test_the_queue_outlives_everybody(machine: Machine, daemon: Daemon, relay: RecordingRelay, tmp_path: Path) -> None:
    """Two projects, the proxy killed while it is offline and started again, the daemon killed too: all arrives once, in order."""
    project, elsewhere = machine.project, tmp_path / "elsewhere"
    elsewhere.mkdir()
    with Wire(machine) as wire:
        wire.open()
        store(wire, "- line 0", path="memory/log.md")
        relay.cut()
        store(wire, "- line 1", path="memory/log.md")
        wire.process.kill()
    machine.project = elsewhere
    with Wire(machine) as wire:
        wire.open()
        assert store(wire, "- far 0", path="memory/log.md")["queued"]
        store(wire, "- for all 0", path="MEMORY.md", project="global")
    machine.project = project
    machine.run("store", "- line 2", "--path", "memory/log.md")
    daemon.kill()
    with Wire(machine) as wire:
        wire.open()
        store(wire, "- line 3", path="memory/log.md")
        assert waiting(machine) == (5, 0)
        daemon.start()
        relay.mend()
        wait_until("the queue to be sent", lambda: waiting(machine) == (0, 0))
        wait_until("the log", lambda: lines_of(machine, "memory/log.md") == [f"- line {number}" for number in range(4)])
        for query in ("line 1", "line 2", "for all 0"):
            assert query in str(wire.tool("memory_search", {"query": query, "minScore": 0})["structuredContent"])
    machine.project = elsewhere
    machine.run("sync")
    assert lines_of(machine, "memory/log.md") == ["- far 0"]
    assert (machine.home / "global" / "MEMORY.md").read_text() == "- for all 0\n"


def test_a_daemon_that_hangs_is_not_waited_for(machine: Machine, daemon: Daemon) -> None:
    """The cable is not cut, nobody says goodbye: the deadline holds all the same, and what was on its way is made once."""
    with Wire(machine) as wire:
        wire.open()
        store(wire, "- before", path="memory/log.md")
        daemon.signal(signal.SIGSTOP)
        try:
            started = time.monotonic()
            assert store(wire, "- meanwhile", path="memory/log.md")["queued"]
            assert (
                time.monotonic() - started < 9.5
            )  # 2 s until nobody is there, 2 s for another link; a call that is given up takes 10 s
            started = time.monotonic()
            found = wire.tool("memory_search", {"query": "heron dawn"})["structuredContent"]
            assert found["searchMode"] == "offline"
            assert time.monotonic() - started < 9.5
        finally:
            daemon.signal(signal.SIGCONT)
        wait_until("the link", lambda: is_up(wire))
        store(wire, "- after", path="memory/log.md")
        assert lines_of(machine, "memory/log.md") == ["- before", "- meanwhile", "- after"]


def test_what_the_daemon_refuses_is_kept_and_shown(machine: Machine, daemon: Daemon, relay: RecordingRelay) -> None:
    """It does not hold up the rest; a person sees why, and sends it again or drops it."""
    with Wire(machine) as wire:
        wire.open()
        assert is_up(wire)
        relay.cut()
        store(wire, "x", path="MEMORY.md", mode="replace", heading="None such")
        store(wire, "- good", path="memory/log.md")
        store(wire, "y", path="MEMORY.md", mode="replace", heading="Nor this")
        relay.mend()
        wait_until("the queue to be sent", lambda: is_up(wire) and waiting(machine)[0] == 0)
        assert lines_of(machine, "memory/log.md") == ["- good"]
        status = wire.tool("memory_status", {})["structuredContent"]
        assert (status["queuedOffline"], status["deadLetters"]) == (0, 2)
        assert any(
            "2 stores that were queued on this machine were refused later" in each for each in status["warnings"]
        )
        listed = machine.json("queue")["calls"]
        assert [(call["state"], call["code"], call["path"]) for call in listed] == [
            ("refused", "not_found", "MEMORY.md")
        ] * 2
        assert "no section of that heading" in machine.run("queue")
        assert "\n    x" in machine.run("queue", "--show")
        machine.run("queue", "drop", listed[1]["id"][:10], "--yes", program=CONFIDE)
        machine.write("MEMORY.md", "# None such\n\nold\n")
        machine.run("queue", "retry")
        machine.run("sync")
        assert waiting(machine) == (0, 0)
        assert lines_of(machine, "MEMORY.md") == ["# None such", "", "x"]
        assert "nothing waits" in machine.run("queue")
        assert "no queued call has the id" in machine.run("queue", "drop", "abc", code=7)


def test_a_revoked_machine_is_told_and_keeps_its_own_files(
    machine: Machine, daemon: Daemon, relay: RecordingRelay
) -> None:
    """Nothing is queued for a daemon that has said no; what lies on this machine's disk is still answered, with the reason."""
    with Wire(machine) as wire:
        wire.open()
        assert is_up(wire)
        relay.cut()
        store(wire, "- waits", path="memory/log.md")
        daemon.run("device", "rm", machine.name)
        relay.mend()

        def refusal() -> str:
            result = wire.tool("memory_store", {"content": "- more"})
            return str(result["content"][0]["text"]) if result.get("isError") else ""

        wait_until("the refusal", lambda: "revoked" in refusal())
        assert "not stored" in refusal()
        found = wire.tool("memory_search", {"query": "heron dawn"})["structuredContent"]
        assert "revoked" in found["warnings"][0]
        assert found["results"][0]["path"] == "MEMORY.md"
    assert "revoked" in machine.run("store", "- more", code=6)
    assert "revoked" in machine.run("search", "heron")
    assert machine.json("queue")["calls"][0]["path"] == "memory/log.md"


def test_the_status_counts_without_the_daemon(machine: Machine, relay: RecordingRelay) -> None:
    relay.cut()
    told = machine.run("store", "- said in a tunnel", "--path", "memory/log.md")
    assert "queued for memory/log.md\n" in told
    assert "cannot reach" in told
    status = machine.run("status", code=5)
    assert "waiting   1 store for the daemon: confide sync --queue shows it\n" in status
    relay.mend()
    assert "sent what waited on this device: 1 store" in machine.run("search", "tunnel")
    assert lines_of(machine, "memory/log.md") == ["- said in a tunnel"]


def test_wrong_arguments_are_refused_and_not_queued(machine: Machine, relay: RecordingRelay) -> None:
    relay.cut()
    with Wire(machine) as wire:
        wire.open()
        for tool, arguments, told in (
            ("memory_store", {"content": ""}, "'content' is empty"),
            ("memory_store", {}, "'content' is missing"),
            ("memory_store", {"content": "x", "path": "../x.md"}, "must be MEMORY.md"),
            ("memory_store", {"content": "x", "path": "memory/.md"}, "must be MEMORY.md"),
            ("memory_store", {"content": "x", "project": "another"}, "cannot write to project"),
            ("memory_store", {"content": "x", "mode": "prepend"}, "must be one of"),
            ("memory_search", {"query": "x", "maxResults": 51}, "must be between"),
            ("memory_search", {"query": "x", "since": "soon"}, "not a date"),
            ("memory_search", {"query": "x", "colour": "red"}, "unknown parameter"),
            ("memory_read", {"path": "memory/none.md"}, "no such document"),
            ("memory_read", {"path": "MEMORY.md", "fromLine": 99}, "past the end"),
            ("memory_read", {"path": "MEMORY.md", "revision": 1}, "older revisions"),
            ("memory_read", {"path": "../../etc/passwd.md"}, "no such document"),
        ):
            result = wire.tool(tool, arguments)
            assert result.get("isError"), (tool, arguments)
            assert told in result["content"][0]["text"]
    assert waiting(machine) == (0, 0)


def test_a_search_after_the_link_is_back_finds_what_was_queued(machine: Machine, relay: RecordingRelay) -> None:
    """Whoever answers it: the daemon gets what waited first, and until it has, this machine knows."""
    with Wire(machine) as wire:
        wire.open()
        assert is_up(wire)
        for number in range(3):
            relay.cut()
            store(wire, f"- The number {number} bird is a godwit{number}.", path="memory/log.md")
            relay.mend()
            found = wire.tool("memory_search", {"query": f"godwit{number}", "minScore": 0})["structuredContent"]
            assert f"godwit{number}" in str(found["results"]), found


def test_a_catalogue_that_makes_no_sense_changes_no_answer(machine: Machine, relay: RecordingRelay) -> None:
    """What was kept of a daemon's may hold anything; of it only names count, and calls are held against what ships with this version."""
    cache = machine.home / "proxy" / "catalogue.json"
    catalogue = json.loads(PACKAGED.read_bytes())
    senseless: dict[str, Any] = {"memory_search": {"query": 7}, "memory_read": [], "memory_store": {"content": 7}}
    for tool in catalogue["tools"]:
        tool["inputSchema"]["properties"] = senseless.get(tool["name"], {})
    relay.cut()
    cache.write_text(json.dumps(catalogue))
    with Wire(machine) as wire:
        wire.open()
        for tool, arguments in (
            ("memory_search", {"query": "x"}),
            ("memory_store", {"content": "x"}),
        ):
            assert not wire.tool(tool, arguments).get("isError"), tool
        assert wire.call("ping")["result"] == {}


def test_a_watching_machine_sends_what_the_command_line_could_not(machine: Machine, relay: RecordingRelay) -> None:
    """Without any agent: what was stored while the cable was out goes up by itself once it is in again."""
    relay.cut()
    machine.run("store", "- said to nobody", "--path", "memory/log.md")
    with watching(machine) as watch:
        watch.until("down")
        relay.mend()
        watch.until("up")
        wait_until("the file", lambda: lines_of(machine, "memory/log.md") == ["- said to nobody"])
        wait_until("the queue to be empty", lambda: waiting(machine) == (0, 0))
