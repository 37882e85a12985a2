"""Bearer tokens: their form, and what they are kept under."""

from __future__ import annotations

import hashlib

import pytest

from confide_crypto.keys.bearer_tokens import MARK, digest_of, following_token, new_token


def test_a_token_is_known_by_its_hash() -> None:
    text, digest = new_token()
    assert text.startswith(MARK)
    assert digest == digest_of(text) == hashlib.sha256(text.encode()).digest()
    assert new_token()[0] != text


@pytest.mark.parametrize("text", ["", MARK, MARK + "A" * 42, MARK + "A" * 44, MARK + "A" * 42 + "=", "x" * 47])
def test_what_has_not_the_form_of_one_is_none(text: str) -> None:
    assert digest_of(text) is None


def test_a_token_that_follows_a_secret_takes_the_secret_the_salt_and_its_kind() -> None:
    made = following_token("secret", b"s" * 32, "access")
    assert made == following_token("secret", b"s" * 32, "access")
    assert digest_of(made[0]) == made[1]
    others = {
        following_token("Secret", b"s" * 32, "access")[0],
        following_token("secret", b"t" * 32, "access")[0],
        following_token("secret", b"s" * 32, "refresh")[0],
    }
    assert len(others | {made[0]}) == 4
