"""The HTTPS proxy of a `confide run`. For hosts that get a secret, it decrypts the connection and
puts the values into the named headers; connections to all other hosts pass through encrypted.

The command reaches it on 127.0.0.1, with a credential. It accepts only `CONNECT`, so it never sees
plain HTTP. A connection belongs to the destination of its `CONNECT`: no `Host` header, path or name
in the TLS handshake can send its requests anywhere else.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hmac
import re
import socket
import ssl
from typing import Final

import h11

from confide_crypto.transport.task_group import TaskGroup
from confide_proxy.run.egress.dialing import dial, reason
from confide_proxy.run.egress.header_secrets import CONNECTION_HEADERS, Destination, HeaderSecrets
from confide_proxy.run.egress.host_connection import HostConnection, HostError, OutgoingRequest, is_path
from confide_proxy.run.egress.http_stream import IDLE_S, HttpStream
from confide_proxy.run.egress.proxy_environment import USER
from confide_proxy.sealing.masking import SecretForms

MOST_CONNECTIONS: Final = 256
HEAD_S: Final = 20.0
"""Time for what comes before a connection to a host: the request for it, and the handshake."""
CLOSE_S: Final = 1.0
_PIECE: Final = 64 * 1024
_TUNNEL: Final = re.compile(
    r"(?:\[(?P<address>[0-9A-Fa-f:.]{2,45})\]|(?P<name>[A-Za-z0-9._-]{1,253})):(?P<port>\d{1,5})"
)
_FRAMING: Final = frozenset({b"content-length", b"transfer-encoding"})
_DROPPED: Final = frozenset(name.encode() for name in CONNECTION_HEADERS) - _FRAMING
"""Headers of a request that are not passed on. Not `range`: a host that echoes its request could
return a secret in two halves, neither of which would be masked.
"""


class LocalProxy:
    """Serves the connections of one run's command."""

    def __init__(
        self, secrets: HeaderSecrets, forms: SecretForms, credential: str, inner: ssl.SSLContext, outer: ssl.SSLContext
    ) -> None:
        """Args:
        forms: what is masked in answers of the hosts that get a secret.
        credential: the password that every client has to give.
        inner, outer: TLS towards the command, as those hosts, and towards them.
        """
        self._secrets = secrets
        self._forms = forms
        self._credential = base64.b64encode(f"{USER}:{credential}".encode())
        self._inner = inner
        self._outer = outer
        self._count = 0

    async def serve(self, listener: socket.socket) -> None:
        """Serve connections to the listening socket until cancelled."""
        server = await asyncio.start_server(self._take, sock=listener)
        async with server:
            await server.serve_forever()

    def run(self, listener: socket.socket, alive: int) -> None:
        """Serve connections to the listening socket until the pipe `alive` ends."""
        asyncio.run(self._run(listener, alive))

    async def _run(self, listener: socket.socket, alive: int) -> None:
        ended = asyncio.Event()
        asyncio.get_running_loop().add_reader(alive, ended.set)
        serving = asyncio.create_task(self.serve(listener))
        await ended.wait()
        serving.cancel()

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._count += 1
        try:
            if self._count <= MOST_CONNECTIONS:
                with contextlib.suppress(h11.ProtocolError, OSError, TimeoutError, HostError):
                    await self._answer(HttpStream(h11.SERVER, reader, writer))
        finally:
            self._count -= 1
            try:
                with contextlib.suppress(OSError, TimeoutError):
                    async with asyncio.timeout(CLOSE_S):
                        writer.close()
                        await writer.wait_closed()
            finally:
                writer.transport.abort()  # TLS would wait for the command's own end of it

    async def _answer(self, stream: HttpStream) -> None:
        """Answer what comes before the connection to a host: without a credential, more than once."""
        while True:
            try:
                request = await stream.next(wait_s=HEAD_S)
            except h11.RemoteProtocolError as error:
                await _refuse(stream, error.error_status_hint, "this is no request that a proxy takes")
                return
            if not isinstance(request, h11.Request):
                return
            given = [bytes(value) for name, value in request.headers if name == b"proxy-authorization"]
            if len(given) == 1 and hmac.compare_digest(given[0], b"Basic " + self._credential):
                break
            async for _ in stream.body():
                pass
            wanted = [(b"proxy-authenticate", b'Basic realm="confide run"')]
            await _refuse(stream, 407, "this proxy is for another command", wanted)
            if not stream.begin_next():
                return
        place = _TUNNEL.fullmatch(request.target.decode("ascii", "replace"))
        if request.method != b"CONNECT" or place is None or not 0 < int(place["port"]) < 2**16:
            await _refuse(stream, 400, "this proxy takes HTTPS to a host and a port only")
            return
        if not isinstance(await stream.next(), h11.EndOfMessage) or stream.http.trailing_data[0]:
            await _refuse(stream, 400, "the handshake comes before the answer")
            return
        destination = Destination.parse(f"{place['name']}:{place['port']}") if place["name"] else None
        if destination in self._secrets.destinations:
            await self._open(stream, destination)
        else:
            await self._pass_through(stream, place["name"] or place["address"], int(place["port"]))

    async def _pass_through(self, stream: HttpStream, host: str, port: int) -> None:
        """Pass on what goes to a host that gets no secret, unopened."""
        try:
            reader, writer = await dial(host, port)
        except (OSError, TimeoutError) as error:
            await _refuse(stream, 502, f"{host} cannot be reached: {reason(error)}")
            return
        try:
            await stream.send(h11.Response(status_code=200, headers=[]))
            tunnel = _ProxyTunnel()
            async with TaskGroup() as ways:
                ways.create_task(tunnel.pump(stream.reader, writer))
                ways.create_task(tunnel.pump(reader, stream.writer))
        except (OSError, TimeoutError):
            return
        finally:
            writer.transport.abort()

    async def _open(self, stream: HttpStream, destination: Destination) -> None:
        """Answer as a host that gets a secret."""
        await stream.send(h11.Response(status_code=200, headers=[]))
        await stream.writer.start_tls(self._inner, ssl_handshake_timeout=HEAD_S)
        inside = HttpStream(h11.SERVER, stream.reader, stream.writer)
        host: HostConnection | None = None
        try:
            while True:
                try:
                    request = await inside.next()
                except h11.RemoteProtocolError as error:
                    await _refuse(inside, error.error_status_hint, "this is no request that the proxy passes on")
                    return
                if not isinstance(request, h11.Request):
                    return
                if problem := _problem(request, destination):
                    await _refuse(inside, 421, problem)
                    return
                is_used = host is not None and host.is_open
                if host is not None and not is_used:
                    await host.close()
                    host = None
                try:
                    host = host or await HostConnection.open(destination, self._outer, self._forms)
                    await self._forward(inside, request, destination, host)
                except HostError as error:
                    if not is_used and inside.http.our_state is h11.SEND_RESPONSE:
                        await _refuse(inside, 502, f"{destination}: {error}")
                    return  # where a connection has ended meanwhile, the command sees just that
                if not inside.begin_next():
                    return
        finally:
            if host is not None:
                await host.close()

    async def _forward(
        self, inside: HttpStream, request: h11.Request, destination: Destination, host: HostConnection
    ) -> None:
        """Pass on a request with its values, and the answer without them."""
        headers = self._secrets.headers(destination, _passed_on(request))
        answer = await host.ask(OutgoingRequest(request.method, request.target, headers, inside.body()))
        await inside.send(h11.Response(status_code=answer.status, headers=answer.headers))
        async for piece in answer.body:
            await inside.send(h11.Data(data=piece))
        await inside.send(h11.EndOfMessage())


def _problem(request: h11.Request, destination: Destination) -> str:
    """Return why a request is not passed on: it names another host than its connection; "" if it does not."""
    names = [value.decode("latin-1").lower() for name, value in request.headers if name == b"host"]
    if [Destination.parse(each) for each in names] != [destination]:
        return f"this connection is to {destination}, and the request has another Host"
    if not is_path(request.target):
        return "the request has an address in place of a path"
    return ""


def _passed_on(request: h11.Request) -> list[tuple[bytes, bytes]]:
    """Return the headers of a request that are passed on, with those that frame its body."""
    given = [(bytes(name), bytes(value)) for name, value in request.headers]
    named = {each.strip().lower() for name, value in given if name == b"connection" for each in value.split(b",")}
    is_chunked = any(name == b"transfer-encoding" for name, _ in given)
    dropped = _DROPPED | (named - _FRAMING) | ({b"content-length"} if is_chunked else set())
    return [(name, value) for name, value in given if name not in dropped] + [(b"accept-encoding", b"identity")]


async def _refuse(stream: HttpStream, status: int, why: str, headers: list[tuple[bytes, bytes]] | None = None) -> None:
    """Answer with an error, in a sentence."""
    text = f"confide run: {why}\n".encode()
    framing = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(text)).encode())]
    response = h11.Response(status_code=status, headers=[*(headers or ()), *framing])
    await stream.send(response, h11.Data(data=text), h11.EndOfMessage())


class _ProxyTunnel:
    """Bytes that are passed on both ways, until both have ended or neither has any for a while."""

    def __init__(self) -> None:
        self._moved_at = asyncio.get_running_loop().time()

    async def pump(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        """Pass bytes on in one direction, to its end. Raises OSError and TimeoutError."""
        now = asyncio.get_running_loop().time
        while True:
            try:
                async with asyncio.timeout(IDLE_S):
                    piece = await source.read(_PIECE)
            except TimeoutError:
                if now() - self._moved_at < IDLE_S:
                    continue
                raise
            if not piece:
                break
            self._moved_at = now()
            target.write(piece)
            async with asyncio.timeout(IDLE_S):
                await target.drain()
        if target.can_write_eof():
            target.write_eof()
