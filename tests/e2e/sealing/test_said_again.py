"""What a machine has sealed or opened does not go up in clear when it is said again: the real programs, each command a process."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from tests.support.programs.pair import joined
from tests.support.programs.processes import CONFIDE, Daemon, Machine, running_daemon
from tests.support.programs.wire import Wire

from confide_proxy.paths import ProxyPaths

PASSWORD = "xK7m+Q2vR9tL"
FORMS = {
    "plain": PASSWORD,
    "base64": base64.b64encode(f"shop:{PASSWORD}".encode()).decode(),
    "url-safe base64 without padding": base64.urlsafe_b64encode(PASSWORD.encode()).decode().rstrip("="),
    "percent": quote(PASSWORD),
    "hex": PASSWORD.encode().hex(),
    "escapes": "\\u0078K7m\\u002bQ2vR9tL",
    "two lines": f"{PASSWORD[:5]}\n{PASSWORD[5:]}",
    "invisible": f"{PASSWORD[:5]}\u200b{PASSWORD[5:]}",
}


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with running_daemon(tmp_path) as running:
        yield running


def test_what_was_sealed_is_sealed_when_it_is_said_again(tmp_path: Path, daemon: Daemon) -> None:
    """By a command, by an agent, by a person's file; in every form; on the machine that sealed it and on one that opened it."""
    ann, bob = joined(tmp_path, daemon, "ann", "bob")
    ann.run("store", f"The deploy password is {PASSWORD}", "--path", "memory/log.md")
    (listed,) = ann.json("secrets", "ls")
    assert PASSWORD not in ann.run("read", "memory/log.md")
    for name, form in FORMS.items():
        ann.run("store", f"rolled out with {form} on friday", "--path", f"memory/{name.replace(' ', '-')}.md")
    approve(ann, bob)
    assert bob.run("secrets", "show", "--raw", listed["id"], program=CONFIDE) == PASSWORD
    with Wire(bob) as desk:
        desk.open()
        desk.tool("memory_store", {"content": f"rolled out with {PASSWORD}", "path": "memory/desk.md"})
        desk.tool("memory_store", {"content": f"b64: {FORMS['base64']}", "path": "memory/desk64.md"})
    bob.write("memory/person.md", f"In the log: {PASSWORD}\n")
    bob.run("sync")
    ann.run("sync")
    texts = {path.name: path.read_text() for path in sorted((ann.project / "memory").rglob("*.md"))}
    assert {"desk.md", "desk64.md", "person.md", "plain.md", "base64.md"} <= set(texts)
    assert [name for name, text in texts.items() if "(sealed:" not in text] == []
    assert [name for name, form in FORMS.items() if any(form in text for text in texts.values())] == []
    assert f"(sealed:password:{listed['id']})" in texts["desk.md"]
    assert (bob.project / "memory/person.md").read_text() == f"In the log: {PASSWORD}\n"


def test_the_disk_of_a_machine_does_not_show_what_it_knows(tmp_path: Path, daemon: Daemon) -> None:
    """Neither the value nor an encoding of it, in the files of the machine's state."""
    (ann,) = joined(tmp_path, daemon, "ann")
    ann.run("store", f"The deploy password is {PASSWORD}")
    state = ProxyPaths(ann.home / "proxy.toml", ann.home / "proxy", ann.home / "global", ann.home / "daemon").state
    held = b"\n".join(path.read_bytes() for path in state.rglob("*") if path.is_file())
    assert (state / "known").is_dir()
    assert [name for name, form in FORMS.items() if form.encode() in held] == []


def approve(by: Machine, newcomer: Machine) -> None:
    """Both people have compared the words."""
    newcomer.run("status")
    head = by.json("device", "approve", newcomer.json("key", "show")["words"])["headWords"]
    newcomer.run("device", "confirm", "--words", head)
