"""Tasks from a person's and an agent's side, with real programs: added, shown, queued without the daemon, never in clear, ended."""

from __future__ import annotations

import asyncio
import base64
import json
import secrets
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.e2e.cli.test_questions import terminal
from tests.support.daemon.task_runners import Device, named
from tests.support.network.relay import RecordingRelay
from tests.support.programs.processes import CONFIDE, Daemon, Inside, Machine, wait_until
from tests.support.programs.wire import Wire

from confide_crypto.keys.identity import Identity, parse_daemon_key
from confide_crypto.sealing.record import SealedRecord
from confide_crypto.sealing.roster import Roster
from confide_crypto.sealing.space_keys import WrapKey
from confide_crypto.transport.open_channel import connect

TOKEN = "ghp_" + "x7Kd92LmQp0sVbNc84RtYwZaE1fGhJ3uTo5i"  # planted


def soon(**away: int) -> str:
    """A time so far from now."""
    return (datetime.now(UTC) + timedelta(**away)).isoformat(timespec="seconds")


ALL = 'toolsets = ["core", "tasks"]\n'


def test_a_task_from_its_order_to_its_end(machine: Machine) -> None:
    """What is shown is the whole order, as this machine signed it; a credential in it is sealed."""
    text = f"Review it with {TOKEN}."
    added = machine.json("task", "add", text, "--repo", "git@host:shop", "--schedule", "30 2 * * *", "--zone", "UTC")
    assert (added["schedule"], added["state"], added["queued"]) == ("30 2 * * *", "active", False)
    assert "no runner" in added["warnings"][0]
    shown = machine.json("task", "show", added["id"][:6])
    assert shown["problem"] is None
    assert shown["device"] == machine.name
    order = shown["order"]
    assert (order["recipe"], order["repo"], order["zone"]) == ("review", "git@host:shop", "UTC")
    assert "(sealed:github-token:" in order["description"]
    assert TOKEN not in json.dumps(shown)
    assert [one["state"] for one in shown["slots"]] == ["ready"]
    assert machine.json("task", "pause", added["id"])["state"] == "paused"
    assert machine.json("report") == {"lines": machine.json("report")["lines"], "open": True}
    assert "paused" in machine.run("report")
    assert machine.json("task", "resume", added["id"])["state"] == "active"
    again = machine.json("task", "run-now", added["id"])
    assert (again["id"] != added["id"], again["schedule"]) == (True, None)
    assert machine.json("task", "cancel", added["id"])["cancelled"]
    assert {one["status"] for one in machine.json("task", "ls")["tasks"]} == {"cancelled", "pending"}


def test_the_report_names_notes_about_changed_code(machine: Machine) -> None:
    """This device compares them, as the daemon cannot; no note is changed by it."""
    source = machine.write("app.py", "def login(user):\n    return user.name\n")
    (machine.project / "db.py").write_text("LIMIT = 3\n")
    login = machine.json("store", "`login()` in app.py takes the lock first", "--title", "Locks")["path"]
    machine.run("store", "db.py has the limit of connections", "--title", "Limits")
    text = (machine.project / login).read_text()
    assert "Notes of this project" not in machine.run("report")
    source.write_text("def login(user):\n    return user.id\n")
    head, *named = machine.json("report")["lines"][-2:]
    assert "changed or no longer exists: 1 (" in head
    assert [line.partition(": changed since ")[0] for line in named] == [login]
    assert (machine.project / login).read_text() == text


WRONG = (
    ("--schedule", "every night"),
    ("--schedule", "*/5 * * * *"),
    ("--schedule", "0 2 * * *", "--at", soon(days=30)),
    ("--at", "tomorrow"),
    ("--zone", "Mars/Olympus", "--at", soon(days=30)),
    ("--type", "dance"),
    ("--repo", "ext::sh -c id"),
    ("--priority", "11"),
    ("--missed", "never"),
    ("--timeout", "1s", "--retries", "9"),
)


def test_a_machine_s_new_key_signs_what_the_old_one_has_ordered(tmp_path: Path, daemon: Daemon) -> None:
    """A rotation leaves no task behind: each stays what it was, signed anew, and what the machine has approved stays approved."""
    (laptop, desktop) = (Inside(tmp_path, f"{name}-{secrets.token_hex(4)}") for name in ("laptop", "desktop"))
    laptop.run("join", daemon.invite(laptop.name))
    desktop.run("join", laptop.json("device", "invite", desktop.name, "--no-wait")["invite"])
    laptop.run("device", "ls")  # which takes it in
    task = laptop.json("task", "add", "look", "--repo", "git@host:shop", "--schedule", "0 2 * * *")["id"]
    own = desktop.json("task", "add", "look too", "--repo", "git@host:shop", "--schedule", "0 3 * * *")["id"]
    desktop.run("task", "approve", task, "--yes", program=CONFIDE)
    before = {one: laptop.json("task", "show", one) for one in (task, own)}
    desktop.run("key", "rotate")
    after = {one: laptop.json("task", "show", one) for one in (task, own)}
    assert [one["problem"] for one in after.values()] == [None, None]
    assert after[own]["order"].pop("signer") != before[own]["order"].pop("signer")
    assert after[own]["order"] == before[own]["order"]
    assert (after[own]["state"], after[own]["slots"]) == (before[own]["state"], before[own]["slots"])
    assert after[task]["order"] == before[task]["order"]
    assert [len(one[task]["approvals"]) for one in (before, after)] == [1, 1]
    assert after[task]["approvals"] != before[task]["approvals"]
    laptop.run("key", "rotate")
    # Whoever approved it has seen it with the name of the old key: it is asked again.
    told = desktop.json("task", "show", task)
    assert (told["problem"], told["approvals"]) == (None, [])
    assert "paused" not in laptop.run("report")


def test_what_waited_while_the_key_was_changed_is_ordered_with_the_new_one(
    machine: Machine, relay: RecordingRelay
) -> None:
    """An order is signed when it is sent; one whose answer was lost is one task all the same, and nothing is refused."""
    (machine.home / "proxy.toml").write_text(ALL)
    with Wire(machine) as wire:
        wire.open()
        assert not wire.tool("memory_status", {}).get("isError")
        relay.mute()
        wire.ask_tool("task_add", {"description": "unanswered", "scheduled_for": soon(days=30)})
        wait_until("the daemon to have it", lambda: len(machine.json("task", "ls")["tasks"]) == 1)
        relay.cut()
        kept = wire.tool("task_add", {"description": "offline", "scheduled_for": soon(days=30)})
        assert kept["structuredContent"]["queued"]
    assert machine.json("queue")["queuedOffline"] == 2
    relay.mend()
    machine.run("key", "rotate")
    with Wire(machine) as wire:
        wire.open()
        wait_until("what waited to be sent", lambda: machine.json("queue")["queuedOffline"] == 0)
    print(machine.run("queue"))
    tasks = machine.json("task", "ls")["tasks"]
    assert sorted(one["title"] for one in tasks) == ["offline", "unanswered"]
    assert {machine.json("task", "show", one["id"])["problem"] for one in tasks} == {None}


def test_what_cannot_be_ordered_is_refused(machine: Machine) -> None:
    """Each with a sentence that says what to write; nothing of it is queued."""
    for wrong in WRONG:
        said = machine.run("task", "add", "look at it", *wrong, code=7)
        assert "hint:" in said or "is one of" in said or "is a number" in said, wrong
    assert machine.json("task", "ls")["tasks"] == []


def test_a_second_device_approves_and_the_first_cannot(machine: Machine) -> None:
    added = machine.json("task", "add", "look at it")
    said = machine.run("task", "approve", added["id"], "--yes", code=7)
    assert "queued the task itself" in said
    assert "another device" in said


def test_without_the_daemon_an_agents_task_waits(machine: Machine, relay: RecordingRelay) -> None:
    """It is one task however often it is sent; what only reads says that the daemon is away."""
    (machine.home / "proxy.toml").write_text(ALL)
    with Wire(machine) as wire:
        wire.open()
        first = wire.tool("task_add", {"description": "online", "scheduled_for": soon(days=30)})
        assert not first.get("isError"), first
        relay.cut()
        kept = wire.tool("task_add", {"description": "offline", "type": "refactor", "priority": "7"})
        assert not kept.get("isError"), kept
        told = kept["structuredContent"]
        assert told["queued"]
        ended = wire.tool("task_cancel", {"id": told["id"]})["structuredContent"]
        assert ended["queued"]
        assert wire.tool("task_list", {}).get("isError")
        assert wire.tool("task_results", {}).get("isError")
        assert machine.json("queue")["queuedOffline"] == 2
        relay.mend()
        wait_until("the link", lambda: not wire.tool("memory_status", {}).get("isError"))
        wait_until("what waited to be sent", lambda: machine.json("queue")["queuedOffline"] == 0)
        listed = {one["title"]: one for one in wire.tool("task_list", {})["structuredContent"]["tasks"]}
        assert set(listed) == {"online", "offline"}
        assert (listed["offline"]["id"], listed["offline"]["status"]) == (told["id"], "cancelled")
        assert listed["offline"]["priority"] == 7
        bad = wire.tool("task_add", {"description": "x", "order": "{}", "signature": "AA=="})
        assert bad.get("isError"), "an agent signs nothing"


def test_no_text_of_a_task_crosses_the_wire_in_clear(machine: Machine, relay: RecordingRelay) -> None:
    machine.json("task", "add", f"canary-91f3 {TOKEN}", "--context", '{"note": "canary-77aa"}')
    recorded = relay.captured
    assert recorded
    for canary in (b"canary-91f3", b"canary-77aa", TOKEN.encode()):
        assert canary not in recorded


async def played(daemon: Daemon, machine: Machine, text: str) -> dict[str, Any]:
    """A run of this machine's task, by a runner that a test plays with the machine's own key; how it ended."""
    identity = Identity.load(machine.home / "proxy" / "identity.key")
    address = json.loads((daemon.data / "daemon.address").read_bytes())
    connection = await connect(address["url"], identity, parse_daemon_key(address["key"]))
    async with Device(connection, identity) as runner:
        entries = (await runner.request("roster", {"from": 0}))["entries"]
        runner.roster = Roster.read(base64.b64decode(entry) for entry in entries)
        slot = await runner.claim("ask")
        assert slot is not None
        await runner.start(slot)
        keys = runner.roster.open(WrapKey(identity))
        for part, said in ((0, b"what it did\n"), (1, b"lost"), (3, b"how it ended\n")):
            record = bytearray(SealedRecord.seal(keys, "task-log", said).encode())
            record[-1] ^= part == 1
            told = {**named(slot), "part": part, "record": base64.b64encode(record).decode()}
            await runner.request("task-log", told)
        return await runner.end(slot, text=text)


def test_a_result_becomes_a_note_once_a_person_says_so(daemon: Daemon, machine: Machine) -> None:
    """The log opens here, but for what is damaged of it; the result is found by a search only when it was accepted at a terminal."""
    added = machine.json("task", "add", "Ask about zebras.", "--at", soon(minutes=-1))
    asyncio.run(played(daemon, machine, "The zebra crosses at noon."))
    log = machine.json("task", "show", "--log", added["id"])
    assert [line[:28] for line in log["log"].splitlines()] == [
        "what it did",
        "(part 1 of this log cannot b",
        "(part 2 of this log is not h",
        "how it ended",
    ]
    assert log["unreadable"] == [1, 2]
    assert machine.run("task", "show", "--log", added["id"]) == log["log"]
    assert "succeeded, unchecked" in machine.run("report", "--since", "12h")
    assert "this needs an answer, and there is no terminal to ask in" in machine.run(
        "task", "accept", added["id"], code=7
    )
    assert machine.json("search", "zebra noon")["results"] == []
    with terminal(machine, "task", "accept", added["id"][:8]) as person:
        person.wait_for("The zebra crosses at noon.")
        person.wait_for("[y/N]")
        person.type("y\n")
        assert person.ends() == 0
    found = machine.json("search", "zebra noon")["results"]
    assert [one["path"].startswith("memory/notes/") for one in found] == [True]
    assert found[0]["class"] == "owner"
