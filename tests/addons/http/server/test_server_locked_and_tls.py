"""What a server's gateway does while a space's machines keep its key, where it listens by TLS, and what keeps it from listening."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.addons.http.server.test_server_attacks import call
from tests.support.deadline import DEADLINE_S
from tests.support.network.certificates import certificate
from tests.support.programs.confided import Confided
from tests.support.programs.door_attacks import LISTEN
from tests.support.programs.processes import NO_MODEL, Machine, wait_until
from tests.support.programs.server_gateway import GATEWAY, ServerGateway, serve, served

from confide_daemon.datadir import control_client
from confide_daemon.datadir.paths import DataFolder

MACHINES_KEEP = '[at_rest]\ncustody = "caller"\n'
SECRET = "ghp_" + "aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bC1dF3hJ5"


@pytest.fixture
def confided(tmp_path: Path) -> Iterator[Confided]:
    program = Confided(tmp_path / "home")
    yield program
    program.end()


def test_a_locked_space_is_not_unlocked_and_what_is_sealed_stays_so(confided: Confided, tmp_path: Path) -> None:
    """Until one of its devices has brought the key every request is told so; and from then on a sealed secret is its placeholder."""
    (confided.home / "daemon.toml").write_text(NO_MODEL + MACHINES_KEEP + GATEWAY)
    confided.run("init")
    gateway = ServerGateway(serve(confided), confided)
    assert confided.address is not None
    machine = Machine(tmp_path, "ann", is_set_up=False)
    machine.allow("project")
    invite = confided.json("invite", "home", "--url", confided.address["url"])["invite"]
    machine.run("join", invite)
    machine.write("MEMORY.md", f"# Facts\n\nThe deploy key is {SECRET} and the cat is grey.\n")
    machine.run("sync")
    token = gateway.token("chat", "--scope", "write")

    read = call(gateway, token, "memory_read", path="MEMORY.md", project="project")
    assert "the cat is grey" in read.body.decode()
    assert SECRET not in read.body.decode()
    assert "sealed:" in read.body.decode()
    listen = str(confided.address["url"]).removeprefix("confide://")
    confided.run("stop")

    gateway = ServerGateway(serve(confided, listen), confided, gateway.tokens)
    for message in (LISTEN, {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}):
        refused = gateway.request("POST", "/mcp", message, token=token)
        assert (refused.status, refused.code) == (503, "locked")
        assert refused.headers["retry-after"]
    assert gateway.request("GET", "/health").status == 200
    assert gateway.request("POST", "/mcp", LISTEN).status == 401
    machine.run("sync")
    wait_until(
        "the space", lambda: call(gateway, token, "memory_read", path="MEMORY.md", project="project").status == 200
    )
    assert SECRET not in confided.log
    for command in ("status", "doctor"):
        assert "chat reads and writes this space by HTTP, untrusted until" in " ".join(machine.run(command).split())
    assert machine.json("status")["gatewayClients"][0]["name"] == "chat"
    confided.run("http", "rm", "chat")
    assert "by HTTP" not in machine.run("doctor")


def test_it_listens_by_tls_and_is_called_as_configured(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    more = f'cert = "{cert}"\nkey = "{key}"\npublic_url = "https://Memory.example.org:443"\nhosts = ["other.example.org"]\n'
    gateway = served(tmp_path / "home", gateway=GATEWAY + more)
    try:
        for host, status in (
            ("memory.example.org", 401),
            ("memory.example.org:443", 401),
            ("other.example.org", 401),
            (f"127.0.0.1:{gateway.port}", 401),
            ("evil.example.org", 421),
        ):
            trusted = ssl.create_default_context(cafile=str(cert))
            secure = http.client.HTTPSConnection("127.0.0.1", gateway.port, timeout=DEADLINE_S, context=trusted)
            secure.request("POST", "/mcp", json.dumps(LISTEN), {"Host": host, "Origin": f"https://{host}"})
            answer = secure.getresponse()
            assert answer.status == status, host
            if status == 401:
                told = answer.getheader("WWW-Authenticate") or ""
                assert "https://memory.example.org/.well-known/oauth-protected-resource" in told
            secure.close()
        with pytest.raises((OSError, http.client.HTTPException)):
            gateway.request("GET", "/health")
        assert shown(gateway.port) == der_of(cert)
        assert "certificate of the gateway ends on" in gateway.confided.log  # in a day
        looked = gateway.confided.run("doctor", code=1).stdout
        assert "it ends in" in looked
        assert "its certificate is for 127.0.0.1, and not for memory.example.org" in looked
        metric = "confided_gateway_certificate_end_timestamp_seconds"
        socket_file = DataFolder(gateway.confided.data).control
        (sample,) = (one for one in control_client.ask(socket_file, "top")["samples"] if one[0] == metric)
        assert 0 < sample[2] - time.time() < 86_400
        # One that was renewed is served without a restart; one that does not fit is not, and is told.
        (tmp_path / "new").mkdir()
        renewed, other_key = certificate(tmp_path / "new")
        before = cert.read_bytes()
        renewed_bytes = renewed.read_bytes()
        cert.write_bytes(renewed_bytes)
        wait_until("that to be told", lambda: f"{key}: it is no key of that certificate" in gateway.confided.log)
        assert shown(gateway.port) == ssl.PEM_cert_to_DER_cert(before.decode())
        other_key.chmod(0o644)
        other_key.replace(key)
        wait_until("that to be told", lambda: gateway.confided.log.count("so the one of before is served") == 2)
        assert shown(gateway.port) == ssl.PEM_cert_to_DER_cert(before.decode())
        key.chmod(0o600)
        wait_until("the new one", lambda: shown(gateway.port) == ssl.PEM_cert_to_DER_cert(renewed_bytes.decode()))
    finally:
        gateway.confided.end()


def test_a_space_that_is_not_there_is_told_to_the_operator_and_no_space_to_a_stranger(confided: Confided) -> None:
    """At the start, and by doctor."""
    said = GATEWAY + 'client_hosts = ["claude.ai"]\nclient_space = "hame"\n'
    (confided.home / "daemon.toml").write_text(NO_MODEL + said)
    confided.run("init")
    confided.enroll("home")
    serve(confided)
    assert "client_space of [gateway]: there is no space of that name" in confided.log
    done = confided.run("doctor", code=1)
    told = done.stdout + done.stderr
    assert "client_space is 'hame', and there is no space of that name" in told
    assert "the spaces are: home" in told


def test_a_terminal_that_goes_ends_it_in_order(confided: Confided) -> None:
    """As an ssh that drops; and where whoever has started it says that it is to outlive that, it does."""
    confided.run("init")
    confided.serve("--listen", "127.0.0.1:0")
    process = confided.processes[-1]
    process.send_signal(signal.SIGHUP)
    assert process.wait(DEADLINE_S) == 0
    assert "ended" in confided.log.splitlines()[-1]


def der_of(cert: Path) -> bytes:
    return ssl.PEM_cert_to_DER_cert(cert.read_text())


def shown(port: int) -> bytes:
    """The certificate that whoever comes now is shown."""
    anyone = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anyone.check_hostname, anyone.verify_mode = False, ssl.CERT_NONE
    with (
        socket.create_connection(("127.0.0.1", port), DEADLINE_S) as plain,
        anyone.wrap_socket(plain) as secure,
    ):
        found = secure.getpeercert(binary_form=True)
    assert found is not None
    return found


def test_what_keeps_it_from_listening_is_told(confided: Confided, tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    confided.run("init")
    for said, code, told in (
        (f'cert = "{cert}"\nkey = "{cert}"\n', 5, f"cannot be used: {cert}: it is no key in PEM"),
        (f'cert = "{tmp_path}/none"\nkey = "{key}"\n', 5, f"cannot be used: {tmp_path}/none: no such file"),
        (f'cert = "{key}"\nkey = "{key}"\n', 5, f"cannot be used: {key}: it is no certificate in PEM"),
    ):
        cert.chmod(0o600)
        (confided.home / "daemon.toml").write_text(NO_MODEL + GATEWAY + said)
        assert told in confided.run("serve", "--listen", "127.0.0.1:0", code=code).stderr
    key.chmod(0o644)
    (confided.home / "daemon.toml").write_text(NO_MODEL + GATEWAY + f'cert = "{cert}"\nkey = "{key}"\n')
    assert "key.pem" in confided.run("serve", "--listen", "127.0.0.1:0", code=4).stderr
