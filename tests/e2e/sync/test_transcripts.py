"""Session transcripts from a client's folder to a search hit, with the real programs."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.deadline import DEADLINE_S
from tests.support.documents.transcripts import SESSION, ClaudeSession, text, tool
from tests.support.draws import draws
from tests.support.network.relay import RecordingRelay
from tests.support.programs.forked import Program
from tests.support.programs.processes import CONFIDE, Daemon, Inside, Machine, running_daemon, wait_until
from tests.support.programs.wire import Wire

OTHER = "0a6afc57-2f31-4cb4-8ff0-01247f50c64d"


NAMES = (f"laptop{number}" for number in itertools.count())
STILL_BYTES = 16 * 1024
"""A process that reads less in two seconds is at rest."""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """One for all, with a space for each machine."""
    with running_daemon(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture
def machine(tmp_path: Path, daemon: Daemon) -> Machine:
    """A machine that has joined, and sends Claude Code's transcripts."""
    joined = Inside(tmp_path, "laptop")
    joined.run("join", daemon.invite(next(NAMES)))
    configure(joined)
    return joined


def configure(machine: Machine, *, quiet_s: int = 1, sources: str = '["claude-code"]') -> None:
    (machine.home / "proxy.toml").write_text(f"transcripts = {sources}\ntranscript_quiet_s = {quiet_s}\n")


def projects_of(machine: Machine) -> Path:
    return Path(machine.env["HOME"]) / ".claude" / "projects"


def session_of(machine: Machine, session: str = SESSION, cwd: Path | None = None) -> ClaudeSession:
    return ClaudeSession(projects_of(machine), cwd or machine.project, session)


def hits(wire: Wire, query: str, **more: Any) -> list[dict[str, Any]]:
    arguments = {"query": query, "sources": ["sessions"], "minScore": 0.05, **more}
    found: list[dict[str, Any]] = wire.tool("memory_search", arguments)["structuredContent"]["results"]
    return found


def is_heard(wire: Wire, words: str) -> bool:
    return any(words in hit["snippet"] for hit in hits(wire, words))


def document(wire: Wire, path: str, **more: Any) -> str:
    content: str = wire.tool("memory_read", {"path": path, "lines": 2000, **more})["structuredContent"]["content"]
    return content


def test_what_was_said_is_found_in_the_next_session(machine: Machine) -> None:
    """An agent finds what was said in another session of its project, and reads on; tools' output and thinking are nowhere."""
    talk = session_of(machine)
    talk.user("why did the walrus migration fail?")
    talk.assistant({"type": "thinking", "thinking": "pondering-marker", "signature": "x"})
    talk.assistant(tool("Bash", command="grep walrus migrations/*.sql"))
    talk.user([{"type": "tool_result", "tool_use_id": "toolu_1", "content": "output-marker"}])
    talk.assistant(text("The walrus column had no default, so old rows broke it."))
    with Wire(machine) as wire:
        wire.open()
        hit = wait_until("the session to be found", lambda: hits(wire, "walrus column default"))[0]
        assert hit["path"] == f"sessions/2026-11-20-claude-code-{SESSION}.md"
        assert hit["source"] == "sessions"
        whole = document(wire, hit["path"])
        assert "[tool Bash: grep walrus migrations/*.sql]" in whole
        assert "main" in whole
        assert "marker" not in whole
        talk.user("and the narwhal?")
        wait_until("the next words", lambda: is_heard(wire, "and the narwhal?"))
        status = wire.tool("memory_status", {})["structuredContent"]
        assert status["sources"]["sessions"]["files"] == 1


def test_nothing_is_sent_unless_the_user_asks(machine: Machine) -> None:
    """Neither by default nor because a project's file says so; the commands work as ever."""
    (machine.home / "proxy.toml").unlink()
    (machine.project / ".confide.toml").write_text('name = "x"\ntranscripts = ["claude-code"]\n')
    session_of(machine).user("the private walrus")
    machine.run("sync")
    with Wire(machine) as wire:
        wire.open()
        wire.tool("memory_sync", {})
        assert hits(wire, "walrus") == []
    assert not (machine.home / "proxy" / "transcripts").exists()


def test_a_command_sends_it_too(machine: Machine, tmp_path: Path) -> None:
    """`confide sync` sends what is there, of every project, and says how much; a second time there is nothing."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    session_of(machine).user("about walruses")
    session_of(machine, OTHER, elsewhere).user("about narwhals")
    told = machine.json("sync")
    assert (told["transcripts"]["sessions"], told["transcripts"]["messages"]) == (2, 2)
    assert machine.json("sync")["transcripts"]["messages"] == 0
    found = machine.json("search", "narwhals", "--all-projects")["results"]
    assert [hit["project"] for hit in found] == ["elsewhere"]
    assert machine.json("search", "narwhals")["results"] == []


def test_a_rewritten_file_and_a_shortened_one(machine: Machine) -> None:
    """What a file holds now is what is there, once; a file that is gone keeps its place in memory."""
    talk = session_of(machine)
    talk.user("first version about turnips")
    talk.user("still about turnips")
    machine.run("sync")
    before = talk.path.read_bytes().replace(b"turnips", b"carrots!")
    talk.path.unlink()
    talk.path.write_bytes(before)
    machine.run("sync")
    assert "turnips" not in str(machine.json("search", "turnips", "--min-score", "0.05")["results"])
    assert "about carrots!" in str(machine.json("search", "carrots", "--min-score", "0.05")["results"])
    talk.path.write_bytes(before.split(b"\n")[0] + b"\n")
    machine.run("sync")
    path = f"sessions/2026-11-20-claude-code-{SESSION}.md"
    assert machine.json("read", path)["content"].count("carrots!") == 1
    talk.path.unlink()
    machine.run("sync")
    assert machine.json("read", path)["content"].count("carrots!") == 1


def test_broken_lines_and_odd_files_stop_nothing(machine: Machine, tmp_path: Path) -> None:
    """Broken UTF-8, no JSON, a huge line, a line without its end; links, a pipe, and files that may not be read."""
    talk = session_of(machine)
    talk.write_raw(b"\xff\xfe{not json\n[]\n{}\n\n")
    talk.user("before the flood")
    talk.write_raw(b'{"type":"user","x":"' + b"a" * (9 * 1024 * 1024) + b'"}\n')
    talk.user("nul \0 and half a pair \ud83d here")
    talk.user("after the flood")
    talk.write_raw(b'{"type":"user","message":{"role":"user","content":"half a li')
    outside = ClaudeSession(tmp_path / "outside", machine.project, OTHER)
    outside.user("the outside walrus")
    folder = talk.path.parent
    (folder / f"{OTHER}.jsonl").symlink_to(outside.path)
    (folder.parent / "linked").symlink_to(outside.path.parent)
    os.mkfifo(folder / "pipe.jsonl")
    (folder / "unreadable.jsonl").write_text("{}\n")
    (folder / "unreadable.jsonl").chmod(0)
    told = machine.json("sync")["transcripts"]
    assert told["messages"] == 3
    assert told["skipped"] == 4
    content = machine.json("read", f"sessions/2026-11-20-claude-code-{SESSION}.md")["content"]
    assert "before the flood" in content
    assert "after the flood" in content
    assert "half a li" not in content
    assert machine.json("search", "outside walrus", "--min-score", "0.3")["results"] == []
    talk.write_raw(b'ne"}}\n')
    assert machine.json("sync")["transcripts"]["messages"] == 1


def test_codex_is_read_as_well(machine: Machine) -> None:
    """The second format, from where Codex keeps it."""
    configure(machine, sources='["claude-code", "codex"]')
    folder = Path(machine.env["HOME"]) / ".codex" / "sessions" / "2026" / "11" / "20"
    folder.mkdir(parents=True)
    meta = {"id": SESSION, "cwd": str(machine.project), "git": {"branch": "tusk"}, "cli_version": "0.65.0"}
    said = [{"type": "output_text", "text": "Because the walrus sleeps."}]
    lines = [
        {"timestamp": "2026-11-20T14:03:00.000Z", "type": "session_meta", "payload": meta},
        {
            "timestamp": "2026-11-20T14:04:00.000Z",
            "type": "response_item",
            "payload": {"type": "message", "role": "assistant", "content": said},
        },
    ]
    rollout = folder / f"rollout-2026-11-20T14-03-00-{SESSION}.jsonl"
    rollout.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert machine.json("sync")["transcripts"]["messages"] == 1
    found = machine.json("search", "walrus sleeps")["results"]
    assert found[0]["path"] == f"sessions/2026-11-20-codex-{SESSION}.md"


def test_no_message_is_lost_or_twice_whoever_is_killed(machine: Machine, daemon: Daemon) -> None:
    """Proxy and daemon are killed in turns while a session grows: every message is there, once, in order."""
    talk = session_of(machine)
    total = draws(180, 100)
    done = threading.Event()

    def write() -> None:
        for number in range(total):
            talk.user(f"message number {number} marker. {'word ' * 60}")
            time.sleep(0.03)
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for turn in itertools.count():
            with Wire(machine) as wire:
                wire.open()
                time.sleep(0.9)
                if turn % 2:
                    daemon.kill()
                    daemon.start()
                else:
                    wire.process.send_signal(signal.SIGKILL)
            if done.is_set() and turn >= draws(5, 3):
                break
    finally:
        writer.join()
    with Wire(machine) as wire:
        wire.open()
        wait_until("the last message", lambda: f"number {total - 1} " in str(hits(wire, f"message number {total - 1}")))
        paths = {hit["path"] for hit in hits(wire, "message number marker", maxResults=50)}
        whole = "".join(document(wire, path) for path in sorted(paths))
        assert [int(number) for number in re.findall(r"message number (\d+) marker", whole)] == list(range(total))


def test_one_process_streams_and_another_takes_over(machine: Machine) -> None:
    """With two sessions open the second goes on when the first is killed."""
    talk = session_of(machine)
    talk.user("the first walrus")
    with Wire(machine) as first, Wire(machine) as second:
        first.open()
        second.open()
        wait_until("the first words", lambda: is_heard(second, "the first walrus"))
        first.process.send_signal(signal.SIGKILL)
        talk.user("the second narwhal")
        wait_until("the second words", lambda: is_heard(second, "the second narwhal"))
        path = hits(second, "walrus")[0]["path"]
        assert document(second, path).count("narwhal") == 1


def test_a_session_is_listed_and_forgotten(machine: Machine) -> None:
    """By the path of a hit; nothing of it is taken again, and another one stays."""
    talk = session_of(machine)
    talk.user("the embarrassing walrus")
    session_of(machine, OTHER).user("the decent walrus")
    listed = machine.json("transcripts", "list")["sessions"]
    assert all(each["pendingBytes"] == each["bytes"] for each in listed)
    machine.run("sync")
    listed = machine.json("transcripts", "list")["sessions"]
    assert {each["session"] for each in listed} == {SESSION, OTHER}
    assert not any(each["pendingBytes"] for each in listed)
    told = machine.run(
        "transcripts", "forget", f"sessions/2026-11-20-claude-code-{SESSION}.md", "--yes", program=CONFIDE
    )
    assert SESSION in told
    talk.user("the embarrassing walrus again")
    machine.run("sync")
    found = str(machine.json("search", "walrus", "--min-score", "0")["results"])
    assert "decent" in found
    assert "embarrassing" not in found
    assert "no transcript" in machine.run("transcripts", "forget", "never-was", "--yes", code=7)


def test_a_project_keeps_its_sessions_back(machine: Machine) -> None:
    """With a line in its own file, and until that is gone."""
    (machine.project / ".confide.toml").write_text('exclude = ["sessions"]\n')
    session_of(machine).user("about walruses")
    assert machine.json("sync")["transcripts"]["messages"] == 0
    (machine.project / ".confide.toml").unlink()
    assert machine.json("sync")["transcripts"]["messages"] == 1


def test_an_appended_line_costs_what_it_is_worth(tmp_path: Path, daemon: Daemon) -> None:
    """One line more in a long transcript: kilobytes on the wire, and the file is not read again; also by a new process."""
    with RecordingRelay(daemon.port) as relay:
        machine = Inside(tmp_path, "laptop")
        machine.run("join", daemon.invite(next(NAMES), port=relay.port))
        configure(machine)
        talk = session_of(machine)
        for number in range(30):
            talk.user(f"question {number}")
            talk.user([{"type": "tool_result", "tool_use_id": "toolu_1", "content": "x" * 100_000}])
        size = talk.path.stat().st_size
        machine.run("sync")
        for words in ("the first walrus", "the second narwhal"):
            with Wire(machine) as wire:
                wire.open()
                read_before = bytes_read_at_rest(wire.process.pid)
                wire_before = len(relay.captured)
                talk.user(words)
                wait_until("it to be sent", lambda: not pending(machine))
                assert bytes_read(wire.process.pid) - read_before < size / 10
                assert len(relay.captured) - wire_before < 64 * 1024
        assert "narwhal" in str(machine.json("search", "second narwhal")["results"])


def pending(machine: Machine) -> int:
    """Bytes that were not sent, from the proxy's own notes: a command that asks would be on the wire too."""
    offset = 0
    for file in (machine.home / "proxy" / "transcripts").glob("*.jsonl"):
        offset = json.loads(file.read_bytes().splitlines()[-1])[4]
    return sum(file.stat().st_size for file in projects_of(machine).rglob("*.jsonl")) - offset


def bytes_read(pid: int) -> int:
    """What a process has read, by the kernel's count."""
    counters = Path(f"/proc/{pid}/io").read_text().split()
    return int(counters[counters.index("rchar:") + 1])


def bytes_read_at_rest(pid: int) -> int:
    """Wait until a process has loaded its modules and compared its files; return the bytes that it has read by then."""
    before, end = -STILL_BYTES, time.monotonic() + DEADLINE_S
    while (now := bytes_read(pid)) >= before + STILL_BYTES:
        assert time.monotonic() < end, "the process goes on reading"
        before = now
        time.sleep(2)
    return now


def test_a_folder_that_vanishes_and_comes_back(machine: Machine) -> None:
    """`confide sync --watch` sends transcripts too; without their folder it goes on, and what was written meanwhile follows."""
    with Wire(machine) as wire:
        wire.open()  # streams, until it ends
        session_of(machine).user("the first walrus")
        wait_until("the first words", lambda: is_heard(wire, "the first walrus"))
    watching = Program(
        [CONFIDE, "watch", str(machine.project)], env=machine.env, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        away = projects_of(machine).with_name("away")
        projects_of(machine).rename(away)
        time.sleep(3.5)
        assert watching.poll() is None
        away.rename(projects_of(machine))
        session_of(machine).user("the second narwhal")
        wait_until("what was written then", lambda: not pending(machine))
    finally:
        watching.terminate()
        watching.wait(DEADLINE_S)
    whole = machine.json("read", f"sessions/2026-11-20-claude-code-{SESSION}.md")["content"]
    assert (whole.count("walrus"), whole.count("narwhal")) == (1, 1)


def test_a_daemon_that_was_restored_from_a_backup_gets_the_rest_again(machine: Machine, daemon: Daemon) -> None:
    """The daemon's word counts for how far a session is, also where this machine remembers more."""
    talk = session_of(machine)
    talk.user("the first walrus")
    machine.run("sync")
    daemon.stop()
    backup = daemon.data.with_name("backup")
    shutil.copytree(daemon.data, backup)
    daemon.start()
    talk.user("the second walrus")
    machine.run("sync")
    daemon.stop()
    shutil.rmtree(daemon.data)
    backup.rename(daemon.data)
    daemon.start()
    talk.user("the third walrus")
    machine.run("sync")
    whole = machine.json("read", f"sessions/2026-11-20-claude-code-{SESSION}.md")["content"]
    assert re.findall(r"the (\w+) walrus", whole) == ["first", "second", "third"]


@pytest.mark.parametrize("is_command", [True, False])
def test_ended_sessions_go_to_a_restored_daemon_again(machine: Machine, daemon: Daemon, is_command: bool) -> None:
    """Nothing is added to them any more, and this machine knows that it has sent them: what it sent last tells that they are gone."""
    early, late = session_of(machine, SESSION), session_of(machine, OTHER)
    early.user("the first walrus")
    machine.run("sync")
    daemon.stop()
    backup = daemon.data.with_name("backup")
    shutil.copytree(daemon.data, backup)
    daemon.start()
    early.user("the second walrus")
    machine.run("sync")
    late.user("the only narwhal")
    machine.run("sync")
    daemon.stop()
    shutil.rmtree(daemon.data)
    backup.rename(daemon.data)
    daemon.start()
    with Wire(machine) as wire:
        wire.open()
        if is_command:
            machine.run("sync")
        for session, words in ((SESSION, "second walrus"), (OTHER, "only narwhal")):
            path = f"sessions/2026-11-20-claude-code-{session}.md"
            wait_until(words, lambda: words in str(wire.tool("memory_read", {"path": path})))  # noqa: B023
