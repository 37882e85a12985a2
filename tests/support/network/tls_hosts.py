"""Hosts of HTTPS on loopback, under whatever names a test gives them."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import trustme

AUTHORITY = trustme.CA()
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@dataclass
class TlsHost:
    """A host that answers each request of a connection. `answer` gets the request's head, and gives the bytes of the answer."""

    answer: Callable[[bytes], bytes] = lambda _head: OK
    heads: list[bytes] = field(default_factory=list)
    seen: bytes = b""
    port: int = 0
    connections: int = 0


@asynccontextmanager
async def tls_host(*names: str, authority: trustme.CA = AUTHORITY) -> AsyncIterator[TlsHost]:
    """One that listens, with a certificate for these names."""
    host = TlsHost()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*names).configure_cert(context)

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host.connections += 1
        unread = b""
        while piece := await reader.read(65536):
            host.seen += piece
            unread += piece
            while b"\r\n\r\n" in unread:
                head, _, unread = unread.partition(b"\r\n\r\n")
                host.heads.append(head)
                said = host.answer(head)
                writer.write(said)
                if b"connection: close" in (head + said).lower():
                    await writer.drain()
                    writer.close()
                    return
        writer.close()

    server = await asyncio.start_server(take, "127.0.0.1", 0, ssl=context)
    host.port = server.sockets[0].getsockname()[1]
    try:
        yield host
    finally:
        server.close()


@dataclass
class EchoingHost:
    """A host of HTTPS on `localhost` that repeats the header `Authorization`, and remembers it."""

    ca_file: Path
    port: int = 0
    got: list[str] = field(default_factory=list)

    @property
    def host(self) -> str:
        return f"localhost:{self.port}"


@contextmanager
def echoing_host(ca_file: Path) -> Iterator[EchoingHost]:
    """One for other processes. `ca_file` gets the authority that vouches for it."""
    host = EchoingHost(ca_file)
    AUTHORITY.cert_pem.write_to_path(str(ca_file))

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            host.got.append(self.headers["authorization"])
            self.send_response(200)
            self.end_headers()
            self.wfile.write(host.got[-1].encode())

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    AUTHORITY.issue_cert("localhost").configure_cert(context)
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        host.port = server.server_port
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield host
        server.shutdown()
        thread.join()


def lead(patch: pytest.MonkeyPatch, places: dict[tuple[str, int], int], elsewhere: int) -> None:
    """Have names lead to ports of loopback: these to theirs, all others to `elsewhere`."""

    def look_up(host: Any, port: Any, *_: Any, **__: Any) -> list[Any]:
        name = host.decode() if isinstance(host, bytes) else host
        there = ("127.0.0.1", places.get((name, int(port)), elsewhere))
        return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", there)]

    patch.setattr(socket, "getaddrinfo", look_up)
