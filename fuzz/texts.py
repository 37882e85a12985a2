"""What people paste: invites, key lines, pins (PROTOCOL.md 2.3, 5.1). Behind the checksum too: it is made right for changed bytes."""

from __future__ import annotations

from collections.abc import Iterator

from tests.support.crypto.channels import HOST, LAPTOP

from confide_crypto.errors import InviteError, KeyTextError
from confide_crypto.handshake.invite import Invite
from confide_crypto.keys import bech32m
from confide_crypto.keys.identity import (
    format_daemon_key,
    format_public_key,
    parse_daemon_key,
    parse_public_key,
)
from fuzz.corpus import frozen
from fuzz.supply import Supply

_SECRET = bytes([1]) + HOST.static_key + bytes(range(16))
_TAIL = bech32m.encode("invite", _SECRET)
_INVITE = f"confide://notes.example:7733/memory/#{_TAIL}".encode()
_LINE = format_public_key(LAPTOP.public_key, "laptop").encode()
_PIN = format_daemon_key(HOST.static_key).encode()
_PREFIXES = ("invite", "confide", "confided", "confide-secret-key-", "x")


def invite(data: bytes) -> None:
    """Refused with InviteError that quotes nothing, or an invite that is written and read to the same one."""
    supply = Supply(data)
    match supply.number() % 4:
        case 0:
            text = _text(supply.rest())
        case 1:
            text = _text(supply.edited(_INVITE))
        case 2:
            text = f"{_text(supply.rest())}#{_TAIL}"
        case _:
            text = f"confide://h/#{bech32m.encode(supply.choice(_PREFIXES), supply.edited(_SECRET))}"
    try:
        read = Invite.parse(text)
    except InviteError as error:
        if _TAIL[8:40] in f"{error}{error.hint}{error!r}":
            raise AssertionError("an error quotes the invite") from None
        return
    if len(read.daemon_static) != 32 or len(read.token) != 16 or not 0 < read.port < 65536 or not read.host:
        raise AssertionError("an invite with something missing")
    if Invite.parse(read.to_string()) != read or not read.websocket_url.startswith(("ws://", "wss://")):
        raise AssertionError("an invite that is written as another")


def key_line(data: bytes) -> None:
    """Refused with KeyTextError, or 32 bytes that are written and read to the same key."""
    supply = Supply(data)
    match supply.number() % 6:
        case 0:
            _key_line(_text(supply.rest()))
        case 1:
            _key_line(_text(supply.edited(_LINE)))
        case 2:
            encoded = bech32m.encode(supply.choice(_PREFIXES), supply.edited(LAPTOP.public_key))
            _key_line(f"confide-ed25519 {encoded} {_text(supply.rest())}")
        case 3:
            _pin(_text(supply.rest()))
        case 4:
            _pin(_text(supply.edited(_PIN)))
        case _:
            _pin(bech32m.encode(supply.choice(_PREFIXES), supply.edited(HOST.static_key)))


def _key_line(line: str) -> None:
    try:
        key, name = parse_public_key(line)
    except KeyTextError:
        return
    if len(key) != 32 or len(name) > 64 or not name.isprintable():
        raise AssertionError("a key line against the rules")
    if parse_public_key(format_public_key(key, name)) != (key, name):
        raise AssertionError("a key line that is written as another")


def _pin(text: str) -> None:
    try:
        key = parse_daemon_key(text)
    except KeyTextError:
        return
    if len(key) != 32 or parse_daemon_key(format_daemon_key(key)) != key:
        raise AssertionError("a pin that is written as another")


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")  # as a shell argument or standard input gives it


def invite_seeds() -> Iterator[bytes]:
    """Good ones, and each kind of edit."""
    yield b"\0" + _INVITE
    yield b"\0" + frozen("frozen")["invite"]["text"].encode()
    yield b"\1"
    yield b"\1\4\0\5\3abc"
    for address in (
        b"confides://[::1]:9/a/b",
        b"wss://h",
        b"ws://10.0.0.1:1234/x",
        b"confide://u:p@h?a=b",
        b"'ws://h/",
    ):
        yield b"\2" + address
    for prefix in range(len(_PREFIXES)):
        yield bytes([3, prefix])
    yield b"\3\0\0\0\0\2"
    yield b"\3\0\4\0\61\20" + bytes(16)


def key_line_seeds() -> Iterator[bytes]:
    """Good lines and pins, and each kind of edit."""
    for identity in frozen("frozen")["identities"]:
        yield b"\0" + identity["key_line"].encode()
        yield b"\3" + identity["daemon_key"].encode()
        yield b"\3" + identity["daemon_key"].upper().encode()
    yield b"\1"
    yield b"\4"
    for prefix in range(len(_PREFIXES)):
        yield bytes([2, prefix])
        yield bytes([5, prefix])
    yield b"\2\1\3\0\0\4"
