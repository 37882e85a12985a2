"""Bearer tokens: their form, and what they are kept under."""

from __future__ import annotations

import hashlib

import pytest

from confide_crypto.keys.tokens import MARK, digest_of, new_token


def test_a_token_is_known_by_its_hash() -> None:
    text, digest = new_token()
    assert text.startswith(MARK)
    assert digest == digest_of(text) == hashlib.sha256(text.encode()).digest()
    assert new_token()[0] != text


@pytest.mark.parametrize("text", ["", MARK, MARK + "A" * 42, MARK + "A" * 44, MARK + "A" * 42 + "=", "x" * 47])
def test_what_has_not_the_form_of_one_is_none(text: str) -> None:
    assert digest_of(text) is None
