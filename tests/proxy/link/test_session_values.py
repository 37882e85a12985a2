"""Values that a session gives to `confide run`: to nobody without this device's seed, and for one request each."""

from __future__ import annotations

import json

from confide_crypto.sealing.placeholder import Placeholder
from confide_proxy.link import session_values
from confide_proxy.link.session_values import SessionValues

SEED, NONCE = bytes(range(32)), bytes(16)
VALUE = b"xK7mQ2vR9tLw4zz"
FOUND = SessionValues({"4f2a": Placeholder("password", bytes(16))}, [VALUE], bytes(16), b"\1" * 32)


def test_only_who_has_the_seed_and_asked_gets_the_values() -> None:
    answer = session_values.seal_values(FOUND, SEED, NONCE)
    assert session_values.open_values(answer, SEED, NONCE) == FOUND
    assert session_values.open_values(answer, SEED[::-1], NONCE) is None
    assert session_values.open_values(answer, SEED, b"\1" * 16) is None
    assert VALUE not in json.dumps(answer).encode()
    assert VALUE.decode() not in repr(FOUND)


def test_a_page_tells_where_the_next_one_begins() -> None:
    page = FOUND._replace(following="4f2a")
    assert session_values.open_values(session_values.seal_values(page, SEED, NONCE), SEED, NONCE) == page
    asked = json.loads(session_values.page_request("4f2a", NONCE, "/"))
    assert asked["after"] == "4f2a"
    assert session_values.time_for(asked) > session_values.time_for(json.loads(session_values.request([], NONCE, "/")))


def test_any_other_answer_has_no_values() -> None:
    for answer in ({}, {"values": ""}, {"values": 1}, {"values": "no base64!"}, {"values": "AAAA"}):
        assert session_values.open_values(answer, SEED, NONCE) is None
