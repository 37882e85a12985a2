"""An epoch's key for one device: known answers, and that it opens nowhere else."""

from __future__ import annotations

import hashlib
import json
import struct
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.bindings._rust import openssl
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite
from tests.support.draws import IS_THOROUGH
from tests.support.sealing.rosters import DESKTOP, LAPTOP, SPACE, flipped

from confide_crypto.errors import WrapError
from confide_crypto.sealing import space_keys
from confide_crypto.sealing.space_keys import (
    WRAP_KEY_LENGTH,
    WRAP_LENGTH,
    WrapKey,
    check_wrap_key,
    expand,
    seal_wrap,
)

X_WING = Path(__file__).parents[2] / "vectors" / "xwing"
KEY = bytes(range(160, 192))
HEAD = bytes(range(32))
HERE: dict[str, Any] = {"space": SPACE, "epoch": 7, "head": HEAD}
OURS = WrapKey(LAPTOP)


def wrapped(key: bytes = KEY) -> bytes:
    return seal_wrap(key, OURS.public, device=LAPTOP.public_key, **HERE)


@pytest.mark.parametrize("case", json.loads((X_WING / "xwing-draft.json").read_text()), ids=["1", "2", "3"])
def test_keys_expand_as_the_draft_says(case: dict[str, Any]) -> None:
    assert expand(bytes.fromhex(case["sk"]))[1].hex() == case["pk"]


def test_our_suite_opens_the_ietfs_known_answer() -> None:
    """Their message has associated data, which ours never has: hence the library's inner function."""
    case = next(case for case in json.loads((X_WING / "hpke-pq-0x647a.json").read_text()) if case["kdf_id"] == 1)
    private, public = expand(bytes.fromhex(case["skRm"]))
    assert public.hex() == case["pkRm"]
    first = case["encryptions"][0]
    info, aad, sealed = (bytes.fromhex(text) for text in (case["info"], first["aad"], case["enc"] + first["ct"]))
    opened = openssl.hpke._decrypt_with_aad(space_keys._suite(), sealed, private, info=info, aad=aad)
    assert opened.hex() == first["pt"]


def test_only_its_device_opens_a_wrap() -> None:
    wrap = wrapped()
    assert (len(wrap), len(OURS.public)) == (WRAP_LENGTH, WRAP_KEY_LENGTH) == (1168, 1216)
    assert OURS.open(wrap, **HERE) == KEY
    assert wrapped() != wrap
    with pytest.raises(WrapError):
        WrapKey(DESKTOP).open(wrap, **HERE)


def test_the_bytes_are_those_of_the_protocol() -> None:
    """PROTOCOL.md 10.5, written down a second time."""
    seed = hashlib.blake2b(key=LAPTOP.seed, person=b"confide-wrap-1", digest_size=32).digest()
    private, public = expand(seed)
    assert public == OURS.public
    parts = (SPACE, struct.pack(">I", 7), LAPTOP.public_key, HEAD)
    info = b"confide/space-wrap/1\0" + b"".join(struct.pack(">I", len(part)) + part for part in parts)
    suite = Suite(KEM.MLKEM768_X25519, KDF.HKDF_SHA256, AEAD.CHACHA20_POLY1305)
    assert suite.decrypt(wrapped(), private, info=info) == KEY


@pytest.mark.parametrize("change", [{"space": bytes(16)}, {"epoch": 8}, {"head": bytes(32)}])
def test_a_wrap_opens_in_its_place_alone(change: dict[str, Any]) -> None:
    with pytest.raises(WrapError):
        OURS.open(wrapped(), **{**HERE, **change})


def test_a_wrap_for_another_name_does_not_open() -> None:
    """Even where the wrap key is the same: the device's name is bound too."""
    wrap = seal_wrap(KEY, OURS.public, device=DESKTOP.public_key, **HERE)
    with pytest.raises(WrapError):
        OURS.open(wrap, **HERE)


@pytest.mark.long
def test_every_changed_bit_is_refused() -> None:
    """Every ninth in the suite, which is one of nearly each byte; all of them under `make fuzz`."""
    tried = 0
    for bad in islice(flipped(wrapped()), 0, None, 1 if IS_THOROUGH else 9):
        tried += 1
        with pytest.raises(WrapError):
            OURS.open(bad, **HERE)
    assert tried == (9344 if IS_THOROUGH else 1039)


def test_other_lengths_are_refused() -> None:
    wrap = wrapped()
    for bad in (b"", wrap[:1120], wrap[:-1], wrap + b"\0"):
        with pytest.raises(WrapError):
            OURS.open(bad, **HERE)
    for length in (0, 31, 33):
        with pytest.raises(WrapError):
            OURS.open(wrapped(bytes(length)), **HERE)


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        OURS.public[:-1],
        OURS.public + b"\0",
        OURS.public[:1184] + bytes(32),
        OURS.public[:1184] + b"\1" + bytes(31),
        b"\xff" * 1184 + OURS.public[1184:],
    ],
    ids=["none", "short", "long", "all zero", "of small order", "numbers over the modulus"],
)
def test_a_wrap_key_that_cannot_be_used_is_refused(bad: bytes) -> None:
    check_wrap_key(OURS.public)
    with pytest.raises(WrapError, match="is not one"):
        check_wrap_key(bad)
    with pytest.raises(WrapError, match="is not one"):
        seal_wrap(KEY, bad, device=LAPTOP.public_key, **HERE)
