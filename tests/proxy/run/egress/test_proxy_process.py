"""The proxy beside a command: what it trusts and is trusted for, and when it ends."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
from pathlib import Path

import pytest
import trustme
from cryptography import x509
from tests.support.deadline import DEADLINE_S
from tests.support.programs.processes import wait_until

from confide_proxy.errors import RunRefusedError
from confide_proxy.run.egress import proxy_process, roots, run_certificate
from confide_proxy.run.egress.header_secrets import Destination, HeaderSecret, HeaderSecrets
from confide_proxy.sealing.masking import SecretForms

NAME = "api.example.test"
_BEGIN = "-----BEGIN CERTIFICATE-----"
DRIVER = f"""
import json, sys
from confide_proxy.run.egress.proxy_process import running
from confide_proxy.run.egress.header_secrets import Destination, HeaderSecret, HeaderSecrets
from confide_proxy.sealing.masking import SecretForms
secrets = HeaderSecrets([HeaderSecret(Destination("{NAME}"), "authorization", ("secret:api",), b"xK7mQ2vR9tLw4zz")])
with running(secrets, lambda: SecretForms({{}}), sys.argv[1]) as found:
    print(json.dumps([{{name: each.decode() for name, each in one.items()}} for one in found]), flush=True)
    sys.stdin.read()
"""


def is_listening(port: int) -> bool:
    with socket.socket() as there:
        return there.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "ca.pem"
    trustme.CA().cert_pem.write_to_path(str(path))
    return path


@pytest.mark.parametrize("ends", [signal.SIGKILL, signal.SIGTERM, None])
def test_it_ends_with_the_run(own: Path, ends: signal.Signals | None) -> None:
    """Also if `confide run` is killed, and nobody tells it."""
    with subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(own)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        port = int(json.loads(process.stdout.readline())[0]["https_proxy"].rpartition(":")[2])
        assert is_listening(port)
        if ends is None:
            process.communicate(timeout=DEADLINE_S)
        else:
            process.send_signal(ends)
            process.wait(DEADLINE_S)
        wait_until("the proxy to end", lambda: not is_listening(port))


def test_a_command_is_led_to_it_and_trusts_it_for_named_hosts_alone(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its other trust stays what it was, and so do hosts that need no proxy, but for those that need this one."""
    for name, value in {
        "NO_PROXY": f"localhost,.example.test, {NAME}:443,*,other.test",
        "CURL_CA_BUNDLE": str(own),
    }.items():
        monkeypatch.setenv(name, value)
    for name in ("SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS"):
        monkeypatch.delenv(name, raising=False)
    driven = subprocess.run(
        [sys.executable, "-c", DRIVER, str(own)], stdin=subprocess.DEVNULL, capture_output=True, timeout=DEADLINE_S
    )
    variables, files = json.loads(driven.stdout)
    assert variables["NO_PROXY"] == "localhost,other.test"
    assert variables["https_proxy"].startswith("http://confide:")
    found_in = {name: content.split(_BEGIN)[1:] for name, content in files.items()}
    assert [len(found_in[name]) for name in ("CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS")] == [2, 1]
    assert len(found_in["SSL_CERT_FILE"]) > 2
    (made,) = {_BEGIN + each[-1] for each in found_in.values()}
    limits = x509.load_pem_x509_certificate(made.encode()).extensions.get_extension_for_class(x509.NameConstraints)
    assert limits.critical
    assert limits.value.permitted_subtrees == [x509.DNSName(NAME)]


def test_a_host_is_verified_by_the_systems_roots_and_the_users(
    own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not by what the environment names, which an agent sets. What cannot be verified by is said."""
    monkeypatch.setenv("SSL_CERT_FILE", str(own))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    authority = ssl.PEM_cert_to_DER_cert(own.read_text())
    assert authority not in roots.verifying(roots.trusted("")).get_ca_certs(binary_form=True)
    context = roots.verifying(roots.trusted(str(own)))
    assert authority in context.get_ca_certs(binary_form=True)
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    with pytest.raises(RunRefusedError, match="cannot be read"):
        roots.trusted(str(tmp_path / "missing"))
    empty = tmp_path / "empty"
    empty.write_text("")
    monkeypatch.setattr(roots, "_BUNDLES", (str(empty),))
    with pytest.raises(RunRefusedError, match="are no certificates"):
        roots.verifying(roots.trusted(""))
    monkeypatch.setattr(roots, "_BUNDLES", ())
    with pytest.raises(RunRefusedError, match="none of the usual places"):
        roots.trusted("")


@pytest.mark.parametrize("place", ["socket.create_server", "os.pipe", "tempfile.NamedTemporaryFile"])
def test_what_keeps_it_from_starting_is_said(own: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(place, full)
    secret = HeaderSecret(Destination(NAME), "authorization", ("secret:api",), b"xK7mQ2vR9tLw4zz")
    with (
        pytest.raises(RunRefusedError, match="cannot be started: No space left"),
        proxy_process.running(HeaderSecrets([secret]), lambda: SecretForms({}), str(own)),
    ):
        pass


def test_no_key_of_a_run_is_left_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    run_certificate.make([NAME])
    assert not os.listdir(tmp_path)
