"""The server's page between two hosts: network namespaces of this kernel, each with an address, a name and files of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.programs.processes import COMMAND_DEADLINE_S, CONFIDE, CONFIDED, NO_MODEL, wait_until

NAME = "memory.example.org"
SERVER, LAPTOP = "10.77.0.1", "10.77.0.2"


class Host:
    """A namespace with a home; what runs there sees only its own interfaces, and knows the server's name."""

    def __init__(self, name: str, root: Path) -> None:
        self.name = name
        self.home = root / name
        self.project = self.home / "app"
        self.project.mkdir(parents=True)
        (self.home / "confide").mkdir()
        (self.home / "confide" / "daemon.toml").write_text(NO_MODEL)
        self.env = {key: value for key, value in os.environ.items() if not key.startswith("CONFIDE")}
        self.env |= {"HOME": str(self.home), "CONFIDE_HOME": str(self.home / "confide")}

    def start(self, *command: str, **options: object) -> subprocess.Popen[str]:
        return subprocess.Popen(  # type: ignore[call-overload, no-any-return]
            ["ip", "netns", "exec", self.name, *command], cwd=self.project, env=self.env, text=True, **options
        )

    def run(self, *command: str, stdin: str = "", code: int = 0) -> str:
        process = self.start(*command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        told = process.communicate(stdin, timeout=COMMAND_DEADLINE_S)[0]
        assert process.returncode == code, f"{command[1:]}: {process.returncode}\n{told}"
        return told


def made(root: Path) -> tuple[Host, Host]:
    """Two hosts with a cable between them. Raises CalledProcessError, OSError: not allowed here."""
    mark = f"cf{os.getpid()}"
    hosts = Host(f"{mark}s", root), Host(f"{mark}l", root)
    for host in hosts:
        subprocess.run(["ip", "netns", "add", host.name], check=True, capture_output=True)
        folder = Path("/etc/netns", host.name)
        folder.mkdir(parents=True)
        (folder / "hosts").write_text(f"127.0.0.1 localhost\n{SERVER} {NAME}\n")
    ends = [f"eth0 netns {host.name}".split() for host in hosts]
    cable = ["ip", "link", "add", *ends[0], "type", "veth", "peer", "name", *ends[1]]
    subprocess.run(cable, check=True, capture_output=True)
    for host, address in zip(hosts, (SERVER, LAPTOP), strict=True):
        for line in (f"addr add {address}/24 dev eth0", "link set eth0 up", "link set lo up"):
            subprocess.run(["ip", "-n", host.name, *line.split()], check=True, capture_output=True)
    return hosts


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[tuple[Host, Host]]:
    names = [f"cf{os.getpid()}{letter}" for letter in "sl"]
    try:
        try:
            yield made(tmp_path)
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"network namespaces cannot be made here: {error}")
    finally:
        for name in names:
            if shutil.which("ip"):
                subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)
            shutil.rmtree(Path("/etc/netns", name), ignore_errors=True)


@pytest.mark.long
def test_the_servers_page_works_between_two_hosts(hosts: tuple[Host, Host]) -> None:
    """As docs/server.md has it: serve on all interfaces, invite by name, join, sync, status; what each says is so there."""
    server, laptop = hosts
    server.run(CONFIDED, "init")
    log = server.home / "log"
    with log.open("w") as file:
        daemon = server.start(CONFIDED, "serve", "--listen", "0.0.0.0:7733", stderr=file)
    try:
        wait_until("the daemon to listen", lambda: "listens on" in log.read_text())
        assert "listens on 0.0.0.0:7733" in log.read_text()
        invite = server.run(CONFIDED, "invite", "laptop", "--url", f"confide://{NAME}:7733", "--no-wait")
        assert "nobody reaches" not in invite
        joined = laptop.run(CONFIDE, "join", stdin=next(line for line in invite.splitlines() if "#invite" in line))
        assert "the link works: 0 files, 0 chunks in this space" in joined
        (laptop.project / "MEMORY.md").write_text("# Facts\n\nThe API listens on port 8010.\n")
        assert "1 sent" in laptop.run(CONFIDE, "sync")
        assert f"confide://{NAME}:7733, version" in laptop.run(CONFIDE, "status")
        told = server.run(CONFIDED, "status")
        assert "serves on 0.0.0.0:7733; on this machine at confide://127.0.0.1:7733" in told
        assert "devices: 1" in told
    finally:
        daemon.kill()
        daemon.wait(COMMAND_DEADLINE_S)
