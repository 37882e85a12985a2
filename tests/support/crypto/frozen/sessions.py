"""Rekeying, the JSON in requests, and the statements about new keys (PROTOCOL.md 6.4, 7.2, 7.10, 7.11)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.support.crypto.frozen.fixed import CLIENT, DAEMON, DOWN_KEY, OTHER, UP_KEY, Case
from tests.support.crypto.frozen.scripts import channel

from confide_crypto.channel.protocol import FrameType
from confide_crypto.handshake.rotation import KeySuccession, sign_rotation

_NUMBERS = (16382, 16383, 16384, 16385, 32767, 32768)
SESSION_ID = bytes(range(48, 64)).hex()
UNTIL = 2_000_000_000


def rekeys() -> Iterator[Case]:
    """KEEPALIVE after KEEPALIVE in both directions: the last records under a key and the first ones under the next."""
    for end, key in (("client", UP_KEY), ("daemon", DOWN_KEY)):
        sender = channel(end)[0]
        for number in range(max(_NUMBERS) + 1):
            record = sender.seal(FrameType.KEEPALIVE, 0, b"")
            if number in _NUMBERS:
                yield {
                    "name": f"record {number} of the {end}",
                    "section": "6.4",
                    "from": end,
                    "key": key.hex(),
                    "number": number,
                    "record": record.hex(),
                    "error": None,
                }


def requests() -> Iterator[Case]:
    """Both forms of answer, and everything that is none."""
    for name, text, op, body in (
        ("a request", '{"op":"pull","path":"memory/ä.md"}', "pull", {"path": "memory/ä.md"}),
        ("a request without parameters", '{"op":"backlog"}', "backlog", {}),
        ("a request with escapes", '{"op":"put","text":"\\ud83d\\ude00\\u0000"}', "put", {"text": "😀\0"}),
    ):
        yield {"name": name, "section": "7.2", "reads": "REQ", "text": text, "is": [op, body], "error": None}
    for name, text, told in (
        ("a result", '{"ok":{"revision":3}}', {"revision": 3}),
        ("an empty result", '{"ok":{}}', {}),
    ):
        yield {"name": name, "section": "7.2", "reads": "RES", "text": text, "is": told, "error": None}
    for name, text, fields in (
        ("an error", '{"error":{"code":"conflict","message":"m","hint":"h"}}', ["conflict", "m", "h"]),
        ("an error without a hint", '{"error":{"code":"busy","message":"m","hint":null}}', ["busy", "m", None]),
        ("an error of tomorrow", '{"error":{"code":"new","message":"m","hint":null,"more":1}}', ["new", "m", None]),
    ):
        yield {"name": name, "section": "7.2", "reads": "RES", "text": text, "is error": fields, "error": None}
    for reads in ("REQ", "RES"):
        for name, text in (
            ("nothing", ""),
            ("no JSON", "{"),
            ("two objects", "{}{}"),
            ("a list", "[]"),
            ("a text", '"op"'),
            ("an empty object", "{}"),
            ("a lone surrogate", '{"op":"x","ok":{"a":"\\ud800"}}'),
            ("a number of 5000 digits", '{"op":"x","ok":{},"n":' + "1" * 5000 + "}"),
            ("nested beyond all measure", "[" * 100_000),
            ("an op, or an ok, of the wrong type", '{"op":1,"ok":[]}'),
        ):
            given: dict[str, Any] = {"text": text} if len(text) < 6000 else {"text": "[", "times": len(text)}
            yield {"name": f"{reads}: {name}", "section": "7.2", "reads": reads, **given, "error": "ProtocolViolation"}
    for name, text in (
        ("an error without a message", '{"error":{"code":"busy"}}'),
        ("an error that is a text", '{"error":"busy"}'),
        ("an error whose code is a number", '{"error":{"code":1,"message":"m"}}'),
    ):
        yield {"name": name, "section": "7.2", "reads": "RES", "text": text, "error": "ProtocolViolation"}
    yield {
        "name": "REQ: not UTF-8",
        "section": "7.2",
        "reads": "REQ",
        "hex": b'{"op":"\xff"}'.hex(),
        "error": "ProtocolViolation",
    }


def rotations() -> Iterator[Case]:
    """A caller's new key, and everything that vouches for nothing."""
    good = sign_rotation(CLIENT, OTHER, SESSION_ID)
    fixed = {
        "section": "7.10",
        "session_id": SESSION_ID,
        "old_seed": CLIENT.seed.hex(),
        "new_seed": OTHER.seed.hex(),
    }
    yield {"name": "a new key", **fixed, "body": good, "key": OTHER.public_key.hex(), "error": None}
    elsewhere = sign_rotation(CLIENT, OTHER, "00" * 16)
    swapped = sign_rotation(OTHER, CLIENT, SESSION_ID)
    for name, change in (
        ("signatures of another session", elsewhere),
        ("the old key's signature of another session", {"old": elsewhere["old"]}),
        ("the new key's signature of another session", {"new": elsewhere["new"]}),
        ("signatures exchanged", {"old": good["new"], "new": good["old"]}),
        ("roles exchanged", {"old": swapped["old"], "new": swapped["new"]}),
        ("the same key again", sign_rotation(CLIENT, CLIENT, SESSION_ID)),
        ("a key that has not signed", {"key": DAEMON.public_key.hex()}),
        ("an old key that has not signed", {"old": sign_rotation(DAEMON, OTHER, SESSION_ID)["old"]}),
        ("the old signature changed", {"old": _flipped(good["old"])}),
        ("the new signature changed", {"new": _flipped(good["new"])}),
        ("a key of small order", {"key": "01" + "00" * 31, "new": "01" + "00" * 63}),
        ("a key cut short", {"key": good["key"][:-2]}),
        ("a signature with white space", {"old": good["old"][:-2] + "  "}),
        ("a signature that is not hex", {"old": "zz" * 64}),
        ("a signature that is a number", {"new": 1}),
        ("no key", {"key": None}),
    ):
        yield {"name": name, **fixed, "body": {**good, **change}, "error": "RequestError"}


def successions() -> Iterator[Case]:
    """A daemon's new key. A statement that is not good is no error: it is ignored, and the pin stays (`is_taken`)."""
    made = KeySuccession.make(DAEMON, OTHER, UNTIL)
    good = made.to_json()
    fixed = {"section": "7.11", "old_seed": DAEMON.seed.hex(), "new_seed": OTHER.seed.hex()}
    yield {"name": "a new key", **fixed, "rotation": good, "is_taken": True, "error": None}
    last = KeySuccession.make(DAEMON, OTHER, 2**64 - 1).to_json()
    yield {"name": "until the end of time", **fixed, "rotation": last, "is_taken": True, "error": None}
    later = KeySuccession.make(DAEMON, OTHER, UNTIL + 1).to_json()
    other = KeySuccession.make(DAEMON, CLIENT, UNTIL).to_json()
    stranger = KeySuccession.make(CLIENT, OTHER, UNTIL).to_json()
    for name, change in (
        ("another end", {"until": UNTIL + 1}),
        ("the old key's signature over another end", {"old": later["old"]}),
        ("the new key's signature over another end", {"new": later["new"]}),
        ("signatures exchanged", {"old": good["new"], "new": good["old"]}),
        ("another static key", {"static": other["static"]}),
        ("another key", {"key": other["key"]}),
        ("another static key and key", {"static": other["static"], "key": other["key"]}),
        ("the old signature by a stranger", {"old": stranger["old"]}),
        ("the old signature changed", {"old": _flipped(good["old"])}),
        ("the new signature changed", {"new": _flipped(good["new"])}),
        ("an end before 1970", {"until": -1}),
        ("an end beyond u64", {"until": 2**64}),
        ("an end that is a text", {"until": str(UNTIL)}),
        ("an end that is true", {"until": True}),
        ("a static key cut short", {"static": good["static"][:-2]}),
        ("a signature that is not hex", {"old": "zz" * 64}),
        ("no key", {"key": None}),
    ):
        yield {"name": name, **fixed, "rotation": {**good, **change}, "is_taken": False, "error": None}


def _flipped(signature: str) -> str:
    return f"{int(signature, 16) ^ 1:0128x}"
