"""BIP-350's vectors, and that damage is noticed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from confide_crypto.keys import bech32m

# From the BIP (BSD-2-Clause). Its 84-character prefix is invalid there for its length alone, a limit that we do not have.
VALID = (
    "A1LQFN3A",
    "a1lqfn3a",
    "an83characterlonghumanreadablepartthatcontainsthetheexcludedcharactersbioandnumber11sg7hg6",
    "abcdef1l7aum6echk45nj3s0wdvt2fg8x9yrzpqzd3ryx",
    "11llllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllludsr8",
    "split1checkupstagehandshakeupstreamerranterredcaperredlc445v",
    "?1v759aa",
    "an84characterslonghumanreadablepartthatcontainsthetheexcludedcharactersbioandnumber11d6pts4",
)
INVALID = (
    "\x201xj0phk",
    "\x7f1g6xzxy",
    "\x801vctc34",
    "qyrz8wqd2c9m",
    "1qyrz8wqd2c9m",
    "y1b0jsk6g",
    "lt1igcx5c0",
    "in1muywd",
    "mm1crxm3i",
    "au1s5cgom",
    "M1VUXWEZ",
    "16plkw9",
    "1p2gdwpf",
    "A1lqfn3a",
    "a12uel5l",  # valid Bech32, the older checksum
)


@pytest.mark.parametrize("text", VALID)
def test_valid(text: str) -> None:
    assert bech32m.decode_values(text)[0] == text.lower().rpartition("1")[0]


@pytest.mark.parametrize("text", INVALID)
def test_invalid(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - any reason will do
        bech32m.decode(text)


def test_a_known_value() -> None:
    """BIP-350's segwit vector, whose first value is the witness version."""
    prefix, values = bech32m.decode_values("bc1p0xlxvlhemja6c4dqv22uapctqupfhlxm9h8z3k2e72q4k9hcz7vqzk5jj0")
    assert (prefix, values[0]) == ("bc", 1)
    program = int("".join(f"{value:05b}" for value in values[1:])[:256], 2)
    assert f"{program:064x}" == "79be667ef9dcbbac55a06295ce870b07029bfcdb2dce28d959f2815b16f81798"


@given(st.binary(max_size=200))
def test_bytes_come_back(data: bytes) -> None:
    text = bech32m.encode("confide", data)
    assert bech32m.decode(text) == bech32m.decode(text.upper()) == ("confide", data)


@pytest.mark.long
@given(st.binary(min_size=49, max_size=49), st.data())
def test_up_to_three_wrong_characters_are_noticed(payload: bytes, data: st.DataObject) -> None:
    text = bech32m.encode("invite", payload)
    places = data.draw(st.sets(st.integers(7, len(text) - 1), min_size=1, max_size=3))
    changed = list(text)
    for place in places:
        changed[place] = data.draw(st.sampled_from([c for c in "qpzry9x8gf2tvdw0s3jn54khce6mua7l" if c != text[place]]))
    with pytest.raises(ValueError, match="checksum"):
        bech32m.decode("".join(changed))


@given(st.text())
def test_no_text_does_anything_but_fail_cleanly(text: str) -> None:
    try:
        prefix, data = bech32m.decode(text)
    except ValueError:
        return
    assert bech32m.encode(prefix, data) == text.lower()


@pytest.mark.parametrize("length", [1, 2, 3, 4, 32, 49])
def test_the_same_bytes_have_one_text(length: int) -> None:
    """Unused bits of the last character are zero: with one set, and the right checksum, there would be two texts for the same bytes."""
    prefix, values = bech32m.decode_values(bech32m.encode("confide", bytes(range(length))))
    unused = 5 * len(values) - 8 * length
    for rest in range(1, 1 << unused):
        with pytest.raises(ValueError, match="bits left over"):
            bech32m.decode(with_checksum(prefix, [*values[:-1], values[-1] | rest]))
    if unused < 3:  # room for a whole character that adds no byte
        with pytest.raises(ValueError, match="bits left over"):
            bech32m.decode(with_checksum(prefix, [*values, 0]))


def with_checksum(prefix: str, values: list[int]) -> str:
    """Bech32m of any 5-bit values, found without the encoder: the checksum is linear, so its last six values are what is left."""
    check = bech32m._polymod([*bech32m._expand(prefix), *values, 0, 0, 0, 0, 0, 0]) ^ bech32m._CONSTANT
    return (
        prefix
        + "1"
        + "".join(bech32m._CHARSET[value] for value in [*values, *(check >> 5 * (5 - i) & 31 for i in range(6))])
    )
