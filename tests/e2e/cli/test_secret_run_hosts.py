"""`confide run --http` with the real programs: a command uses a secret at one host, and never gets it."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.deadline import DEADLINE_S
from tests.support.network.tls_hosts import EchoingHost, echoing_host
from tests.support.programs.processes import CONFIDE, Inside, Machine, wait_until
from tests.support.programs.wire import Wire

PASSWORD = "xK7mQ2vR9tLw4zz"


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    machine = Inside(tmp_path_factory.mktemp("run"), "desk")
    try:
        machine.run("store", f"DB_PASSWORD={PASSWORD} is for the database")
        (secret,) = machine.json("secrets", "ls")
        machine.run("secrets", "name", "db", secret["id"][:8])
        yield machine
    finally:
        machine.stop_local_daemon()


@pytest.fixture
def api(tmp_path: Path) -> Iterator[EchoingHost]:
    with echoing_host(tmp_path / "ca.pem") as host:
        yield host


def run(machine: Machine, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [CONFIDE, "run", *arguments],
        cwd=machine.project,
        env=machine.env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )


def quick(machine: Machine, *arguments: str) -> subprocess.CompletedProcess[str] | None:
    """A run that a session on this machine has answered, and no link of its own; None if it made one."""
    ended = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "confide_proxy", "run", *arguments],
        cwd=machine.project,
        env=machine.env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    return None if "confide_proxy.link.daemon_link" in ended.stderr else ended


def test_beside_a_session_a_host_gets_the_value_without_a_link(desk: Machine, api: EchoingHost) -> None:
    """The fast path refuses the same runs as the normal command."""
    settings = f"[run]\nallow = {{ db = ['curl'] }}\nca_file = '{api.ca_file}'\n"
    (desk.home / "proxy.toml").write_text(settings)
    rule = ("--http", f"{api.host}:authorization=secret:db")
    curl = ("--", "curl", "-sS", "-H", "Authorization: token secret:db", f"https://{api.host}/")
    with Wire(desk) as wire:
        wire.open()
        wire.tool("memory_status", {})
        ended = wait_until("the session to answer", lambda: quick(desk, *rule, *curl))
        assert ended.returncode == 0, ended.stderr
        assert PASSWORD not in ended.stdout + ended.stderr
        assert api.got == [f"token {PASSWORD}"]
        assert desk.json("secrets", "audit")[0]["by"].endswith(f"curl as authorization of {api.host}")
        both = run(desk, *rule, "--env", "DB=secret:db", *curl)
        assert (both.returncode, "for the command itself too" in both.stderr) == (7, True)
        for wrong, said in ((desk.home / "none.pem", "cannot be read"), (desk.home / "proxy.toml", "no certificates")):
            (desk.home / "proxy.toml").write_text(settings.replace(str(api.ca_file), str(wrong)))
            ended = run(desk, *rule, *curl)
            assert (ended.returncode, said in ended.stderr, "hint: ca_file" in ended.stderr) == (7, True, True)


def test_a_command_that_never_gets_the_value_uses_it_at_a_host(desk: Machine, api: EchoingHost) -> None:
    """It has a placeholder, the host has the value, and what the host repeats is masked; another host gets the placeholder."""
    (desk.home / "proxy.toml").write_text(
        f"[run]\nallow = {{ db = ['sh', '{sys.executable}'] }}\nca_file = '{api.ca_file}'\n"
    )
    script = (
        "import os, ssl, sys, urllib.request\n"
        "print(sorted(os.environ.items()))\n"
        "for host in sys.argv[1:]:\n"
        "    asked = urllib.request.Request(f'https://{host}/x', headers={'Authorization': 'Bearer secret:db'})\n"
        "    print(urllib.request.urlopen(asked).read().decode())\n"
    )
    rule = ("--http", f"{api.host}:authorization=secret:db")
    ended = run(desk, *rule, "--", sys.executable, "-c", script, api.host)
    assert ended.returncode == 0, ended.stderr
    assert api.got == [f"Bearer {PASSWORD}"]
    assert PASSWORD not in ended.stdout + ended.stderr
    assert ended.stdout.splitlines()[-1].startswith("Bearer (sealed:password:")
    port = re.search(r"@127\.0\.0\.1:(\d+)'", ended.stdout)
    assert port is not None
    with socket.socket() as gone:  # the proxy has ended with its command
        assert gone.connect_ex(("127.0.0.1", int(port[1]))) != 0
    api.got.clear()
    # The same server by another name is another host: its certificate is its own, and so is what it gets.
    away = run(desk, *rule, "--", "curl", "-ksS", "-H", "Authorization: secret:db", f"https://{api.host}./")
    assert away.returncode == 7  # no rule for curl
    away = run(desk, *rule, "--", "sh", "-c", f"curl -ksS -H 'Authorization: secret:db' https://127.0.0.1:{api.port}/")
    assert (away.returncode, api.got) == (0, ["secret:db"])
    assert desk.json("secrets", "audit")[0]["by"].endswith(f"sh as authorization of {api.host}")
    for wrong in ("api.example.com=secret:db", "api.example.com:Host=secret:db", "127.0.0.1:X-Key=secret:db"):
        assert run(desk, "--http", wrong, "--", "true").returncode == 2
