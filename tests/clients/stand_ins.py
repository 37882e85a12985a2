"""Services on loopback that take a credential, for what agents do with one: a package registry, a container registry and a git server.

Each keeps what it was shown, so that a test sees that the right value came.
"""

from __future__ import annotations

import base64
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final

GIT: Final = "/git/"
_MOST_BODY: Final = 64 * 1024 * 1024


class StandIns:
    """The services behind one port. `shown`: the values of the `Authorization` headers so far, decoded where they are basic."""

    def __init__(self, repositories: Path, token: str, password: str) -> None:
        """`token`: that of the package registry and of git; `password`: that of the container registry."""
        self.repositories, self.token, self.password = repositories, token, password
        self.shown: list[str] = []
        self.published: list[str] = []
        self.port = 0


@contextmanager
def standing_in(services: StandIns) -> Iterator[None]:
    """Serve them until the end of the block."""
    handler = type("Serving", (_Handler,), {"services": services})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    services.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    services: StandIns

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        if self.path.startswith("/v2/"):
            self._registry()
        elif self.path.startswith(GIT):
            self._git(b"")
        else:
            self._answer(404, b"{}")

    def do_POST(self) -> None:
        body = self._body()
        if self.path.startswith(GIT):
            self._git(body)
        else:
            self._answer(404, b"{}")

    def do_PUT(self) -> None:
        """What `npm publish` sends."""
        self._body()
        if self._credential() == self.services.token:
            self.services.published.append(self.path)
            self._answer(201, b'{"ok":true}')
        else:
            self._answer(401, b'{"error":"no such token"}')

    def _registry(self) -> None:
        if self._credential() == f"me:{self.services.password}":
            self._answer(200, b"{}")
        else:
            self._answer(401, b"{}", realm="registry")

    def _git(self, body: bytes) -> None:
        """As a web server runs `git http-backend`."""
        if self._credential() != f"me:{self.services.token}":
            self._answer(401, b"", realm="git")
            return
        path, _, query = self.path.removeprefix(GIT.rstrip("/")).partition("?")
        told = {"GIT_PROJECT_ROOT": str(self.services.repositories), "GIT_HTTP_EXPORT_ALL": "1", "PATH_INFO": path}
        told |= {"QUERY_STRING": query, "REQUEST_METHOD": self.command, "REMOTE_USER": "me"}
        told |= {"CONTENT_TYPE": self.headers.get("content-type", ""), "CONTENT_LENGTH": str(len(body))}
        told |= {"HTTP_CONTENT_ENCODING": self.headers.get("content-encoding", ""), "PATH": os.environ["PATH"]}
        done = subprocess.run(["git", "http-backend"], env=told, input=body, capture_output=True, timeout=60)
        head, _, answer = done.stdout.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if line)
        self._answer(int(fields.pop("Status", "200").split()[0]), answer, **fields)

    def _credential(self) -> str:
        kind, _, value = self.headers.get("authorization", "").partition(" ")
        found = base64.b64decode(value).decode() if kind.lower() == "basic" else value
        if found:
            self.services.shown.append(found)
        return found

    def _body(self) -> bytes:
        if "chunked" not in self.headers.get("transfer-encoding", ""):
            return self.rfile.read(min(_MOST_BODY, int(self.headers.get("content-length", 0))))
        parts = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _answer(self, status: int, body: bytes, *, realm: str = "", **fields: str) -> None:
        self.send_response(status)
        if realm:
            self.send_header("www-authenticate", f'Basic realm="{realm}"')
        for name, value in fields.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
