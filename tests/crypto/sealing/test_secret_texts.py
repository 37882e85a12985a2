"""The list of text forms that are secrets: it has each one that the code writes, and knows it by its checksum."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.support.sealing.secret_texts import MAKERS

from confide_crypto.keys import identity
from confide_crypto.sealing.secret_texts import SECRET_TEXTS, SecretText

ROOT = Path(__file__).parents[3]
_OF_A_NAME = {"_PUBLIC_PREFIX", "_DAEMON_PREFIX", "_PIN_PREFIX", "_KEYRING_PREFIX"}
"""What these begin is public: keys that everybody may see, a pin, and where a keyring has the seed."""
_OF_A_SECRET = {"SEED_PREFIX", "SEALED_PREFIX", "INVITE_PREFIX", "prefix"}


def test_every_text_form_is_either_in_the_list_or_public() -> None:
    """A form that somebody adds is put on one of the two sides: this test fails until then."""
    code = "\n".join(
        file.read_text()
        for package in ("crypto", "memory", "proxy", "daemon", "addons")
        for file in (ROOT / package).rglob("*.py")
    )
    written = set(re.findall(r"bech32m\.encode\((\w+),", code))
    assert written == _OF_A_NAME | _OF_A_SECRET
    assert {form.mark for form in SECRET_TEXTS} == {mark for mark, _ in MAKERS}


@pytest.mark.parametrize("form", SECRET_TEXTS, ids=lambda form: form.mark)
def test_a_form_is_known_by_its_checksum(form: SecretText) -> None:
    """One changed character, and it is none; the same in the other case is."""
    makers = [make for mark, make in MAKERS if mark == form.mark]
    for text in (make() for make in makers for _ in range(20)):
        bare = text.replace("-", "") if form.is_grouped else text
        assert bare.lower().startswith(form.mark)
        assert len(bare) - len(form.mark) in form.symbols
        assert form.is_whole(bare)
        assert form.is_whole(bare.swapcase())
        other = "q" if bare[-9].lower() != "q" else "p"
        assert not form.is_whole(f"{bare[:-9]}{other if bare.islower() else other.upper()}{bare[-8:]}")


def test_what_anybody_may_see_is_no_secret() -> None:
    public = identity.format_public_key(identity.Identity.generate().public_key, "desk").split()[1]
    daemon = identity.format_daemon_key(identity.Identity.generate().static_key)
    assert not any(form.is_whole(text) for form in SECRET_TEXTS for text in (public, daemon))
