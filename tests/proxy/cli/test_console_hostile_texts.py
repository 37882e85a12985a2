"""A hostile note, name or daemon at a person's terminal: every command's output is text, and its list has our lines alone."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest
from tests.support.daemon.hostile import EVIL, files_of, hostile
from tests.support.programs.command import Ended, confide
from tests.support.programs.commands import every, has_json
from tests.support.programs.processes import Machine

from confide_memory.commands.progress import Progress
from confide_proxy.cli.console import json_text, one_line, shown
from confide_proxy.cli.watch import Teller

STEERS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def check(ended: Ended, command: tuple[str, ...]) -> None:
    """Nothing of it steers a terminal."""
    for text in (ended.out, ended.err):
        found = STEERS.search(text)
        assert found is None, (command, found, text)
        assert "Traceback" not in text, (command, text)
    assert "space is confirmed" not in ended.out.splitlines() or command[0] in ("read", "search"), (command, ended.out)


def prepared(tmp_path: Path) -> Machine:
    machine = Machine(tmp_path, "victim")
    machine.write("memory/a.md", f"# heron\n\n{EVIL}".encode("utf-8", "replace").decode())
    note = {"content": EVIL, "title": EVIL, "tags": [EVIL]}
    (tmp_path / "victim" / "notes.jsonl").write_text(json.dumps(note) + "\n")
    return machine


@pytest.mark.addons
@pytest.mark.parametrize("as_json", [False, True], ids=["text", "json"])
async def test_no_output_steers_a_terminal(tmp_path: Path, as_json: bool) -> None:
    """Every command against a daemon whose every text is an attack; bytes below 0x20 but line end and tab, and 0x7f to 0x9f."""
    machine = prepared(tmp_path)
    async with hostile(machine) as daemon:
        before, told = files_of(machine), ""
        for command in every():
            if as_json and command[:2] == ("secrets", "show"):
                continue
            with_json = ["--json"] if as_json and has_json(command) else []
            ended = await asyncio.to_thread(confide, machine, *command, *with_json)
            check(ended, command)
            told += ended.out
            if with_json and ended.code == 0:
                json.loads(ended.out)
        assert {"memory_search", "memory_read", "memory_status", "history", "projects"} <= set(daemon.asked)
        assert "evil" in told
        assert files_of(machine).items() >= before.items()


def test_a_text_keeps_what_is_no_control() -> None:
    """Letters of all alphabets, joined emoji, tabs and lines stay; a file with Windows' line ends is none of steering."""
    text = "Grüße, 你好, 👩‍👩‍👧 :lock: [bold]\tx\r\ny\n"
    assert shown(text) == text.replace("\r", "")
    assert STEERS.search(shown(EVIL)) is None
    assert "\n" not in one_line(EVIL)
    assert json.loads(json_text({EVIL: EVIL})) == {EVIL: EVIL}
    assert STEERS.search(json_text({EVIL: EVIL})) is None
    json_text(EVIL).encode()
    shown(EVIL).encode()


def test_what_goes_on_for_long_is_told_in_text(capsys: pytest.CaptureFixture[str]) -> None:
    """Progress in the daemon's words, and the lines of `confide sync --watch`."""
    progress = Progress()
    progress._printed_at -= 10
    progress.follow(1, 2, EVIL)
    for as_json in (False, True):
        Teller(as_json=as_json).print_event("down", EVIL, reason=EVIL)
    told = capsys.readouterr()
    assert told.err.count("evil") == 2
    assert STEERS.search(told.err + told.out) is None
