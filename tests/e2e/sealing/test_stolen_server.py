"""The whole server in a stranger's hands: its disk, the memory of its process, its log, and all that was on the wire.

What the daemon reads, it may have in memory; nothing of it is on the disk in clear. What was sealed is nowhere, in no form, and the keys
that open it are not either.
"""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from tests.support.documents.transcripts import ClaudeSession, text
from tests.support.network.relay import RecordingRelay
from tests.support.programs.processes import Daemon, Machine, wait_until
from tests.support.programs.wire import Wire

from confide_crypto.sealing.space_keys import SpaceKeys, WrapKey
from confide_daemon.store.database import connect
from confide_proxy.devices.roster_cache import RosterCache
from confide_proxy.link.device_identity import load_stored
from confide_proxy.paths import ProxyPaths

READ = {
    "file": "walrus-canary-in-a-file",
    "store": "walrus-canary-in-a-store",
    "title": "walrus canary in a title",
    "query": "walrus-canary-in-a-question",
    "transcript": "walrus-canary-in-a-session",
}
"""What the daemon has to read: in its memory, never on its disk."""
SEALED = {
    "file": "ghp_" + "Fi1eC4n4ryA9zQ" * 2 + "Xy3kLm8p",
    "store": "glpat-" + "St0reC4nary9Qz7Lm3x1",
    "metadata": "Zq81-mEtaC4nary!x",
    "transcript": "npm_" + "Tr4nscr1ptC4n4ryQz81Lm3xT7vB2nKd9fG4",
    "import": "AKIA" + "IMP0RTC4NARYQZ8L",
    "note": "the spare walrus key lies under the third stone",
}
"""What it must not."""
UNTOUCHED = bytes(4096)
"""A page of memory that nobody has written to: half of them."""


@pytest.fixture
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Daemon]:
    """One that is no fork of a process which the tests have used, since its memory is read."""
    monkeypatch.setattr("tests.support.programs.processes.Program", subprocess.Popen)
    daemon = Daemon(tmp_path)
    with (Path(daemon.env["CONFIDE_HOME"]) / "daemon.toml").open("a") as file:
        file.write('\n[at_rest]\ncustody = "caller"\n')
    daemon.start()
    yield daemon
    daemon.stop()


def test_a_stolen_server_gives_away_nothing_that_was_sealed(tmp_path: Path, daemon: Daemon) -> None:
    with RecordingRelay(daemon.port) as relay:
        laptop = Machine(tmp_path, "laptop")
        laptop.run("join", daemon.invite("laptop", port=relay.port))
        plant(laptop)
        process = daemon._process
        assert process is not None
        keys = keys_of(laptop)
        secrets = forms(dict[str, str | bytes](SEALED) | {f"epoch {n + 1}": key for n, key in enumerate(keys.epochs)})
        in_memory = memory_of(process.pid)
        assert found(forms(READ), in_memory), "memory was not read at all"
        assert not found(secrets, in_memory)
        assert not found(secrets | forms(READ), everything_below(daemon))
        assert not found(secrets | forms(READ), relay.captured)
        daemon.kill()
        assert not found(secrets | forms(READ) | forms({"database": keys.database_key(1)}), everything_below(daemon))
    # And if he were given the key of the database as well:
    assert not found(secrets, content_of(daemon, keys.database_key(1)))
    assert found(forms(READ), content_of(daemon, keys.database_key(1)))


def plant(laptop: Machine) -> None:
    """By every way that a text goes up."""
    laptop.write("MEMORY.md", f"# Deploy\n\n{READ['file']}\n\nexport GITHUB_TOKEN={SEALED['file']}\n")
    (laptop.home / "proxy.toml").write_text(
        'toolsets = ["all"]\ntranscripts = ["claude-code"]\ntranscript_quiet_s = 1\n'
    )
    talk = ClaudeSession(Path(laptop.env["HOME"]) / ".claude" / "projects", laptop.project)
    talk.user(f"{READ['transcript']}: publish with {SEALED['transcript']} please")
    talk.assistant(text("done"))
    (laptop.project / "old.json").write_text(
        json.dumps([{"content": f"aws key {SEALED['import']} of the old account", "tags": ["aws"]}])
    )
    with Wire(laptop) as wire:
        wire.open()
        # What is queued comes up sealed too, but is no note yet that could be asked for.
        wait_until("the link", lambda: not wire.tool("entity_list", {}).get("isError"))
        stored = wire.tool(
            "memory_store",
            {
                "content": f"{READ['store']}: CI uses {SEALED['store']}",
                "title": READ["title"],
                "metadata": {"password": SEALED["metadata"]},
            },
        )
        assert "sealed:gitlab" in json.dumps(wire.tool("memory_get", {"id": stored["structuredContent"]["id"]}))
        wire.tool("memory_store", {"content": SEALED["note"], "title": "Spare key", "sensitive": True})
        wire.tool("memory_search", {"query": f"{READ['query']} {SEALED['store']}"})
        done = wire.tool("memory_import", {"paths": ["old.json"], "confirm": True})
        assert done["structuredContent"]["results"]["new"] == 1
        wait_until("the transcript to be heard", lambda: "walrus" in json.dumps(said(wire)))
    laptop.run("sync")
    assert SEALED["file"] in (laptop.project / "MEMORY.md").read_text()


def said(wire: Wire) -> object:
    arguments = {"query": READ["transcript"], "sources": ["sessions"], "minScore": 0.0}
    return wire.tool("memory_search", arguments)["structuredContent"]["results"]


def keys_of(machine: Machine) -> SpaceKeys:
    """The machine's own keys of its space, as it would open them."""
    paths = ProxyPaths(
        machine.home / "proxy.toml", machine.home / "proxy", machine.home / "global", machine.home / "daemon"
    )
    seen = RosterCache(paths.rosters).last()
    assert seen is not None
    assert seen.roster is not None
    return seen.roster.open(WrapKey(load_stored(paths.identity).open(None)))


def forms(planted: Mapping[str, str | bytes]) -> dict[bytes, str]:
    """What to look for, and what it is: the bytes, and how somebody may have written them down."""
    wanted: dict[bytes, str] = {}
    for name, value in planted.items():
        data = value.encode() if isinstance(value, str) else value
        for form in (
            data,
            data.hex().encode(),
            base64.b64encode(data).rstrip(b"="),
            data.decode("latin-1").encode("utf-16-le"),
        ):
            wanted[form] = name
    return wanted


def found(wanted: dict[bytes, str], data: bytes) -> set[str]:
    """The names of what is in there, and never the thing itself."""
    # All at once: a search for one takes longest where half of its bytes are zero, as in UTF-16, and most of the memory is.
    return {wanted[form] for form in re.findall(b"|".join(map(re.escape, wanted)), data)}


def everything_below(daemon: Daemon) -> bytes:
    """All files of the server, and its log, names included."""
    files = [path for path in daemon.data.rglob("*") if path.is_file()]
    assert any(path.suffix == ".db" for path in files)
    names = "\n".join(map(str, files)).encode()
    return b"\n".join([names, daemon.log.read_bytes(), *(path.read_bytes() for path in files)])


def memory_of(pid: int) -> bytes:
    """What the process could write to, and how it was started."""
    parts = [Path(f"/proc/{pid}/cmdline").read_bytes(), Path(f"/proc/{pid}/environ").read_bytes()]
    try:
        memory = os.open(f"/proc/{pid}/mem", os.O_RDONLY)
    except PermissionError:
        pytest.skip("this system lets nobody read another process's memory")
    try:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            region = re.match(r"([0-9a-f]+)-([0-9a-f]+) rw", line)
            if region:
                begin, end = int(region[1], 16), int(region[2], 16)
                try:
                    held = os.pread(memory, end - begin, begin)
                except OSError:
                    continue  # not backed by anything, as [vvar]
                pages = (held[at : at + len(UNTOUCHED)] for at in range(0, len(held), len(UNTOUCHED)))
                parts.append(b"".join(page for page in pages if page != UNTOUCHED))
    finally:
        os.close(memory)
    return b"\n".join(parts)


def content_of(daemon: Daemon, key: bytes) -> bytes:
    """The pages of the space's database, decrypted, and what is in its log."""
    (path,) = (daemon.data / "spaces").glob("*.db")
    connection = connect(path, key, writer=True)
    try:
        return bytes(connection.serialize("main"))
    finally:
        connection.close()
