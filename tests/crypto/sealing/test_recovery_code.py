"""Recovery codes: what a person may type, and that no typing error passes."""

from __future__ import annotations

import hashlib
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from confide_crypto.errors import EXIT_INPUT, RecoveryCodeError
from confide_crypto.sealing.recovery_code import RecoveryCode

ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
CODE = RecoveryCode(bytes(range(0x10, 0x24)))
TEXT = CODE.to_string()


def polymod(values: list[int]) -> int:
    """BIP-350's own Python, as published."""
    generator = [0x3B6A57B2, 0x26508E6D, 0x1EA119FA, 0x3D4233DD, 0x2A1462B3]
    chk = 1
    for value in values:
        top = chk >> 25
        chk = (chk & 0x1FFFFFF) << 5 ^ value
        for i in range(5):
            chk ^= generator[i] if ((top >> i) & 1) else 0
    return chk


def test_the_text_is_that_of_the_protocol() -> None:
    """PROTOCOL.md 10.8, written down a second time."""
    groups = TEXT.split("-")
    assert [len(group) for group in groups] == [5] * 8
    letters = "".join(groups)
    assert letters.startswith("CR")
    values = [ALPHABET.index(letter) for letter in letters[2:]]
    assert "".join(f"{value:05b}" for value in values[:32]) == f"{int.from_bytes(CODE.secret, 'big'):0160b}"
    prefix = "confide-recovery"
    expanded = [ord(x) >> 5 for x in prefix] + [0] + [ord(x) & 31 for x in prefix]
    assert polymod(expanded + values) == 0x2BC830A3
    assert CODE.identity.seed == hashlib.blake2b(key=CODE.secret, person=b"confide-paper-1", digest_size=32).digest()


@pytest.mark.parametrize(
    "typed",
    [
        TEXT,
        TEXT.lower(),
        TEXT.replace("-", ""),
        TEXT.replace("-", " "),
        f"  {TEXT}\r\n",
        "-".join(TEXT),
        TEXT.replace("0", "O").replace("1", "I"),
        TEXT.lower().replace("0", "o").replace("1", "l"),
    ],
)
def test_what_a_person_may_type(typed: str) -> None:
    assert "0" in TEXT
    assert "1" in TEXT
    assert RecoveryCode.parse(typed) == CODE


def test_every_wrong_letter_is_found() -> None:
    letters = TEXT.replace("-", "")
    for place in range(2, len(letters)):
        for wrong in ALPHABET:
            if wrong != letters[place]:
                with pytest.raises(RecoveryCodeError, match="typing error"):
                    RecoveryCode.parse(letters[:place] + wrong + letters[place + 1 :])


def test_every_changed_bit_of_the_text_is_refused_or_is_another_way_to_write_it() -> None:
    """The bit that makes a capital of a small letter is one; that which makes a line's end of a hyphen another."""
    same = 0
    for place in range(len(TEXT)):
        for bit in range(8):
            typed = TEXT[:place] + chr(ord(TEXT[place]) ^ 1 << bit) + TEXT[place + 1 :]
            try:
                assert RecoveryCode.parse(typed) == CODE
                same += 1
            except RecoveryCodeError:
                continue
    assert same == sum(letter.isalpha() or letter == "-" for letter in TEXT)


def test_up_to_four_wrong_letters_and_exchanged_neighbours_are_found() -> None:
    chance = random.Random(7)
    letters = TEXT.replace("-", "")
    for _ in range(2000):
        wrong = list(letters)
        for place in chance.sample(range(2, 40), chance.randint(1, 4)):
            wrong[place] = chance.choice(ALPHABET.replace(wrong[place], ""))
        with pytest.raises(RecoveryCodeError):
            RecoveryCode.parse("".join(wrong))
    for place in range(2, 39):
        if letters[place] != letters[place + 1]:
            with pytest.raises(RecoveryCodeError):
                RecoveryCode.parse(letters[:place] + letters[place + 1] + letters[place] + letters[place + 2 :])


@pytest.mark.parametrize(
    ("typed", "problem"),
    [
        ("", "not a recovery code"),
        ("hello", "not a recovery code"),
        (TEXT[1:], "not a recovery code"),
        (TEXT + "\N{CYRILLIC SMALL LETTER A}", "not a recovery code"),
        (TEXT + " " * 300, "not a recovery code"),
        (TEXT[:-1], "not complete"),
        (TEXT + "0", "too long"),
        (TEXT[:-6], "not complete"),
        (TEXT[:-1] + "U", "a character that no code has"),
        (TEXT[:-1] + "!", "a character that no code has"),
    ],
)
def test_what_is_wrong_is_said_without_the_code(typed: str, problem: str) -> None:
    with pytest.raises(RecoveryCodeError, match=problem) as caught:
        RecoveryCode.parse(typed)
    assert caught.value.exit_code == EXIT_INPUT
    assert caught.value.hint
    for group in TEXT.split("-"):
        assert group not in f"{caught.value} {caught.value.hint}"


def test_nothing_shows_a_code() -> None:
    for shown in (str(CODE), repr(CODE)):
        assert TEXT[:5] not in shown
        assert CODE.secret.hex() not in shown
        assert repr(CODE.secret) not in shown
    assert RecoveryCode.generate() != RecoveryCode.generate()
    with pytest.raises(ValueError, match="20 bytes"):
        RecoveryCode(bytes(19))


@given(st.binary(min_size=20, max_size=20))
def test_every_code_comes_back(secret: bytes) -> None:
    assert RecoveryCode.parse(RecoveryCode(secret).to_string()).secret == secret
