"""`confide secrets scan --stored`: seal what was stored in clear, also on the daemon's disk."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import random
import string
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.daemon import residue
from tests.support.documents.transcripts import ClaudeSession, text
from tests.support.programs.forked import Program, run
from tests.support.programs.processes import (
    COMMAND_DEADLINE_S,
    CONFIDE,
    NO_MODEL,
    Daemon,
    Inside,
    Machine,
    running_daemon,
)

from confide_crypto.errors import ConnectionLost
from confide_daemon.access.registry import open_state
from confide_daemon.datadir.paths import DataFolder
from confide_memory.documents import text_hash
from confide_proxy import config, paths
from confide_proxy.mcp.client import CommandClient
from confide_proxy.sealing.rescan import Rescan
from confide_proxy.sync import project

FOUND = 9
LETS_THROUGH = '[secrets]\nfiles = "allow"\ntools = "allow"\ntranscripts = "allow"\nimports = "allow"\n'
CLAUDE = 'transcripts = ["claude-code"]\ntranscript_quiet_s = 1\n'


def token(number: int) -> str:
    """A GitHub token that nobody has, the same for the same number."""
    return "gh" + "p_" + "".join(random.Random(number).choices(string.ascii_letters + string.digits, k=36))


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    home = tmp_path / "daemon" / "server-home"
    home.mkdir(parents=True)
    # The key of the database is at hand where it is the server's.
    (home / "daemon.toml").write_text(NO_MODEL + '[at_rest]\ncustody = "server"\n')
    with running_daemon(tmp_path / "daemon") as running:
        yield running


def joined(daemon: Daemon, tmp_path: Path, name: str, settings: str = LETS_THROUGH) -> Machine:
    machine = Inside(tmp_path, name)
    machine.run("join", daemon.invite(name, *(() if name == "laptop" else ("--space", "laptop"))))
    configure(machine, settings)
    return machine


def configure(machine: Machine, settings: str = "") -> None:
    (machine.home / "proxy.toml").write_text(settings)


def place(daemon: Daemon) -> tuple[Path, bytes]:
    """The file of the space, and the key that its daemon opens it with."""
    state = open_state(DataFolder(daemon.data))
    try:
        space_id = state.registry.spaces()["laptop"]
        return state.folder.space(space_id), state.master.space_key(space_id)
    finally:
        state.close()


def traces(daemon: Daemon, *numbers: int) -> list[int]:
    """Which of the tokens somebody with the daemon's disk and its keys can find anything of."""
    path, key = place(daemon)
    image, words, texts = residue.image(path, key), residue.words(path, key), residue.texts(path, key)
    return [
        number
        for number in numbers
        if token(number).encode() in image
        or any(part.lower() in words for part in (token(number), token(number)[4:]))
        or any(token(number)[4:].lower() in one.lower() for one in texts)
    ]


def client(machine: Machine) -> CommandClient:
    """The machine's own client in this process."""
    home = machine.home
    place = paths.ProxyPaths(home / "proxy.toml", home / "proxy", home / "global", home / "daemon")
    return CommandClient(place, config.load(place.config), project.identify(machine.project).grant())


def rescanned(machine: Machine, *arguments: str, code: int = 0) -> dict[str, Any]:
    done = run(
        [CONFIDE, "secrets", "rescan", "--json", *arguments],
        cwd=machine.project,
        env=machine.env,
        timeout=COMMAND_DEADLINE_S,
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert "ghp_" not in done.stdout + done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_all_that_was_stored_in_clear_is_sealed(daemon: Daemon, tmp_path: Path) -> None:
    """Files with their revisions, a deleted one, a store, an imported note, a transcript: sealed, erased, still found by what is around."""
    laptop = joined(daemon, tmp_path, "laptop", CLAUDE + LETS_THROUGH)
    deploy = laptop.write("memory/deploy.md", f"# Deploy\n\nThe pipeline runs with {token(1)} at night.\n")
    gone = laptop.write("memory/gone.md", f"# Gone\n\nThe mirror runs with {token(2)}.\n")
    laptop.run("sync")
    laptop.write("memory/deploy.md", f"# Deploy\n\nThe pipeline runs with {token(3)} in the morning.\n")
    gone.unlink()
    laptop.run("store", f"the kestrel relay answers to {token(4)}", "--path", "memory/relay.md")
    notes = laptop.write("NOTES.md", f"# Shop\n\n## Registry\n\nWe push the images with {token(5)}.\n")
    laptop.run("import", "--yes", str(notes))
    session = ClaudeSession(laptop.home.parent / ".claude" / "projects", laptop.project)
    session.user(f"use {token(6)} for the warehouse")
    session.assistant(text("done"))
    laptop.run("sync")
    assert traces(daemon, 1, 2, 3, 4, 5, 6) == [1, 2, 3, 4, 5, 6]

    configure(laptop, CLAUDE)
    look = rescanned(laptop, "--dry-run", code=FOUND)
    assert (look["dryRun"], look["findings"], look["unsealed"]) == (True, {"github-token": 6}, 6)
    revisions = {one["path"]: one["revisions"] for one in look["documents"]}
    assert (revisions["memory/deploy.md"], revisions["memory/gone.md"]) == ([1, 2], [1])
    assert "6, seen" in laptop.run("status")
    assert "credentials of laptop: 6 stored in clear" in daemon.run("doctor", code=1)
    assert traces(daemon, 1, 2, 3, 4, 5, 6) == [1, 2, 3, 4, 5, 6]

    told = answered(laptop, "n")
    assert "seal 6 credentials in 5 documents? [y/N]" in told
    assert "nothing was sealed" in told
    done = rescanned(laptop, "--yes")
    assert (done["sealedTexts"], done["unsealed"], done["isClean"]) == (6, 0, True)
    assert traces(daemon, 1, 2, 3, 4, 5, 6) == []
    assert rescanned(laptop, "--dry-run")["findings"] == {}

    assert "ok       credentials of laptop" in daemon.run("doctor")
    found = laptop.json("search", "kestrel relay")["results"][0]
    assert found["path"] == "memory/relay.md"
    assert "(sealed:github-token:" in found["snippet"]
    # The machine itself opens what it has sealed, and shows it to nobody who was not asked for.
    listed = laptop.json("secrets", "ls")
    assert [one["kind"] for one in listed] == ["github-token"] * 6
    placeholder = next(word for word in found["snippet"].split() if word.startswith("(sealed:"))
    assert laptop.run("secrets", "show", placeholder, "--raw") == token(4)
    identity = placeholder.rstrip(").,").rpartition(":")[2]
    (one,) = [each for each in listed if each["id"] == identity]
    assert any(each.endswith("memory/relay.md") for each in one["documents"])
    assert laptop.run("secrets", "show", identity[:8], "--raw") == token(4)
    assert "no sealed secret begins with" in laptop.run("secrets", "show", "00000000", "--raw", code=7)
    assert token(4) not in laptop.run("secrets", "show", placeholder, code=2)
    laptop.run("secrets", "show", "(sealed:github-token:00000000000000000000000000000000)", "--raw", code=7)
    laptop.run("sync")
    assert token(3) in deploy.read_text()
    assert token(4) in (laptop.project / "memory/relay.md").read_text()
    assert traces(daemon, 1, 2, 3, 4, 5, 6) == []


def test_files_in_clear_stay_and_both_machines_agree(daemon: Daemon, tmp_path: Path) -> None:
    """Neither file loses its plaintext, nor an edit that was not sent yet; nothing is merged, doubled or stored in clear again."""
    laptop, desk = joined(daemon, tmp_path, "laptop"), joined(daemon, tmp_path, "desk")
    approve(laptop, desk)
    plan = f"# Plan\n\nThe pipeline runs with {token(1)} at night.\n"
    other = f"# Other\n\nThe mirror runs with {token(2)}.\n"
    laptop.write("memory/plan.md", plan)
    laptop.write("memory/other.md", other)
    laptop.run("sync")
    desk.run("sync")
    desk.write("memory/plan.md", plan + "\nDesk adds a line.\n")
    for machine in (laptop, desk):
        configure(machine)
    assert rescanned(laptop, "--yes")["sealedTexts"] == 2
    for machine in (laptop, desk, laptop, desk):
        machine.run("sync")
    for machine in (laptop, desk):
        assert (machine.project / "memory/plan.md").read_text() == plan + "\nDesk adds a line.\n"
        assert (machine.project / "memory/other.md").read_text() == other
        assert machine.json("status")["pendingUploads"] == 0
    plans = laptop.json("history", "memory/plan.md")["revisions"]
    others = laptop.json("history", "memory/other.md")["revisions"]
    assert ([one["revision"] for one in plans], [one["revision"] for one in others]) == ([2, 1], [1])
    assert traces(daemon, 1, 2) == []


def words_of(machine: Machine) -> str:
    return str(machine.json("key", "show")["words"])


def approve(laptop: Machine, desk: Machine) -> None:
    desk.run("device", "ls")
    desk.run("device", "confirm", "--words", laptop.json("device", "approve", words_of(desk))["headWords"])


def test_a_machine_that_waits_takes_nothing_from_the_others(daemon: Daemon, tmp_path: Path) -> None:
    """One that had the file in clear before, and no keys yet, cannot seal it: it sends its edit when it can, and redacts nobody's file."""
    laptop, desk = joined(daemon, tmp_path, "laptop"), joined(daemon, tmp_path, "desk")
    plan = f"# Plan\n\nThe pipeline runs with {token(1)} at night.\n"
    laptop.write("memory/plan.md", plan)
    laptop.run("sync")
    desk.run("sync")
    for machine in (laptop, desk):
        configure(machine)
    assert rescanned(laptop, "--yes")["sealedTexts"] == 1
    desk.write("memory/plan.md", plan + "\nDesk adds a line.\n")
    assert "cannot seal" in desk.run("sync")
    laptop.run("sync")
    assert (laptop.project / "memory/plan.md").read_text() == plan
    assert (desk.project / "memory/plan.md").read_text() == plan + "\nDesk adds a line.\n"
    approve(laptop, desk)
    for machine in (desk, laptop):
        machine.run("sync")
        assert (machine.project / "memory/plan.md").read_text() == plan + "\nDesk adds a line.\n"
    assert traces(daemon, 1) == []


def answered(machine: Machine, answer: str) -> str:
    """What the command says at a terminal where somebody answers."""
    ours, theirs = pty.openpty()
    os.write(ours, f"{answer}\n".encode())
    pipes: dict[str, Any] = {"stdin": theirs, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with Program([CONFIDE, "secrets", "rescan"], cwd=machine.project, env=machine.env, **pipes) as process:
        os.close(theirs)
        told, _ = process.communicate(timeout=COMMAND_DEADLINE_S)
    os.close(ours)
    assert process.returncode == FOUND, told
    assert "ghp_" not in told
    return str(told)


def test_killed_at_any_point_it_is_begun_again(daemon: Daemon, tmp_path: Path) -> None:
    """A daemon that dies while texts are replaced, or while its file is cleaned, loses nothing; the next run ends the work."""
    laptop = joined(daemon, tmp_path, "laptop")
    texts = {f"memory/{number}.md": f"# {number}\n\nIt runs with {token(number)} there.\n" for number in range(16)}
    asyncio.run(put(laptop, texts))
    configure(laptop)
    asyncio.run(broken_off(laptop, "rewrite", daemon.kill, is_sent=True))
    daemon.start()
    asyncio.run(broken_off(laptop, "erase", lambda: None, is_sent=False))
    look = rescanned(laptop, "--dry-run", code=FOUND)
    assert (look["findings"], look["isClean"]) == ({}, False)
    asyncio.run(broken_off(laptop, "erase", daemon.kill, is_sent=True))
    daemon.start()
    done = rescanned(laptop, "--yes")
    assert (done["findings"], done["isClean"]) == ({}, True)
    assert traces(daemon, *range(16)) == []
    stored = asyncio.run(pulled(laptop, list(texts)))
    assert all("It runs with (sealed:github-token:" in one for one in stored)
    assert len(set(stored)) == len(texts)


async def put(machine: Machine, texts: dict[str, str]) -> None:
    async with client(machine) as open_client:
        for path, content in texts.items():
            body = {"project": "project", "path": path, "text": content, "hash": text_hash(content), "base": 0}
            await open_client.connection.request("put", body, timeout_s=COMMAND_DEADLINE_S)


async def pulled(machine: Machine, names: list[str]) -> list[str]:
    async with client(machine) as open_client:
        request = open_client.connection.request
        return [
            (await request("pull", {"project": "project", "path": path}, timeout_s=COMMAND_DEADLINE_S))["text"]
            for path in names
        ]


class Breaking:
    """The link of a client, which breaks when something is asked: with its daemon, that is killed while it works or just before."""

    def __init__(self, open_client: CommandClient, op: str, end: Callable[[], None], *, is_sent: bool) -> None:
        self._connection = open_client.connection
        self._op = op
        self._end = end
        self._is_sent = is_sent

    async def request(self, op: str, body: dict[str, Any], *, timeout_s: float, bulk: bool = False) -> dict[str, Any]:
        if op != self._op:
            return await self._connection.request(op, body, timeout_s=timeout_s, bulk=bulk)
        if self._is_sent:
            asking = asyncio.ensure_future(self._connection.request(op, body, timeout_s=timeout_s, bulk=bulk))
            await asyncio.wait([asking], timeout=0.01)
        await asyncio.to_thread(self._end)
        if self._is_sent:
            await asyncio.wait([asking])
        raise ConnectionLost(truncated=True)

    async def upload(self, op: str, body: dict[str, Any], data: bytes, *, timeout_s: float) -> dict[str, Any]:
        return await self._connection.upload(op, body, data, timeout_s=timeout_s)


async def broken_off(machine: Machine, op: str, end: Callable[[], None], *, is_sent: bool) -> None:
    """A run that ends at its first request of this kind."""
    async with client(machine) as open_client:
        sealing = open_client.sealing
        link = Breaking(open_client, op, end, is_sent=is_sent)
        with pytest.raises(ConnectionLost):
            await Rescan(link, sealing.sealer, sealing.deposit, lambda *_: None).run()
