"""What stands in front of a daemon in the real world: nginx and Caddy with the example files of `configs/`, and our own relay."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import pytest
import trustme
from tests.support.deadline import DEADLINE_S
from tests.support.network.ports import free_port
from tests.support.network.tls_relay import TlsRelay
from tests.support.programs.processes import wait_until

CONFIGS = Path(__file__).parents[3] / "configs"
KINDS = ("nginx", "caddy", "relay")
PREFIX = "/confide"


class Authority:
    """A private CA, and a certificate of its for this machine."""

    def __init__(self, root: Path, *names: str, **validity: datetime) -> None:
        """Made in `root`, for loopback where no `names` are given; `validity` as `trustme` takes it."""
        root.mkdir()
        self.ca = trustme.CA()
        self.ca_file = root / "ca.pem"
        self.ca.cert_pem.write_to_path(self.ca_file)
        self.certificate = root / "fullchain.pem"
        self.key = root / "privkey.pem"
        issued = self.ca.issue_cert(*(names or ("localhost", "127.0.0.1")), **validity)
        for part in issued.cert_chain_pems:
            part.write_to_path(self.certificate, append=True)
        issued.private_key_pem.write_to_path(self.key)

    @property
    def context(self) -> ssl.SSLContext:
        """Of a server with that certificate."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, self.key)
        return context


def require(kind: str) -> None:
    """Skip the test where this program is not installed."""
    if kind != "relay" and program(kind) is None:
        pytest.skip(f"{kind} is not installed")


def program(name: str) -> str | None:
    """Where it is; Debian keeps nginx out of a user's PATH."""
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin")


@contextmanager
def front(
    kind: str, folder: Path, daemon_port: int, authority: Authority | None, *, idle_s: int | None = None
) -> Iterator[str]:
    """One of `KINDS` in front of a daemon, with TLS where an authority is given.

    It cuts who is silent for `idle_s`; Caddy does not.

    Gives the address that goes into invites.
    """
    folder.mkdir()
    scheme = "confides" if authority else "confide"
    if kind == "relay":
        context = authority.context if authority else None
        with TlsRelay(daemon_port, context=context, prefix=PREFIX, idle_s=idle_s) as relay:
            yield f"{scheme}://localhost:{relay.port}{PREFIX}"
        return
    port = free_port()
    is_nginx = kind == "nginx"
    command = (
        _nginx(folder, port, daemon_port, authority, idle_s)
        if is_nginx
        else _caddy(folder, port, daemon_port, authority)
    )
    log = folder / "log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            cwd=folder,
            env={"HOME": str(folder), "PATH": "/usr/bin:/bin"},
        )
    try:
        wait_until(f"{kind} to listen", lambda: listens(port) or process.poll() is not None)
        assert process.poll() is None, log.read_text()
        yield f"{scheme}://localhost:{port}{PREFIX}"
    finally:
        process.terminate()
        process.wait(DEADLINE_S)


def listens(port: int) -> bool:
    """Whether somebody takes connections at a port of this machine."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _example(name: str, changes: dict[str, str]) -> str:
    """An example file with its names, ports and paths replaced, each of which must be there."""
    text = (CONFIGS / name).read_text()
    for ours, here in changes.items():
        assert ours in text, f"{name} does not say {ours!r}"
        text = text.replace(ours, here)
    return text


def _nginx(folder: Path, port: int, daemon_port: int, authority: Authority | None, idle_s: int | None) -> list[str]:
    letsencrypt = "/etc/letsencrypt/live/memory.example.org"
    changes = {
        "listen 443 ssl;": f"listen 127.0.0.1:{port} ssl;" if authority else f"listen 127.0.0.1:{port};",
        f"{letsencrypt}/fullchain.pem": str(authority.certificate) if authority else "",
        f"{letsencrypt}/privkey.pem": str(authority.key) if authority else "",
        "server_name memory.example.org;": "server_name localhost;",
        "http://127.0.0.1:7733": f"http://127.0.0.1:{daemon_port}",
    }
    if idle_s:
        changes["proxy_read_timeout 90s;"] = f"proxy_read_timeout {idle_s}s;"
    site = _example("nginx.conf", changes)
    if not authority:
        site = "\n".join(line for line in site.splitlines() if "ssl_certificate" not in line)
    (folder / "site.conf").write_text(site)
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    temporary = "".join(f"{kind}_temp_path {folder / kind};" for kind in kinds)
    (folder / "main.conf").write_text(
        f"daemon off; master_process off; pid {folder}/pid; error_log stderr; events {{}}"
        f" http {{ access_log off; {temporary} include {folder}/site.conf; }}"
    )
    found = program("nginx")
    assert found
    return [found, "-p", str(folder), "-e", "stderr", "-c", str(folder / "main.conf")]


def _caddy(folder: Path, port: int, daemon_port: int, authority: Authority | None) -> list[str]:
    site = _example(
        "Caddyfile",
        {
            "memory.example.org {": f"{'https' if authority else 'http'}://localhost:{port} {{\n\tbind 127.0.0.1",
            "/etc/ssl/confide/fullchain.pem": str(authority.certificate) if authority else "",
            "/etc/ssl/confide/privkey.pem": str(authority.key) if authority else "",
            "127.0.0.1:7733": f"127.0.0.1:{daemon_port}",
        },
    )
    if not authority:
        site = "\n".join(line for line in site.splitlines() if line.split()[:1] != ["tls"])
    (folder / "Caddyfile").write_text("{\n\tadmin off\n\tauto_https disable_redirects\n}\n" + site)
    found = program("caddy")
    assert found
    return [found, "run", "--config", str(folder / "Caddyfile"), "--adapter", "caddyfile"]
