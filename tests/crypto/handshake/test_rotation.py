"""A caller's new key: only both keys together, in the session at hand, can name it (PROTOCOL.md 7.10)."""

from __future__ import annotations

from typing import Any

import pytest
from nacl.signing import SigningKey

from confide_crypto.errors import RequestError
from confide_crypto.handshake.rotation import sign_rotation, verify_rotation
from confide_crypto.keys.identity import Identity

OLD, NEW, OTHER = (Identity(bytes([n]) * 32) for n in (1, 2, 3))
SESSION = bytes(range(16)).hex()


def test_the_new_key_comes_out_of_what_both_have_signed() -> None:
    assert verify_rotation(sign_rotation(OLD, NEW, SESSION), OLD.public_key, SESSION) == NEW.public_key


def test_the_signed_bytes_are_those_of_the_protocol() -> None:
    """Made here with another library's calls from the text of 7.10, to be taken by ours."""
    session = bytes.fromhex(SESSION)
    by_old = SigningKey(OLD.seed).sign(b"confide/rotate-old/1\0" + session + NEW.public_key).signature
    by_new = SigningKey(NEW.seed).sign(b"confide/rotate-new/1\0" + session + OLD.public_key).signature
    body = {"key": NEW.public_key.hex(), "old": by_old.hex(), "new": by_new.hex()}
    assert body == sign_rotation(OLD, NEW, SESSION)
    assert verify_rotation(body, OLD.public_key, SESSION) == NEW.public_key


GOOD = sign_rotation(OLD, NEW, SESSION)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {**GOOD, "key": OTHER.public_key.hex()},
        {**GOOD, "old": GOOD["new"]},
        {**GOOD, "new": GOOD["old"]},
        {**GOOD, "old": sign_rotation(OTHER, NEW, SESSION)["old"]},
        {**GOOD, "new": sign_rotation(OLD, OTHER, SESSION)["new"]},
        {**GOOD, "new": sign_rotation(OTHER, NEW, SESSION)["new"]},
        sign_rotation(OLD, NEW, bytes(16).hex()),
        sign_rotation(OLD, OLD, SESSION),
        sign_rotation(OTHER, NEW, SESSION),
        {**GOOD, "key": GOOD["key"][:-2]},
        {**GOOD, "key": " " + GOOD["key"][1:]},
        {**GOOD, "key": GOOD["key"].upper()},
        {**GOOD, "old": GOOD["old"].upper()},
        {**GOOD, "old": 7},
        {**GOOD, "new": None},
        {**GOOD, "new": "zz" * 64},
        {**GOOD, "key": "00" * 32, "new": "00" * 64},
    ],
)
def test_anything_else_is_invalid_and_says_no_more(body: dict[str, Any]) -> None:
    with pytest.raises(RequestError) as refused:
        verify_rotation(body, OLD.public_key, SESSION)
    assert refused.value.code == "invalid"
    assert "both keys" in str(refused.value)


def test_a_session_id_of_another_length_is_our_own_mistake() -> None:
    """Both ends take it from the handshake; a caller of this function that has none must not get an answer."""
    with pytest.raises(ValueError, match="16 bytes"):
        verify_rotation(GOOD, OLD.public_key, SESSION[:-2])
