"""Somebody ends TLS, reads along and changes what passes: they learn nothing, and nothing they touch is taken for whole."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.deadline import DEADLINE_S
from tests.support.draws import draws
from tests.support.network.edits import CHANGES, POLITE_CLOSE, Once
from tests.support.network.reverse_proxies import Authority
from tests.support.network.tls_relay import Direction, Edit, Frame, Passage, TlsRelay
from tests.support.programs.processes import Daemon, Inside, Machine, running_daemon, wait_until
from tests.support.programs.wire import Wire

from confide_crypto.keys.identity import Identity

HEADERS = {"Host", "Upgrade", "Connection", "Sec-WebSocket-Key", "Sec-WebSocket-Version", "Sec-WebSocket-Protocol"}


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "ca")


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    (tmp_path / "server-home").mkdir()
    (tmp_path / "server-home" / "daemon.toml").write_text(
        '[server]\nkeepalive_s = 5\n[embedding]\nprovider = "hashed"\n'  # what is found is not the point here
    )
    with running_daemon(tmp_path) as running:
        yield running


@pytest.fixture
def relay(daemon: Daemon, authority: Authority) -> Iterator[TlsRelay]:
    with TlsRelay(daemon.port, context=authority.context) as running:
        yield running


def invited(daemon: Daemon, name: str, relay: TlsRelay | None, *options: str) -> str:
    url = f"confides://localhost:{relay.port}" if relay else f"confide://127.0.0.1:{daemon.port}"
    made = json.loads(daemon.run("invite", name, "--no-wait", "--json", "--url", url, *options))
    return str(made["invite"])


def machine_behind(tmp_path: Path, authority: Authority, name: str = "laptop") -> Machine:
    machine = Inside(tmp_path, name)
    (machine.home / "proxy.toml").write_text("keepalive_s = 5\n")
    machine.env["SSL_CERT_FILE"] = str(authority.ca_file)
    return machine


def left(wire: Wire) -> str:
    """What a session said on stderr, once it has ended."""
    assert wire.process.stdin is not None
    assert wire.process.stderr is not None
    wire.process.stdin.close()
    said = wire.process.stderr.read().decode()
    wire.process.wait(DEADLINE_S)
    return said


def test_who_ends_tls_learns_nothing(tmp_path: Path, daemon: Daemon, relay: TlsRelay, authority: Authority) -> None:
    """Every canary passes in some form; none is in the capture, nor in what the two programs log."""
    machine = machine_behind(tmp_path, authority)
    hostname = "canary-hostname-9d1f"
    shim = tmp_path / "shim"
    shim.mkdir()
    # The name of this machine is the one thing here that the test cannot choose otherwise.
    (shim / "sitecustomize.py").write_text(f"import socket\nsocket.gethostname = lambda: {hostname!r}\n")
    machine.env["PYTHONPATH"] = str(shim)
    machine.project = machine.project.rename(machine.project.with_name("canary-project-77aa"))
    invite = invited(daemon, "canary-alias-31c2", relay)
    machine.run("join", invite)
    machine.write("memory/canary-file-b00c.md", "# canary-heading-5e5e\n\ncanary-line-c4f3\n")
    with Wire(machine) as wire:
        wire.open()
        stored = wire.tool("memory_store", {"content": "canary-content-82ab " * 1500})
        assert not stored.get("isError"), stored
        found = wire.tool("memory_search", {"query": "canary-query-f00d"})
        assert not found.get("isError"), found
        status = wire.tool("memory_status", {})["structuredContent"]
        assert status["link"]["machine"] == hostname, "it was sent"
        assert status["project"] == "canary-project-77aa", "and so was this"
        said = left(wire)
    daemon.stop()
    identity = Identity.load(machine.home / "proxy" / "identity.key")
    daemons = Identity.load(daemon.data / "identity.key")
    secrets = {
        "the invite": invite.split("#")[1].encode(),
        "this machine's seed": (machine.home / "proxy" / "identity.key").read_bytes().strip().splitlines()[-1],
        "the daemon's seed": (daemon.data / "identity.key").read_bytes().strip().splitlines()[-1],
        "its master key": (daemon.data / "master.key").read_bytes().strip(),
    }
    sealed = {
        "this machine's public key": identity.public_key,
        "its static key": identity.static_key,
        "the daemon's public key": daemons.public_key,
        "the daemon's static key": daemons.static_key,
    }
    captured, logged = relay.captured, daemon.log.read_bytes() + said.encode()
    assert len(captured) > 30_000
    for what, secret in (secrets | sealed).items():
        assert secret not in captured, what
    assert b"canary-" not in captured
    for what, secret in secrets.items():
        assert secret not in logged, what
    assert b"canary-" not in logged.replace(b"canary-alias-31c2", b""), "the alias is the operator's own word"
    heads = [head for head in captured.split(b"\r\n\r\n") if b"GET / HTTP/1.1" in head]
    assert heads
    for head in heads:
        fields = head[head.index(b"GET /") :].decode().split("\r\n")[1:]
        assert {field.split(":")[0] for field in fields} == HEADERS, "no word of who or what we are"


def test_no_edit_passes(tmp_path: Path, daemon: Daemon, relay: TlsRelay, authority: Authority) -> None:
    """Each change, in the middle of a store, in both directions: the session ends, the store is whole or not there, the link comes back."""
    machine = machine_behind(tmp_path, authority)
    machine.run("join", invited(daemon, "laptop", relay))
    entries: dict[str, str] = {}  # a file for each: one log of them all would be cut into pieces anew at every store
    stored: list[bool] = []
    with Wire(machine) as wire:
        wire.open()
        assert not wire.tool("memory_status", {}).get("isError")
        for direction in ("up", "down"):
            for number, name in enumerate(CHANGES):
                path = f"memory/{direction}-{number}.md"
                entries[path] = (
                    f"- begin {direction} {number} " + f"{name} " * draws(3000, 1000) + f"{direction} {number} end"
                )
                edit = relay.edit = Once(name, direction, skip=number % 3)
                asked = wire.ask(
                    "tools/call",
                    {"name": "memory_store", "arguments": {"content": entries[path], "path": path}},
                )
                # What was dropped shows at the next frame, whoever sends it.
                searching = wire.ask("tools/call", {"name": "memory_search", "arguments": {"query": "begin"}})
                answers = answers_to(wire, asked, searching)
                stored.append(not answers[asked].get("isError"))
                assert edit.made.is_set(), f"{name} {direction}: nothing was changed"
                assert edit.passage is not None
                assert edit.passage.ended.wait(DEADLINE_S), f"{name} {direction}: the session went on"
                relay.edit = None
                wait_until(
                    f"the link after {name} {direction}",
                    lambda: not wire.tool("memory_search", {"query": "begin"}).get("isError"),
                )
        said = left(wire)
    for (path, entry), was_stored in zip(entries.items(), stored, strict=True):
        text = (machine.project / path).read_text() if (machine.project / path).exists() else ""
        assert text.count(entry) <= 1
        assert text.count(entry) == 1 or not was_stored, entry[:30]
        text = text.replace(entry, "")
        assert "begin" not in text, "a part of an entry was taken for all of it"
        assert "end" not in text
    told = daemon.log.read_text()
    assert told.count("ProtocolViolation") >= len(CHANGES) - 3, "all but drops and closes are seen as what they are"
    assert "Traceback" not in told + said
    machine.run("sync")
    other = Inside(tmp_path, "other")
    other.project = other.project.rename(other.project.with_name(machine.project.name))
    other.run("join", invited(daemon, "other", None, "--space", "laptop"))
    other.run("sync")
    ours, theirs = (
        {file.name: file.read_text() for file in (each.project / "memory").glob("*.md")} for each in (machine, other)
    )
    assert len(ours) >= sum(stored)
    assert theirs == ours, "both ends hold the same"


def answers_to(wire: Wire, *asked: int) -> dict[int, dict[str, object]]:
    """The results of these calls, in whatever order they come."""
    answers: dict[int, dict[str, object]] = {}
    while len(answers) < len(asked):
        message = wire.next(DEADLINE_S)
        if message.get("id") in asked and "method" not in message:
            answers[message["id"]] = message["result"]
    return answers


def test_a_touched_handshake_fails_and_uses_no_invite_up(
    tmp_path: Path, daemon: Daemon, relay: TlsRelay, authority: Authority
) -> None:
    """One bit of any of the three messages, or of the welcome: an error that names no check; the next attempt works."""
    machine = machine_behind(tmp_path, authority)
    invite = invited(daemon, "laptop", relay)
    messages: list[tuple[Direction, int]] = [("up", 0), ("down", 0), ("up", 1)]
    for direction, skip in messages:
        relay.edit = Once("flip", direction, skip=skip)
        machine.run("join", invite, code=6)
    relay.edit = None
    machine.run("join", invite)
    for direction, skip in [*messages, ("down", 1)]:
        relay.edit = Once("flip", direction, skip=skip)
        told = machine.run("status", code=6)
        assert "does not hold the pinned key" in told or "the handshake" in told
        # Not in what stands before: the key's own words are chosen by chance, and "vintage" and "stage" are among them.
        assert "tag" not in told[told.index("confide: ") :]
    relay.edit = None
    machine.run("status")


def test_an_upload_that_is_cut_is_not_there(
    tmp_path: Path, daemon: Daemon, relay: TlsRelay, authority: Authority
) -> None:
    """A file of many frames: the daemon has nothing of it while the link is gone, and all of it once the link is back."""
    machine = machine_behind(tmp_path, authority)
    machine.run("join", invited(daemon, "laptop", relay))
    other = Inside(tmp_path, "other")
    other.project = other.project.rename(other.project.with_name(machine.project.name))
    other.run("join", invited(daemon, "other", None, "--space", "laptop"))
    with Wire(machine) as wire:
        wire.open()
        assert not wire.tool("memory_sync", {}).get("isError")
        texts = {}
        for name in ("polite close", "flip", "drop", "cut short"):
            edit = Once(name, "up", skip=5)
            path = f"memory/{name.replace(' ', '-')}.md"
            texts[path] = f"# {name}\n\n" + "".join(f"Line {number} of the big file.\n" for number in range(6_000))
            relay.edit = then_nobody_passes(edit)
            machine.write(path, texts[path])
            wait_until(f"the edit: {name}", edit.made.is_set)
            assert edit.passage is not None
            assert edit.passage.ended.wait(DEADLINE_S)
            assert "no such document" in other.run("read", path, code=7)
            relay.edit = None
            wait_until("the link", lambda: not wire.tool("memory_search", {"query": "big"}).get("isError"))
        wait_until("the files", lambda: "no such" not in machine.run("read", path))
        assert "Traceback" not in left(wire)
    other.run("sync")
    for path, text in texts.items():
        assert (other.project / path).read_text() == text


def then_nobody_passes(edit: Once) -> Edit:
    """That edit, and afterwards no connection at all."""

    def instead(passage: Passage, direction: Direction, frame: Frame) -> list[Frame] | None:
        if edit.passage in (None, passage):
            return edit(passage, direction, frame)
        return [POLITE_CLOSE]

    return instead


def test_the_relay_forwards_what_it_does_not_edit(relay: TlsRelay, authority: Authority) -> None:
    """Else the tests above would prove nothing: a connection without a websocket is passed on too."""
    import ssl

    context = ssl.create_default_context(cafile=str(authority.ca_file))
    with (
        socket.create_connection(("127.0.0.1", relay.port), timeout=DEADLINE_S) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as tls,
    ):
        tls.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answer = b""
        while b'"ok"' not in answer:
            piece = tls.recv(4096)
            assert piece, answer
            answer += piece
    assert b"GET /health" in relay.captured
