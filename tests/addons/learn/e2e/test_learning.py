"""From what a person said in a session to a note that a search finds, with the real programs."""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.hooks.test_action_hooks import sooner_or_later
from tests.e2e.hooks.test_hook import context, fired
from tests.support.deadline import DEADLINE_S
from tests.support.documents.exchanges import Pointed
from tests.support.documents.transcripts import SESSION, ClaudeSession, text, tool
from tests.support.programs.processes import Inside, Machine, wait_until
from tests.support.programs.wire import Wire

OTHER = "0a6afc57-2f31-4cb4-8ff0-01247f50c64d"
TOKEN = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """One for all, with a daemon of its own."""
    alone = Inside(tmp_path_factory.mktemp("learning"), "laptop")
    yield alone
    alone.stop_local_daemon()


def configure(machine: Machine, mode: str) -> None:
    (machine.home / "proxy.toml").write_text(f'[learn]\nmode = "{mode}"\n')


def session(machine: Machine, name: str = SESSION) -> Pointed:
    projects = Path(machine.env["HOME"]) / ".claude" / "projects"
    return Pointed(machine.home / "proxy", machine.home / "proxy.toml", projects, machine.project, name)


def suggestions(machine: Machine, *options: str) -> dict[str, dict[str, Any]]:
    return {each["text"]: each for each in machine.json("learned", *options)["suggestions"]}


def test_what_a_person_said_becomes_a_note_that_is_found(machine: Machine) -> None:
    """Off it learns nothing and says so. On: suggested, accepted, found; edited; refused for good; taken back. No credential anywhere."""
    assert "learning is off" in machine.run("learn", code=7)
    assert not (machine.home / "proxy" / "learn").exists()
    configure(machine, "suggest")
    talk = session(machine)
    talk.talk.user("why do the walrus invoices round wrong?")
    talk.talk.assistant(
        {"type": "thinking", "thinking": "Always use thinking-markers."}, tool("Bash", command="make walrus")
    )
    talk.talk.user([{"type": "tool_result", "tool_use_id": "toolu_1", "content": "Never trust output-markers here."}])
    talk.talk.assistant(text("They are floats."))
    talk.said("No, never use floats for walrus money, only integer cents.")
    talk.said("From now on answer in German, please.")
    talk.said("We chose narwhals over walruses because they float.")
    talk.said(f"Remember that the token of the walrus mirror is {TOKEN}")
    talk.point("SessionEnd")
    told = machine.json("learn")
    assert (told["exchanges"], told["found"], told["waiting"]) == (5, 5, 5)
    found = suggestions(machine)
    cents = found["Never use floats for walrus money, only integer cents."]
    german = found["From now on answer in German, please."]
    narwhals = found["We chose narwhals over walruses because they float."]
    token = next(each for said, each in found.items() if "(sealed:github-token:" in said and each["kind"] == "remember")
    shown = machine.run("learned")
    assert cents["id"] in shown
    assert 'said: "No, never use floats for walrus money, only integer cents."' in shown
    assert "marker" not in shown
    assert f"stored: {'memory/notes/'}" in machine.run("learned", "accept", cents["id"][:6], token["id"])
    (hit, *_) = machine.json("search", "walrus money floats or cents")["results"]
    assert "integer cents" in hit["snippet"]
    assert "source: hook" in (machine.project / hit["path"]).read_text()
    machine.run("learned", "edit", german["id"], "--text", "Answer in German with Ada.")
    assert any("Answer in German with Ada." in file.read_text() for file in (machine.project / "memory").rglob("*.md"))
    machine.run("learned", "refuse", narwhals["id"])
    assert "is refused already" in machine.run("learned", "accept", narwhals["id"], code=7)
    session(machine, OTHER).said("We chose narwhals over walruses because they float.")
    assert machine.json("learn")["found"] == 0
    machine.run("learned", "undo", cents["id"])
    assert not (machine.project / hit["path"]).exists()
    states = {each["id"]: each["state"] for each in suggestions(machine, "--all").values()}
    assert states[cents["id"]] == "undone"
    assert states[narwhals["id"]] == "refused"
    status = machine.run("learn", "--status")
    assert "learning is suggest" in status
    assert "0 of 100 calls" in status
    kept = [file for folder in (machine.home, machine.project) for file in folder.rglob("*") if file.is_file()]
    holding = [file for file in kept if file.stat().st_size < 2**20 and TOKEN.encode() in file.read_bytes()]
    assert holding == []


def test_what_helped_against_an_error_meets_it_in_a_later_session(machine: Machine) -> None:
    """A command fails, another form of it works: suggested, kept by a person, and shown when it fails again."""
    configure(machine, "suggest")
    talk = session(machine, "eresolve-session")
    error = "Exit code 1\nnpm error code ERESOLVE\nnpm error ERESOLVE could not resolve react-dates@21.8.0"
    talk.talk.user("install what the shop needs")
    for number, (command, answer, is_error) in enumerate(
        [("npm ci", error, True), ("npm ci --legacy-peer-deps", "added 812 packages in 9s", False)]
    ):
        talk.talk.assistant({**tool("Bash", command=command), "id": f"toolu_{number}"})
        talk.talk.user(
            [{"type": "tool_result", "tool_use_id": f"toolu_{number}", "is_error": is_error, "content": answer}]
        )
    talk.talk.assistant(text("It is installed."))
    talk.point("SessionEnd")
    machine.json("learn")
    ((said, suggestion),) = [each for each in suggestions(machine).items() if "npm ci" in each[0]]
    assert said == (
        "`npm ci` failed with `ERESOLVE could not resolve react-dates@21.8.0`; `npm ci --legacy-peer-deps` worked."
    )
    machine.run("learned", "accept", suggestion["id"])
    (note,) = [file for file in (machine.project / "memory").rglob("*.md") if "react-dates" in file.read_text()]
    assert "command: npm ci\n" in note.read_text()
    assert "error: ERESOLVE\n" in note.read_text()
    with Wire(machine) as wire:
        wire.open()
        wire.tool("memory_sync", {})
        wait_until("somebody to listen", (machine.home / "proxy/hooks.sock").exists)
        again = {"tool_name": "Bash", "tool_input": {"command": "npm ci"}, "error": error.replace("21.8", "22.0")}
        _, shown = sooner_or_later(lambda one: context(fired(machine, "PostToolUseFailure", session_id=one, **again)))
    assert "`npm ci --legacy-peer-deps` worked" in shown


def test_a_session_learns_by_itself_once_it_is_quiet(machine: Machine) -> None:
    """An agent's server takes the seat a minute after the last pointer; with `auto` the next search finds it, and one command undoes it."""
    configure(machine, "auto")
    with Wire(machine) as wire:
        wire.open()
        wire.tool("memory_status", {})
        session(machine, "quiet-session").said("Always label the axes of seal charts with units.")
        pointers = machine.home / "proxy" / "learn" / "pointers.jsonl"
        os.utime(pointers, (0, 0))  # a minute goes by
        wait_until("the session to learn", lambda: pointers.stat().st_size == 0)
        result = wire.tool("memory_search", {"query": "label the axes of seal charts"})
    assert "Always label the axes of seal charts with units." in json.dumps(result)
    kept = suggestions(machine, "--all")["Always label the axes of seal charts with units."]
    assert kept["state"] == "stored"
    machine.run("learned", "undo", kept["id"])
    assert machine.json("search", "label the axes of seal charts", "--min-score", "0.3")["results"] == []


def test_a_session_of_yesterday_is_in_the_briefing_of_today(machine: Machine) -> None:
    """What the learner stores as a session's summary is what a start looks for, with the class that it has."""
    configure(machine, "auto")
    talk = session(machine, "yesterday-session")
    for number in range(3):
        talk.said(f"question {number} about the penguin ledger", f"answer {number}: the ledger is by year")
    talk.point("SessionEnd")
    assert machine.json("learn")["found"] == 1
    told: dict[str, Any] = {"source": "startup", "cwd": str(machine.project)}
    with Wire(machine) as wire:
        wire.open()
        wait_until("somebody to listen", (machine.home / "proxy/hooks.sock").exists)
        end, number, briefing = time.monotonic() + DEADLINE_S, 0, ""
        while "Last session" not in briefing and time.monotonic() < end:  # a hook may be late on a busy machine
            number += 1
            briefing = context(fired(machine, "SessionStart", session_id=f"today-{number}", **told))
    (line,) = (each for each in briefing.splitlines() if "Last session" in each)
    assert "(derived, by " in line
    assert "question 0 about the penguin ledger" in line
    (kept,) = (each for said, each in suggestions(machine, "--all").items() if "penguin ledger" in said)
    machine.run("learned", "undo", kept["id"])


def test_what_is_listed_steers_no_terminal(machine: Machine) -> None:
    """A text of whatever origin is shown as text; as JSON it is escaped. The folder is its owner's alone."""
    configure(machine, "suggest")
    file = machine.home / "proxy" / "learn" / "suggestions.json"
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    evil = "\x1b]52;c;aGk=\x07\u202evil\nstored: all of it\r\x9b2J"
    names = ("text", "quote", "project", "kind", "judge", "path", "note", "session")
    row = {**dict.fromkeys(names, evil), "id": "deadbeef", "folder": "/x", "client": "codex", "at": 1}
    before = file.read_bytes() if file.exists() else b"[]"
    file.write_text(json.dumps([row]))
    told = machine.run("learned"), machine.run("learned", "--json")
    file.write_bytes(before)
    assert "deadbeef" in told[0]
    for output in told:
        assert not any(letter in output for letter in "\x1b\x07\u202e\r\x9b")
        assert "\nstored: all" not in output
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


def test_what_was_stored_behind_words_of_strangers_is_lowered(machine: Machine) -> None:
    """An agent that read a web page and then stored something: the learner has that counted as untrusted."""
    configure(machine, "suggest")
    with Wire(machine) as wire:
        wire.open()
        stored = wire.tool("memory_store", {"content": "Penguins deploy on Sundays.", "title": "Penguins"})
        before = wire.tool("memory_store", {"content": "Puffins deploy on Saturdays.", "title": "Puffins"})
    talk = session(machine, "stranger-session")
    talk.talk.user("look up how penguins deploy")
    store = {"type": "tool_use", "name": "mcp__confide__memory_store", "input": {"content": "x"}}
    fetch = {"type": "tool_use", "id": "t2", "name": "WebFetch", "input": {"url": "https://penguins.example/"}}
    for identity, block, content in (
        ("t1", {**store, "id": "t1"}, before["content"]),
        ("t2", fetch, "Penguins deploy on Sundays."),
        ("t3", {**store, "id": "t3"}, stored["content"]),
    ):
        talk.talk.assistant(block)
        talk.talk.user([{"type": "tool_result", "tool_use_id": identity, "content": content}])
    talk.said("thanks")
    machine.json("learn")
    classes = {hit["path"]: hit["class"] for hit in machine.json("search", "deploy on")["results"]}
    assert {path: value for path, value in classes.items() if "penguins" in path or "puffins" in path} == {
        stored["structuredContent"]["path"]: "untrusted",
        before["structuredContent"]["path"]: "agent",
    }


def test_a_transcript_alone_teaches_nothing(machine: Machine) -> None:
    """Without a pointer of a hook a session is not read: where nobody switched hooks on, nothing is learned."""
    configure(machine, "suggest")
    projects = Path(machine.env["HOME"]) / ".claude" / "projects"
    ClaudeSession(projects, machine.project, "no-hooks").user("Always ask the walrus first.")
    assert machine.json("learn")["sessions"] == 0
