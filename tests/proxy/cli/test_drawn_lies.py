"""Every command against a daemon whose answers are drawn from a grammar of lies for each table of PROTOCOL.md 9 and 10: a right answer or
a known error, in time; nothing is written outside of memory, nothing sealed goes up in clear, nothing steers the terminal."""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path
from typing import Final

import pytest
from tests.proxy.cli.test_hostile_texts import STEERS
from tests.support.daemon.hostile import files_of, hostile
from tests.support.deadline import DEADLINE_S
from tests.support.draws import IS_THOROUGH
from tests.support.programs.command import Ended, confide
from tests.support.programs.commands import AS_TEXT, every
from tests.support.programs.processes import Machine

TOKEN: Final = "ghp_" + "k3Qz7Lw9Xv2Rt5Yb8Nc1Md4Ps6Hf0Jg3Aq2We"[:36]
KNOWN_CODES: Final = frozenset({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 75})


def prepared(tmp_path: Path) -> Machine:
    """With memory that holds a credential, a link out of it, and a store to import."""
    machine = Machine(tmp_path, "victim")
    machine.write("memory/a.md", f"# heron\n\nfishes at dawn; the token is {TOKEN}\n")
    outside = tmp_path / "victim" / "outside"
    outside.mkdir()
    (outside / "keep.md").write_text("theirs\n")
    (machine.project / "memory/link").symlink_to(outside)
    (tmp_path / "victim" / "notes.jsonl").write_text(json.dumps({"content": f"a note, {TOKEN}", "title": "t"}) + "\n")
    return machine


def check(ended: Ended, command: tuple[str, ...]) -> None:
    """A right answer, or one sentence of a known error."""
    for text in (ended.out, ended.err):
        assert STEERS.search(text) is None, (command, text)
        assert "Traceback" not in text, (command, text)
    assert ended.code in KNOWN_CODES, (command, ended)
    if ended.code and not ended.out:
        assert "confide: " in ended.err or "Usage" in ended.err or "note: " in ended.err, (command, ended)


@pytest.mark.parametrize("seed", range(200 if IS_THOROUGH else 3))
async def test_no_lie_of_a_daemon_breaks_a_command(tmp_path: Path, seed: int) -> None:
    """In an order that is drawn too: what a command keeps of one lie the next one meets."""
    machine = prepared(tmp_path)
    draw = random.Random(seed)
    commands = every()
    draw.shuffle(commands)
    async with hostile(machine, draw) as daemon:
        own = files_of(machine)
        for command in commands:
            as_json = ["--json"] if draw.random() < 0.3 and " ".join(command[:2]) not in AS_TEXT else []
            async with asyncio.timeout(DEADLINE_S):
                ended = await asyncio.to_thread(confide, machine, *command, *as_json, stdin="y\n" * 4)
            check(ended, command)
        left = {path: data for path, data in files_of(machine).items() if "exported" not in path.parts}
        assert left == own
        assert not [data for data in daemon.heard if TOKEN.encode() in data]
