"""`confided store`: spaces go into a PostgreSQL and come back, and what its operator sees of it."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.daemon.postgres import SUPERUSER, Postgres, programs, server
from tests.support.deadline import DEADLINE_S
from tests.support.network.ports import free_port
from tests.support.programs.confided import Confided
from tests.support.programs.processes import NO_MODEL, SERVER_KEEPS, wait_until

from confide_crypto.errors import ConfideError, ConnectionLost, RequestError, UnreachableError
from confide_crypto.keys.identity import Identity


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with server() as found:
        yield found


ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "cluster.md").read_text(encoding="utf-8")
PASSWORD = "of the reader's own"
ADDRESS = "postgresql://confide@db.example.org/confide?sslmode=verify-full"


def configure(program: Confided, url: str, *, is_node: bool = False, password: Path | None = None) -> None:
    """Name a store in daemon.toml, or none. `is_node`: other nodes pass sessions on to it; `password`: its file, which is made."""
    said = f'[store]\nurl = "{url}"\nlease_s = 3\n' if url else ""
    if password is not None:
        password.write_text(f"{PASSWORD}\n")
        password.chmod(0o600)
        said += f'password_file = "{password}"\n'
    if is_node:
        port = free_port()
        said += f'[node]\nlisten = "127.0.0.1:{port}"\naddress = "127.0.0.1:{port}"\n'
    (program.home / "daemon.toml").write_text(NO_MODEL + SERVER_KEEPS + said)


async def put(program: Confided, identity: Identity, path: str, text: str) -> None:
    async with await program.connect(identity) as laptop:
        await laptop.attach("proj")
        await laptop.put(path, text)


async def pull(program: Confided, identity: Identity, path: str) -> str:
    async with await program.connect(identity) as laptop:
        await laptop.attach("proj")
        text: str = (await laptop.request("pull", {"project": "proj", "path": path}))["text"]
        return text


def test_a_memory_goes_into_a_store_and_comes_back(ready: Confided, postgres: Postgres) -> None:
    """With all that was written before, meanwhile and after; without its files in between."""
    url = postgres.database()
    identity = ready.enroll("laptop")
    ready.serve()
    asyncio.run(put(ready, identity, "memory/a.md", "before\n"))
    ready.run("store", "status", code=3)  # there is none
    ready.run("store", "move", "--to", url, code=5)  # it serves
    ready.run("stop")
    assert ready.json("store", "move", "--to", url) == {"to": "store", "moved": ["laptop"], "there": []}
    assert ready.json("store", "move", "--to", url)["there"] == ["laptop"]
    refused = ready.run("serve", "--listen", "127.0.0.1:0", code=4)
    assert "daemon.toml names none" in refused.stderr

    configure(ready, url)
    ready.serve()
    asyncio.run(put(ready, identity, "memory/b.md", "meanwhile\n"))
    found = ready.json("store", "status")
    assert [(one["space"], one["node"] is None) for one in found["spaces"]] == [("laptop", False)]
    assert found["spaces"][0]["behindSnapshot"] >= 1
    assert [one["address"] for one in found["nodes"]] == [None]
    assert found["registry"]["entries"] >= 1
    assert "registry: " in ready.run("store", "status").stdout
    assert ready.run("status").returncode == 0
    doctor = ready.run("doctor", code=1)  # the test's server does not force writes to its disk
    assert "a power cut loses what was acknowledged" in doctor.stdout + doctor.stderr
    ready.json("store", "release", "laptop")
    ready.run("store", "release", "nobody", code=7)
    try:
        asyncio.run(put(ready, identity, "memory/c.md", "by a lease that was taken anew\n"))
    except RequestError as fenced:  # it has not heard of that yet
        assert fenced.code == "unavailable"  # noqa: PT017 - proxies repeat what is answered so
        asyncio.run(put(ready, identity, "memory/c.md", "by a lease that was taken anew\n"))
    ready.run("stop")

    for file in (ready.data / "spaces").glob("*.db*"):
        file.unlink()
    assert ready.json("store", "move", "--to-files") == {"to": "files", "moved": ["laptop"], "there": []}
    assert postgres.sql("SELECT (SELECT count(*) FROM log), (SELECT count(*) FROM entry)", url=url) == [(0, 0)]
    configure(ready, "")
    ready.serve()
    assert asyncio.run(pull(ready, identity, "memory/a.md")) == "before\n"
    assert asyncio.run(pull(ready, identity, "memory/b.md")) == "meanwhile\n"
    assert asyncio.run(pull(ready, identity, "memory/c.md")) == "by a lease that was taken anew\n"


def test_a_removed_space_leaves_nothing_in_the_store(ready: Confided, postgres: Postgres) -> None:
    url = postgres.database()
    configure(ready, url)
    identity = ready.enroll("laptop")
    ready.serve()
    asyncio.run(put(ready, identity, "memory/a.md", "text\n"))
    ready.run("revoke", "laptop")
    ready.run("space", "rm", "laptop", "--yes")
    left = (
        "SELECT (SELECT count(*) FROM log WHERE id <> 'registry'), (SELECT count(*) FROM entry WHERE log <> 'registry')"
    )
    assert postgres.sql(left, url=url) == [(0, 0)]


def test_a_password_is_read_from_its_file_and_shown_nowhere(
    ready: Confided, postgres: Postgres, tmp_path: Path
) -> None:
    """Neither in the address nor in what is said of it."""
    configure(ready, "postgresql://confide:opensesame@127.0.0.1/confide")
    refused = ready.run("store", "status", code=3)
    assert "opensesame" not in refused.stderr
    assert "password_file" in refused.stderr
    url = postgres.database()
    secret = tmp_path / "password"
    secret.write_text("opensesame\n")
    secret.chmod(0o644)
    configure(ready, url)
    with (ready.home / "daemon.toml").open("a") as file:
        file.write(f'password_file = "{secret}"\n')
    assert "opensesame" not in ready.run("store", "status", code=5).stderr
    secret.chmod(0o600)
    ready.run("store", "status")


TARGET = "on another disk"
TOLD: dict[str, tuple[str, ...] | str] = {
    "confided space key NAME server": "tests/addons/cluster/e2e/test_locked_on_nodes.py",
    "confided space key NAME caller": "tests/addons/cluster/e2e/test_locked_on_nodes.py",
    "confided upgrade --check": "tests/addons/cluster/e2e/test_rolling_upgrade.py",
    "confided key --new": ("key", "--new"),
    "confided space key --new": ("space", "key", "--new", "home"),
    "confided space reindex": ("space", "reindex"),
    "confided doctor --fix": ("doctor", "--fix"),
    "confided device": ("device",),
    "confided device approve": "tests/e2e/cli/test_rights.py",
    "confided audit": ("audit",),
    "confided backup": ("backup", "--to", TARGET),
    "confide sync": "tests/addons/cluster/e2e/test_gateway_on_nodes.py",
    "confide secrets scan --stored": "tests/addons/cluster/log/test_log_keys.py",
}
"""Commands that the page names in its sentences: as they are run here once two nodes serve, or the test that has them."""
WRONG = {"doctor"}
"""The test's server does not force writes to its disk, of which these tell."""


def test_the_page_is_followed(ready: Confided, postgres: Postgres, tmp_path: Path) -> None:
    """Every command of docs/cluster.md, in order, on one machine and on the second one, around a memory that is written to all along.

    The last part is back in its file.
    """
    identity = ready.enroll("home")
    ready.serve()
    asyncio.run(put(ready, identity, "memory/a.md", "before\n"))
    second = Confided(tmp_path / "second")
    blocks = "".join(re.findall(r"^```console\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
    lines = [re.match(r"(second)?\$ (\S+) (.*)", line) for line in blocks.splitlines()]
    commands = [(second if one[1] else ready, one[2], shlex.split(one[3], comments=True)) for one in lines if one]
    assert len(commands) == len(lines)
    assert (ready, "confided", ["store", "--to", ADDRESS]) in commands
    last = max(at for at, (program, _, command) in enumerate(commands) if program is second and command[0] == "store")
    url = ""
    served: list[int] = []
    try:
        for number, (program, name, command) in enumerate(commands):
            if name != "confided":
                url = made(postgres, name, command)
            elif command[0] == "serve":
                if program is second:
                    second.data.mkdir(mode=0o700)
                    shutil.copy(ready.data / "master.key", second.data)
                configure(program, url, is_node=True, password=tmp_path / "store.password")
                program.serve()
                asyncio.run(put(program, identity, f"memory/{number}.md", "at a node\n"))
                served.append(number)
            else:
                run(program, *(url if part == ADDRESS else part for part in command))
            if number == last:
                node = holder(ready, second)
                target = str(tmp_path / "backups")
                node.run("backup", "init", "--to", target)
                for told in TOLD.values():
                    if isinstance(told, tuple):
                        run(node, *(target if part == TARGET else part for part in told))
    finally:
        second.end()
    configure(ready, "")
    ready.serve()
    assert asyncio.run(pull(ready, identity, "memory/a.md")) == "before\n"
    for number in served:
        assert asyncio.run(pull(ready, identity, f"memory/{number}.md")) == "at a node\n"


def run(program: Confided, *command: str) -> None:
    program.run(*command, code=1 if command[0] in WRONG else 0)


def holder(first: Confided, second: Confided) -> Confided:
    """Of the only space, as `confided store status` says it."""
    standing = first.json("store", "status")
    (address,) = [one["address"] for one in standing["nodes"] if one["node"] == standing["spaces"][0]["node"]]
    return first if f'address = "{address}"' in (first.home / "daemon.toml").read_text() else second


def made(postgres: Postgres, name: str, command: list[str]) -> str:
    """What PostgreSQL's own program has made of a line of the page: the address of the database, of a user with a password.

    The test's server has a user `confide` already, who may do everything; this one is called otherwise.
    """
    program = programs()
    assert program is not None
    user, password = "memory", f"{PASSWORD}\n" * command.count("--pwprompt") * 2
    done = subprocess.run(
        [str(program / name), *(user if part == "confide" else part for part in command)],
        env={"PATH": os.environ["PATH"], "PGHOST": "127.0.0.1", "PGPORT": str(postgres.port), "PGUSER": SUPERUSER},
        input=password,
        capture_output=True,
        text=True,
        start_new_session=True,  # it asks a terminal for the password, where there is one
        timeout=DEADLINE_S,
    )
    assert done.returncode == 0, done.stderr
    return postgres.url(user).replace(f"{SUPERUSER}@", f"{user}@")


def test_every_command_that_the_page_names_is_run() -> None:
    """In its blocks by the test above; in its sentences too, or by a test that says so."""
    assert "`$" not in re.sub(r"^```console\n.*?^```", "", PAGE, flags=re.MULTILINE | re.DOTALL)
    assert {*re.findall(r"`(confided? [^`]*)`", PAGE)} - {
        "confided store",
        "confided store --to",
        "confided doctor",
    } == {*TOLD}
    for command, told in TOLD.items():
        if isinstance(told, str):
            words = [word for word in command.split()[1:] if word != "NAME"]
            text = (ROOT / told).read_text(encoding="utf-8")
            assert all(f'"{word}"' in text or f"`confide {' '.join(words)}`" in text for word in words), command


def test_a_second_machine_takes_over(ready: Confided, postgres: Postgres, tmp_path: Path) -> None:
    """With the master key alone: refused while the first one lives, and there when that was killed."""
    url = postgres.database()
    configure(ready, url)
    identity = ready.enroll("home")
    first = ready.serve()
    asyncio.run(put(ready, identity, "memory/a.md", "of the first\n"))
    second = Confided(tmp_path / "second")
    try:
        second.data.mkdir(mode=0o700)
        shutil.copy(ready.data / "master.key", second.data)
        configure(second, url)
        second.serve()
        with pytest.raises((RequestError, ConnectionLost, UnreachableError)):
            asyncio.run(pull(second, identity, "memory/a.md"))
        first.kill()
        first.wait()
        wait_until("the second one to take over", lambda: taken(second, identity))
        asyncio.run(put(second, identity, "memory/b.md", "of the second\n"))
    finally:
        second.end()


def taken(program: Confided, identity: Identity) -> bool:
    try:
        return asyncio.run(pull(program, identity, "memory/a.md")) == "of the first\n"
    except ConfideError:
        return False
