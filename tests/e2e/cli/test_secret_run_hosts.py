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
from tests.support.programs.processes import CONFIDE, Inside, Machine

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
