"""Rules for which header of which host gets which secret, and the placeholders that a request
contains instead until then.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, Self

HTTPS_PORT: Final = 443
_HEADER: Final = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,63}")
CONNECTION_HEADERS: Final = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "keep-alive", "te", "trailer", "upgrade", "expect"}
    | {"range", "if-range", "accept-encoding", "proxy-authorization", "proxy-connection"}
)
"""Headers that the connection needs for itself, or that are not passed on."""
_LABEL: Final = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_HOST: Final = re.compile(rf"(?=.{{1,253}}\Z){_LABEL}(\.{_LABEL})*")
_NUMBER: Final = re.compile(r"\d+|0x[0-9a-f]*")
"""A last label that makes an IPv4 address of a name for some programs, and not for others."""
_BASIC: Final = re.compile(rb"(?i:(basic) +)([A-Za-z0-9+/]+={0,2})")


def is_fit_header(name: str) -> bool:
    """Return True if a header may contain a secret: its name is valid, and it is not one that the
    connection itself needs.
    """
    return bool(_HEADER.fullmatch(name)) and name.lower() not in CONNECTION_HEADERS


class Destination(NamedTuple):
    """A host name and port. Two are the same destination only if both are equal, as text.

    Attributes:
        host: a name in lower case, ASCII; no IP address, and without a final dot.
        port: from 1 to 65535.
    """

    host: str
    port: int = HTTPS_PORT

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Parse `NAME` or `NAME:PORT`, in upper or lower case; None if the text has another form."""
        host, colon, port = text.lower().partition(":")
        if not text.isascii() or not _HOST.fullmatch(host) or _NUMBER.fullmatch(host.rpartition(".")[2]):
            return None
        if not colon:
            return cls(host)
        if not re.fullmatch(r"\d{1,5}", port) or not 0 < int(port) < 2**16:
            return None
        return cls(host, int(port))

    def __str__(self) -> str:
        """Return it as an address or a `Host` header has it, without the default port."""
        return self.host if self.port == HTTPS_PORT else f"{self.host}:{self.port}"


class HeaderSecret(NamedTuple):
    """A secret that goes into a header of one host. Its repr does not show the value.

    Attributes:
        destination, header: the host, and the header's name in lower case.
        placeholders: the texts in a request that are replaced by the value.
        value: the value, as it goes into the header.
    """

    destination: Destination
    header: str
    placeholders: tuple[str, ...]
    value: bytes

    def __repr__(self) -> str:
        return f"HeaderSecret({self.destination}, {self.header})"


class HeaderSecrets:
    """All secrets of a run that go into headers, by host."""

    def __init__(self, secrets: Iterable[HeaderSecret]) -> None:
        found: dict[Destination, dict[bytes, dict[bytes, bytes]]] = {}
        for one in secrets:
            texts = found.setdefault(one.destination, {}).setdefault(one.header.encode(), {})
            texts |= {each.encode(): one.value for each in one.placeholders}
        self._by_host = {
            destination: {header: _Texts(texts) for header, texts in headers.items()}
            for destination, headers in found.items()
        }

    @property
    def destinations(self) -> tuple[Destination, ...]:
        """The hosts for which a header gets a secret."""
        return tuple(self._by_host)

    def headers(self, destination: Destination, headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        """Return the headers of a request to a host, with placeholders replaced by values in the
        headers that get a secret there. Names are in lower case.
        """
        texts = self._by_host.get(destination, {})
        return [(name, texts[name].replaced(value) if name in texts else value) for name, value in headers]


class _Texts:
    """The placeholders of one header."""

    def __init__(self, values: Mapping[bytes, bytes]) -> None:
        self._values = values
        longest_first = sorted(values, key=len, reverse=True)
        # No name goes on behind `secret:NAME`; what ends with a bracket ends there.
        each = [re.escape(one) + (b"" if one.endswith(b")") else rb"(?![A-Za-z0-9._-])") for one in longest_first]
        self._pattern = re.compile(b"|".join(each))

    def replaced(self, text: bytes) -> bytes:
        """Return a header's text with values for its placeholders, within Basic credentials too."""
        if (basic := _BASIC.fullmatch(text)) is not None:
            try:
                plain = base64.b64decode(basic[2], validate=True)
            except binascii.Error:
                return text
            return basic[1] + b" " + base64.b64encode(self._put_in(plain))
        return self._put_in(text)

    def _put_in(self, text: bytes) -> bytes:
        return self._pattern.sub(lambda found: self._values[found[0]], text)
