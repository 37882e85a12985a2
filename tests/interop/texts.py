"""Keys, invites and fingerprints as text: PROTOCOL.md 1.2, 1.4, 2 and 5, written from that document alone."""

from __future__ import annotations

import hashlib
import re
import secrets
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

WORDS = (Path(__file__).parents[2] / "crypto" / "confide_crypto" / "keys" / "words.txt").read_text().split()
DEFAULT_PORT = 7733
MAX_LENGTH = 1023
_ALPHABET = "qpzry9x8gf2tvdw0s3jn54khce6mua7l"
_GENERATORS = (0x3B6A57B2, 0x26508E6D, 0x1EA119FA, 0x3D4233DD, 0x2A1462B3)
_CONSTANT = 0x2BC830A3


class TextError(ValueError):
    """A key or an invite that cannot be what it should be."""


def blake2b(bits: int, data: bytes, *, key: bytes = b"", person: bytes = b"") -> bytes:
    """BLAKE2b-n of PROTOCOL.md 1.2."""
    return hashlib.blake2b(data, digest_size=bits // 8, key=key, person=person).digest()


def _polymod(values: list[int]) -> int:
    checksum = 1
    for value in values:
        top = checksum >> 25
        checksum = (checksum & 0x1FFFFFF) << 5 ^ value
        for bit, generator in enumerate(_GENERATORS):
            if top >> bit & 1:
                checksum ^= generator
    return checksum


def _expanded(prefix: str) -> list[int]:
    return [ord(char) >> 5 for char in prefix] + [0] + [ord(char) & 31 for char in prefix]


def encode(prefix: str, data: bytes) -> str:
    """Bech32m in lower case."""
    count = -(-len(data) * 8 // 5)
    number = int.from_bytes(data, "big") << (count * 5 - len(data) * 8)
    values = [number >> 5 * (count - 1 - index) & 31 for index in range(count)]
    checksum = _polymod(_expanded(prefix) + values + [0] * 6) ^ _CONSTANT
    values += [checksum >> 5 * (5 - index) & 31 for index in range(6)]
    return prefix + "1" + "".join(_ALPHABET[value] for value in values)


def decode(prefix: str, text: str) -> bytes:
    """The bytes of a Bech32m string with that prefix. Raises TextError."""
    if len(text) > MAX_LENGTH or (text != text.lower() and text != text.upper()):
        raise TextError("too long, or of mixed case")
    found, one, rest = text.lower().rpartition("1")
    if not one or found != prefix or len(rest) < 6 or any(char not in _ALPHABET for char in rest):
        raise TextError(f"not of the form {prefix}1...")
    values = [_ALPHABET.index(char) for char in rest]
    if _polymod(_expanded(prefix) + values) != _CONSTANT:
        raise TextError("wrong checksum")
    values = values[:-6]
    spare = len(values) * 5 % 8
    number = 0
    for value in values:
        number = number << 5 | value
    if spare > 4 or number & ((1 << spare) - 1):
        raise TextError("wrong padding")
    return (number >> spare).to_bytes(len(values) * 5 // 8, "big")


def read_pin(text: str) -> bytes:
    """The daemon's static key, as a person copied it (2.3). Raises TextError."""
    static = decode("confided", text.strip())
    if len(static) != 32:
        raise TextError("a key has 32 bytes")
    return static


@dataclass(frozen=True, slots=True)
class Identity:
    """One seed and what follows from it (PROTOCOL.md 2.1, 2.2)."""

    seed: bytes

    @classmethod
    def generate(cls) -> Identity:
        """A new identity."""
        return cls(secrets.token_bytes(32))

    @property
    def signing(self) -> Ed25519PrivateKey:
        """The Ed25519 private key."""
        return Ed25519PrivateKey.from_private_bytes(self.seed)

    @property
    def key(self) -> bytes:
        """The Ed25519 public key."""
        return self.signing.public_key().public_bytes_raw()

    @property
    def static_private(self) -> bytes:
        """The X25519 private key, the Noise static key."""
        return blake2b(256, b"", key=self.seed, person=b"confide-static-1")

    @property
    def static(self) -> bytes:
        """The X25519 public key."""
        return X25519PrivateKey.from_private_bytes(self.static_private).public_key().public_bytes_raw()

    @property
    def line(self) -> str:
        """What `confided device add` takes (PROTOCOL.md 2.3)."""
        return "confide-ed25519 " + encode("confide", self.key)

    @property
    def pin(self) -> str:
        """What `confide join --pin` takes of a daemon."""
        return encode("confided", self.static)


def fingerprint(key: bytes) -> str:
    """The six words of an Ed25519 public key (PROTOCOL.md 2.4)."""
    number = int.from_bytes(blake2b(256, key, person=b"confide-words-1"), "big") >> (256 - 66)
    return "-".join(WORDS[number >> 11 * (5 - index) & 2047] for index in range(6))


@dataclass(frozen=True, slots=True)
class Invite:
    """What a person pastes (PROTOCOL.md 5.1)."""

    static: bytes
    token: bytes
    host: str
    port: int
    path: str = "/"
    tls: bool = False

    @classmethod
    def parse(cls, text: str) -> Invite:
        """Read the string. Raises TextError."""
        text = text.strip()
        # What RFC 3986 allows in a host and a path; `urlsplit` alone drops or takes more.
        if not re.fullmatch(r"[!-~]+", text):
            raise TextError("an address has printable ASCII only")
        try:
            url = urlsplit(text)
            port = url.port
        except ValueError:
            raise TextError("not an address") from None
        if url.scheme not in ("confide", "confides") or not url.hostname or url.query or "@" in url.netloc:
            raise TextError("not an invite")
        payload = decode("invite", url.fragment)
        if len(payload) != 49 or payload[0] != 1:
            raise TextError("an unknown kind of invite")
        path = url.path.removesuffix("/") or "/"
        tls = url.scheme == "confides"
        return cls(payload[1:33], payload[33:], url.hostname, DEFAULT_PORT if port is None else port, path, tls)

    def __str__(self) -> str:
        path = "" if self.path == "/" else self.path
        payload = encode("invite", b"\x01" + self.static + self.token)
        return f"confide{'s' if self.tls else ''}://{self._authority}{path}/#{payload}"

    @property
    def _authority(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        """Where the websocket is."""
        return f"ws{'s' if self.tls else ''}://{self._authority}{self.path}"

    @property
    def id(self) -> bytes:
        """The 16 bytes that stand in message 1 (PROTOCOL.md 5.2)."""
        return blake2b(128, self.token, person=b"confide-inv-id-1")

    @property
    def secret(self) -> bytes:
        """The 32 bytes that go into the psk."""
        return blake2b(256, self.token, person=b"confide-inv-psk1")
