"""A TLS connection to one host that gets a secret. The host is chosen once, when the connection is
opened; nothing in a request can send it elsewhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Final, NamedTuple, Self

import h11

from confide_proxy.run.egress.dialing import dial, reason
from confide_proxy.run.egress.header_secrets import Destination
from confide_proxy.run.egress.http_stream import HttpStream
from confide_proxy.sealing.masking import Mask, SecretForms

MOST_BODY: Final = 2**33
"""Most bytes of a request or an answer; they are passed on in pieces."""
_PLAIN: Final = (b"", b"identity")
_TARGET: Final = frozenset(range(0x21, 0x7F)) - frozenset(b"#")
_OF_CONNECTION: Final = frozenset(
    {b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"te", b"trailer", b"upgrade"}
    | {b"proxy-authenticate", b"proxy-authorization", b"alt-svc"}
)
"""Headers about one connection, or another way to the host."""


class HostError(Exception):
    """A host cannot be reached, or gives no response that may be passed on. The message says why
    and contains no values.
    """


class OutgoingRequest(NamedTuple):
    """A request as it is sent to the host. Its repr does not show secrets.

    Attributes:
        method, target: the HTTP method; the path with its query.
        headers: names in lower case, including those that frame the body, without `host`.
        body: the pieces of the body.
    """

    method: bytes
    target: bytes
    headers: Sequence[tuple[bytes, bytes]]
    body: AsyncIterator[bytes]

    def __repr__(self) -> str:
        return f"OutgoingRequest({self.method!r})"


class Answer(NamedTuple):
    """A response of a host, with the secrets masked.

    Attributes:
        headers: names in lower case, without those about the connection.
        body: the pieces of the body, which must be read to the end. Raises HostError if the body is
            incomplete.
    """

    status: int
    headers: list[tuple[bytes, bytes]]
    body: AsyncIterator[bytes]


class HostConnection:
    """A TLS connection to a host that sends one request after another."""

    def __init__(self, destination: Destination, stream: HttpStream, forms: SecretForms) -> None:
        self._destination = destination
        self._stream = stream
        self._forms = forms
        self._sending: asyncio.Task[None] | None = None

    @classmethod
    async def open(cls, destination: Destination, tls: ssl.SSLContext, forms: SecretForms) -> Self:
        """Connect to a host.

        Args:
            tls: a context with the root certificates that verify the host.
            forms: the secret values that are masked in its responses.

        Raises HostError if the host cannot be reached or verified.
        """
        try:
            reader, writer = await dial(destination.host, destination.port, tls)
        except ssl.SSLCertVerificationError as error:
            raise HostError(f"its certificate is not trusted: {error.verify_message}") from error
        except (OSError, TimeoutError) as error:
            raise HostError(f"it cannot be reached: {reason(error)}") from error
        return cls(destination, HttpStream(h11.CLIENT, reader, writer), forms)

    @property
    def is_open(self) -> bool:
        """Return True if another request can be sent over this connection."""
        return self._stream.http.our_state is h11.IDLE and not self._stream.reader.at_eof()

    async def close(self) -> None:
        """Close the connection, even in the middle of a response."""
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.gather(self._sending, return_exceptions=True)
        self._stream.writer.transport.abort()

    async def ask(self, request: OutgoingRequest) -> Answer:
        """Send a request and return its response. Raises HostError if the host gives no valid
        response.
        """
        if not is_path(request.target):
            raise HostError("its path cannot be sent")
        self._sending = asyncio.create_task(self._send(request))
        try:
            while isinstance(event := await self._stream.next(), h11.InformationalResponse):
                pass
        except (h11.ProtocolError, OSError, TimeoutError) as error:
            raise HostError(f"it did not answer: {type(error).__name__}") from error
        if not isinstance(event, h11.Response):
            raise HostError("it closed the connection without an answer")
        packed = next((value for name, value in event.headers if name == b"content-encoding"), b"").strip().lower()
        if self._forms and packed not in _PLAIN:
            raise HostError("it answers in a packed form, in which a secret could not be masked")
        is_bodiless = request.method == b"HEAD" or event.status_code in (204, 304)
        return Answer(event.status_code, self._passed_back(event.headers.raw_items(), is_bodiless), self._body())

    def _passed_back(self, headers: Iterable[tuple[bytes, bytes]], is_bodiless: bool) -> list[tuple[bytes, bytes]]:
        """Return an answer's headers with the secrets masked. A body may get another length by it."""
        dropped = _OF_CONNECTION if is_bodiless else _OF_CONNECTION | {b"content-length"}
        return [
            (name.lower(), Mask(self._forms).whole(value))
            for name, value in headers
            if name.lower() not in dropped and Mask(self._forms).whole(name) == name
        ]

    async def _send(self, request: OutgoingRequest) -> None:
        """Send a request. If it cannot be sent to its end, the connection ends with it."""
        stream, size = self._stream, 0
        headers = [(b"host", str(self._destination).encode()), *request.headers]
        try:
            await stream.send(h11.Request(method=request.method, target=request.target, headers=headers))
            async for piece in request.body:
                size += len(piece)
                if size > MOST_BODY:
                    raise HostError("the request is too large")
                await stream.send(h11.Data(data=piece))
            await stream.send(h11.EndOfMessage())
        except (ConnectionError, TimeoutError):
            return  # the host may have answered before it closed
        except BaseException:
            stream.writer.transport.abort()
            raise

    async def _body(self) -> AsyncIterator[bytes]:
        """Yield the masked body, and be ready for the next request if there may be one."""
        mask, size = Mask(self._forms), 0
        try:
            async with contextlib.aclosing(self._stream.body()) as pieces:
                async for piece in pieces:
                    size += len(piece)
                    if size > MOST_BODY:
                        raise HostError("its answer is too large")
                    if out := mask.feed(piece):
                        yield out
        except (h11.ProtocolError, OSError, TimeoutError) as error:
            raise HostError(f"its answer breaks off: {type(error).__name__}") from error
        if rest := mask.end():
            yield rest
        if self._sending is not None and self._sending.done():
            self._stream.begin_next()


def is_path(target: bytes) -> bool:
    """Return True if the target of a request is a path, perhaps with a query, and does not name a
    host.
    """
    return target.startswith(b"/") and _TARGET.issuperset(target)
