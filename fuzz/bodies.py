"""The JSON in REQ, RES and the welcome, and the statements about new keys in it (PROTOCOL.md 4.7, 7.2, 7.10, 7.11)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tests.support.crypto.channels import HOST, LAPTOP

from confide_crypto.channel.request_codec import (
    decode_answer,
    decode_request,
    encode_error,
    encode_request,
    encode_result,
)
from confide_crypto.errors import DeniedError, HandshakeError, ProtocolViolation, RequestError
from confide_crypto.handshake.rotation import KeySuccession, sign_rotation, successor_in, verify_rotation
from confide_crypto.keys.identity import Identity
from confide_crypto.transport.open_channel import _DAEMON_LABEL, _read_welcome
from fuzz.supply import Supply

_NEXT = Identity(bytes(range(33, 65)))
_SESSION = bytes(range(16)).hex()
_ROTATE = sign_rotation(LAPTOP, _NEXT, _SESSION)
_SUCCESSION = KeySuccession.make(HOST, _NEXT, 2_000_000_000)
_STATEMENT = {"key": HOST.public_key.hex(), "signature": HOST.sign(_DAEMON_LABEL, HOST.static_key).hex()}
_WELCOME = {"ok": {"daemon": _STATEMENT, "welcome": {"space": "notes", "rotation": _SUCCESSION.to_json()}}}
_WORDS = (
    "op", "ok", "error", "code", "message", "hint", "denied", "reason", "daemon", "welcome", "rotation", "key", "signature",
    "static", "until", "old", "new", "put", "unknown", _STATEMENT["key"], _STATEMENT["signature"], _ROTATE["key"],
    _ROTATE["old"], _ROTATE["new"], "\ud800", "\x1b[2J", "", "00",
)  # fmt: skip
_TEMPLATES: tuple[bytes, ...] = (
    encode_request("put", {"project": "p", "path": "MEMORY.md", "text": "ä", "base": 0}),
    encode_result({"revision": 3, "merged": False}),
    encode_error(RequestError("conflict", "two at once", "try again")),
    json.dumps(_WELCOME).encode(),
    b'{"error":{"code":"denied","reason":"revoked","hint":null}}',
    json.dumps({**_ROTATE, "op": "rotate"}).encode(),
)
_MAX_DEPTH = 6


def bodies(data: bytes) -> None:
    """Every reader of JSON gets the same text: each gives what it promises, or its own error."""
    supply = Supply(data)
    match supply.number() % 4:
        case 0:
            payload = supply.rest()
        case 1:
            payload = supply.edited(supply.choice(_TEMPLATES))
        case 2:
            payload = json.dumps(_value(supply, 0)).encode()
        case _:
            payload = json.dumps(_changed(supply, json.loads(supply.choice(_TEMPLATES)))).encode()
    _read_request(payload)
    _read_answer(payload)
    _read_first(payload)


def _read_request(payload: bytes) -> None:
    try:
        op, body = decode_request(payload)
    except ProtocolViolation:
        return
    if not isinstance(op, str) or not isinstance(body, dict) or "op" in body:
        raise AssertionError("a request without its form")
    try:
        key = verify_rotation(body, LAPTOP.public_key, _SESSION)
    except RequestError as error:
        if error.code != "invalid":
            raise
    else:
        if key != _NEXT.public_key:
            raise AssertionError("a new key that nobody has signed for")


def _read_answer(payload: bytes) -> None:
    try:
        answer = decode_answer(payload)
    except ProtocolViolation:
        return
    if isinstance(answer, RequestError):
        if not all(text.isprintable() for text in (answer.code, answer.message, answer.hint or "")):
            raise AssertionError("a sentence that is not for a terminal")
    elif not isinstance(answer, dict):
        raise AssertionError("an answer without its form")


def _read_first(payload: bytes) -> None:
    try:
        key, welcome = _read_welcome(payload, HOST.static_key, "words")
    except HandshakeError:
        return
    except DeniedError as denial:
        if not f"{denial}{denial.hint}{denial.reason}".isprintable():
            raise AssertionError("a denial that is not for a terminal") from None
        return
    if key != HOST.public_key:
        raise AssertionError("a daemon that has not signed for its static key")
    named = successor_in(welcome, HOST.static_key, key)
    if named is not None and named != _SUCCESSION:
        raise AssertionError("a successor that the old key has not signed for")


def _value(supply: Supply, depth: int) -> Any:
    kind = supply.number() % (8 if depth < _MAX_DEPTH else 6)
    match kind:
        case 0:
            return supply.choice((None, True, False))
        case 1:
            return supply.number(supply.choice((1, 4, 9)))
        case 2:
            return supply.choice((0.5, -1, float("inf"), float("nan"), 1e300, 2**64, -0.0))
        case 3 | 4:
            return supply.choice(_WORDS)
        case 5:
            return supply.take(supply.number() % 40).decode("utf-8", "replace")
        case 6:
            return [_value(supply, depth + 1) for _ in range(supply.number() % 5)]
        case _:
            return {supply.choice(_WORDS): _value(supply, depth + 1) for _ in range(supply.number() % 7)}


def _changed(supply: Supply, body: Any) -> Any:
    """`body` with values put in, taken out or exchanged at places that the supply picks."""
    while supply:
        place = body
        while isinstance(place, dict) and place:
            name = supply.choice(sorted(place))
            inner = place[name]
            action = supply.number() % 4
            if isinstance(inner, dict) and action:
                place = inner
                continue
            if action == 1:
                del place[name]
            elif action == 2:
                place[supply.choice(_WORDS)] = _value(supply, 3)
            else:
                place[name] = _value(supply, 3)
            break
        else:
            break
    return body


def seeds() -> Iterator[bytes]:
    """All templates as they are, edited and rebuilt; the forms that are none."""
    for number, template in enumerate(_TEMPLATES):
        yield b"\0" + template
        yield bytes([1, number])
        yield bytes([1, number, 0, 0, 3, 34])
        yield bytes([3, number])
        yield bytes([3, number, 0, 1, 0, 1, 2, 3, 0, 0, 1])
    for text in (
        b"",
        b"[]",
        b"null",
        b"{",
        b"\xff",
        b'{"op":1}',
        b'{"ok":[]}',
        b"[" * 2000,
        b'{"a":' * 500,
        b"1" * 5000,
    ):
        yield b"\0" + text
    yield bytes([2, 7, 3, 0, 3, 17, 1, 7, 0])
    yield bytes(range(2, 40))
